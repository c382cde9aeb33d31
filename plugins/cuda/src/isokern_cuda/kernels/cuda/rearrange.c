/* copy, rearrange, slice, flatten by packs.
 *
 * Where both tensors are dense along one dim, a thread moves 16 bytes, or as many as lines allow; where x is dense
 * along another dim than y, squares of both go through shared memory, by 8 bytes per thread (4 where elements are
 * smaller than that).
 *
 * A group of the portable kernel moves one element per thread at a time, and loads the next one only after it has
 * stored that. */
#include "packs.h"
#include "move.h"

IK_ENTRY(rearrange_packs)(IK_PARAMS)
{
    const ik_index i = IK_ITEM * EACH;
    if (i >= p.numel)
        return;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, i);
    move(y + at.y, x + at.x, p.numel - i);
}

/* Of the last two dims, x is dense along the first and y along the second. A square has SIDE lines of x of 32 packs
 * each. Line j is stored as line (j % EACH) * 32 + j / EACH, and is one pack longer, so that neither the packs of a
 * line nor those that form a pack of y share a bank. */
IK_ENTRY(rearrange_squares)(IK_PARAMS)
{
    enum { SIDE = 32 * EACH, WARPS = IK_GROUP / 32, LINES = SIDE / WARPS };
    IK_LOCAL_ARRAY(pack<IK_ELEMENT(y)>, square, SIDE * 33);
    const int c = (int)p.y.ndim - 1, r = c - 1, lane = IK_SUBGROUP_LANE, warp = IK_SUBGROUP_ID;
    const ik_index across = (p.y.shape[c] + SIDE - 1) / SIDE, down = (p.y.shape[r] + SIDE - 1) / SIDE;
    const ik_index rest = IK_GROUP_ID / across, column = (IK_GROUP_ID - rest * across) * SIDE;
    const ik_index other = rest / down, row = (rest - other * down) * SIDE;
    const ik_place at = ik_place_of(p.y, p.x, r, other);
    const ik_index height = p.y.shape[r] - row, width = p.y.shape[c] - column;
    const auto *from = x + at.x + row + column * p.x.strides[c] + lane * EACH;
    auto *to = y + at.y + row * p.y.strides[r] + column + lane * EACH;
    pack<IK_ELEMENT(y)> held[LINES]; /* all are loaded before the first is waited for */
#pragma unroll
    for (int i = 0; i < LINES; i++)
        if (lane * EACH < height && i * WARPS + warp < width)
            held[i] = get(from + (i * WARPS + warp) * p.x.strides[c]);
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        const int j = i * WARPS + warp;
        square[(j % EACH * 32 + j / EACH) * 33 + lane] = held[i];
    }
    IK_BARRIER();
    for (int k = warp; k < 32; k += WARPS) {
        if (lane * EACH >= width || k * EACH >= height)
            continue;
        pack<IK_ELEMENT(y)> lines[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++)
            lines[e] = square[(e * 32 + lane) * 33 + k];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            pack<IK_ELEMENT(y)> made;
#pragma unroll
            for (int e = 0; e < EACH; e++)
                made.v[e] = lines[e].v[i];
            put(to + (k * EACH + i) * p.y.strides[r], made);
        }
    }
}
