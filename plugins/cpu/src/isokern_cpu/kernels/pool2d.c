/* max_pool2d, avg_pool2d and adaptive_avg_pool2d, NCHW, any strides: by output rows, in F32 (in F64 for F64, and for
 * means of many elements, whose error in F32 would exceed the tolerance: n terms added in a row may lose n / 4 units in
 * the last place).
 *
 * max: y = max of the window inside x, NaN where it contains one. avg: sum / number inside x, or / whole window
 * (count_include_pad). adaptive: mean over rows i h / oh to ceil((i + 1) h / oh), and columns likewise. */
#ifndef IK_T
#include "convert.h"
#include "operators/avg_pool2d.h"
#include "operators/max_pool2d.h"

enum {
    COLUMNS = 1024,
    OUTPUTS = 512,
    EXACT_TAPS = 16,
    ROWS = 8,
    PREFETCH_BYTES = 1 << 13,
    LARGEST = 0,
    MEAN = 1,
    BINS = 2
};

typedef struct pool {
    const ik_tensor *y, *x;
    char *y_data;
    const char *x_data;
    int32_t mode;
    bool count_all, in_place; /* in_place: rows of x are contiguous, in the compute type */
    int64_t kernel[2], step[2], pad[2], spread[2]; /* (height, width); pad: top and left */
    int64_t height, width;                         /* of a plane, for bins */
    int64_t outputs;                               /* outputs of a row computed at a time */
    int64_t rows, pitch;                           /* whole rows computed at a time, with so many columns for each */
    int64_t prefetch_bytes;                        /* bytes to prefetch while a row is computed */
} pool;

/* The number of positions at + k * step, k < count, in 0 .. size - 1, and the first such k. */
static int64_t inside(int64_t at, int64_t step, int64_t count, int64_t size, int64_t *first)
{
    *first = 0;
    if (at >= 0 && at + (count - 1) * step < size) /* the usual case, without divisions */
        return count;
    *first = at < 0 ? ik_ceil_div(-at, step) : 0;
    int64_t end = at >= size ? 0 : ik_min(count, ik_ceil_div(size - at, step));
    return ik_max(0, end - *first);
}

static int64_t bin_begin(int64_t i, int64_t size, int64_t bins) { return i * size / bins; }
static int64_t bin_end(int64_t i, int64_t size, int64_t bins) { return ik_ceil_div((i + 1) * size, bins); }

static void load_f64(int32_t dtype, const void *from, int64_t stride, int64_t n, double *to)
{
    float narrow[COLUMNS];
    if (dtype == IK_F64) {
        ik_load_f64(from, stride, n, to);
        return;
    }
    bool direct = dtype == IK_F32 && stride == 1;
    if (!direct)
        ik_load_f32(dtype, from, stride, n, narrow);
    const float *x = direct ? from : narrow;
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        to[i] = x[i];
}

