/* cache_update: y[b, positions[b] + i] = x[b, i], each row along the last dim cast or quantised; paged_cache_update:
 * y[slots[b] / s, slots[b] mod s] = x[b, 0], of y[p, s, …], negative slots left out. */
#include "blocks.h"
#include "operators/cache_update.h"
#include "operators/paged_cache_update.h"

typedef struct job {
    const ik_tensor *ty, *tx;
    char *y;
    const char *x;
    const char *positions;
    int32_t dtype; /* dtype of the positions */
    int64_t step, each, d; /* step of positions; rows of a sequence; elements of a row */
    bool paged;
} job;

static int64_t position_of(const job *j, int64_t sequence)
{ return ik_index_at(j->dtype, j->positions, sequence * j->step); }

static bool fits(const job *j, int64_t sequence)
{
    const int64_t at = position_of(j, sequence);
    if (j->paged)
        return at < j->ty->shape[0] * j->ty->shape[1];
    return at >= 0 && at <= j->ty->shape[1] - j->tx->shape[1];
}

static void write_row(const job *j, const char *from, char *to)
{
    const int64_t x_step = j->tx->strides[j->tx->ndim - 1], y_step = j->ty->strides[j->ty->ndim - 1];
    float wide[IK_TILE];
    for (int64_t at = 0; at < j->d; at += IK_TILE) {
        const int64_t n = ik_min(IK_TILE, j->d - at);
        if (j->tx->dtype == j->ty->dtype && x_step == 1 && y_step == 1) {
            memcpy(to + at * ik_itemsize(j->ty->dtype), from + at * ik_itemsize(j->ty->dtype),
                (size_t)(n * ik_itemsize(j->ty->dtype)));
            continue;
        }
        ik_load_f32(j->tx->dtype, from + at * x_step * ik_itemsize(j->tx->dtype), x_step, n, wide);
        if (ik_is_blocks(j->ty->dtype))
            ik_quantize_run(j->ty->dtype, n, wide, to + ik_bytes(j->ty->dtype, at));
        else
            ik_store_f32(j->ty->dtype, wide, to + at * y_step * ik_itemsize(j->ty->dtype), y_step, n);
    }
}

/* Write rows begin to end of x, counted over all its dims but the last. */
static void write_rows(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    for (int64_t row = begin; row < end; row++) {
        const int64_t sequence = row / j->each;
        const int64_t position = position_of(j, sequence);
        if (!fits(j, sequence) || position < 0)
            continue;
        const int64_t page = j->paged ? position / j->ty->shape[1] : sequence,
                      first = j->paged ? position % j->ty->shape[1] : position;
        int64_t rest = row, y = page * j->ty->strides[0] + first * j->ty->strides[1];
        for (int32_t i = j->tx->ndim - 2; i >= 1; i--) {
            y += rest % j->tx->shape[i] * j->ty->strides[i];
            rest /= j->tx->shape[i];
        }
        write_row(j, j->x + ik_row_offset(j->tx, row, 1) * ik_itemsize(j->tx->dtype), j->y + ik_bytes(j->ty->dtype, y));
    }
}

IK_KERNEL(cache_update)
{
    IK_UNUSED;
    const ik_tensor *positions = &plan->tensors[IK_CACHE_UPDATE_POSITIONS];
    job j = { .ty = &plan->tensors[IK_CACHE_UPDATE_Y],
        .tx = &plan->tensors[IK_CACHE_UPDATE_X],
        .dtype = positions->dtype,
        .step = positions->strides[0],
        .paged = plan->kind == IK_OP_PAGED_CACHE_UPDATE };
    j.y = ik_ptr(plan, data, IK_CACHE_UPDATE_Y);
    j.x = ik_ptr(plan, data, IK_CACHE_UPDATE_X);
    j.positions = ik_ptr(plan, data, IK_CACHE_UPDATE_POSITIONS);
    j.d = j.tx->shape[j.tx->ndim - 1];
    const int64_t sequences = j.tx->shape[0], elements = ik_numel(j.tx);
    if (elements > 0) {
        j.each = elements / sequences / j.d;
        ik_parallel_for(sequences * j.each, ik_max(1, IK_THREAD_BYTES / (4 * j.d)), write_rows, &j);
    }
    for (int64_t b = 0; b < sequences; b++)
        if (!fits(&j, b))
            return ik_bad_value(b, position_of(&j, b));
    return IK_SUCCESS;
}
