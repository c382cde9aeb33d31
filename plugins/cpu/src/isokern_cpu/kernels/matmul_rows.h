/* x wᵀ by dot products of rows: quantised activations, or few rows of floats, with weights of blocks. Weights are
 * unpacked on the way; with several quantised rows of x, to bytes first. */
#ifndef IK_MATMUL_ROWS_H
#define IK_MATMUL_ROWS_H
#include "layout_dots.h"
#include "activations.h"
#include "operators/linear_mixed.h"
#include "operators/matmul_transposed.h"

enum { AT_ONCE = 4, GROUP = 8, DOT_BYTES = 1 << 17 };

/* The epilogue of linear_mixed; for the other operators all its tensors are absent. */
typedef struct epilogue {
    const ik_tensor *tbias, *tc;
    const char *bias, *c; /* null where absent */
    int64_t activation;
} epilogue;

static epilogue epilogue_of(const ik_plan *plan, void *const *data)
{
    if (plan->kind != IK_OP_LINEAR_MIXED)
        return (epilogue){ 0 };
    const ik_linear_mixed_attrs *attrs = plan->attrs;
    return (epilogue){ &plan->tensors[IK_LINEAR_MIXED_BIAS], &plan->tensors[IK_LINEAR_MIXED_C],
        ik_ptr(plan, data, IK_LINEAR_MIXED_BIAS), ik_ptr(plan, data, IK_LINEAR_MIXED_C), attrs->activation };
}

/* Offset of a row; most calls have one dim of rows, and a division for every few sums would cost measurable time. */
static inline int64_t row_offset(const ik_tensor *t, int64_t row)
{ return t->ndim == 2 ? row * t->strides[0] : ik_row_offset(t, row, 1); }

/* sums[i] += term[at + i * step] for a tensor t of floats. */
static inline void add_run(const ik_tensor *t, const char *term, int64_t at, int64_t step, int64_t count, float *sums)
{
    float scratch[16];
    const char *from = term + at * ik_itemsize(t->dtype);
    const float *other = (const float *)(const void *)from;
    if (t->dtype != IK_F32 || step != 1)
        ik_load_f32(t->dtype, from, step, count, scratch), other = scratch;
    for (int64_t i = 0; i < count; i++)
        sums[i] += other[i];
}

/* Finish `count` sums, at most 16, and write them to y[row, col ..]. */
static void finish_sums(
    const epilogue *e, const ik_tensor *ty, char *y, int64_t row, int64_t col, int64_t count, float *sums)
{
    if (e->c != NULL) {
        const int64_t step = e->tc->strides[e->tc->ndim - 1];
        add_run(e->tc, e->c, row_offset(e->tc, row) + col * step, step, count, sums);
    }
    if (e->bias != NULL) {
        const int64_t step = e->tbias->strides[0];
        add_run(e->tbias, e->bias, col * step, step, count, sums);
    }
    ik_activate_f32(e->activation, count, sums);
    const int64_t step = ty->strides[ty->ndim - 1], at = row_offset(ty, row) + col * step;
    ik_store_f32(ty->dtype, sums, y + at * ik_itemsize(ty->dtype), step, count);
}

/* Whether rows of x are quantised to Q8_0 first. */
static bool is_quantised(const ik_plan *plan)
{
    if (plan->kind == IK_OP_LINEAR_MIXED)
        return ((const ik_linear_mixed_attrs *)plan->attrs)->lhs_quantization == IK_LINEAR_MIXED_Q8_0;
    return plan->kind == IK_OP_MATMUL_TRANSPOSED
        && ((const ik_matmul_transposed_attrs *)plan->attrs)->lhs_quantization == IK_MATMUL_TRANSPOSED_Q8_0;
}

typedef struct job {
    const ik_tensor *ty, *tx, *tw;
    epilogue finish;
    char *y;
    const char *x, *w;
    int64_t m, n, k;
    bool quantised;          /* q8_0 */
    char *converted;         /* rows of x, F32 or quantised; null where x is used in place */
    int64_t converted_bytes; /* bytes of a row */
    char *thread_scratch;    /* bytes, scales and minima of a weight, for each thread */
    int64_t scratch_bytes;
} job;

