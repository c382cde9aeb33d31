/* fold: y[n, c, h, w] = the sum of the elements of windows that lie there.
 *
 * A task is a band of rows of a plane of y, or where these are long, of a part of the columns. It is summed in a near
 * cache: element (i, k) of all windows is a plane of x, of which the rows that meet the band are added to it, one run
 * each. Columns whose numbers have one remainder by the stride lie together meanwhile, so that runs meet runs.
 *
 * Where x is dense and windows lie a column apart, the sums of some vectors of a row stay in registers instead, and the
 * ends of runs are masked: half of the time of sums in memory. This file includes itself, for float and for double.
 *
 * Against loop nests over padded copies of x, it takes between a tenth and a fifth of the time. */
#ifndef IK_T
#include "runs.h"
#include "operators/fold.h"

/* Of one direction: elements of a window, from window to window and from element to element, before the image, and how
 * many windows there are. */
typedef struct axis {
    int64_t kernel, stride, dilation, low, count;
} axis;

enum {
    SUMS = 4096,      /* of a task, at most */
    PADDED = 8,       /* strides up to this, of which sums of a remainder begin a vector */
    VECTORS = 4,      /* of a row that are summed at once */
    MAX_KERNEL = 64 /* columns of a window whose masks are kept */
};

/* A task has `band` rows and `width` columns, so that there are `bands` and `parts`. In a row of sums, each remainder
 * of the columns' numbers by the stride has `each` sums, and `pitch` is what all have. */
typedef struct job {
    const ik_tensor *ty, *tx;
    char *y;
    const char *x;
    int64_t size;
    axis rows, columns;
    int64_t band, width, bands, parts, each, pitch;
    bool in_registers; /* the sums of a row */
} job;

/* The windows whose element number k lies from `at` to `end` - 1; those from `from` to `end` - 1 of all. */
typedef struct run {
    int64_t from, end;
} run;

