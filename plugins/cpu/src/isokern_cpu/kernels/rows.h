/* Rows of floats: sums and maxima of a run, loads and stores in the compute type, and the walk over rows that softmax and the norms share.
 *
 * The part after "typed" is compiled for float and for double: this header includes itself, with IK_REAL and IK_TYPED set. */
#ifndef IK_ROWS_H
#define IK_ROWS_H
#include "convert.h"

#if defined(__AVX512F__)
enum { IK_VECTOR = 64 };
#elif defined(__AVX__)
enum { IK_VECTOR = 32 };
#else
enum { IK_VECTOR = 16 };
#endif

#define IK_ALIGNED __attribute__((aligned(64))) /* vectors that cross a line cost double */

/* Chunks of a row have a fixed length, so that a result does not depend on the number of threads. */
enum { IK_CHUNK = 4 * IK_TILE };
enum { IK_SUM, IK_SQUARES, IK_MAX, IK_MIN };

/* high + low += x. What high rounds away goes to low (Knuth's TwoSum) where x has all the bits of a double; of floats it can lose little. */
static inline __attribute__((always_inline)) void ik_add_double(double *high, double *low, double x, bool exact)
{
    double sum = *high + x, part = sum - *high;
    if (exact)
        *low += (*high - (sum - part)) + (x - part);
    *high = sum;
}

/* Beyond the finite numbers `low` is NaN and says nothing. */
static inline double ik_join_double(double high, double low) { return low == low ? high + low : high; }

static inline uint64_t ik_round_up(uint64_t bytes) { return (bytes + IK_ALIGNMENT - 1) / IK_ALIGNMENT * IK_ALIGNMENT; }

static inline void ik_prefetch(const char *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + i, 0, 2);
}

#define IK_REAL float
#define IK_TYPED(name) name##_f32
#include "rows.h"
#undef IK_REAL
#undef IK_TYPED
#define IK_REAL double
#define IK_TYPED(name) name##_f64
#include "rows.h"
#undef IK_REAL
#undef IK_TYPED

/* What one pass over a row finds out; the meaning of a and b is the operator's. */
typedef struct ik_stat {
    double a, b;
} ik_stat;

typedef union ik_chunk {
    float f32[IK_CHUNK];
    double f64[IK_CHUNK];
} IK_ALIGNED ik_chunk;

/* y[row] = f(x[row], facts about the whole row): `measure` reads a chunk and may leave values in the buffer, and may
 * fetch what lies `ahead`, as much again (unless null), while it computes; `join` adds the stat of
 * `count` elements to that of the `before` ones; `write` makes at most IK_TILE elements, `kept` being where the chunk lies in the buffer
 * measure was given, or null when other chunks came after. */
typedef struct ik_rows ik_rows;
struct ik_rows {
    const ik_tensor *ty, *tx;
    char *y;
    const char *x;
    const void *operand[2]; /* contiguous, in the compute type; null where absent */
    int64_t rows, d, chunks, size;
    uint32_t kind;
    bool stream;
    double eps;
    ik_stat *stats;
    ik_stat (*measure)(const ik_rows *, const char *x, int64_t n, ik_chunk *, const char *ahead);
    void (*join)(ik_stat *whole, int64_t before, ik_stat part, int64_t count);
    void (*write)(const ik_rows *, const char *x, char *y, int64_t at, int64_t n, const ik_stat *, ik_chunk *, bool kept, const char *ahead);
};

static inline const char *ik_rows_x(const ik_rows *r, int64_t row) { return r->x + ik_row_offset(r->tx, row, 1) * r->size; }
static inline char *ik_rows_y(const ik_rows *r, int64_t row) { return r->y + ik_row_offset(r->ty, row, 1) * r->size; }

/* Few long rows: their chunks are spread over the threads, in two passes. */
static inline bool ik_rows_split(int64_t rows, int64_t d) { return rows < 8 && d > IK_CHUNK; }