static job job_of(const ik_plan *plan)
{
    job j = { .ty = &plan->tensors[IK_MATMUL_TRANSPOSED_Y],
        .tx = &plan->tensors[IK_MATMUL_TRANSPOSED_X],
        .tw = &plan->tensors[IK_MATMUL_TRANSPOSED_W] };
    j.k = j.tx->shape[j.tx->ndim - 1];
    j.n = j.tw->shape[0];
    j.m = j.n == 0 ? 0 : ik_numel(j.ty) / j.n;
    j.quantised = is_quantised(plan);
    const bool lies = !j.quantised && j.tx->dtype == IK_F32 && j.tx->strides[j.tx->ndim - 1] == 1;
    j.converted_bytes = lies ? 0 : ik_round_up(j.quantised ? ik_quants_bytes(j.k) : 4 * j.k, 64);
    const int64_t own = ik_is_layout(j.tw->dtype) ? ik_runs_bytes(j.k) : ik_pairs(j.k) * (IK_PAIR + 2 * 2 * 4);
    j.scratch_bytes = j.quantised ? ik_round_up(ik_max(GROUP * own, 4 * j.k), 64) : 0;
    return j;
}

static uint64_t dots_workspace(const ik_plan *plan)
{
    const job j = job_of(plan);
    return (uint64_t)(j.m * j.converted_bytes + ik_threads() * j.scratch_bytes);
}

static const char *row_of(const job *j, int64_t row)
{ return j->x + ik_row_offset(j->tx, row, 1) * ik_itemsize(j->tx->dtype); }

/* Convert rows of x to what the dot products read: F32 or quantised. */
static void convert_rows(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    const int64_t stride = j->tx->strides[j->tx->ndim - 1];
    for (int64_t row = begin; row < end; row++) {
        char *to = j->converted + row * j->converted_bytes;
        if (!j->quantised) {
            ik_load_f32(j->tx->dtype, row_of(j, row), stride, j->k, (float *)(void *)to);
            continue;
        }
        float *wide = (float *)(void *)(j->thread_scratch + worker * j->scratch_bytes);
        ik_load_f32(j->tx->dtype, row_of(j, row), stride, j->k, wide);
        ik_quantise(j->tw->dtype, wide, j->k, ik_quants_at(to, j->k));
    }
}

/* Compute rows first .. first + count of w, at most GROUP: unpacked first where x has several rows, then multiplied by
 * 4 rows of x at a time. */
static inline __attribute__((always_inline)) void quantised_dots(
    const int32_t dtype, const job *j, int64_t first, int64_t count, char *scratch)
{
    const int64_t pairs = ik_pairs(j->k), each = pairs * (IK_PAIR + 2 * 2 * 4);
    float sums[AT_ONCE * GROUP];
    ik_row w[GROUP];
    for (int64_t c = 0; c < count; c++) {
        char *own = scratch + c * each;
        w[c] = (ik_row){ .blocks = j->w + ik_bytes(dtype, (first + c) * j->tw->strides[0]),
            .d = (float *)(void *)(own + pairs * IK_PAIR) };
        w[c].m = w[c].d + 2 * pairs;
        ik_scales(dtype, w[c].blocks, j->k, w[c].d, w[c].m);
        if (j->m > 1) {
            w[c].bytes = (uint8_t *)own;
            ik_to_bytes(dtype, w[c].blocks, j->k, w[c].bytes);
        }
    }
    for (int64_t row = 0; row < j->m; row += AT_ONCE) {
        const int64_t rows = ik_min(AT_ONCE, j->m - row);
        ik_quants x[AT_ONCE];
        for (int64_t r = 0; r < rows; r++)
            x[r] = ik_quants_at(j->converted + (row + r) * j->converted_bytes, j->k);
        int64_t c = 0;
        if (rows == AT_ONCE)
            for (; c + 2 <= count; c += 2)
                ik_dots(dtype, AT_ONCE, 2, w + c, j->k, x, sums + c, GROUP);
        for (; c < count; c++)
            for (int64_t r = 0; r < rows; r++)
                ik_dots(dtype, 1, 1, w + c, j->k, x + r, sums + r * GROUP + c, GROUP);
        for (int64_t r = 0; r < rows; r++)
            finish_sums(&j->finish, j->ty, j->y, row + r, first, count, sums + r * GROUP);
    }
}

