/* sort along the last dim: the row's keys are written to the workspace, and its places are merged, run by run.
 *
 * A work-group merges the runs within a chunk of a row; longer runs are merged by a launch each, with one item a place,
 * so that few long rows occupy a device as many short ones do. Keys fall along a row, as in select.h: those of rising
 * elements are complemented. */
#include "keys.h"

/* The workspace: the keys of all rows, their places, and space for as many places. */
#define KEYS ((IK_GLOBAL ik_key *)workspace)
#define PLACES(which) ((IK_GLOBAL ik_i64 *)(workspace + p.keys + ((which) ? p.span : 0)))

/* Sort a chunk; the places end in PLACES(p.rounds % 2). */
IK_ENTRY(sort_chunks)(IK_PARAMS)
{
    const int last = (int)p.x.ndim - 1;
    const ik_index n = p.x.shape[last], row = IK_GROUP_ID / p.chunks, begin = (IK_GROUP_ID - row * p.chunks) * p.chunk,
                   count = n - begin < p.chunk ? n - begin : (ik_index)p.chunk;
    const ik_index from = p.x.offset + ik_offset_within(p.x, 0, last, row), step = p.x.strides[last];
    IK_GLOBAL ik_key *const keys = KEYS + (ik_i64)row * n;
    IK_GLOBAL ik_i64 *places = PLACES(0) + ((ik_i64)row * n + begin), *sorted = PLACES(1) + ((ik_i64)row * n + begin);
    for (ik_index i = IK_LOCAL_ID; i < count; i += IK_GROUP) {
        const ik_key key = ik_key_of(x[from + (begin + i) * step]);
        keys[begin + i] = DESCENDING ? key : IK_LAST_KEY - key;
        places[i] = begin + i;
    }
    for (int round = 0; round < (int)p.rounds; round++) {
        IK_BARRIER_GLOBAL();
        for (ik_index i = IK_LOCAL_ID; i < count; i += IK_GROUP)
            sorted[ik_merged_place(keys, places, count, (ik_index)1 << round, i)] = places[i];
        IK_GLOBAL ik_i64 *const other = places;
        places = sorted;
        sorted = other;
    }
}

/* Merge runs of p.run places from PLACES(p.which) to the other. */
IK_ENTRY(sort_merge)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index n = p.x.shape[p.x.ndim - 1], row = IK_ITEM / n, i = IK_ITEM - row * n;
    const ik_i64 first = (ik_i64)row * n;
    IK_GLOBAL const ik_i64 *const places = PLACES(p.which) + first;
    (PLACES(!p.which) + first)[ik_merged_place(KEYS + first, places, n, (ik_index)p.run, i)] = places[i];
}

/* Write the elements at PLACES(p.which), and the places. */
IK_ENTRY(sort_write)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int last = (int)p.x.ndim - 1;
    const ik_index n = p.x.shape[last], row = IK_ITEM / n, i = IK_ITEM - row * n,
                   place = (ik_index)PLACES(p.which)[IK_ITEM];
    y[p.y.offset + ik_offset_within(p.y, 0, last, row) + i * p.y.strides[last]] =
        x[p.x.offset + ik_offset_within(p.x, 0, last, row) + place * p.x.strides[last]];
    indices[p.indices.offset + ik_offset_within(p.indices, 0, last, row) + i * p.indices.strides[last]] = place;
}