static inline bool ik_rows_direct(const ik_tensor *t)
{
    return (t->dtype == IK_F32 || t->dtype == IK_F64) && (t->strides[t->ndim - 1] == 1 || t->shape[t->ndim - 1] == 1);
}

/* The stats of split rows, and the operands that are not there in the compute type already. */
static inline uint64_t ik_rows_workspace(const ik_plan *plan)
{
    const ik_tensor *t = plan->tensors;
    int64_t d = t->shape[t->ndim - 1], rows = d == 0 ? 0 : ik_numel(t) / d;
    uint64_t bytes = ik_rows_split(rows, d) ? ik_round_up((uint64_t)(rows * ((d + IK_CHUNK - 1) / IK_CHUNK)) * sizeof(ik_stat)) : 0;
    for (uint32_t i = 2; i < plan->tensor_count; i++)
        if (ik_present(plan, i) && !ik_rows_direct(&plan->tensors[i]))
            bytes += ik_round_up((uint64_t)d * (t->dtype == IK_F64 ? sizeof(double) : sizeof(float)));
    return bytes;
}

static inline void ik_rows_whole(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_rows *r = context;
    int64_t step = r->tx->strides[r->tx->ndim - 1] * r->size, to = r->ty->strides[r->ty->ndim - 1] * r->size;
    ik_chunk buffer;
    const char *x = ik_rows_x(r, begin);
    for (int64_t row = begin; row < end; row++) {
        char *y = ik_rows_y(r, row);
        const char *following = row + 1 < end ? ik_rows_x(r, row + 1) : NULL;
        const char *ahead = r->chunks == 1 && step == r->size ? following : NULL;
        ik_stat stat = r->measure(r, x, ik_min(r->d, IK_CHUNK), &buffer, ahead);
        for (int64_t at = IK_CHUNK; at < r->d; at += IK_CHUNK) {
            int64_t n = ik_min(r->d - at, IK_CHUNK);
            r->join(&stat, at, r->measure(r, x + at * step, n, &buffer, NULL), n);
        }
        for (int64_t at = 0; at < r->d; at += IK_TILE)
            r->write(r, x + at * step, y + at * to, at, ik_min(r->d - at, IK_TILE), &stat, &buffer, r->chunks == 1, ahead == NULL ? NULL : ahead + at * step);
        x = following;
    }
    if (r->stream)
        ik_stream_fence();
}

static inline void ik_rows_measure(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_rows *r = context;
    int64_t step = r->tx->strides[r->tx->ndim - 1] * r->size;
    ik_chunk buffer;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / r->chunks, at = i % r->chunks * IK_CHUNK;
        r->stats[i] = r->measure(r, ik_rows_x(r, row) + at * step, ik_min(r->d - at, IK_CHUNK), &buffer, NULL);
    }
}

static inline void ik_rows_write(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_rows *r = context;
    int64_t step = r->tx->strides[r->tx->ndim - 1] * r->size, to = r->ty->strides[r->ty->ndim - 1] * r->size;
    ik_chunk buffer;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / r->chunks, first = i % r->chunks * IK_CHUNK, last = ik_min(r->d, first + IK_CHUNK);
        for (int64_t at = first; at < last; at += IK_TILE)
            r->write(r, ik_rows_x(r, row) + at * step, ik_rows_y(r, row) + at * to, at, ik_min(last - at, IK_TILE), &r->stats[row * r->chunks], &buffer, false, NULL);
    }
    if (r->stream)
        ik_stream_fence();
}

