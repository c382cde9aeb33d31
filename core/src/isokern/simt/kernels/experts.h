/* The pairs of tokens and experts, sorted by expert, for matmul_id: indices[m, top] name the experts, of which there
 * are p.count.
 *
 * The workspace has, as numbers of type ik_index: where the pairs of each expert end in `order`, and behind them those
 * that have none; where the tiles of each begin, and how many there are; and the pairs in their order. From byte p.rows
 * on it has their rows of a[m, top, k], as F32, with ROUNDED after they have been Q8_0 (blocks.h). A tile is p.height
 * pairs of one expert, or the last of them. */
#ifndef IK_EXPERTS_H
#define IK_EXPERTS_H
#include "place.h"
#ifdef IK_HAS_indices
#define IK_GIVEN IK_ELEMENT(indices)
#endif
#include "min.h"

#ifdef IK_HAS_indices
/* The expert of a pair; `count` where its index names none. */
static IK_INLINE ik_index expert_of(
    IK_RECORD(ik_args) p, IK_GLOBAL const IK_GIVEN *indices, ik_index pair, ik_index count)
{
    const ik_i64 index = indices[ik_offset(p.indices, pair)];
    return index >= 0 && index < count ? (ik_index)index : count;
}
#endif

IK_ENTRY(experts_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    const ik_index pairs = (ik_index)p.pairs, count = (ik_index)p.count;
    ik_index first = pairs;
    for (ik_index pair = IK_LOCAL_ID; pair < first; pair += IK_GROUP)
        if (expert_of(p, indices, pair, count) == count)
            first = pair;
    first = group_min(first, places);
    if (IK_LOCAL_ID == 0 && first < pairs)
        ik_report(error, first, indices[ik_offset(p.indices, first)]);
}

/* An item owns neighbouring experts, and reads the indices of all pairs. */
IK_ENTRY(experts_sort)(IK_PARAMS)
{
    const ik_index count = (ik_index)p.count, pairs = (ik_index)p.pairs;
    IK_GLOBAL ik_index *const ends = (IK_GLOBAL ik_index *)workspace, *const tiles = ends + count + 1,
                              *const order = tiles + count + 2;
    const ik_index share = (count + IK_GROUP) / IK_GROUP, first = IK_LOCAL_ID * share, last = first + share;
    for (ik_index i = first; i < last && i <= count; i++)
        ends[i] = 0;
    for (ik_index pair = 0; pair < pairs; pair++) {
        const ik_index expert = expert_of(p, indices, pair, count);
        if (expert >= first && expert < last)
            ends[expert]++;
    }
    IK_BARRIER_GLOBAL();
    if (IK_LOCAL_ID == 0) {
        ik_index begin = 0, tile = 0;
        for (ik_index i = 0; i <= count; i++) {
            const ik_index rows = ends[i];
            ends[i] = begin;
            tiles[i] = tile;
            begin += rows;
            tile += (rows + (ik_index)p.height - 1) / (ik_index)p.height;
        }
        tiles[count + 1] = tile;
    }
    IK_BARRIER_GLOBAL();
    for (ik_index pair = 0; pair < pairs; pair++) {
        const ik_index expert = expert_of(p, indices, pair, count);
        if (expert >= first && expert < last)
            order[ends[expert]++] = pair;
    }
}

IK_ENTRY(experts_gather)(IK_PARAMS)
{
    IK_GLOBAL const ik_index *const order = (IK_GLOBAL const ik_index *)workspace + 2 * (ik_index)p.count + 3;
    IK_GLOBAL float *const to = (IK_GLOBAL float *)(workspace + p.rows) + (ik_i64)IK_GROUP_ID * p.k;
    const ik_index from = p.a.offset + ik_offset_within(p.a, 0, 2, order[IK_GROUP_ID]);
#if defined(ROUNDED) && ROUNDED
    for (ik_index q = IK_LOCAL_ID * IK_BLOCK; q < p.k; q += IK_GROUP * IK_BLOCK) {
        float v[IK_BLOCK];
        for (int j = 0; j < IK_BLOCK; j++)
            v[j] = IK_LOAD(a, from + (q + j) * p.a.strides[2]);
        ik_round_Q8_0(v);
        for (int j = 0; j < IK_BLOCK; j++)
            to[q + j] = v[j];
    }
#else
    for (ik_index q = IK_LOCAL_ID; q < p.k; q += IK_GROUP)
        to[q] = IK_LOAD(a, from + q * p.a.strides[2]);
#endif
}

/* A tile: its expert, or p.count for pairs that have none; its rows, of which there are 0 behind the last tile; and the
 * pairs that they belong to. */
typedef struct {
    ik_index expert, begin, rows;
    IK_GLOBAL const ik_index *pairs;
} ik_expert_tile;

static IK_INLINE ik_expert_tile ik_expert_tile_of(
    IK_RECORD(ik_args) p, IK_GLOBAL const ik_u8 *workspace, ik_index height, ik_index tile)
{
    const ik_index count = (ik_index)p.count;
    IK_GLOBAL const ik_index *const ends = (IK_GLOBAL const ik_index *)workspace, *const tiles = ends + count + 1;
    ik_expert_tile found;
    ik_index above = count + 1;
    found.expert = 0; /* the last expert whose tiles begin at or before this one */
    while (above - found.expert > 1) {
        const ik_index middle = (found.expert + above) / 2;
        if (tiles[middle] <= tile)
            found.expert = middle;
        else
            above = middle;
    }
    found.begin = (found.expert > 0 ? ends[found.expert - 1] : 0) + (tile - tiles[found.expert]) * height;
    const ik_index left = tile < tiles[count + 1] ? ends[found.expert] - found.begin : 0;
    found.rows = left < height ? left : height;
    found.pairs = tiles + count + 2 + found.begin;
    return found;
}
#endif
