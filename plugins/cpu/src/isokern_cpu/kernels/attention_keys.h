/* The keys and values of a sequence: how many there are, which of them a query sees, where they lie. */
#ifndef IK_ATTENTION_KEYS_H
#define IK_ATTENTION_KEYS_H
#include "attention_job.h"

/* The address of element [a, b, c, 0] of a tensor; of a run of blocks where these are quantised. */
static const char *address_of(const ik_tensor *t, const char *x, int64_t a, int64_t b, int64_t c)
{ return x + ik_bytes(t->dtype, a * t->strides[0] + b * t->strides[1] + c * t->strides[2]); }

static int64_t given_length(const job *j, int64_t b)
{ return ik_index_at(j->tlengths->dtype, j->lengths, b * j->tlengths->strides[0]); }

static int64_t page_at(const job *j, int64_t b, int64_t number)
{ return ik_index_at(j->ttable->dtype, j->table, b * j->ttable->strides[0] + number * j->ttable->strides[1]); }

/* The first entry of a sequence's table that names no page and has keys before the length; -1 where all do. */
static int64_t wrong_page(const job *j, int64_t b, int64_t length)
{
    for (int64_t i = 0; j->page != 0 && i * j->page < length; i++)
        if (page_at(j, b, i) < 0 || page_at(j, b, i) >= j->tk->shape[0])
            return i;
    return -1;
}

/* Key or value `key` of a sequence and a head of k: its row. */
static const char *row_of(const job *j, const ik_tensor *t, const char *x, int64_t b, int64_t group, int64_t key)
{
    if (j->page == 0)
        return address_of(t, x, b, key, group);
    const int64_t number = key / j->page;
    return address_of(t, x, page_at(j, b, number), key - number * j->page, group);
}

/* The number of keys of a sequence. */
static int64_t length_of(job *j, int64_t b)
{
    if (j->lengths == NULL)
        return j->s;
    const int64_t length = given_length(j, b);
    if (length >= 0 && length <= j->s && wrong_page(j, b, length) < 0)
        return length;
    int64_t first = atomic_load(&j->bad_sequence);
    while (b < first && !atomic_compare_exchange_weak(&j->bad_sequence, &first, b))
        ;
    return 0;
}

/* Keys low .. high - 1. */
typedef struct range {
    int64_t low, high;
} range;

/* The keys that a query of a sequence with `length` keys sees; the last query is at the last key. */
static range find_visible(const job *j, int64_t length, int64_t query)
{
    const int64_t place = length - j->m + query, behind = j->causal ? 1 : j->window > 0 ? j->window : length + j->m;
    return (range){ .low = j->window > 0 ? ik_max(0, place - j->window + 1) : 0,
        .high = ik_max(0, ik_min(length, place + behind)) };
}

/* Keys of a sequence and a head of k, from `first` on. */
typedef struct keys_of {
    int64_t b, group, first;
} keys_of;

/* Rows of keys or values, `step` elements apart; in pages where `at` is null. */
typedef struct matrix {
    int32_t dtype;
    const char *at;
    int64_t step;
} matrix;

/* Read n keys or values: in place where they are contiguous floats, of F32 if `widen`; else converted into `to`. */
static matrix read_rows(
    const job *j, const ik_tensor *t, const char *x, keys_of place, int64_t n, bool widen, float *to)
{
    const int64_t width = t->shape[3];
    if (t->strides[3] == 1 && (t->dtype == IK_F32 || (!widen && ik_has_vectors(t->dtype)))) {
        const bool one = j->page == 0 || place.first % j->page + n <= j->page;
        if (one || !widen)
            return (matrix){ t->dtype, one ? row_of(j, t, x, place.b, place.group, place.first) : NULL, t->strides[1] };
    }
    for (int64_t i = 0; i < n; i++) {
        const char *row = row_of(j, t, x, place.b, place.group, place.first + i);
        if (ik_is_blocks(t->dtype))
            ik_dequantize_run(t->dtype, width, row, to + i * width);
        else
            ik_load_f32(t->dtype, row, t->strides[3], width, to + i * width);
    }
    return (matrix){ IK_F32, (const char *)to, width };
}
#endif