/* Fill in what follows from the plan, the caller having set the functions and eps; false where there is nothing to do. */
static inline bool ik_rows_prepare(ik_rows *r, const ik_plan *plan, void *const *data, void *workspace)
{
    const ik_tensor *t = plan->tensors;
    r->ty = &t[0];
    r->tx = &t[1];
    r->d = t->shape[t->ndim - 1];
    r->rows = r->d == 0 ? 0 : ik_numel(t) / r->d;
    r->size = ik_itemsize(t->dtype);
    r->kind = plan->kind;
    if (r->rows == 0)
        return false;
    r->chunks = (r->d + IK_CHUNK - 1) / IK_CHUNK;
    r->y = ik_ptr(plan, data, 0);
    r->x = ik_ptr(plan, data, 1);
    r->stream = r->rows * r->d * r->size >= IK_STREAM_BYTES && r->x != r->y; /* in place: the lines are in the cache already */
    r->stats = workspace;
    char *room = workspace;
    if (ik_rows_split(r->rows, r->d))
        room += ik_round_up((uint64_t)(r->rows * r->chunks) * sizeof(ik_stat));
    for (uint32_t i = 2; i < plan->tensor_count && i < 4; i++) {
        if (!ik_present(plan, i))
            continue;
        int64_t stride = t[i].strides[t[i].ndim - 1];
        r->operand[i - 2] = ik_ptr(plan, data, i);
        if (ik_rows_direct(&t[i]))
            continue;
        if (t->dtype == IK_F64)
            ik_load_f64(r->operand[i - 2], stride, r->d, (double *)(void *)room);
        else
            ik_load_f32(t[i].dtype, r->operand[i - 2], stride, r->d, (float *)(void *)room);
        r->operand[i - 2] = room;
        room += ik_round_up((uint64_t)r->d * (t->dtype == IK_F64 ? sizeof(double) : sizeof(float)));
    }
    return true;
}

static inline void ik_rows_run(ik_rows *r)
{
    if (!ik_rows_split(r->rows, r->d)) {
        ik_parallel_for(r->rows, IK_THREAD_BYTES / (r->d * r->size), ik_rows_whole, r);
        return;
    }
    int64_t grain = IK_THREAD_BYTES / (IK_CHUNK * r->size);
    ik_parallel_for(r->rows * r->chunks, grain, ik_rows_measure, r);
    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t k = 1; k < r->chunks; k++)
            r->join(&r->stats[row * r->chunks], k * IK_CHUNK, r->stats[row * r->chunks + k], ik_min(r->d - k * IK_CHUNK, IK_CHUNK));
    ik_parallel_for(r->rows * r->chunks, grain, ik_rows_write, r);
}

#elif defined(IK_REAL) /* typed */

typedef IK_REAL IK_TYPED(ik_vector) __attribute__((vector_size(IK_VECTOR), aligned(sizeof(IK_REAL)), may_alias));

/* Sum of (x - shift), or of its square: blocks of 16 vectors in the compute type (at most 6 roundings each), blocks in double without loss,
 * so that the error does not grow with n. */
static inline __attribute__((always_inline)) double IK_TYPED(ik_sum_of)(int what, int64_t n, const IK_REAL *x, IK_REAL shift)
{
    typedef IK_TYPED(ik_vector) vector;
    enum { LANES = IK_VECTOR / sizeof(IK_REAL), BLOCK = 16 * LANES };
#define TERM(v) (what == IK_SUM ? (v) - shift : ((v) - shift) * ((v) - shift))
    double high[LANES] = { 0 }, low[LANES] = { 0 };
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t i = at, end = ik_min(n, at + BLOCK);
        vector a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
        for (; i + 4 * LANES <= end; i += 4 * LANES) {
            const vector *v = (const vector *)(x + i);
            a += TERM(v[0]);
            b += TERM(v[1]);
            c += TERM(v[2]);
            d += TERM(v[3]);
        }
        for (; i + LANES <= end; i += LANES)
            b += TERM(*(const vector *)(x + i));
        if (i < end) {
            vector rest = (vector){ 0 } + shift;
            memcpy(&rest, x + i, (size_t)(end - i) * sizeof *x);
            c += TERM(rest);
        }
        a = (a + b) + (c + d);
        IK_REAL lane[LANES];
        memcpy(lane, &a, sizeof a);
        for (int k = 0; k < LANES; k++)
            ik_add_double(&high[k], &low[k], lane[k], sizeof(IK_REAL) == sizeof(double));
    }
