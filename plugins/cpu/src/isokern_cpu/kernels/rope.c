/* rope: rotates pairs of a head's elements by position * frequency; y, x and positions have the dims [*b, s, h, d].
 *
 * Cosine and sine of the angles of a position are computed once for all its heads, by tiles of pairs. Frequencies that
 * are not given are computed in F64. The elements after the rotated ones are copied. Heads that are adjacent in memory
 * are loaded, rotated and stored together. This file includes itself, for float and for double. */
#ifndef IK_T
#include "runs.h"
#include "operators/rope.h"

enum { TILE = IK_TILE / 2, PREFETCH = 2048 }; /* TILE: pairs; PREFETCH: bytes between a head and what is prefetched */

typedef struct job {
    const ik_tensor *ty, *tx, *tp, *tf;
    char *y;
    const char *x;
    const char *positions;    /* null: start + step */
    const float *freqs;       /* null: exp(-slope i) */
    int64_t start, steps, heads, d, pairs, size;
    int64_t together; /* heads processed at once */
    double slope, magnitude;
    bool adjacent, stream, dense;
} job;

/* Compute magnitude * cos and sin of position * freqs where all angles are near 0, in fewer steps to the same bits;
 * false where they are not. */
static bool find_near_f32(float magnitude, float position, int64_t n, const float *freqs, float *cos, float *sin)
{
    uint32_t max = 0; /* magnitudes as integers of the same order: compilers do not vectorise a maximum of floats */
    for (int64_t i = 0; i < n; i++) {
        const uint32_t size = ik_bits(position * freqs[i]) & 0x7fffffffu;
        max = size > max ? size : max;
    }
    if (!(ik_float(max) < IK_NEAR_F32))
        return false;
    IK_VECTORISE for (int64_t i = 0; i < n; i++) {
        const float angle = position * freqs[i];
        cos[i] = magnitude * ik_cos_near_f32(angle);
        sin[i] = magnitude * ik_sin_near_f32(angle);
    }
    return true;
}

static bool find_near_f64(double magnitude, double position, int64_t n, const double *freqs, double *cos, double *sin)
{
    (void)magnitude, (void)position, (void)n, (void)freqs, (void)cos, (void)sin;
    return false;
}

#define IK_FILE "rope.c"
#include "each_type.h"

IK_KERNEL(rope)
{
    IK_UNUSED;
    const ik_rope_attrs *attrs = plan->attrs;
    const ik_tensor *t = plan->tensors;
    int32_t ndim = t->ndim;
    job j = {
        .ty = &t[IK_ROPE_Y], .tx = &t[IK_ROPE_X], .y = ik_ptr(plan, data, IK_ROPE_Y), .x = ik_ptr(plan, data, IK_ROPE_X)
    };
    j.positions = ik_ptr(plan, data, IK_ROPE_POSITIONS);
    j.freqs = ik_ptr(plan, data, IK_ROPE_FREQS);
    if (j.positions != NULL)
        j.tp = &t[IK_ROPE_POSITIONS];
    if (j.freqs != NULL)
        j.tf = &t[IK_ROPE_FREQS];
    j.steps = t->shape[ndim - 3], j.heads = t->shape[ndim - 2], j.d = t->shape[ndim - 1];
    j.size = ik_itemsize(t->dtype);
    j.start = attrs->start_pos;
    j.pairs = (attrs->dims == 0 ? j.d : attrs->dims) / 2;
    j.slope = ik_log_f64(attrs->theta) / (double)ik_max(j.pairs, 1);
    j.magnitude = attrs->magnitude;
    j.adjacent = attrs->pairing == IK_ROPE_ADJACENT;
    int64_t n = ik_numel(t);
    if (n == 0)
        return IK_SUCCESS;
    j.dense = j.pairs > 0 && j.d <= IK_TILE && t->strides[ndim - 1] == 1 && j.tx->strides[ndim - 1] == 1;
    j.together = j.dense && t->strides[ndim - 2] == j.d && j.tx->strides[ndim - 2] == j.d ? IK_TILE / j.d : 1;
    uint64_t odd = (uintptr_t)j.y | (uint64_t)(j.d * j.size) | (uint64_t)(j.pairs * j.size);
    for (int32_t i = 0; i < ndim - 1; i++)
        odd |= (uint64_t)(t->strides[i] * j.size);
    j.stream = n * j.size >= IK_STREAM_BYTES && j.x != j.y && t->strides[ndim - 1] == 1
        && (odd % 64 == 0 || j.pairs * j.size >= 1024);
    ik_parallel_for(n / j.d, IK_THREAD_BYTES / (j.d * j.size), t->dtype == IK_F64 ? rope_f64 : rope_f32, &j);
    return IK_SUCCESS;
}

