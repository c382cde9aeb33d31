/* The keys and values of a sequence: how many there are, which of them a query sees, where they lie. */
#ifndef IK_ATTENTION_KEYS_H
#define IK_ATTENTION_KEYS_H
#include "attention_job.h"

/* The address of element [a, b, c, 0] of a tensor; of a run of blocks where these are quantised. */
static const char *address_of(const ik_tensor *t, const char *x, int64_t a, int64_t b, int64_t c)
{ return x + ik_bytes(t->dtype, a * t->strides[0] + b * t->strides[1] + c * t->strides[2]); }

static int64_t number_at(operand list, int64_t i)
{ return ik_index_at(list.t->dtype, list.at, i * list.t->strides[0]); }

static int64_t page_at(const job *j, int64_t b, int64_t number)
{
    const int64_t *strides = j->table.t->strides;
    return ik_index_at(j->table.t->dtype, j->table.at, b * strides[0] + number * strides[1]);
}

/* The first entry of a sequence's table that names no page and has keys before the length; -1 where all do. */
static int64_t wrong_page(const job *j, int64_t b, int64_t length)
{
    for (int64_t i = 0; j->page != 0 && i * j->page < length; i++)
        if (page_at(j, b, i) < 0 || page_at(j, b, i) >= j->k.shape[0])
            return i;
    return -1;
}

/* The number of keys of a sequence. */
static int64_t length_of(job *j, int64_t b)
{
    if (j->lengths.t == NULL)
        return j->s;
    const int64_t length = number_at(j->lengths, b);
    if (length >= 0 && length <= j->s && wrong_page(j, b, length) < 0)
        return length;
    int64_t first = atomic_load(&j->bad_sequence);
    while (b < first && !atomic_compare_exchange_weak(&j->bad_sequence, &first, b))
        ;
    return 0;
}

/* Where the sequences end that the entries of a list behind the first bound, in order: they rise already, or are
 * sorted by gaps (Shell 1959, in Knuth's steps), which needs no memory. */
static void find_ends(operand starts, int64_t n, int64_t *ends)
{
    bool rising = true;
    for (int64_t i = 0; i < n; i++) {
        ends[i] = number_at(starts, i + 1);
        rising &= i == 0 || ends[i - 1] <= ends[i];
    }
    int64_t gap = 1;
    while (!rising && gap < n)
        gap = 3 * gap + 1;
    for (; !rising && gap > 0; gap /= 3)
        for (int64_t i = gap; i < n; i++) {
            const int64_t end = ends[i];
            int64_t to = i;
            for (; to >= gap && ends[to - gap] > end; to -= gap)
                ends[to] = ends[to - gap];
            ends[to] = end;
        }
}