/* Compute the same where the rows of x are floats. */
static inline __attribute__((always_inline)) void unpacked_dots(
    const int32_t dtype, const job *j, int64_t first, int64_t count)
{
    float sums[AT_ONCE * GROUP];
    for (int64_t row = 0; row < j->m; row += AT_ONCE) {
        const int64_t rows = ik_min(AT_ONCE, j->m - row);
        const float *x[AT_ONCE];
        for (int64_t r = 0; r < rows; r++)
            x[r] = (const float *)(const void *)(j->converted != NULL ? j->converted + (row + r) * j->converted_bytes
                                                                      : row_of(j, row + r));
        for (int64_t c = 0; c < count; c++) {
            const char *w = j->w + ik_bytes(dtype, (first + c) * j->tw->strides[0]);
            if (rows == AT_ONCE)
                ik_float_dots(dtype, AT_ONCE, w, j->k, x, sums + c, GROUP);
            else
                for (int64_t r = 0; r < rows; r++)
                    ik_float_dots(dtype, 1, w, j->k, x + r, sums + r * GROUP + c, GROUP);
        }
        for (int64_t r = 0; r < rows; r++)
            finish_sums(&j->finish, j->ty, j->y, row + r, first, count, sums + r * GROUP);
    }
}

/* Compute the same for weights of a layout; quantised as bytes, floats as floats of a piece of a row. */
static void layout_dots(const job *j, int64_t first, int64_t count, char *scratch)
{
    float sums[AT_ONCE * GROUP];
    ik_runs w[GROUP];
    const int32_t dtype = j->tw->dtype;
    const char *from = j->w + ik_bytes(dtype, first * j->tw->strides[0]);
    const int64_t step = ik_bytes(dtype, j->tw->strides[0]);
    for (int64_t c = 0; c < count && j->quantised; c++) {
        w[c] = ik_runs_at(scratch + c * ik_runs_bytes(j->k), j->k);
        ik_unpack_runs(dtype, from + c * step, j->k, w[c]);
    }
    for (int64_t row = 0; row < j->m; row += AT_ONCE) {
        const int64_t rows = ik_min(AT_ONCE, j->m - row);
        ik_quants quants[AT_ONCE];
        const float *x[AT_ONCE];
        for (int64_t r = 0; r < rows; r++) {
            char *own = j->converted + (row + r) * j->converted_bytes;
            if (j->quantised)
                quants[r] = ik_quants_at(own, j->k);
            else
                x[r] = (const float *)(const void *)(j->converted != NULL ? own : row_of(j, row + r));
        }
        for (int64_t c = 0; c < count; c++)
            if (j->quantised)
                ik_runs_dots(ik_undo_factor(dtype) != 1, (int)rows, w[c], j->k, quants, sums + c, GROUP);
            else
                ik_layout_dots(dtype, (int)rows, from + c * step, j->k, x, sums + c, GROUP);
        for (int64_t r = 0; r < rows; r++)
            finish_sums(&j->finish, j->ty, j->y, row + r, first, count, sums + r * GROUP);
    }
}

/* Run tasks begin .. end, each of GROUP rows of w. */
static void dots(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    char *scratch = j->thread_scratch + worker * j->scratch_bytes;
    for (int64_t first = begin * GROUP; first < ik_min(j->n, end * GROUP); first += GROUP) {
        const int64_t count = ik_min(GROUP, j->n - first);
        if (ik_is_layout(j->tw->dtype)) {
            layout_dots(j, first, count, scratch);
            continue;
        }
        switch (j->tw->dtype * 2 + j->quantised) {
        case IK_Q4_0 * 2: unpacked_dots(IK_Q4_0, j, first, count); break;
        case IK_Q4_1 * 2: unpacked_dots(IK_Q4_1, j, first, count); break;
        case IK_Q8_0 * 2: unpacked_dots(IK_Q8_0, j, first, count); break;
        case IK_Q4_0 * 2 + 1: quantised_dots(IK_Q4_0, j, first, count, scratch); break;
        case IK_Q4_1 * 2 + 1: quantised_dots(IK_Q4_1, j, first, count, scratch); break;
        default: quantised_dots(IK_Q8_0, j, first, count, scratch);
        }
    }
}

static ik_status run_dots(const ik_plan *plan, void *const *data, void *workspace)
{
    job j = job_of(plan);
    if (j.m == 0)
        return IK_SUCCESS;
    j.y = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_Y);
    j.x = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_X);
    j.w = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_W);
    j.finish = epilogue_of(plan, data);
    j.thread_scratch = workspace;
    if (j.converted_bytes > 0) {
        j.converted = (char *)workspace + ik_threads() * j.scratch_bytes;
        ik_parallel_for(j.m, DOT_BYTES / (4 * ik_max(1, j.k)), convert_rows, &j);
    }
    ik_parallel_for(
        ik_ceil_div(j.n, GROUP), ik_max(1, DOT_BYTES / ik_max(1, GROUP * ik_bytes(j.tw->dtype, j.k) * j.m)), dots, &j);
    return IK_SUCCESS;
}

#endif
