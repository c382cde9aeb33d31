/* copy_slice: copy a run of elements to another place, also where the two overlap in one buffer (memmove, for any two
 * strides).
 *
 * The addresses show whether they overlap. If they do not, the run is moved like any other. Otherwise one work-group
 * moves it in rounds: all of a round is read before any of it is written, and the rounds are ordered such that nothing
 * is written before it has been read. */
/* launch
 * let(y=bits(y), x=bits(x), n=y.numel)
 * copy_slice_apart(groups=pieces(y), local=256)
 * copy_slice_overlapping(when=n > 0, aliased=True, groups=1, local=256, grows=abs(y.strides[0]) >= abs(x.strides[0]))
 */
#include "simt.h"
#include "move.h"

#define SIZE ((ik_i64)IK_SIZE_y)

/* The number of elements from the first of x to the first of y, which share a buffer. */
static IK_INLINE ik_i64 distance(IK_GLOBAL const IK_ELEMENT(y) * y, IK_RECORD(ik_tensor) to,
    IK_GLOBAL const IK_ELEMENT(x) * x, IK_RECORD(ik_tensor) from)
{ return (ik_i64)((ik_u64)y - (ik_u64)x) / SIZE + to.offset - from.offset; }

static IK_INLINE int overlap(ik_i64 apart, IK_RECORD(ik_tensor) to, IK_RECORD(ik_tensor) from)
{
    const ik_i64 y_reach = (ik_i64)(to.shape[0] - 1) * to.strides[0],
                 x_reach = (ik_i64)(to.shape[0] - 1) * from.strides[0];
    const ik_i64 y_low = apart + (y_reach < 0 ? y_reach : 0), y_high = apart + (y_reach > 0 ? y_reach : 0);
    return y_low <= (x_reach > 0 ? x_reach : 0) && (x_reach < 0 ? x_reach : 0) <= y_high;
}

IK_ENTRY(copy_slice_apart)(IK_PARAMS)
{
    const ik_piece at = ik_piece_of(p.y.shape[0], IK_GROUP_ID);
    if (!overlap(distance(y, p.y, x, p.x), p.y, p.x))
        ik_move_line(y + p.y.offset, p.y.strides[0], x + p.x.offset, p.x.strides[0], at.begin, at.end);
}

/* Writing y[i] destroys x[j] where apart + y_step i = x_step j. With equal steps, all such j lie on one side of i: one
 * direction of copying serves. Otherwise i and j are on lines through one fixed point, and their distances from it have
 * the ratio |j| : |i| = y_step : x_step: copy the nearest elements first where that shrinks, the farthest first where
 * it grows. `low` and `high` are the elements next to the fixed point on its two sides (the same one where it is an
 * element); pair k is low - k and high + k, and no element of a pair is nearer than any of the pair before. For equal
 * steps, the fixed point is before the first element. */
IK_ENTRY(copy_slice_overlapping)(IK_PARAMS)
{
    enum { EACH = 16 }; /* pairs that an item moves in a round */
    IK_ELEMENT(y) lows[EACH], highs[EACH];
    const ik_i64 n = p.y.shape[0], y_step = p.y.strides[0], x_step = p.x.strides[0], slope = y_step - x_step,
                 apart = distance(y, p.y, x, p.x);
    if (!overlap(apart, p.y, p.x))
        return;
    ik_i64 low = -1, high = 0;
    int farthest_first = (apart > 0) == (x_step > 0);
    if (slope != 0) {
        low = -apart / slope;
        low -= apart + slope * low != 0 && (apart > 0) == (slope > 0);
        high = low + (apart + slope * low != 0);
        farthest_first = p.grows != 0;
    }
    ik_i64 first = low - (n - 1) > -high ? low - (n - 1) : -high;
    first = first > 0 ? first : 0;
    const ik_i64 last = low > n - 1 - high ? low : n - 1 - high;
    const ik_i64 round = (ik_i64)EACH * IK_GROUP, rounds = (last - first) / round + 1;
    for (ik_i64 r = 0; r < rounds; r++) {
        const ik_i64 at = first + (farthest_first ? rounds - 1 - r : r) * round + IK_LOCAL_ID;
        for (int k = 0; k < EACH; k++) {
            const ik_i64 i = low - at - (ik_i64)k * IK_GROUP, j = high + at + (ik_i64)k * IK_GROUP;
            if (i >= 0 && i < n)
                lows[k] = x[p.x.offset + i * x_step];
            if (j >= 0 && j < n)
                highs[k] = x[p.x.offset + j * x_step];
        }
        IK_BARRIER_GLOBAL();
        for (int k = 0; k < EACH; k++) {
            const ik_i64 i = low - at - (ik_i64)k * IK_GROUP, j = high + at + (ik_i64)k * IK_GROUP;
            if (i >= 0 && i < n)
                y[p.y.offset + i * y_step] = lows[k];
            if (j >= 0 && j < n && j != i)
                y[p.y.offset + j * y_step] = highs[k];
        }
        IK_BARRIER_GLOBAL();
    }
}
