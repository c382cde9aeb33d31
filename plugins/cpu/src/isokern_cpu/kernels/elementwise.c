/* Every elementwise row: tiles of at most IK_TILE elements are brought to the compute type in L1, the row runs, the result goes back.
 *
 * Contiguous tensors of the compute type skip the tiles; results beyond IK_STREAM_BYTES are computed in a tile and streamed. The rows
 * are compiled from core's expressions, once a compute type (elementwise_rows.h). */
#if !defined(__clang__) /* or gcc follows a NaN in an attribute through clip, mish and gelu_tanh, and leaves branches that it cannot vectorise */
#pragma GCC optimize("no-tree-pre")
#endif
#include "convert.h"

typedef struct ik_row {
    uint32_t kind;
    int32_t compute;
    void (*run)(int64_t n, const void *const *in, void *out, const void *attrs);
} ik_row;

#include "elementwise_rows.h"

#define F32(OP, name) { IK_OP_##OP, IK_F32, row_##name##_f32 },
#define F64(OP, name) { IK_OP_##OP, IK_F64, row_##name##_f64 },
#define I64(OP, name) { IK_OP_##OP, IK_I64, row_##name##_i64 },
#define U64(OP, name) { IK_OP_##OP, IK_U64, row_##name##_u64 },
static const ik_row ik_rows[] = { IK_ROWS_F32(F32) IK_ROWS_F64(F64) IK_ROWS_I64(I64) IK_ROWS_U64(U64) };

enum { MOST_INPUTS = 4, MOST_ATTRS = 8 };

typedef struct job {
    const ik_plan *plan;
    const ik_row *row;
    int32_t inputs;
    char *y;
    const char *x[MOST_INPUTS];
    bool stream;
    union {
        float f32[MOST_ATTRS];
        double f64[MOST_ATTRS];
        int64_t i64[MOST_ATTRS];
    } attrs;
} job;

typedef union tile {
    float f32[IK_TILE];
    double f64[IK_TILE];
    int64_t i64[IK_TILE];
} __attribute__((aligned(64))) tile;

static int32_t compute_of(int32_t dtype)
{
    switch (dtype) {
    case IK_F32: case IK_F16: case IK_BF16: return IK_F32;
    case IK_F64: return IK_F64;
    case IK_U64: return IK_U64;
    default: return IK_I64;
    }
}

static const ik_row *find_row(const ik_plan *plan)
{
    int32_t compute = compute_of(plan->tensors[plan->tensor_count - 1].dtype); /* the last input has the row's type */
    for (size_t i = 0; i < sizeof ik_rows / sizeof *ik_rows; i++)
        if (ik_rows[i].kind == plan->kind && ik_rows[i].compute == compute)
            return &ik_rows[i];
    return NULL;
}

/* The float attributes of the blob, in the compute type (integers: truncated and saturated). */
static void read_attrs(job *j)
{
    int64_t count = ik_min((int64_t)(j->plan->attr_bytes / 8), MOST_ATTRS);
    for (int64_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)j->plan->attrs + 8 * i, 8);
        if (j->row->compute == IK_F32)
            j->attrs.f32[i] = (float)value;
        else if (j->row->compute == IK_F64)
            j->attrs.f64[i] = value;
        else
            j->attrs.i64[i] = value >= 0x1p63 ? INT64_MAX : value <= -0x1p63 ? INT64_MIN : value == value ? (int64_t)value : 0;
    }
}

static void load(int32_t compute, int32_t dtype, const char *from, int64_t stride, int64_t n, void *to)
{
    if (compute == IK_F32 && dtype != IK_BOOL)
        ik_load_f32(dtype, from, stride, n, to);
    else if (compute == IK_F64 && dtype != IK_BOOL)
        ik_load_f64(from, stride, n, to);
    else if (compute == IK_I64 || compute == IK_U64)
        ik_load_i64(dtype, from, stride, n, to);
    else if (compute == IK_F32) /* a condition beside floats */
        ik_load_bool_f32((const uint8_t *)from, stride, n, to);
    else
        ik_load_bool_f64((const uint8_t *)from, stride, n, to);
}

static void store(int32_t compute, int32_t dtype, const void *from, char *to, int64_t stride, int64_t n)
{
    if (compute == IK_F32 && dtype != IK_BOOL)
        ik_store_f32(dtype, from, to, stride, n);
    else if (compute == IK_F64 && dtype != IK_BOOL)
        ik_store_f64(from, to, stride, n);
    else if (compute == IK_I64 || compute == IK_U64)
        ik_store_i64(dtype, from, to, stride, n);
    else if (compute == IK_F32)
        ik_store_bool_f32(from, (uint8_t *)to, stride, n);
    else
        ik_store_bool_f64(from, (uint8_t *)to, stride, n);
}

/* A run of a normal form: `count` elements from linear index `at`, walked as pieces of the innermost dim. */
typedef void piece(int32_t compute, int32_t dtype, char *memory, int64_t stride, int64_t n, char *tile);

static void load_piece(int32_t compute, int32_t dtype, char *memory, int64_t stride, int64_t n, char *to)
{
    load(compute, dtype, memory, stride, n, to);
}

static void store_piece(int32_t compute, int32_t dtype, char *memory, int64_t stride, int64_t n, char *from)
{
    store(compute, dtype, from, memory, stride, n);
}

