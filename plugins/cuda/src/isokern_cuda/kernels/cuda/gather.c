/* gather of contiguous lines: a thread moves 16 bytes, or as many as lines allow.
 *
 * A group of the portable kernel moves one element per thread at a time, and loads the next one only after it has
 * stored that; with short lines a thread computes the offset of each element. */
#include "packs.h"
#include "gather.h"

IK_ENTRY(gather_packs)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index i = IK_ITEM * EACH;
    const int dims = (int)p.y.ndim;
    const ik_place at = ik_place_of(p.y, p.x, dims, i);
    const ik_index row = row_of(indices[index_offset(p.indices, dims, i)], p.rows);
    auto moved = pack_of(y);
    if (row >= 0)
        moved = get(x + at.x + row * (ik_index)p.step);
    put(y + at.y, moved);
}