static void store_f64(int32_t dtype, const double *from, void *to, int64_t stride, int64_t n)
{
    float narrow[OUTPUTS];
    if (dtype == IK_F64) {
        ik_store_f64(from, to, stride, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        narrow[i] = (float)from[i];
    ik_store_f32(dtype, narrow, to, stride, n);
}

static void load_f32(int32_t dtype, const void *from, int64_t stride, int64_t n, float *to)
{ ik_load_f32(dtype, from, stride, n, to); }

static void store_f32(int32_t dtype, const float *from, void *to, int64_t stride, int64_t n)
{ ik_store_f32(dtype, from, to, stride, n); }

#define IK_FILE "pool2d.c"
#include "each_type.h"
#include "pool2d_vectors.h"

/* Read one or two integers as (height, width); `otherwise` where the list is empty. */
static void pair(const ik_ints *given, const int64_t *otherwise, int64_t *to)
{
    to[0] = given->count == 0 ? otherwise[0] : given->v[0];
    to[1] = given->count == 0 ? otherwise[1] : given->v[given->count - 1];
}

static void read_window(
    pool *p, const ik_ints *kernel, const ik_ints *stride, const ik_ints *padding, const ik_ints *dilation)
{
    const int64_t ones[2] = { 1, 1 };
    pair(kernel, ones, p->kernel);
    pair(stride, p->kernel, p->step);
    pair(dilation, ones, p->spread);
    p->pad[0] = padding->v[0]; /* one, two (h, w) or four (top, left, bottom, right) */
    p->pad[1] = padding->count == 1 ? padding->v[0] : padding->v[1];
}

IK_KERNEL(pool2d)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_MAX_POOL2D_Y], *x = &plan->tensors[IK_MAX_POOL2D_X];
    pool p = {
        .y = y, .x = x, .y_data = ik_ptr(plan, data, IK_MAX_POOL2D_Y), .x_data = ik_ptr(plan, data, IK_MAX_POOL2D_X)
    };
    p.height = x->shape[2], p.width = x->shape[3], p.outputs = OUTPUTS, p.rows = 1;
    if (plan->kind == IK_OP_MAX_POOL2D) {
        const ik_max_pool2d_attrs *a = plan->attrs;
        p.mode = LARGEST;
        read_window(&p, &a->kernel, &a->stride, &a->padding, &a->dilation);
    } else if (plan->kind == IK_OP_AVG_POOL2D) {
        const ik_avg_pool2d_attrs *a = plan->attrs;
        p.mode = MEAN;
        p.count_all = a->count_include_pad != 0;
        read_window(&p, &a->kernel, &a->stride, &a->padding, &a->dilation);
    } else {
        p.mode = BINS;
    }
    ik_tensor flat = *x;
    if (p.mode == BINS && y->shape[2] == 1 && y->shape[3] == 1 && x->strides[2] == p.width * x->strides[3]) {
        flat.shape[3] = p.width *= p.height; /* one bin covers a plane: a single run */
        flat.shape[2] = p.height = 1;
        p.x = &flat;
    }
    int64_t work = p.width;
    bool exact = x->dtype == IK_F64;
    if (p.mode == BINS) { /* the columns of a bin are added in 16 partial sums */
        exact |= p.height > EXACT_TAPS * y->shape[2] || p.width > 16 * EXACT_TAPS * y->shape[3];
    } else {
        exact |= p.mode == MEAN && ik_max(p.kernel[0], p.kernel[1]) > EXACT_TAPS;
        int64_t window = ik_min(COLUMNS / 2, p.spread[1] * (p.kernel[1] - 1)); /* wider windows are computed in parts */
        p.outputs = ik_max(1, ik_min(OUTPUTS, (COLUMNS - 1 - window) / p.step[1] + 1));
        work = p.width * ik_min(p.kernel[0], p.height);
    }
    if (p.mode != BINS && x->strides[3] == 1 && x->strides[2] == p.width && p.spread[0] == 1)
        p.prefetch_bytes = ik_min(4096, p.step[0] * p.width * ik_itemsize(x->dtype));
    const int64_t n = y->shape[3], reach = p.spread[1] * (p.kernel[1] - 1) + 1;
    if (p.mode != BINS && n > 1 && y->strides[3] == 1 && y->strides[2] == n) {
        p.pitch = ik_max(reach, p.step[1]) + (n - 1) * p.step[1];
        const int64_t near =
            p.prefetch_bytes > 0 ? PREFETCH_BYTES / p.prefetch_bytes : ROWS; /* rows whose x stays in L1 */
        p.rows = ik_max(1, ik_min(ik_min(ROWS, near), ik_min(COLUMNS / p.pitch, OUTPUTS / n)));
    }
    p.in_place = x->strides[3] == 1 && x->dtype == (exact ? IK_F64 : IK_F32);
#ifdef IK_MASKS
    /* Not where x has no rows: each window's first row is read without a check. */
    if (p.mode == LARGEST && p.step[1] == 2 && p.kernel[1] == 3 && p.spread[0] == 1 && p.spread[1] == 1
        && x->dtype == IK_F32 && x->strides[3] == 1 && y->strides[3] == 1 && p.height > 0) {
        const int64_t all = y->shape[0] * y->shape[1] * y->shape[2];
        ik_parallel_for(all, IK_THREAD_BYTES / 4 / ik_max(1, work) + 1, max_rows, &p);
        return IK_SUCCESS;
    }
#endif
    int64_t rows = y->shape[0] * y->shape[1] * y->shape[2], grain = IK_THREAD_BYTES / 4 / ik_max(1, work) + 1;
    ik_parallel_for(rows, grain, exact ? rows_f64 : rows_f32, &p);
    return IK_SUCCESS;
}

#else
#include "pool2d_rows.h"
#endif