#else

/* The cosines and sines for `n` pairs. */
typedef struct IK_OF(rotations) {
    IK_T freqs[TILE], cos[TILE], sin[TILE];
    int64_t first, step; /* the tile and the step that they belong to, -1 at first */
} IK_ALIGNED IK_OF(rotations);

static void IK_OF(find_freqs)(const job *j, int64_t first, int64_t n, IK_T *freqs)
{
    if (j->freqs != NULL) {
        const float *given = j->freqs + first * j->tf->strides[0];
        for (int64_t i = 0; i < n; i++)
            freqs[i] = given[i * j->tf->strides[0]];
        return;
    }
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        freqs[i] = (IK_T)ik_exp_f64(-j->slope * (double)(first + i));
}

static void IK_OF(find_rotations)(const job *j, IK_T position, int64_t n, IK_OF(rotations) * t)
{
    const IK_T magnitude = (IK_T)j->magnitude;
    if (IK_OF(find_near)(magnitude, position, n, t->freqs, t->cos, t->sin))
        return;
    IK_VECTORISE for (int64_t i = 0; i < n; i++) {
        const IK_T angle = position * t->freqs[i];
        t->cos[i] = magnitude * IK_OF(ik_cos)(angle);
        t->sin[i] = magnitude * IK_OF(ik_sin)(angle);
    }
}

/* Rotate n pairs (x[0], x[1]), (x[2], x[3]), ...; y may be x. */
static void IK_OF(rotate_adjacent)(int64_t n, const IK_T *x, const IK_OF(rotations) * t, IK_T *y)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++) {
        const IK_T a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * t->cos[i] - b * t->sin[i];
        y[2 * i + 1] = a * t->sin[i] + b * t->cos[i];
    }
}

static void IK_OF(rotate_half)(int64_t n, const IK_T *a, const IK_T *b, const IK_OF(rotations) * t, IK_T *y, IK_T *z)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++) {
        const IK_T p = a[i], q = b[i];
        y[i] = p * t->cos[i] - q * t->sin[i];
        z[i] = p * t->sin[i] + q * t->cos[i];
    }
}

/* Rotate pairs [first, first + n) of one head. */
static void IK_OF(rotate_head)(
    const job *j, const char *x, char *y, int64_t first, int64_t n, const IK_OF(rotations) * t)
{
    IK_T scratch[2][TILE] IK_ALIGNED, made[2][TILE] IK_ALIGNED;
    int32_t dtype = j->tx->dtype;
    int64_t from = j->tx->strides[j->tx->ndim - 1], to = j->ty->strides[j->ty->ndim - 1],
            at = (j->adjacent ? 2 : 1) * first;
    x += at * from * j->size;
    y += at * to * j->size;
    if (j->adjacent) {
        const IK_T *v = ik_fetch(dtype, x, from, 2 * n, scratch[0]);
        IK_T *w = ik_place(dtype, y, to, j->stream, made[0]);
        IK_OF(rotate_adjacent)(n, v, t, w);
        ik_put(dtype, w, y, to, 2 * n, j->stream);
        return;
    }
    const char *x2 = x + j->pairs * from * j->size;
    char *y2 = y + j->pairs * to * j->size;
    const IK_T *a = ik_fetch(dtype, x, from, n, scratch[0]), *b = ik_fetch(dtype, x2, from, n, scratch[1]);
    IK_T *p = ik_place(dtype, y, to, j->stream, made[0]), *q = ik_place(dtype, y2, to, j->stream, made[1]);
    IK_OF(rotate_half)(n, a, b, t, p, q);
    ik_put(dtype, p, y, to, n, j->stream);
    ik_put(dtype, q, y2, to, n, j->stream);
}

