/* The k largest of a row: a heap whose root is the smallest entry kept, and runs of keys that are skipped where none
 * exceeds it.
 *
 * An entry is a key followed by the complement of an index, so that of equal keys the first is larger. The part after
 * "typed" is compiled for 32-bit keys (and indices) and for 64-bit ones: this header includes itself, with IK_KEY,
 * IK_ENTRY and IK_TYPED set. */
#ifndef IK_SELECT_H
#define IK_SELECT_H
#include "convert.h"

__extension__ typedef unsigned __int128 ik_wide;

/* A float as an integer of the same order: NaN above all, -0 equal to 0. */
static inline __attribute__((always_inline, unused)) uint32_t ik_float_key(float x)
{
    const uint32_t u = ik_bits(x + 0.0f), key = u & 0x80000000u ? ~u : u | 0x80000000u;
    return x == x ? key : UINT32_MAX;
}

#define IK_KEY uint32_t
#define IK_ENTRY uint64_t
#define IK_TYPED(name) name##_32
#include "select.h"
#undef IK_KEY
#undef IK_ENTRY
#undef IK_TYPED
#define IK_KEY uint64_t
#define IK_ENTRY ik_wide
#define IK_TYPED(name) name##_64
#include "select.h"
#undef IK_KEY
#undef IK_ENTRY
#undef IK_TYPED

#elif defined(IK_KEY) /* typed */

static inline __attribute__((unused)) IK_ENTRY IK_TYPED(ik_entry)(IK_KEY key, int64_t index)
{ return (IK_ENTRY)key << 8 * sizeof(IK_KEY) | (IK_KEY)~index; }
static inline __attribute__((unused)) int64_t IK_TYPED(ik_index_of)(IK_ENTRY entry) { return (int64_t)(IK_KEY)~entry; }
static inline __attribute__((unused)) IK_KEY IK_TYPED(ik_key_of)(IK_ENTRY entry)
{ return (IK_KEY)(entry >> 8 * sizeof(IK_KEY)); }

/* Put `entry` at index `at` of a heap of n, or below it. */
static inline void IK_TYPED(ik_sift)(IK_ENTRY *heap, int64_t n, int64_t at, IK_ENTRY entry)
{
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= entry)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
}

static inline void IK_TYPED(ik_heapify)(IK_ENTRY *heap, int64_t n)
{
    for (int64_t at = n / 2 - 1; at >= 0; at--)
        IK_TYPED(ik_sift)(heap, n, at, heap[at]);
}

/* Sort a heap into a list, largest first. */
static inline __attribute__((unused)) void IK_TYPED(ik_sort_heap)(IK_ENTRY *heap, int64_t n)
{
    for (int64_t last = n - 1; last > 0; last--) {
        IK_ENTRY entry = heap[last];
        heap[last] = heap[0];
        IK_TYPED(ik_sift)(heap, last, 0, entry);
    }
}

/* Offer the next n keys of a row, from index `first` on, to a heap of k; k > 0. */
static inline __attribute__((unused)) void IK_TYPED(ik_offer)(
    IK_ENTRY *heap, int64_t k, const IK_KEY *keys, int64_t n, int64_t first)
{
    enum { RUN = 64 };
    int64_t i = 0;
    for (; i < n && first + i < k; i++) {
        heap[first + i] = IK_TYPED(ik_entry)(keys[i], first + i);
        if (first + i == k - 1)
            IK_TYPED(ik_heapify)(heap, k);
    }
    for (int64_t end; i < n; i = end) {
        end = i + RUN < n ? i + RUN : n;
        IK_KEY min = IK_TYPED(ik_key_of)(heap[0]), max = 0;
        if (end - i == RUN)
            for (int64_t at = 0; at < RUN; at++)
                max = keys[i + at] > max ? keys[i + at] : max;
        if (end - i == RUN && max <= min)
            continue;
        for (int64_t at = i; at < end; at++)
            if (keys[at] > min) {
                IK_TYPED(ik_sift)(heap, k, 0, IK_TYPED(ik_entry)(keys[at], first + at));
                min = IK_TYPED(ik_key_of)(heap[0]);
            }
    }
}

#endif
