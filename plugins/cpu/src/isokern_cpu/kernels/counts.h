/* Counting how often each number below a length occurs, for bincount.c and histc.c: each thread counts in tables of its
 * own in the workspace. The last number stands for what is not asked for.
 *
 * A processor stores about one count a cycle. Of few numbers, therefore, pairs are counted instead, in a table with a
 * row for each first one: half as many stores, and a sum of its rows and columns at the end. */
#ifndef IK_COUNTS_H
#define IK_COUNTS_H
#include "walk.h"

/* Where tables are small, numbers that follow each other are counted in different ones, since an increment waits for
 * the one before it in the same place. A table that is longer than the numbers is shared, and counted by one thread. */
enum {
    IK_COUNT_TABLES = 4,
    IK_SHORT_TABLE = 4096,
    IK_COUNT_TILE = 512,
    IK_PAIRED = 102, /* numbers whose pairs are counted, at most: the table is about as large as a near cache */
    IK_PAIR_TABLES = 2,
    IK_PER_PAIR = 8 /* numbers of each thread for each place of such a table, at least */
};

typedef struct ik_counts {
    int64_t length, n, cells, tables, workers; /* n numbers, in tables of so many cells for each of the workers */
    bool pairs;
    char *table;
} ik_counts;

static inline ik_counts ik_counts_of(int64_t length, int64_t n)
{
    ik_counts c = {
        .length = length, .n = n, .cells = length, .tables = length <= IK_SHORT_TABLE ? IK_COUNT_TABLES : 1
    };
    c.pairs = length <= IK_PAIRED && n >> 32 == 0 && n / ik_threads() >= IK_PER_PAIR * length * length;
    if (c.pairs)
        c.cells = length * length, c.tables = IK_PAIR_TABLES;
    c.workers = n / ik_threads() > c.cells * c.tables ? ik_threads() : 1;
    return c;
}

/* Counts of pairs have 32 bits, those of numbers 64. */
static inline int64_t ik_counts_size(const ik_counts *c) { return c->pairs ? sizeof(uint32_t) : sizeof(uint64_t); }

static inline uint64_t ik_counts_bytes(const ik_counts *c)
{ return c->n == 0 ? 0 : (uint64_t)(c->workers * c->tables * c->cells * ik_counts_size(c)); }

static inline void ik_counts_clear(const ik_counts *c) { memset(c->table, 0, ik_counts_bytes(c)); }

/* Run `task` over the numbers, in as many threads as there are tables for. */
static inline void ik_counts_run(const ik_counts *c, int64_t bytes, ik_task *task, void *context)
{ ik_parallel_for(c->n, c->workers == 1 ? c->n : 1 + IK_THREAD_BYTES / bytes, task, context); }

static inline __attribute__((always_inline)) void ik_count_pairs(
    const ik_counts *c, uint32_t *first, int32_t *number, int64_t n)
{
    uint32_t pair[IK_COUNT_TILE / 2], *second = first + c->cells;
    const uint64_t length = (uint64_t)c->length;
    const int64_t pairs = ik_ceil_div(n, 2);
    if (n % 2 != 0)
        number[n] = (int32_t)length - 1;
    IK_VECTORISE for (int64_t i = 0; i < pairs; i++) {
        uint64_t both;
        memcpy(&both, number + 2 * i, sizeof both);
        pair[i] = (uint32_t)((both & 0xffffffff) * length + (both >> 32));
    }
    int64_t i = 0;
    for (; i + 4 <= pairs; i += 4) {
        first[pair[i]]++;
        second[pair[i + 1]]++;
        first[pair[i + 2]]++;
        second[pair[i + 3]]++;
    }
    for (; i < pairs; i++)
        first[pair[i]]++;
}

/* Count n numbers of a tile, which are below the length; there is place for one more. */
static inline __attribute__((always_inline)) void ik_count(
    const ik_counts *c, int32_t worker, int32_t *number, int64_t n)
{
    char *table = c->table + (c->workers == 1 ? 0 : worker) * c->tables * c->cells * ik_counts_size(c);
    if (c->pairs) {
        ik_count_pairs(c, (uint32_t *)(void *)table, number, n);
        return;
    }
    uint64_t *first = (uint64_t *)(void *)table;
    int64_t i = 0;
    if (c->tables == IK_COUNT_TABLES) {
        uint64_t *second = first + c->length, *third = second + c->length, *fourth = third + c->length;
        for (; i + 4 <= n; i += 4) {
            first[number[i]]++;
            second[number[i + 1]]++;
            third[number[i + 2]]++;
            fourth[number[i + 3]]++;
        }
    }
    for (; i < n; i++)
        first[number[i]]++;
}

/* Add all tables into the first; of pairs, it begins with what each number has then. */
static inline void ik_counts_join(const ik_counts *c)
{
    const int64_t others = c->n == 0 ? 0 : c->workers * c->tables - 1;
    if (!c->pairs) {
        uint64_t *sum = (uint64_t *)(void *)c->table;
        for (int64_t t = 1; t <= others; t++) IK_VECTORISE
            for (int64_t i = 0; i < c->cells; i++)
                sum[i] += sum[t * c->cells + i];
        return;
    }
    uint32_t total[IK_PAIRED] = { 0 }, *sum = (uint32_t *)(void *)c->table;
    for (int64_t t = 1; t <= others; t++) IK_VECTORISE
        for (int64_t i = 0; i < c->cells; i++)
            sum[i] += sum[t * c->cells + i];
    for (int64_t row = 0; row < c->length; row++) {
        const uint32_t *own = sum + row * c->length;
        uint32_t firsts = 0;
        IK_VECTORISE for (int64_t i = 0; i < c->length; i++) {
            total[i] += own[i];
            firsts += own[i];
        }
        total[row] += firsts;
    }
    memcpy(sum, total, (size_t)c->length * sizeof *sum);
}

/* How often number i occurs, once tables are joined. */
static inline uint64_t ik_counts_sum(const ik_counts *c, int64_t i)
{
    const void *table = c->table;
    return c->n == 0 ? 0 : c->pairs ? ((const uint32_t *)table)[i] : ((const uint64_t *)table)[i];
}
#endif
