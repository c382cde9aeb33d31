/* fold: y[n, c, h, w] = the sum of the elements of windows that lie there; a task is a row of y, to which the runs of
 * window elements that meet it are added. This file includes itself, for float and for double.
 *
 * Against loop nests over padded copies of x, it takes between a third and a half of the time. */
#ifndef IK_T
#include "runs.h"
#include "operators/fold.h"

/* Of one direction: elements of a window, from window to window and from element to element, before the image, and how
 * many windows there are. */
typedef struct axis {
    int64_t kernel, stride, dilation, low, count;
} axis;

typedef struct job {
    const ik_tensor *ty, *tx;
    char *y;
    const char *x;
    int64_t size;
    axis rows, columns;
} job;

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
    const int64_t terms = ik_ceil_div(j.rows.kernel, j.rows.stride) * j.columns.kernel;
    ik_parallel_for(shape[0] * shape[1] * shape[2], 1 + IK_THREAD_BYTES / (j.size * shape[3] * (1 + terms)),
        j.ty->dtype == IK_F64 ? add_f64 : add_f32, &j);
    return IK_SUCCESS;
}

#else

/* Add windows' elements number k to n columns of y from `at` on; they are from `x` on, one for each window. */
static void IK_OF(add_run)(const job *j, int64_t k, const char *x, int64_t at, int64_t n, IK_T *sum, IK_T *scratch)
{
    const axis *a = &j->columns;
    const int64_t first = k * a->dilation - a->low, last = at + n - 1 - first, step = j->tx->strides[2],
                  from = at > first ? ik_ceil_div(at - first, a->stride) : 0,
                  end = last < 0 ? 0 : ik_min(a->count, last / a->stride + 1);
    if (from >= end)
        return;
    const IK_T *given = ik_fetch(j->tx->dtype, x + from * step * j->size, step, end - from, scratch);
    IK_T *to = sum + first + from * a->stride - at;
    if (a->stride == 1) {
        IK_VECTORISE for (int64_t i = 0; i < end - from; i++)
            to[i] += given[i];
    } else {
        for (int64_t i = 0; i < end - from; i++)
            to[i * a->stride] += given[i];
    }
}

/* Rows begin .. end of y. */
static void IK_OF(add)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const axis *a = &j->rows;
    const int64_t *shape = j->ty->shape, *xs = j->tx->strides, *ys = j->ty->strides, kernel = j->columns.kernel;
    IK_T sum[IK_TILE] IK_ALIGNED, scratch[IK_TILE] IK_ALIGNED;
    for (int64_t row = begin; row < end; row++) {
        const int64_t h = row % shape[2], c = row / shape[2] % shape[1], n = row / shape[2] / shape[1];
        const char *image = j->x + n * xs[0] * j->size;
        char *y = j->y + (n * ys[0] + c * ys[1] + h * ys[2]) * j->size;
        for (int64_t at = 0; at < shape[3]; at += IK_TILE) {
            const int64_t count = ik_min(IK_TILE, shape[3] - at);
            char *to = y + at * ys[3] * j->size;
            IK_T *out = ik_place(j->ty->dtype, to, ys[3], false, sum);
            memset(out, 0, (size_t)count * sizeof *out);
            for (int64_t i = 0; i < a->kernel; i++) {
                const int64_t place = h + a->low - i * a->dilation, window = place / a->stride;
                if (place < 0 || window * a->stride != place || window >= a->count)
                    continue;
                for (int64_t k = 0; k < kernel; k++) {
                    const int64_t line = (c * a->kernel + i) * kernel + k;
                    const char *x = image + (line * xs[1] + window * j->columns.count * xs[2]) * j->size;
                    IK_OF(add_run)(j, k, x, at, count, out, scratch);
                }
            }
            ik_put(j->ty->dtype, out, to, ys[3], count, false);
        }
    }
}

#endif
