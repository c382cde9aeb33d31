/* pad: each line of y along its last dim is border, x, border; a line outside x is border throughout. */
#include "cast.h"
#include "move.h"
#include "operators/pad.h"

typedef struct job {
    char *y;
    const char *x;
    int64_t size;
    int32_t ndim; /* at least 1 */
    /* Y's and x's dims; steps in bytes. */
    int64_t shape[IK_MAX_RANK], inner[IK_MAX_RANK], low[IK_MAX_RANK], ys[IK_MAX_RANK], xs[IK_MAX_RANK];
    char value[8];
    bool stream;
} job;

/* Write lines begin to end, counted over all dims but the last. */
static void pad_lines(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    int32_t last = j->ndim - 1;
    int64_t low = j->low[last], n = j->inner[last], high = j->shape[last] - low - n, step = j->ys[last];
    for (int64_t line = begin; line < end; line++) {
        char *y = j->y;
        const char *x = j->x;
        bool outside = n == 0;
        for (int64_t d = last - 1, rest = line; d >= 0; d--) {
            int64_t index = rest % j->shape[d], from = index - j->low[d];
            rest /= j->shape[d];
            y += index * j->ys[d], x += from * j->xs[d];
            outside |= from < 0 || from >= j->inner[d];
        }
        if (outside) {
            ik_move_line(j->size, j->shape[last], y, step, j->value, 0, j->stream);
            continue;
        }
        if (low > 0)
            ik_move_line(j->size, low, y, step, j->value, 0, false);
        ik_move_line(j->size, n, y + low * step, step, x, j->xs[last], j->stream);
        if (high > 0)
            ik_move_line(j->size, high, y + (low + n) * step, step, j->value, 0, false);
    }
    if (j->stream)
        ik_stream_fence();
}

/* Write y where all of it is one line: its three parts are shared among threads. */
static void pad_one_line(const job *j)
{
    int64_t still = 0, ys = j->ys[0] / j->size, xs = j->xs[0] / j->size, low = j->low[0], n = j->inner[0],
            high = j->shape[0] - low - n;
    ik_block before = ik_block_of(j->size, 1, &low, j->y, &ys, j->value, &still);
    ik_block middle = ik_block_of(j->size, 1, &n, j->y + low * j->ys[0], &ys, j->x, &xs);
    ik_block after = ik_block_of(j->size, 1, &high, j->y + (low + n) * j->ys[0], &ys, j->value, &still);
    ik_move(&before);
    ik_move(&middle);
    ik_move(&after);
}

IK_KERNEL(pad)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_PAD_Y], *x = &plan->tensors[IK_PAD_X];
    const ik_pad_attrs *attrs = plan->attrs;
    job j = { .y = ik_ptr(plan, data, IK_PAD_Y), .x = ik_ptr(plan, data, IK_PAD_X), .size = ik_itemsize(y->dtype) };
    int64_t count = ik_numel(y);
    if (count == 0)
        return IK_SUCCESS;
    ik_convert_value(attrs->value, y->dtype, j.value);
    /* A dim without border is merged into the one before it where both tensors allow it. */
    for (int32_t i = 0; i < y->ndim; i++) {
        int64_t n = y->shape[i], ys = y->strides[i] * j.size, xs = x->strides[i] * j.size;
        int32_t at = j.ndim - 1;
        if (at >= 0 && n == x->shape[i] && j.ys[at] == ys * n && j.xs[at] == xs * n) {
            j.shape[at] *= n, j.inner[at] *= n, j.low[at] *= n;
        } else {
            at = j.ndim++;
            j.shape[at] = n, j.inner[at] = x->shape[i], j.low[at] = attrs->low.v[i];
        }
        j.ys[at] = ys, j.xs[at] = xs;
    }
    if (j.ndim == 0)
        j.ndim = 1, j.shape[0] = j.inner[0] = 1, j.ys[0] = j.xs[0] = j.size;
    int64_t line = j.shape[j.ndim - 1];
    j.stream = count * j.size >= IK_STREAM_BYTES && j.ys[j.ndim - 1] == j.size && line * j.size >= 1024;
    if (j.ndim == 1)
        pad_one_line(&j);
    else
        ik_parallel_for(count / line, ik_max(1, IK_THREAD_BYTES / (line * j.size)), pad_lines, &j);
    return IK_SUCCESS;
}
