/* Packed sequences: of which one a query is, and where its keys lie. Without the tensor `starts`, each batch is one. */
#ifndef IK_SPANS_H
#define IK_SPANS_H
#include "pages.h"

/* The keys of a sequence. */
typedef struct {
    ik_index b; /* the first dim of k or, in pages, of the table */
    ik_index from; /* the row of k that is key 0 */
    ik_i64 length; /* how many there are */
    ik_i64 shift; /* query i is at place i + shift among them */
    ik_i64 end; /* the first query of the next sequence */
} ik_span;

#ifdef IK_HAS_starts
#define IK_START(t, i) t[p.t.offset + (i) * p.t.strides[0]]

/* Write the ends of the sequences in order, an item each: those of the queries, then those of the keys. */
IK_ENTRY(sort_ends)(IK_PARAMS)
{
    IK_GLOBAL ik_i64 *const ends = (IK_GLOBAL ik_i64 *)workspace;
    const ik_index own = IK_ITEM, count = (ik_index)p.sequences;
    if (own >= count)
        return;
    const ik_i64 end = IK_START(starts, own + 1);
    ik_index before = 0;
    for (ik_index i = 0; i < count; i++)
        before += IK_START(starts, i + 1) < end || (IK_START(starts, i + 1) == end && i < own);
    ends[before] = end;
#ifdef IK_HAS_key_starts
    const ik_i64 key_end = IK_START(key_starts, own + 1);
    ik_index fewer = 0;
    for (ik_index i = 0; i < count; i++)
        fewer += IK_START(key_starts, i + 1) < key_end || (IK_START(key_starts, i + 1) == key_end && i < own);
    ends[count + fewer] = key_end;
#endif
}

/* How many of n rising numbers are at most x. */
static IK_INLINE ik_index count_up_to(IK_GLOBAL const ik_i64 *rising, ik_index n, ik_i64 x)
{
    ik_index low = 0;
    while (low < n) {
        const ik_index middle = low + (n - low) / 2;
        if (rising[middle] <= x)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}
#endif

#ifdef IK_HAS_q
/* The keys of a query of a batch. Pages are not looked at: where one is out of range, there are no keys. */
static IK_INLINE ik_span find_span(IK_PASSED, ik_index batch, ik_index query)
{
    ik_span s;
    s.b = batch;
    s.from = 0;
    s.length = IK_KEYS;
    s.end = p.q.shape[1];
    ik_i64 behind = p.q.shape[1];
#ifdef IK_HAS_starts
    IK_GLOBAL const ik_i64 *const ends = (IK_GLOBAL const ik_i64 *)workspace;
    const ik_index count = (ik_index)p.sequences, own = count_up_to(ends, count, query);
    if (own == count) {
        s.length = s.shift = 0;
        return s;
    }
    s.end = ends[own] < s.end ? ends[own] : s.end;
    behind = IK_START(starts, own + 1);
#endif
#ifdef IK_HAS_key_starts
    const ik_i64 low = own == 0 || ends[count + own - 1] < 0 ? 0 : ends[count + own - 1], high = ends[count + own];
    s.from = (ik_index)(low < s.length ? low : s.length);
    s.length = high < s.from ? 0 : (high < s.length ? high : s.length) - s.from;
    behind -= IK_START(key_starts, own + 1) - s.from - s.length;
#elif defined(IK_HAS_starts)
    s.b = own;
#endif
#ifdef IK_HAS_lengths
    s.length = valid_length(lengths[p.lengths.offset + s.b * p.lengths.strides[0]], s.length);
#endif
    s.shift = s.length - behind;
    return s;
}
#endif
#endif