/* How many of n rising numbers are at most x. */
static int64_t count_up_to(const int64_t *rising, int64_t n, int64_t x)
{
    int64_t low = 0;
    while (low < n) {
        const int64_t middle = low + (n - low) / 2;
        if (rising[middle] <= x)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* The keys of the queries of one sequence. */
typedef struct span {
    int64_t rows; /* of the tile, that are of this sequence */
    int64_t b, first; /* key 0 is row [b, first] of k or, in pages, that of sequence b's table */
    int64_t length; /* how many keys there are */
    int64_t shift; /* query i is at place i + shift among them */
} span;

/* The keys of the sequence of a tile's row. */
static span find_span(job *j, const tile *t, int64_t row)
{
    if (j->sequences < 0) {
        const int64_t length = length_of(j, t->b);
        return (span){ .rows = t->rows, .b = t->b, .length = length, .shift = length - j->m };
    }
    const int64_t own = count_up_to(j->ends, j->sequences, t->query[row]);
    span s = { .rows = t->rows - row };
    if (own == j->sequences)
        return s;
    for (s.rows = 1; row + s.rows < t->rows && t->query[row + s.rows] < j->ends[own];)
        s.rows++;
    s.shift = -number_at(j->starts, own + 1);
    if (j->table.t != NULL) { /* also where a page has no rows */
        s.b = own, s.length = length_of(j, own);
        s.shift += s.length;
    } else {
        const int64_t low = own == 0 ? 0 : j->key_ends[own - 1], high = j->key_ends[own];
        s.first = ik_max(0, ik_min(low, j->s)), s.length = ik_max(0, ik_min(high, j->s)) - s.first;
        s.shift += number_at(j->key_starts, own + 1) - s.first;
    }
    return s;
}

/* Keys low .. high - 1. */
typedef struct range {
    int64_t low, high;
} range;

/* The keys of a sequence that a query sees. */
static range find_visible(const job *j, const span *keys, int64_t query)
{
    const int64_t place = query + keys->shift;
    int64_t high = keys->length;
    if (j->causal || j->window > 0)
        high = ik_max(0, ik_min(high, place + (j->causal ? 1 : j->window)));
    return (range){ .low = j->window > 0 ? ik_max(0, place - j->window + 1) : 0, .high = high };
}

/* Keys or values first .. first + n - 1 of a block, in rows `step` elements apart. */
typedef struct run {
    int64_t first, n;
    const char *at;
} run;

/* A block of keys or values as runs: one of rows in place or that were converted, or one of each page. Rows are
 * prefetched `distance` rows before they are read. */
typedef struct block {
    int32_t dtype;
    int64_t count, step, distance;
    run runs[BLOCK];
} block;

/* How many rows before it is read to prefetch a row: 32, or as many as a set of the first cache holds where a step
 * brings all rows to the same sets, which 4,096 bytes do. */
static int64_t prefetch_distance(const job *j, int64_t step)
{
    enum { SETS = 4096, WAYS = 8, ROWS = 32 };
    const int64_t low = step & -step;
    if (j->together > 1)
        return WAYS;
    return low <= 0 ? ROWS : ik_min(ROWS, ik_max(1, SETS / low) * WAYS);
}

/* Find the runs of n keys or values of a sequence and a head of k, from number `first` on. */
static void find_runs(const job *j, const ik_tensor *t, const char *x, const span *keys, int64_t group, int64_t first,
    int64_t n, block *to)
{
    to->dtype = t->dtype, to->step = t->strides[1], to->count = 1;
    to->distance = prefetch_distance(j, ik_bytes(t->dtype, to->step));
    if (j->page == 0) {
        to->runs[0] = (run){ 0, n, address_of(t, x, keys->b, keys->first + first, group) };
        return;
    }
    to->count = 0;
    for (int64_t i = 0, rows; i < n; i += rows) {
        const int64_t number = (first + i) / j->page, row = first + i - number * j->page;
        rows = ik_min(n - i, j->page - row);
        to->runs[to->count++] = (run){ i, rows, address_of(t, x, page_at(j, keys->b, number), row, group) };
    }
}

/* Convert the rows of a block to F32, `width` elements apart. */
static void convert_block(const ik_tensor *t, const block *from, int64_t width, float *to)
{
    for (const run *r = from->runs; r < from->runs + from->count; r++)
        for (int64_t i = 0; i < r->n; i++) {
            const char *row = r->at + ik_bytes(t->dtype, i * from->step);
            if (ik_is_blocks(t->dtype))
                ik_dequantize_run(t->dtype, t->shape[3], row, to + (r->first + i) * width);
            else
                load_f32(t->dtype, row, t->strides[3], t->shape[3], to + (r->first + i) * width);
        }
}

/* The same runs where a kernel can read them, floats that are contiguous and of a dtype that it has vectors of; else
 * one run of F32 in `converted`. 8-bit floats are read several times, and converted once. */
static void read_block(const job *j, const ik_tensor *t, const char *x, const span *keys, int64_t group, int64_t first,
    int64_t n, float *converted, block *to)
{
    find_runs(j, t, x, keys, group, first, n, to);
    if (is_read_in_place(t))
        return;
    convert_block(t, to, t->shape[3], converted);
    to->dtype = IK_F32, to->step = t->shape[3], to->count = 1;
    to->runs[0] = (run){ 0, n, (const char *)converted };
}
#endif
