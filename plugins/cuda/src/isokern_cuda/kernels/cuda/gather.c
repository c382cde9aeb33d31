/* gather of lines that lie along memory: a thread moves 16 bytes, or as many as lines allow.
 *
 * A portable group moves an element a thread at a time, and asks for the next one when that has been written; of short lines a thread looks for
 * the place of each element. */
/* launch
 * let(axis=attrs.axis % x.ndim, rows=x.shape[attrs.axis], step=x.strides[attrs.axis], given=indices)
 * let(after=axis + indices.ndim)
 * let(still=tensor(x, y.shape, [*x.strides[:axis], *[0] * indices.ndim, *x.strides[axis + 1:]], x.offset))
 * let(where=tensor(indices, y.shape, [*[0] * axis, *indices.strides, *[0] * (y.ndim - after)], indices.offset))
 * let(merged=coalesce([bits(y), bits(still), where]))
 * let(y=merged[0], x=merged[1], indices=merged[2], whole=pack(merged[:2], 16), takes=max([k for k in (1, 2, 4, 8, 16) if k <= whole and step % k == 0]))
 * refuse(when=y.numel == 0 or y.strides[-1] != 1 or x.strides[-1] != 1 or indices.strides[-1] != 0 or y.shape[-1] % takes != 0 or takes < 2, reason="lines do not lie along memory by packs")
 * gather_packs(items=y.numel // takes, EACH=takes, rows=rows, step=step)
 * let(parts=max(1, min(8 * device.units, given.numel // 2048)), length=ceil_div(given.numel, parts))
 * workspace(when=parts > 1, bytes=8 * parts)
 * gather_check(EACH=1, when=given.numel > 0 and parts == 1, groups=1, local=256, y=None, x=None, indices=given, rows=rows, count=given.numel, length=length)
 * gather_check(EACH=1, when=parts > 1, groups=parts, local=256, PARTS=1, y=None, x=None, indices=given, rows=rows, count=given.numel, length=length)
 * gather_tell(EACH=1, when=parts > 1, groups=1, local=256, y=None, x=None, indices=given, rows=rows, count=given.numel, parts=parts)
 */
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
    const ik_index first = first_wrong(p, indices, begin, begin + (left < p.length ? left : (ik_index)p.length), places);
#ifdef PARTS
    if (IK_LOCAL_ID == 0)
        ((ik_index *)workspace)[IK_GROUP_ID] = first < begin + p.length ? first : (ik_index)p.count;
#else
    tell(p, indices, first, p.count, error);
#endif
}

IK_ENTRY(gather_tell)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    ik_index first = (ik_index)p.count;
    for (ik_index i = IK_LOCAL_ID; i < p.parts; i += IK_GROUP) {
        const ik_index place = ((const ik_index *)workspace)[i];
        first = place < first ? place : first;
    }
    tell(p, indices, group_least(first, places), p.count, error);
}
