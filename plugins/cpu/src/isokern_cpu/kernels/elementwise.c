/* Every elementwise operator: tiles of at most IK_TILE elements are converted to the compute type in L1, the scalar
 * expression is computed, and the result is converted back.
 *
 * Contiguous tensors of the compute type are used in place; results larger than IK_STREAM_BYTES are computed in a tile
 * and streamed. The functions are compiled from core's scalar expressions, once for each compute type
 * (elementwise_rows.h); those of each float type in a part of their own. */
/* gcc follows a NaN in an attribute through clip and mish, and leaves branches that it cannot vectorise. */
#if !defined(__clang__)
#pragma GCC optimize("no-tree-pre")
#endif
#include "kernel.h"
#if IK_IN_PART(0)
#include "walk.h"

#include "isokern_cast.h"
#endif

typedef struct ik_row {
    uint32_t kind;
    int32_t compute;
    void (*run)(int64_t n, const void *const *in, void *out, const void *attrs);
} ik_row;

#include "part_types.h"
#include "elementwise_rows.h"

#define F32(kind, name) { kind, IK_F32, row_##name##_f32 },
#define F64(kind, name) { kind, IK_F64, row_##name##_f64 },
#define I64(kind, name) { kind, IK_I64, row_##name##_i64 },
#define U64(kind, name) { kind, IK_U64, row_##name##_u64 },
/* Both end with a row without a function. */
extern const ik_row IK_SHARED(elementwise_f32)[], IK_SHARED(elementwise_f64)[];

#if IK_IN_PART(1)
const ik_row IK_SHARED(elementwise_f32)[] = { IK_ROWS_F32(F32){ 0 } };
#endif
#if IK_IN_PART(2)
const ik_row IK_SHARED(elementwise_f64)[] = { IK_ROWS_F64(F64){ 0 } };
#endif

#if IK_IN_PART(0)
static const ik_row integers[] = { IK_ROWS_I64(I64) IK_ROWS_U64(U64){ 0 } };

enum { MAX_INPUTS = 4, MAX_ATTRS = 8 };

typedef struct job {
    const ik_plan *plan;
    const ik_row *row;
    int32_t inputs;
    char *y;
    const char *x[MAX_INPUTS];
    bool stream;
    union {
        float f32[MAX_ATTRS];
        double f64[MAX_ATTRS];
        int64_t i64[MAX_ATTRS];
    } attrs;
} job;

typedef union tile {
    float f32[IK_TILE];
    double f64[IK_TILE];
    int64_t i64[IK_TILE];
} __attribute__((aligned(64))) tile;

static const ik_row *find_row(const ik_plan *plan)
{
    /* The last input has the compute type's dtype. */
    int32_t compute = ik_compute_of(plan->tensors[plan->tensor_count - 1].dtype);
    const ik_row *row = compute == IK_F32 ? IK_PART_NAME(elementwise_f32)
        : compute == IK_F64               ? IK_PART_NAME(elementwise_f64)
                                          : integers;
    while (row->run != NULL && (row->kind != plan->kind || row->compute != compute))
        row++;
    return row->run != NULL ? row : NULL;
}

/* Read the float attributes of the blob in the compute type; for integers as `cast` converts them to their type. */
static void read_attrs(job *j)
{
    const int32_t dtype = j->plan->tensors[j->inputs].dtype;
    int64_t count = ik_min((int64_t)(j->plan->attr_bytes / 8), MAX_ATTRS);
    for (int64_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)j->plan->attrs + 8 * i, 8);
        if (j->row->compute == IK_F32)
            j->attrs.f32[i] = (float)value;
        else if (j->row->compute == IK_F64)
            j->attrs.f64[i] = value;
        else {
            uint64_t bits = 0;
            ik_convert_value(value, dtype, &bits);
            ik_load_i64(dtype, (const char *)&bits, 1, 1, &j->attrs.i64[i]); /* of U64: its bits */
        }
    }
}

static void run_tiles(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const ik_tensor *t = j->plan->tensors;
    int32_t compute = j->row->compute;
    int64_t size = ik_itemsize(t->dtype);
    tile tiles[MAX_INPUTS], result, packed;
    const void *in[MAX_INPUTS];
    ik_lanes lanes[1 + MAX_INPUTS];
    bool is_scalar[MAX_INPUTS];
    for (int32_t i = 0; i <= j->inputs; i++)
        lanes[i] = ik_lanes_of(&t[i], compute, 0, t[i].ndim);
    for (int32_t i = 0; i < j->inputs; i++) {
        in[i] = &tiles[i];
        is_scalar[i] = t[1 + i].ndim == 1 && t[1 + i].strides[0] == 0;
        if (is_scalar[i]) /* one tile serves every step */
            ik_lanes_load(&lanes[1 + i], j->x[i], begin, ik_min(IK_TILE, end - begin), &tiles[i]);
    }
    for (int64_t at = begin; at < end; at += IK_TILE) {
        int64_t n = ik_min(IK_TILE, end - at);
        for (int32_t i = 0; i < j->inputs; i++) {
            char *base = (char *)(uintptr_t)j->x[i];
            if (is_scalar[i])
                continue;
            in[i] = ik_lanes_in_place(&lanes[1 + i], base, at, n);
            if (in[i] == NULL) {
                in[i] = &tiles[i];
                ik_lanes_load(&lanes[1 + i], base, at, n, &tiles[i]);
            }
        }
        char *place = ik_lanes_in_place(&lanes[0], j->y, at, n);
        void *out = place != NULL && !j->stream ? (void *)place : (void *)&result;
        j->row->run(n, in, out, &j->attrs);
        if (out == place)
            continue;
        if (!j->stream || (place == NULL && !lanes[0].dense)) {
            ik_lanes_store(&lanes[0], j->y, at, n, &result);
        } else if (place != NULL) {
            ik_stream_copy(place, &result, n * size);
        } else {
            ik_store(compute, t->dtype, &result, (char *)&packed, 1, n);
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
    if (j.row == NULL || j.inputs > MAX_INPUTS)
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
#endif
