/* sort along the last dim: a stable radix sort of keys with their indices, a row at a time.
 *
 * An entry is a key followed by an index, so that entries of one row differ. A pass moves them by one byte of the key;
 * bytes in which all keys agree take no pass, and a few entries are inserted one by one instead. The values are fetched
 * by their indices, which preserves their bits. */
#ifndef IK_T
#include "keys.h"
#include "operators/sort.h"

enum { FEW = 48, DIGITS = 256 };

typedef uint64_t entry_u32;
__extension__ typedef unsigned __int128 entry_u64;

typedef struct job {
    const ik_tensor *ty, *ti, *tx;
    char *y, *space;
    int64_t *indices;
    const char *x;
    int64_t rows, d, size, row_bytes;
    bool descending;
} job;

/* The entries of a row and as many to move them to: for each worker, or for each row where there are fewer. */
static int64_t spaces(const job *j) { return ik_min(j->rows, ik_threads()); }
static void *space_of(const job *j, int64_t row, int32_t worker)
{ return j->space + (j->rows <= ik_threads() ? row : worker) * j->row_bytes; }

static inline __attribute__((always_inline)) void put(
    const job *j, int64_t size, char *y, int64_t *indices, const char *x, int64_t at, int64_t index)
{
    const int32_t last = j->tx->ndim - 1;
    memcpy(y + at * j->ty->strides[last] * size, x + index * j->tx->strides[last] * size, (size_t)size);
    indices[at * j->ti->strides[last]] = index;
}

#define IK_FILE "sort.c"
#define IK_TYPES (IK_EACH_U32 | IK_EACH_U64)
#include "each_type.h"

static bool set_up(const ik_plan *plan, job *j)
{
    const ik_sort_attrs *attrs = plan->attrs;
    const ik_tensor *x = &plan->tensors[IK_SORT_X];
    *j = (job){ .ty = &plan->tensors[IK_SORT_Y],
        .ti = &plan->tensors[IK_SORT_INDICES],
        .tx = x,
        .d = x->shape[x->ndim - 1],
        .size = ik_itemsize(x->dtype),
        .descending = attrs->descending != 0 };
    j->rows = j->d == 0 ? 0 : ik_numel(x) / j->d;
    const uint64_t entry = ik_needs_wide_keys(x) ? sizeof(entry_u64) : sizeof(entry_u32);
    j->row_bytes = ik_round_up((int64_t)(2 * (uint64_t)j->d * entry), IK_ALIGNMENT);
    return j->rows > 0;
}

IK_WORKSPACE(sort)
{
    job j;
    return set_up(plan, &j) ? (uint64_t)(spaces(&j) * j.row_bytes) : 0;
}

IK_KERNEL(sort)
{
    IK_UNUSED;
    job j;
    if (!set_up(plan, &j))
        return IK_SUCCESS;
    j.y = ik_ptr(plan, data, IK_SORT_Y);
    j.indices = ik_ptr(plan, data, IK_SORT_INDICES);
    j.x = ik_ptr(plan, data, IK_SORT_X);
    j.space = workspace;
    ik_parallel_for(j.rows, IK_THREAD_BYTES / (j.d * j.size * 8), ik_needs_wide_keys(j.tx) ? rows_u64 : rows_u32, &j);
    return IK_SUCCESS;
}

#else

static inline int64_t IK_OF(index_of)(IK_OF(entry) entry) { return (int64_t)(IK_T)entry; }

static void IK_OF(insert)(IK_OF(entry) entries[], int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const IK_OF(entry) entry = entries[i];
        int64_t at = i;
        for (; at > 0 && entries[at - 1] > entry; at--)
            entries[at] = entries[at - 1];
        entries[at] = entry;
    }
}

/* Sort n entries, which are in the order of their indices, with space for as many; returns where they are then. */
static IK_OF(entry) * IK_OF(sort)(IK_OF(entry) * entries, IK_OF(entry) * other, int64_t n)
{
    enum { BYTES = sizeof(IK_T) };
    if (n <= FEW) {
        IK_OF(insert)(entries, n);
        return entries;
    }
    int64_t counts[BYTES][DIGITS] = { { 0 } };
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < BYTES; b++)
            counts[b][(uint8_t)(entries[i] >> 8 * (BYTES + b))]++;
    for (int b = 0; b < BYTES; b++) {
        int64_t *places = counts[b], place = 0;
        const int shift = 8 * (BYTES + b);
        if (places[(uint8_t)(entries[0] >> shift)] == n)
            continue;
        for (int digit = 0; digit < DIGITS; digit++) {
            const int64_t count = places[digit];
            places[digit] = place;
            place += count;
        }
        for (int64_t i = 0; i < n; i++)
            other[places[(uint8_t)(entries[i] >> shift)]++] = entries[i];
        IK_OF(entry) *const sorted = other;
        other = entries;
        entries = sorted;
    }
    return entries;
}

static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    IK_T keys[IK_TILE] IK_ALIGNED;
    const IK_T flip = j->descending ? (IK_T) ~(IK_T)0 : 0;
    const int64_t stride = j->tx->strides[j->tx->ndim - 1];
    for (int64_t row = begin; row < end; row++) {
        IK_OF(entry) *entries = space_of(j, row, worker);
        const char *x = j->x + ik_row_offset(j->tx, row, 1) * j->size;
        for (int64_t at = 0; at < j->d; at += IK_TILE) {
            const int64_t n = ik_min(j->d - at, IK_TILE);
            IK_OF(ik_keys)(j->tx->dtype, x + at * stride * j->size, stride, n, keys);
            for (int64_t i = 0; i < n; i++)
                entries[at + i] = (IK_OF(entry))(keys[i] ^ flip) << 8 * sizeof(IK_T) | (IK_T)(at + i);
        }
        entries = IK_OF(sort)(entries, entries + j->d, j->d);
        char *y = j->y + ik_row_offset(j->ty, row, 1) * j->size;
        int64_t *indices = j->indices + ik_row_offset(j->ti, row, 1);
        for (int64_t i = 0; i < j->d; i++)
            switch (j->size) {
            case 1: put(j, 1, y, indices, x, i, IK_OF(index_of)(entries[i])); break;
            case 2: put(j, 2, y, indices, x, i, IK_OF(index_of)(entries[i])); break;
            case 4: put(j, 4, y, indices, x, i, IK_OF(index_of)(entries[i])); break;
            default: put(j, 8, y, indices, x, i, IK_OF(index_of)(entries[i]));
            }
    }
}

#endif
