/* argmax along the last dim: place = the first i with y[i] NaN, or else the first i with y[i] largest; y is the input,
 * because rows.h reads rows of y's type.
 *
 * Where rows are contiguous, an item takes some rows, each in blocks: it finds the largest element of each, and then
 * its place in the one block that has it. Where the dim before is contiguous, an item takes 512 adjacent outputs, and
 * compares one row after the other with the best so far. Where there would be few items, each takes a part, which the
 * workspace holds as [part][output].
 *
 * PoCL (2 cores, AVX-512) against the portable kernel, 4096 x 4096: 10 times as fast; 512 x 512: 8 times. */
#include "runs.h"
#ifdef IK_COMPUTE_FLOAT
#include "rows.h"
typedef ik_c value;
#else
typedef IK_ELEMENT(y) ik_t;
typedef ik_t value;
#endif

enum { PIECE = 512 };

/* The largest element of a part, and its place. */
typedef struct {
    value max_value;
    ik_i64 at;
} best;

#define PARTIAL(part, output) ((IK_GLOBAL best *)workspace)[(part) * (ik_index)p.outputs + (output)]
#if PARTS
#define FINISH(part, output, v, i) (PARTIAL(part, output).max_value = (v), PARTIAL(part, output).at = (i))
#else
#define FINISH(part, output, v, i) \
    IK_STORE(place, p.place.offset + ik_offset_within(p.place, 0, (int)p.place.ndim - 1, output), i)
#endif

static IK_INLINE int is_nan(value v)
{
#ifdef IK_COMPUTE_FLOAT
    return v != v;
#else
    (void)v;
    return 0;
#endif
}

static IK_INLINE value value_of(IK_GLOBAL const ik_t *y) { return (value)IK_PASTE(ik_load_, IK_TYPE_y)(y, 0); }

/* The largest of n >= 1 elements; NaN where there is one. */
static IK_INLINE value largest(IK_GLOBAL const ik_t *y, int n)
{
#ifdef IK_COMPUTE_FLOAT
    return ik_row_extreme(y, n, 1);
#else
    value max_value = y[0];
    for (int i = 1; i < n; i++)
        max_value = y[i] > max_value ? y[i] : max_value;
    return max_value;
#endif
}

/* The place of `max_value`, which is among n elements. */
static IK_INLINE int place_of(IK_GLOBAL const ik_t *y, value max_value, int n)
{
    int i = 0;
#ifdef IK_COMPUTE_FLOAT
    for (; n - i >= IK_WIDTH; i += IK_WIDTH) {
        const ik_vec v = ik_vec_load(y + i);
        const ulong8 hit = as_ulong8((v == max_value) | (v != v));
        const ulong4 half_ = hit.lo | hit.hi;
        const ulong2 quarter = half_.lo | half_.hi;
        if ((quarter.x | quarter.y) != 0)
            break;
    }
#endif
    while (value_of(y + i) != max_value && !is_nan(value_of(y + i)))
        i++;
    return i;
}

IK_ENTRY(argmax_rows)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.y.shape[last], taken = (ik_index)p.taken, outputs = (ik_index)p.outputs,
                   length = (ik_index)p.length;
    const ik_index part = IK_GROUP_ID / (ik_index)p.tasks, first = (IK_GROUP_ID - part * (ik_index)p.tasks) * taken;
    const ik_index begin = part * length, end = d - begin < length ? d : begin + length;
    for (ik_index output = first; output < outputs && output < first + taken; output++) {
        IK_GLOBAL const ik_t *from = y + p.y.offset + ik_offset_within(p.y, 0, last, output);
        value max_value = 0;
        ik_index piece = -1;
        for (ik_index i = begin; i < end && !is_nan(max_value); i += PIECE) {
            const value found = largest(from + i, (int)(end - i < PIECE ? end - i : PIECE));
            if (piece < 0 || found > max_value || is_nan(found)) {
                max_value = found;
                piece = i;
            }
        }
        FINISH(part, output, max_value,
            piece + place_of(from + piece, max_value, (int)(end - piece < PIECE ? end - piece : PIECE)));
    }
}

IK_ENTRY(argmax_columns)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.y.shape[last], width = p.y.shape[last - 1], blocks = (width + PIECE - 1) / PIECE,
                   length = (ik_index)p.length;
    const ik_index part = IK_GROUP_ID / (ik_index)p.tasks, task = IK_GROUP_ID - part * (ik_index)p.tasks;
    const ik_index outer = task / blocks, column = (task - outer * blocks) * PIECE, first = outer * width + column;
    const ik_index begin = part * length, end = d - begin < length ? d : begin + length;
    const int n = (int)(width - column < PIECE ? width - column : PIECE);
    IK_GLOBAL const ik_t *from = y + p.y.offset + ik_offset_within(p.y, 0, last, first);
    value max_value[PIECE] IK_ALIGNED;
    int at[PIECE] IK_ALIGNED;
    for (int k = 0; k < n; k++) {
        max_value[k] = value_of(from + begin * p.y.strides[last] + k);
        at[k] = (int)begin;
    }
    for (ik_index i = begin + 1; i < end; i++) {
        IK_GLOBAL const ik_t *row = from + i * p.y.strides[last];
#if IK_IS_F16(y)
        float wide[PIECE] IK_ALIGNED;
        ik_widen_f16(row, wide, n);
#define VALUE(k) wide[k]
#else
#define VALUE(k) value_of(row + (k))
#endif
        IK_VECTORISE for (int k = 0; k < n; k++) {
            const value v = VALUE(k), old = max_value[k];
            const int better = (v > old) | (is_nan(v) & !is_nan(old));
            max_value[k] = better ? v : old;
            at[k] = better ? (int)i : at[k];
        }
    }
    for (int k = 0; k < n; k++)
        FINISH(part, first + k, max_value[k], at[k]);
}

IK_ENTRY(argmax_join)(IK_PARAMS)
{
    const ik_index output = IK_ITEM;
    if (output >= (ik_index)p.items)
        return;
    value max_value = PARTIAL(0, output).max_value;
    ik_i64 at = PARTIAL(0, output).at;
    for (ik_index part = 1; part < (ik_index)p.parts && !is_nan(max_value); part++) {
        const value other = PARTIAL(part, output).max_value;
        if (other > max_value || is_nan(other)) {
            max_value = other;
            at = PARTIAL(part, output).at;
        }
    }
    FINISH(0, output, max_value, at);
}
