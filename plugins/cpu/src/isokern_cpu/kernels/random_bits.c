/* random_bits: words of Philox4x32-10, a tile of blocks at a time: the blocks are independent, so they fill vectors. */
#include "kernel.h"
#include "isokern_philox.h"
#include "operators/random_bits.h"

enum { BLOCKS = IK_TILE / 4 };

typedef struct job {
    const ik_tensor *t;
    char *y;
    uint64_t key, first;
    int64_t n;
    bool dense;
} job;

static void generate(uint64_t first, uint64_t key, uint32_t *words)
{
    IK_VECTORISE for (int32_t i = 0; i < BLOCKS; i++) {
        const ik_words w = ik_philox_block(first + (uint64_t)i, key);
        words[4 * i] = w.w0;
        words[4 * i + 1] = w.w1;
        words[4 * i + 2] = w.w2;
        words[4 * i + 3] = w.w3;
    }
}

/* Write tiles begin .. end of the elements in row-major order. */
static void run(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    uint32_t words[IK_TILE];
    for (int64_t tile = begin; tile < end; tile++) {
        const int64_t at = tile * IK_TILE, n = ik_min(IK_TILE, j->n - at);
        generate(j->first + (uint64_t)tile * BLOCKS, j->key, words);
        if (j->dense)
            memcpy(j->y + at * 4, words, (size_t)n * 4);
        else
            for (int64_t i = 0; i < n; i++)
                memcpy(j->y + ik_row_offset(j->t, at + i, 0) * 4, &words[i], 4);
    }
}

IK_KERNEL(random_bits)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_RANDOM_BITS_Y], *seed = &plan->tensors[IK_RANDOM_BITS_SEED];
    const char *given = ik_ptr(plan, data, IK_RANDOM_BITS_SEED);
    job j = { .t = y, .y = ik_ptr(plan, data, IK_RANDOM_BITS_Y), .n = ik_numel(y) };
    memcpy(&j.key, given, 8);
    memcpy(&j.first, given + seed->strides[0] * 8, 8);
    j.dense = y->ndim == 1 && y->strides[0] == 1;
    ik_parallel_for(ik_ceil_div(j.n, IK_TILE), IK_THREAD_BYTES / IK_TILE / 4, run, &j);
    return IK_SUCCESS;
}
