/* The check of gather's indices, in a launch of its own, which reads them again and writes the first one that is out of
 * range to the error words. Where indices are many, each of its groups leaves its first wrong index in the workspace,
 * and a third launch picks the first of these. */
#ifndef IK_GATHER_H
#define IK_GATHER_H
#include "move.h"
#include "indices.h"

IK_ENTRY(gather_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    const ik_index begin = IK_GROUP_ID * (ik_index)p.length, left = (ik_index)p.count - begin;
    const ik_index first =
        first_wrong(p, indices, begin, begin + (left < p.length ? left : (ik_index)p.length), places);
#ifdef PARTS
    if (IK_LOCAL_ID == 0)
        ((IK_GLOBAL ik_index *)workspace)[IK_GROUP_ID] = first < begin + p.length ? first : (ik_index)p.count;
#else
    report(p, indices, first, p.count, error);
#endif
}

IK_ENTRY(gather_report)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    ik_index first = (ik_index)p.count;
    for (ik_index i = IK_LOCAL_ID; i < p.parts; i += IK_GROUP) {
        const ik_index place = ((IK_GLOBAL const ik_index *)workspace)[i];
        first = place < first ? place : first;
    }
    report(p, indices, group_min(first, places), p.count, error);
}
#endif
