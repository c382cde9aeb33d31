/* The k largest of a row: a heap whose root is the smallest entry kept, and runs of keys that are skipped where none
 * exceeds it.
 *
 * An entry is a key followed by the complement of an index, so that of equal keys the first is larger. The part after
 * "typed" is compiled for 32-bit keys (and indices) and for 64-bit ones. */
#ifndef IK_SELECT_H
#define IK_SELECT_H
#include "keys.h"

typedef uint64_t ik_entry_u32;
__extension__ typedef unsigned __int128 ik_entry_u64;

#define IK_FILE "select.h"
#define IK_TYPES (IK_EACH_U32 | IK_EACH_U64)
#include "each_type.h"

#elif defined(IK_T) /* typed */

static inline __attribute__((unused)) IK_OF(ik_entry) IK_OF(ik_entry_of)(IK_T key, int64_t index)
{ return (IK_OF(ik_entry))key << 8 * sizeof(IK_T) | (IK_T)~index; }
static inline __attribute__((unused)) int64_t IK_OF(ik_index_of)(IK_OF(ik_entry) entry)
{ return (int64_t)(IK_T)~entry; }
static inline __attribute__((unused)) IK_T IK_OF(ik_key_of)(IK_OF(ik_entry) entry)
{ return (IK_T)(entry >> 8 * sizeof(IK_T)); }

/* Put `entry` at index `at` of a heap of n, or below it. */
static inline void IK_OF(ik_sift)(IK_OF(ik_entry) heap[], int64_t n, int64_t at, IK_OF(ik_entry) entry)
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

static inline void IK_OF(ik_heapify)(IK_OF(ik_entry) heap[], int64_t n)
{
    for (int64_t at = n / 2 - 1; at >= 0; at--)
        IK_OF(ik_sift)(heap, n, at, heap[at]);
}

/* Sort a heap into a list, largest first. */
static inline __attribute__((unused)) void IK_OF(ik_sort_heap)(IK_OF(ik_entry) heap[], int64_t n)
{
    for (int64_t last = n - 1; last > 0; last--) {
        IK_OF(ik_entry) entry = heap[last];
        heap[last] = heap[0];
        IK_OF(ik_sift)(heap, last, 0, entry);
    }
}

/* Offer the next n keys of a row, from index `first` on, to a heap of k; k > 0. */
static inline __attribute__((unused)) void IK_OF(ik_offer)(
    IK_OF(ik_entry) heap[], int64_t k, const IK_T *keys, int64_t n, int64_t first)
{
    enum { RUN = 64 };
    int64_t i = 0;
    for (; i < n && first + i < k; i++) {
        heap[first + i] = IK_OF(ik_entry_of)(keys[i], first + i);
        if (first + i == k - 1)
            IK_OF(ik_heapify)(heap, k);
    }
    for (int64_t end; i < n; i = end) {
        end = i + RUN < n ? i + RUN : n;
        IK_T min = IK_OF(ik_key_of)(heap[0]), max = 0;
        if (end - i == RUN)
            for (int64_t at = 0; at < RUN; at++)
                max = keys[i + at] > max ? keys[i + at] : max;
        if (end - i == RUN && max <= min)
            continue;
        for (int64_t at = i; at < end; at++)
            if (keys[at] > min) {
                IK_OF(ik_sift)(heap, k, 0, IK_OF(ik_entry_of)(keys[at], first + at));
                min = IK_OF(ik_key_of)(heap[0]);
            }
    }
}

#endif