static void IK_OF(copy_rest)(const job *j, const char *x, char *y)
{
    IK_T scratch[IK_TILE] IK_ALIGNED;
    int64_t from = j->tx->strides[j->tx->ndim - 1], to = j->ty->strides[j->ty->ndim - 1];
    for (int64_t at = 2 * j->pairs; at < j->d && x != y; at += IK_TILE) {
        int64_t n = ik_min(j->d - at, IK_TILE);
        ik_put(j->ty->dtype, ik_fetch(j->tx->dtype, x + at * from * j->size, from, n, scratch), y + at * to * j->size,
            to, n, j->stream);
    }
}

/* Rotate n adjacent heads, all of them within IK_TILE elements. */
static void IK_OF(rotate_heads)(const job *j, const char *x, char *y, int64_t n, const IK_OF(rotations) * t)
{
    IK_T scratch[IK_TILE] IK_ALIGNED, made[IK_TILE] IK_ALIGNED;
    const IK_T *v = ik_fetch(j->tx->dtype, x, 1, n * j->d, scratch);
    IK_T *w = ik_place(j->ty->dtype, y, 1, j->stream, made);
    for (int64_t i = 0; i < n; i++) {
        const IK_T *from = v + i * j->d;
        IK_T *to = w + i * j->d;
        if (j->adjacent)
            IK_OF(rotate_adjacent)(j->pairs, from, t, to);
        else
            IK_OF(rotate_half)(j->pairs, from, from + j->pairs, t, to, to + j->pairs);
        for (int64_t at = 2 * j->pairs; at < j->d; at++)
            to[at] = from[at];
    }
    ik_put(j->ty->dtype, w, y, 1, n * j->d, j->stream);
}

/* Rotate heads begin to end, counted over all steps. */
static void IK_OF(rope)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    IK_OF(rotations) t;
    t.first = t.step = -1;
    for (int64_t at = begin; at < end;) {
        int64_t step = at / j->heads, head = at % j->heads, n = ik_min(end - at, j->heads - head);
        int64_t xs = j->tx->strides[j->tx->ndim - 2] * j->size, ys = j->ty->strides[j->ty->ndim - 2] * j->size;
        const char *x = j->x + ik_row_offset(j->tx, step, 2) * j->size + head * xs;
        char *y = j->y + ik_row_offset(j->ty, step, 2) * j->size + head * ys;
        int64_t position = j->positions == NULL
            ? j->start + step % j->steps
            : ik_index_at(j->tp->dtype, j->positions, ik_row_offset(j->tp, step, 2));
        for (int64_t first = 0; first < j->pairs; first += TILE) {
            int64_t count = ik_min(j->pairs - first, TILE);
            if (first != t.first)
                IK_OF(find_freqs)(j, first, count, t.freqs);
            if (first != t.first || step != t.step)
                IK_OF(find_rotations)(j, (IK_T)position, count, &t);
            t.first = first;
            t.step = step;
            for (int64_t i = 0, heads; i < n; i += heads) {
                heads = ik_min(n - i, j->together);
                if (j->stream)
                    ik_prefetch(x + i * xs + PREFETCH, heads * j->d * j->size);
                if (j->dense)
                    IK_OF(rotate_heads)(j, x + i * xs, y + i * ys, heads, &t);
                else
                    IK_OF(rotate_head)(j, x + i * xs, y + i * ys, first, count, &t);
            }
        }
        for (int64_t i = 0; i < n && 2 * j->pairs < j->d && !j->dense; i++)
            IK_OF(copy_rest)(j, x + i * xs, y + i * ys);
        at += n;
    }
    if (j->stream)
        ik_stream_fence();
}

#endif
