/* Counting how often each number below a length occurs, for bincount.c and histc.c: each thread counts in tables of its
 * own in the workspace. */
#ifndef IK_COUNTS_H
#define IK_COUNTS_H
#include "walk.h"

/* Where tables are small, numbers that follow each other are counted in different ones, since an increment waits for
 * the one before it in the same place. A table that is longer than the numbers is shared, and counted by one thread. */
enum { IK_COUNT_TABLES = 4, IK_SHORT_TABLE = 4096, IK_COUNT_TILE = 1024 };

typedef struct ik_counts {
    int64_t length, n, tables, workers; /* n numbers are counted, in so many tables for each of the workers */
    uint64_t *table;
} ik_counts;

static inline ik_counts ik_counts_of(int64_t length, int64_t n)
{
    ik_counts c = { .length = length, .n = n, .tables = length <= IK_SHORT_TABLE ? IK_COUNT_TABLES : 1 };
    c.workers = n / ik_threads() > length * c.tables ? ik_threads() : 1;
    return c;
}

static inline uint64_t ik_counts_bytes(const ik_counts *c)
{ return c->n == 0 ? 0 : (uint64_t)(c->workers * c->tables * c->length) * sizeof *c->table; }

static inline void ik_counts_clear(const ik_counts *c) { memset(c->table, 0, ik_counts_bytes(c)); }

/* Run `task` over the numbers, in as many threads as there are tables for. */
static inline void ik_counts_run(const ik_counts *c, int64_t bytes, ik_task *task, void *context)
{ ik_parallel_for(c->n, c->workers == 1 ? c->n : 1 + IK_THREAD_BYTES / bytes, task, context); }

/* Count n numbers, which are below the length. */
static inline void ik_count(const ik_counts *c, int32_t worker, const int32_t *number, int64_t n)
{
    uint64_t *first = c->table + (c->workers == 1 ? 0 : worker) * c->tables * c->length;
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

/* How often number i occurs. */
static inline uint64_t ik_counts_sum(const ik_counts *c, int64_t i)
{
    uint64_t sum = 0;
    for (int64_t t = 0; t < c->workers * c->tables && c->n > 0; t++)
        sum += c->table[t * c->length + i];
    return sum;
}
#endif