#undef TERM
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) {
            high[k] += high[k + half];
            low[k] += low[k + half];
        }
    return ik_join_double(high[0], low[0]);
}

/* The largest (smallest) of n elements, a NaN where there is one; -Inf (Inf) of none. */
static inline __attribute__((always_inline)) IK_REAL IK_TYPED(ik_extreme_of)(int what, int64_t n, const IK_REAL *x)
{
    typedef IK_TYPED(ik_vector) vector;
    enum { LANES = IK_VECTOR / sizeof(IK_REAL) };
    const IK_REAL none = what == IK_MAX ? -(IK_REAL)__builtin_inf() : (IK_REAL)__builtin_inf();
    vector a = (vector){ 0 } + none, b = a, c = a, d = a;
    int64_t i = 0;
/* a where it is beyond b or NaN, else b: a comparison, and a select of bits that compilers know */
#define BEYOND(a, b) ((what == IK_MAX ? (a) > (b) : (a) < (b)) | ((a) != (a)))
#define SELECT(a, b) ((vector)((BEYOND(a, b) & (__typeof__((a) > (b)))(a)) | (~BEYOND(a, b) & (__typeof__((a) > (b)))(b))))
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        const vector *v = (const vector *)(x + i);
        a = SELECT(a, v[0]);
        b = SELECT(b, v[1]);
        c = SELECT(c, v[2]);
        d = SELECT(d, v[3]);
    }
    for (; i + LANES <= n; i += LANES)
        b = SELECT(b, *(const vector *)(x + i));
    if (i < n) {
        vector rest = (vector){ 0 } + none;
        memcpy(&rest, x + i, (size_t)(n - i) * sizeof *x);
        c = SELECT(c, rest);
    }
    a = SELECT(a, b);
    c = SELECT(c, d);
    a = SELECT(a, c);
#undef SELECT
#undef BEYOND
    IK_REAL lane[LANES];
    memcpy(lane, &a, sizeof a);
    for (int k = 1; k < LANES; k++)
        lane[0] = what == IK_MAX ? IK_TYPED(ik_maximum)(lane[0], lane[k]) : IK_TYPED(ik_minimum)(lane[0], lane[k]);
    return lane[0];
}

/* n elements in the compute type: where they are if that can be read in place, else brought to `room`. */
static inline const IK_REAL *IK_TYPED(ik_fetch)(int32_t dtype, const char *from, int64_t stride, int64_t n, IK_REAL *room)
{
    const void *x = from;
    if (stride == 1 && (dtype == IK_F32 || dtype == IK_F64))
        return x;
    if (dtype == IK_F64)
        ik_load_f64(x, stride, n, (double *)(void *)room);
    else
        ik_load_f32(dtype, x, stride, n, (float *)(void *)room);
    return room;
}

/* Where to compute at most IK_TILE results: in y itself, or in `room`, from where ik_put brings them. */
static inline IK_REAL *IK_TYPED(ik_place)(int32_t dtype, char *y, int64_t stride, bool stream, IK_REAL *room)
{
    return stride == 1 && !stream && (dtype == IK_F32 || dtype == IK_F64) ? (IK_REAL *)(void *)y : room;
}

static inline void IK_TYPED(ik_put)(int32_t dtype, const IK_REAL *from, char *y, int64_t stride, int64_t n, bool stream)
{
    if ((const char *)from == y)
        return;
    const void *values = from;
    if (stream && stride == 1) {
        uint16_t half[IK_TILE] IK_ALIGNED;
        if (dtype == IK_F16 || dtype == IK_BF16) {
            ik_store_f32(dtype, values, half, 1, n);
            values = half;
        }
        ik_stream_copy(y, values, n * ik_itemsize(dtype));
    } else if (dtype == IK_F64) {
        ik_store_f64(values, y, stride, n);
    } else {
        ik_store_f32(dtype, values, y, stride, n);
    }
}

#endif