static int64_t divide_down(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

static run windows_within(const axis *a, int64_t k, int64_t at, int64_t end)
{
    const int64_t first = k * a->dilation - a->low; /* where window 0 has it */
    return (run){ ik_max(0, divide_down(at - first + a->stride - 1, a->stride)),
        ik_min(a->count, divide_down(end - 1 - first, a->stride) + 1) };
}

/* Whether `load_masked` takes this dtype. */
static bool has_masked_loads(int32_t dtype) { return ik_itemsize(dtype) > 2 || dtype == IK_F16 || dtype == IK_BF16; }

/* An attribute of one or two numbers. */
static int64_t pick(const ik_ints *v, int64_t i) { return v->v[v->count == 1 ? 0 : i]; }

static axis axis_of(const ik_fold_attrs *attrs, int64_t i)
{
    const ik_ints *padding = &attrs->padding;
    const bool sides = padding->count == 4;
    axis a = { .kernel = pick(&attrs->kernel, i),
        .stride = pick(&attrs->stride, i),
        .dilation = pick(&attrs->dilation, i),
        .low = sides ? padding->v[i] : pick(padding, i) };
    const int64_t high = sides ? padding->v[2 + i] : a.low;
    a.count = (pick(&attrs->size, i) + a.low + high - a.dilation * (a.kernel - 1) - 1) / a.stride + 1;
    return a;
}

#if defined(__AVX512F__)
enum { SUMS_IN_REGISTERS = true };
#else
enum { SUMS_IN_REGISTERS = false };
#endif

#define IK_FILE "fold.c"
#include "each_type.h"

IK_KERNEL(fold)
{
    IK_UNUSED;
    const ik_fold_attrs *attrs = plan->attrs;
    job j = { .ty = &plan->tensors[IK_FOLD_Y],
        .tx = &plan->tensors[IK_FOLD_X],
        .y = ik_ptr(plan, data, IK_FOLD_Y),
        .x = ik_ptr(plan, data, IK_FOLD_X) };
    const int64_t *shape = j.ty->shape;
    if (ik_numel(j.ty) == 0)
        return IK_SUCCESS;
    j.size = ik_itemsize(j.ty->dtype);
    j.rows = axis_of(attrs, 0), j.columns = axis_of(attrs, 1);
    j.width = ik_min(shape[3], SUMS / 2);
    j.each = ik_ceil_div(j.width, j.columns.stride);
    if (j.columns.stride <= PADDED)
        j.each = ik_round_up(j.each, 16);
    j.in_registers = SUMS_IN_REGISTERS && has_masked_loads(j.ty->dtype) && j.columns.stride == 1
        && j.tx->strides[2] == 1 && j.columns.kernel <= MAX_KERNEL;
    j.pitch = j.each * ik_min(j.columns.stride, j.width);
    j.band = ik_min(shape[2], SUMS / j.pitch);
    j.bands = ik_ceil_div(shape[2], j.band), j.parts = ik_ceil_div(shape[3], j.width);
    const int64_t terms = ik_ceil_div(j.rows.kernel, j.rows.stride) * ik_ceil_div(j.columns.kernel, j.columns.stride);
    ik_parallel_for(shape[0] * shape[1] * j.bands * j.parts,
        1 + IK_THREAD_BYTES / (j.size * j.band * j.width * (1 + terms)), j.ty->dtype == IK_F64 ? add_f64 : add_f32, &j);
    return IK_SUCCESS;
}

#else

/* to += x, for n elements. Most runs are a few vectors long, of which the rest took most of the time by itself. */
static inline __attribute__((always_inline)) void IK_OF(add_run)(IK_T *restrict to, const IK_T *restrict x, int64_t n)
{
#if defined(__AVX512F__)
    typedef IK_OF(ik_vector) vector;
    enum { LANES = IK_VECTOR / sizeof(IK_T) };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        *(vector *)(to + i) += *(const vector *)(x + i);
    const vector sum = IK_OF(ik_load_some)(to + i, n - i, 0) + IK_OF(ik_load_some)(x + i, n - i, 0);
    const unsigned rest = (1u << (n - i)) - 1;
    if (sizeof(IK_T) == sizeof(float))
        _mm512_mask_storeu_ps(to + i, (__mmask16)rest, (__m512)sum);
    else
        _mm512_mask_storeu_pd(to + i, (__mmask8)rest, (__m512d)sum);
#else
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        to[i] += x[i];
#endif
}

/* Add element k of the windows of some rows, whose plane is from x on, to the sums of a task from column `left` and row
 * `top` on, the first of which is number `row` of the windows' elements. */
static inline __attribute__((always_inline)) void IK_OF(add_plane)(const job *j, const char *x, int64_t k, int64_t left,
    int64_t columns, int64_t first_row, int64_t top, run rows, IK_T *sum, IK_T *scratch)
{
    const axis *a = &j->columns;
    const run of = windows_within(a, k, left, left + columns);
    const int64_t n = of.end - of.from, step = j->tx->strides[2], count = a->count, dtype = j->tx->dtype;
    if (n <= 0)
        return;
    const int64_t place = k * a->dilation - a->low + of.from * a->stride - left;
    IK_T *to = sum + place % a->stride * j->each + place / a->stride;
    const bool in_place = step == 1 && (dtype == IK_F32 || dtype == IK_F64), together = in_place || count <= SUMS;
    const int64_t some = in_place ? rows.end - rows.from : together ? SUMS / count : 1;
    for (int64_t at = rows.from; at < rows.end; at += some) {
        const int64_t lines = ik_min(some, rows.end - at), from = at * count + (together ? 0 : of.from);
        const IK_T *given =
            ik_fetch((int32_t)dtype, x + from * step * j->size, step, together ? lines * count : n, scratch);
        given += together ? of.from : 0;
        for (int64_t r = 0; r < lines; r++)
            IK_OF(add_run)(to + (first_row + (at + r) * j->rows.stride - top) * j->pitch, given + r * count, n);
    }
}

/* Store a row of sums, whose remainders are put in turn. */
static inline void IK_OF(put_row)(const job *j, const IK_T *sum, char *y, int64_t columns, IK_T *scratch)
{
    const int64_t stride = j->columns.stride;
    for (int64_t r = 0; r < stride && r < columns; r++)
        for (int64_t i = r, at = r * j->each; i < columns; i += stride, at++)
            scratch[i] = sum[at];
    ik_put(j->ty->dtype, scratch, y, j->ty->strides[3], columns, false);
}

#if defined(__AVX512F__)
/* The elements from x on whose bits are set, in the compute type. What the others' memory has is not read. */
static inline __attribute__((always_inline)) IK_OF(ik_vector)
    IK_OF(load_masked)(const int32_t dtype, unsigned mask, const char *x)
{
    if (sizeof(IK_T) == sizeof(double))
        return (IK_OF(ik_vector))_mm512_maskz_loadu_pd((__mmask8)mask, x);
    if (dtype == IK_F32)
        return (IK_OF(ik_vector))_mm512_maskz_loadu_ps((__mmask16)mask, x);
    const __m256i half = _mm256_maskz_loadu_epi16((__mmask16)mask, x);
    return dtype == IK_F16 ? (IK_OF(ik_vector))_mm512_cvtph_ps(half)
                           : (IK_OF(ik_vector))_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

/* Sum the elements of windows in some vectors of row h. x: where window 0 of the row above the image would have its
 * first element in the first column of these. */
static inline __attribute__((always_inline)) void IK_OF(sum_vectors)(
    const int32_t dtype, const int32_t vectors, const job *j, const char *x, int64_t h, const unsigned *mask, IK_T *sum)
{
    typedef IK_OF(ik_vector) vector;
    enum { LANES = IK_VECTOR / sizeof(IK_T) };
    const axis *a = &j->rows;
    const int64_t size = dtype == IK_F64 ? 8
        : dtype == IK_F32                ? 4
                                         : 2,
                  line = j->tx->strides[1] * size, right = j->columns.dilation * size, kernel = j->columns.kernel;
    vector made0 = { 0 }, made1 = { 0 }, made2 = { 0 }, made3 = { 0 }; /* no array, which gcc keeps in memory */
    for (int64_t i = 0; i < a->kernel; i++) {
        const int64_t place = h + a->low - i * a->dilation, window = a->stride == 1 ? place : place / a->stride;
        if (place < 0 || window * a->stride != place || window >= a->count)
            continue;
        const char *from = x + i * kernel * line + window * j->columns.count * size;
        const unsigned *own = mask;
        for (int64_t k = 0; k < kernel; k++, from += line - right, own += VECTORS) {
            made0 += IK_OF(load_masked)(dtype, own[0], from);
            if (vectors > 1)
                made1 += IK_OF(load_masked)(dtype, own[1], from + LANES * size);
            if (vectors > 2)
                made2 += IK_OF(load_masked)(dtype, own[2], from + 2 * LANES * size);
            if (vectors > 3)
                made3 += IK_OF(load_masked)(dtype, own[3], from + 3 * LANES * size);
        }
    }
    vector *to = (vector *)sum;
    to[0] = made0, to[1] = made1, to[2] = made2, to[3] = made3;
}

/* Rows of a part in vectors. */
static inline __attribute__((always_inline)) void IK_OF(sum_rows)(
    const int32_t dtype, const job *j, const char *x, int64_t left, int64_t columns, int64_t top, int64_t rows, char *y)
{
    enum { LANES = IK_VECTOR / sizeof(IK_T), STEP = VECTORS * LANES };
    const axis *a = &j->columns;
    const int64_t *ys = j->ty->strides;
    unsigned mask[MAX_KERNEL * VECTORS];
    IK_T sum[STEP] IK_ALIGNED;
    for (int64_t at = 0; at < columns; at += STEP, y += STEP * ys[3] * j->size) {
        const int64_t n = ik_min(STEP, columns - at);
        for (int64_t k = 0; k < a->kernel; k++) {
            const int64_t first = left + at - k * a->dilation + a->low; /* the window of the first column */
            for (int64_t v = 0; v < VECTORS; v++) {
                const int64_t low = ik_min(LANES, ik_max(0, -(first + v * LANES))),
                              high = ik_max(low, ik_min(LANES, a->count - first - v * LANES));
                mask[k * VECTORS + v] = ((1u << high) - 1) & ~((1u << low) - 1);
            }
        }
        const char *from = x + (left + at + a->low) * j->size;
        for (int64_t h = top; h < top + rows; h++) {
            if (n <= LANES)
                IK_OF(sum_vectors)(dtype, 1, j, from, h, mask, sum);
            else if (n <= 2 * LANES)
                IK_OF(sum_vectors)(dtype, 2, j, from, h, mask, sum);
            else if (n <= 3 * LANES)
                IK_OF(sum_vectors)(dtype, 3, j, from, h, mask, sum);
            else
                IK_OF(sum_vectors)(dtype, 4, j, from, h, mask, sum);
            ik_put(j->ty->dtype, sum, y + (h - top) * ys[2] * j->size, ys[3], n, false);
        }
    }
}
#endif

/* Tasks begin .. end: numbered by planes, bands, parts. */
static void IK_OF(add)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t *shape = j->ty->shape, *xs = j->tx->strides, *ys = j->ty->strides;
    IK_T sum[SUMS] IK_ALIGNED, scratch[SUMS] IK_ALIGNED;
    for (int64_t task = begin; task < end; task++) {
        const int64_t left = task % j->parts * j->width, top = task / j->parts % j->bands * j->band,
                      plane = task / j->parts / j->bands, c = plane % shape[1], n = plane / shape[1],
                      columns = ik_min(j->width, shape[3] - left), rows = ik_min(j->band, shape[2] - top);
        char *y = j->y + (n * ys[0] + c * ys[1] + top * ys[2] + left * ys[3]) * j->size;
#if defined(__AVX512F__)
        if (j->in_registers) {
            const char *x = j->x + (n * xs[0] + c * j->rows.kernel * j->columns.kernel * xs[1]) * j->size;
            if (j->ty->dtype == IK_F16)
                IK_OF(sum_rows)(IK_F16, j, x, left, columns, top, rows, y);
            else if (j->ty->dtype == IK_BF16)
                IK_OF(sum_rows)(IK_BF16, j, x, left, columns, top, rows, y);
            else
                IK_OF(sum_rows)(sizeof(IK_T) == sizeof(double) ? IK_F64 : IK_F32, j, x, left, columns, top, rows, y);
            continue;
        }
#endif
        memset(sum, 0, (size_t)(rows * j->pitch) * sizeof *sum);
        for (int64_t i = 0; i < j->rows.kernel; i++) {
            const run of = windows_within(&j->rows, i, top, top + rows);
            const int64_t first = i * j->rows.dilation - j->rows.low;
            for (int64_t k = 0; k < j->columns.kernel && of.from < of.end; k++) {
                const int64_t line = (c * j->rows.kernel + i) * j->columns.kernel + k;
                const char *x = j->x + (n * xs[0] + line * xs[1]) * j->size;
                IK_OF(add_plane)(j, x, k, left, columns, first, top, of, sum, scratch);
            }
        }
        for (int64_t h = 0; h < rows; h++)
            IK_OF(put_row)(j, sum + h * j->pitch, y + h * ys[2] * j->size, columns, scratch);
    }
}

#endif
