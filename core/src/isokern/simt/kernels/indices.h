/* Indices into an axis of p.rows rows: the row that an index names, and the first index that names none. */
#ifndef IK_INDICES_H
#define IK_INDICES_H
#include "place.h"
#define IK_GIVEN IK_ELEMENT(indices)
#include "min.h"

/* The row that an index names, or -1. */
static IK_INLINE ik_index row_of(ik_i64 index, ik_i64 rows)
{
    const ik_i64 row = index < 0 ? index + rows : index;
    return row >= 0 && row < rows ? (ik_index)row : -1;
}

static IK_INLINE ik_index index_offset(IK_RECORD(ik_tensor) indices, int dims, ik_index i)
{ return ik_place_of(indices, indices, dims, i).x; }

/* The first place from `begin` on, but before `end`, of an index that names no row, else `end`; valid in the first item
 * of the group. */
static IK_INLINE ik_index first_wrong(
    IK_RECORD(ik_args) p, IK_GLOBAL const IK_GIVEN *indices, ik_index begin, ik_index end, IK_LOCAL ik_index *places)
{
    ik_index first = end;
    for (ik_index i = begin + IK_LOCAL_ID; i < first; i += IK_GROUP)
        if (row_of(indices[index_offset(p.indices, (int)p.indices.ndim, i)], p.rows) < 0)
            first = i;
    return group_min(first, places);
}

/* Report the wrong index at `place`; there is none where `place` is `count`. */
static IK_INLINE void report(
    IK_RECORD(ik_args) p, IK_GLOBAL const IK_GIVEN *indices, ik_index place, ik_i64 count, IK_GLOBAL ik_i64 *error)
{
    if (IK_LOCAL_ID == 0 && place < count)
        ik_report(error, place, indices[index_offset(p.indices, (int)p.indices.ndim, place)]);
}
#endif