static void walk(int32_t compute, const ik_tensor *t, char *base, int64_t at, int64_t count, char *values, piece *each)
{
    int64_t index[IK_MAX_RANK], last = t->ndim - 1, size = ik_itemsize(t->dtype), width = compute == IK_F32 ? 4 : 8;
    int64_t offset = 0;
    for (int64_t d = last, rest = at; d >= 0; d--) {
        index[d] = rest % t->shape[d];
        rest /= t->shape[d];
        offset += index[d] * t->strides[d];
    }
    for (;;) {
        int64_t run = ik_min(count, t->shape[last] - index[last]);
        each(compute, t->dtype, base + offset * size, t->strides[last], run, values);
        count -= run;
        if (count == 0)
            return;
        values += run * width;
        offset -= index[last] * t->strides[last];
        index[last] = 0;
        for (int64_t d = last - 1; d >= 0; d--) { /* odometer */
            offset += t->strides[d];
            if (++index[d] < t->shape[d])
                break;
            offset -= index[d] * t->strides[d];
            index[d] = 0;
        }
    }
}

static bool dense(const ik_tensor *t)
{
    int64_t count = 1;
    for (int32_t d = t->ndim - 1; d >= 0; d--) {
        if (t->strides[d] != count)
            return false;
        count *= t->shape[d];
    }
    return true;
}

/* Where the elements from `at` onwards can be used in place: they have the compute type and lie side by side; else null. */
static char *direct(int32_t compute, const ik_tensor *t, bool is_dense, char *base, int64_t at, int64_t count)
{
    int64_t last = t->ndim - 1, size = ik_itemsize(t->dtype);
    if (t->dtype != compute)
        return NULL;
    if (is_dense)
        return base + at * size;
    if (t->strides[last] != 1 || at % t->shape[last] + count > t->shape[last])
        return NULL;
    return base + (at % t->shape[last] + ik_row_offset(t, at / t->shape[last], 1)) * size;
}

static void run_tiles(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const ik_tensor *t = j->plan->tensors;
    int32_t compute = j->row->compute;
    int64_t size = ik_itemsize(t->dtype);
    tile tiles[MOST_INPUTS], result, packed;
    const void *in[MOST_INPUTS];
    bool is_dense[1 + MOST_INPUTS], is_scalar[MOST_INPUTS];
    for (int32_t i = 0; i <= j->inputs; i++)
        is_dense[i] = dense(&t[i]);
    for (int32_t i = 0; i < j->inputs; i++) {
        in[i] = &tiles[i];
        is_scalar[i] = t[1 + i].ndim == 1 && t[1 + i].strides[0] == 0;
        if (is_scalar[i]) /* one tile serves every step */
            walk(compute, &t[1 + i], (char *)(uintptr_t)j->x[i], begin, ik_min(IK_TILE, end - begin), (char *)&tiles[i], load_piece);
    }
    for (int64_t at = begin; at < end; at += IK_TILE) {
        int64_t n = ik_min(IK_TILE, end - at);
        for (int32_t i = 0; i < j->inputs; i++) {
            char *base = (char *)(uintptr_t)j->x[i];
            if (is_scalar[i])
                continue;
            in[i] = direct(compute, &t[1 + i], is_dense[1 + i], base, at, n);
            if (in[i] == NULL) {
                in[i] = &tiles[i];
                walk(compute, &t[1 + i], base, at, n, (char *)&tiles[i], load_piece);
            }
        }
        char *place = direct(compute, &t[0], is_dense[0], j->y, at, n);
        void *out = place != NULL && !j->stream ? (void *)place : (void *)&result;
        j->row->run(n, in, out, &j->attrs);
        if (out == place)
            continue;
        if (!j->stream || (place == NULL && !is_dense[0])) {
            walk(compute, &t[0], j->y, at, n, (char *)&result, store_piece);
        } else if (place != NULL) {
            ik_stream_copy(place, &result, n * size);
        } else {
            store(compute, t->dtype, &result, (char *)&packed, 1, n);
            ik_stream_copy(j->y + at * size, &packed, n * size);
        }
    }
    if (j->stream)
        ik_stream_fence();
}

IK_SUPPORTED(elementwise)
{
    for (uint32_t i = 0; i < plan->tensor_count; i++)
        if (plan->tensors[i].ndim < 1)
            return "a tensor of rank 0: the normal form has one dim at least";
    return find_row(plan) != NULL ? NULL : "no row for this operator and dtype";
}

IK_KERNEL(elementwise)
{
    IK_UNUSED;
    job j = { .plan = plan, .row = find_row(plan), .inputs = (int32_t)plan->tensor_count - 1 };
    if (j.row == NULL || j.inputs > MOST_INPUTS)
        return ik_fail(IK_NOT_IMPLEMENTED, "no row for this operator and dtype");
    read_attrs(&j);
    j.y = ik_ptr(plan, data, 0);
    for (int32_t i = 0; i < j.inputs; i++)
        j.x[i] = ik_ptr(plan, data, 1 + (uint32_t)i);
    int64_t n = ik_numel(&plan->tensors[0]), bytes = n * ik_itemsize(plan->tensors[0].dtype);
    bool overwrites = false; /* in place: the lines are in the cache already */
    for (int32_t i = 0; i < j.inputs; i++)
        overwrites |= j.x[i] == j.y;
    j.stream = bytes >= IK_STREAM_BYTES && !overwrites;
    int64_t grain = IK_THREAD_BYTES / ik_itemsize(plan->tensors[0].dtype);
    ik_parallel_for(n, grain, run_tiles, &j);
    return IK_SUCCESS;
}
