/* gather of contiguous lines: a thread moves 16 bytes, or as many as lines allow.
 *
 * A group of the portable kernel moves one element per thread at a time, and loads the next one only after it has
 * stored that; with short lines a thread computes the offset of each element. */
#include "packs.h"
#include "move.h"
#include "indices.h"

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

IK_ENTRY(gather_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    const ik_index begin = IK_GROUP_ID * (ik_index)p.length, left = (ik_index)p.count - begin;
    const ik_index first =
        first_wrong(p, indices, begin, begin + (left < p.length ? left : (ik_index)p.length), places);
#ifdef PARTS
    if (IK_LOCAL_ID == 0)
        ((ik_index *)workspace)[IK_GROUP_ID] = first < begin + p.length ? first : (ik_index)p.count;
#else
    report(p, indices, first, p.count, error);
#endif
}

IK_ENTRY(gather_report)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    ik_index first = (ik_index)p.count;
    for (ik_index i = IK_LOCAL_ID; i < p.parts; i += IK_GROUP) {
        const ik_index place = ((const ik_index *)workspace)[i];
        first = place < first ? place : first;
    }
    report(p, indices, group_min(first, places), p.count, error);
}
