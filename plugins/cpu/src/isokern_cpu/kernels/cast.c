/* cast: every plain element type to every other by the rules of cast.h.
 *
 * It works on tiles in L1: x is converted to one of five source classes (F32, F64, I32, I64, U64; skipped where x has
 * that type), and each class has a loop to every target. Integers of the same size differ in name only and are
 * moved. */
#include "cast.h"
#include "move.h"
#include "operators/cast.h"

typedef struct job {
    const ik_tensor *to, *from;
    char *y;
    const char *x;
    bool stream;
} job;

/* A position in a tensor, in the order of its dims. */
typedef struct cursor {
    int64_t index[IK_MAX_RANK], offset;
} cursor;

typedef union tile {
    char bytes[8 * IK_TILE];
    float f32[IK_TILE];
} __attribute__((aligned(64))) tile;

static int32_t class_of(int32_t dtype)
{
    if (ik_is_float(dtype))
        return ik_compute_of(dtype);
    switch (dtype) {
    case IK_I64:
    case IK_U32: return IK_I64;
    case IK_U64: return IK_U64;
    default: return IK_I32;
    }
}

/* Convert n contiguous elements to their class. */
static void widen(int32_t dtype, int64_t n, const void *from, void *to)
{
    int32_t *wide = to;
    switch (dtype) {
#define IK_CASE(code, name, type) \
    case code: ik_##name##_run_to_f32(n, from, to); return;
        IK_SMALL_FLOATS(IK_CASE)
#undef IK_CASE
    case IK_U32: IK_VECTORISE for (int64_t i = 0; i < n; i++)((int64_t *)to)[i] = ((const uint32_t *)from)[i]; return;
    case IK_I8: IK_VECTORISE for (int64_t i = 0; i < n; i++) wide[i] = ((const int8_t *)from)[i]; return;
    case IK_I16: IK_VECTORISE for (int64_t i = 0; i < n; i++) wide[i] = ((const int16_t *)from)[i]; return;
    case IK_U8: IK_VECTORISE for (int64_t i = 0; i < n; i++) wide[i] = ((const uint8_t *)from)[i]; return;
    case IK_U16: IK_VECTORISE for (int64_t i = 0; i < n; i++) wide[i] = ((const uint16_t *)from)[i]; return;
    default: IK_VECTORISE for (int64_t i = 0; i < n; i++) wide[i] = ((const uint8_t *)from)[i] != 0; /* BOOL */
    }
}

/* Convert element i of a class to each kind of target; `source` is a constant wherever these are inlined. */
#define ELEMENT static inline __attribute__((always_inline))
#define AT(type) (((const type *)x)[i])

ELEMENT int32_t as_i32(int32_t source, const void *x, int64_t i)
{
    return source == IK_F32 ? ik_f32_to_i32(AT(float))
        : source == IK_F64  ? ik_f64_to_i32(AT(double))
        : source == IK_I32  ? AT(int32_t)
                            : (int32_t)AT(int64_t);
}

/* Floats saturate at the target's limits; integers keep their low bits. */
ELEMENT int32_t as_small(int32_t source, const void *x, int64_t i, int32_t low, int32_t high)
{
    int32_t v = as_i32(source, x, i);
    return source != IK_F32 && source != IK_F64 ? v : v < low ? low : v > high ? high : v;
}

ELEMENT uint32_t as_u32(int32_t source, const void *x, int64_t i)
{
    return source == IK_F32 ? ik_f32_to_u32(AT(float))
        : source == IK_F64  ? ik_f64_to_u32(AT(double))
                            : (uint32_t)as_i32(source, x, i);
}

ELEMENT int64_t as_i64(int32_t source, const void *x, int64_t i)
{
    return source == IK_F32 ? ik_f32_to_i64(AT(float))
        : source == IK_F64  ? ik_f64_to_i64(AT(double))
        : source == IK_I32  ? AT(int32_t)
                            : AT(int64_t);
}

ELEMENT uint64_t as_u64(int32_t source, const void *x, int64_t i)
{
    return source == IK_F32 ? ik_f32_to_u64(AT(float))
        : source == IK_F64  ? ik_f64_to_u64(AT(double))
                            : (uint64_t)as_i64(source, x, i);
}

ELEMENT float as_f32(int32_t source, const void *x, int64_t i)
{
    return source == IK_F32 ? AT(float)
        : source == IK_F64  ? (float)AT(double)
        : source == IK_I32  ? (float)AT(int32_t)
        : source == IK_I64  ? (float)AT(int64_t)
                            : (float)AT(uint64_t);
}

ELEMENT double as_f64(int32_t source, const void *x, int64_t i)
{
    return source == IK_F32 ? AT(float)
        : source == IK_F64  ? AT(double)
        : source == IK_I32  ? AT(int32_t)
        : source == IK_I64  ? (double)AT(int64_t)
                            : (double)AT(uint64_t);
}

ELEMENT float as_odd(int32_t source, const void *x, int64_t i)
{
    return source == IK_F64 ? ik_f64_to_odd(AT(double))
        : source == IK_I32  ? ik_f64_to_odd(AT(int32_t))
        : source == IK_I64  ? ik_i64_to_odd(AT(int64_t))
                            : ik_u64_to_odd(AT(uint64_t));
}

ELEMENT bool as_bool(int32_t source, const void *x, int64_t i)
{
    return source == IK_F32 ? AT(float) != 0
        : source == IK_F64  ? AT(double) != 0
        : source == IK_I32  ? AT(int32_t) != 0
                            : AT(int64_t) != 0;
}

ELEMENT void narrow_from(int32_t source, int32_t dtype, int64_t n, const void *x, void *y, float *odd)
{
    switch (dtype) {
    case IK_F64: IK_VECTORISE for (int64_t i = 0; i < n; i++)((double *)y)[i] = as_f64(source, x, i); return;
    case IK_F32: IK_VECTORISE for (int64_t i = 0; i < n; i++)((float *)y)[i] = as_f32(source, x, i); return;
    case IK_I8:
        IK_VECTORISE for (int64_t i = 0; i < n; i++)((int8_t *)y)[i] =
            (int8_t)as_small(source, x, i, INT8_MIN, INT8_MAX);
        return;
    case IK_I16:
        IK_VECTORISE for (int64_t i = 0; i < n; i++)((int16_t *)y)[i] =
            (int16_t)as_small(source, x, i, INT16_MIN, INT16_MAX);
        return;
    case IK_I32: IK_VECTORISE for (int64_t i = 0; i < n; i++)((int32_t *)y)[i] = as_i32(source, x, i); return;
    case IK_I64: IK_VECTORISE for (int64_t i = 0; i < n; i++)((int64_t *)y)[i] = as_i64(source, x, i); return;
    case IK_U8:
        IK_VECTORISE for (int64_t i = 0; i < n; i++)((uint8_t *)y)[i] = (uint8_t)as_small(source, x, i, 0, UINT8_MAX);
        return;
    case IK_U16:
        IK_VECTORISE for (int64_t i = 0; i < n; i++)((uint16_t *)y)[i] =
            (uint16_t)as_small(source, x, i, 0, UINT16_MAX);
        return;
    case IK_U32: IK_VECTORISE for (int64_t i = 0; i < n; i++)((uint32_t *)y)[i] = as_u32(source, x, i); return;
    case IK_U64: IK_VECTORISE for (int64_t i = 0; i < n; i++)((uint64_t *)y)[i] = as_u64(source, x, i); return;
    case IK_BOOL: IK_VECTORISE for (int64_t i = 0; i < n; i++)((uint8_t *)y)[i] = as_bool(source, x, i); return;
    default: break; /* small floats */
    }
    if (source != IK_F32) IK_VECTORISE
        for (int64_t i = 0; i < n; i++)
            odd[i] = as_odd(source, x, i);
    const float *f32 = source == IK_F32 ? x : odd;
    ik_store_f32(dtype, f32, y, 1, n);
}

/* Convert n contiguous elements of a class to any dtype. */
static void narrow(int32_t source, int32_t dtype, int64_t n, const void *x, void *y, float *odd)
{
    switch (source) {
    case IK_F32: narrow_from(IK_F32, dtype, n, x, y, odd); return;
    case IK_F64: narrow_from(IK_F64, dtype, n, x, y, odd); return;
    case IK_I32: narrow_from(IK_I32, dtype, n, x, y, odd); return;
    case IK_I64: narrow_from(IK_I64, dtype, n, x, y, odd); return;
    default: narrow_from(IK_U64, dtype, n, x, y, odd);
    }
}

static cursor start(const ik_tensor *t, int64_t at)
{
    cursor c = { .offset = 0 };
    for (int32_t d = t->ndim - 1; d >= 0; d--) {
        c.index[d] = at % t->shape[d];
        at /= t->shape[d];
        c.offset += c.index[d] * t->strides[d];
    }
    return c;
}

/* Advance by at most n elements within the innermost dim; returns how many. */
static int64_t advance(const ik_tensor *t, cursor *c, int64_t n)
{
    int32_t d = t->ndim - 1;
    n = ik_min(n, t->shape[d] - c->index[d]);
    c->index[d] += n, c->offset += n * t->strides[d];
    for (; d >= 0 && c->index[d] == t->shape[d]; d--) {
        c->offset -= c->index[d] * t->strides[d];
        c->index[d] = 0;
        if (d > 0)
            c->index[d - 1]++, c->offset += t->strides[d - 1];
    }
    return n;
}

static void move(int64_t size, int64_t n, char *y, int64_t y_stride, const char *x, int64_t x_stride)
{
    switch (size) {
    case 1: ik_move_elements(1, n, y, y_stride, x, x_stride); return;
    case 2: ik_move_elements(2, n, y, 2 * y_stride, x, 2 * x_stride); return;
    case 4: ik_move_elements(4, n, y, 4 * y_stride, x, 4 * x_stride); return;
    default: ik_move_elements(8, n, y, 8 * y_stride, x, 8 * x_stride);
    }
}

static bool contiguous(const ik_tensor *t) { return t->ndim == 1 && t->strides[0] == 1; }

static void run_tiles(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    int64_t from_size = ik_itemsize(j->from->dtype), to_size = ik_itemsize(j->to->dtype);
    int32_t source = class_of(j->from->dtype);
    cursor from = start(j->from, begin), to = start(j->to, begin);
    tile given, wide, odd, made;
    for (int64_t at = begin; at < end; at += IK_TILE) {
        int64_t n = ik_min(IK_TILE, end - at);
        const char *x = j->x + at * from_size;
        char *y = contiguous(j->to) && !j->stream ? j->y + at * to_size : made.bytes;
        if (j->stream && contiguous(j->from))
            ik_prefetch_near(x + IK_TILE * from_size, ik_min(IK_TILE, end - at - n) * from_size);
        if (!contiguous(j->from)) {
            for (int64_t done = 0, run; done < n; done += run) {
                const char *piece = j->x + from.offset * from_size;
                run = advance(j->from, &from, n - done);
                move(from_size, run, given.bytes + done * from_size, 1, piece, j->from->strides[j->from->ndim - 1]);
            }
            x = given.bytes;
        }
        if (source == j->to->dtype) {
            widen(j->from->dtype, n, x, y);
        } else {
            if (source != j->from->dtype)
                widen(j->from->dtype, n, x, &wide);
            narrow(source, j->to->dtype, n, source != j->from->dtype ? (const void *)&wide : x, y, odd.f32);
        }
        if (j->stream)
            ik_stream_copy(j->y + at * to_size, made.bytes, n * to_size);
        else if (!contiguous(j->to))
            for (int64_t done = 0, run; done < n; done += run) {
                char *piece = j->y + to.offset * to_size;
                run = advance(j->to, &to, n - done);
                move(to_size, run, piece, j->to->strides[j->to->ndim - 1], made.bytes + done * to_size, 1);
            }
    }
    if (j->stream)
        ik_stream_fence();
}

IK_KERNEL(cast)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_CAST_Y], *x = &plan->tensors[IK_CAST_X];
    job j = { .to = y, .from = x, .y = ik_ptr(plan, data, IK_CAST_Y), .x = ik_ptr(plan, data, IK_CAST_X) };
    int64_t from_size = ik_itemsize(x->dtype), to_size = ik_itemsize(y->dtype), n = ik_numel(y);
    if (x->dtype == y->dtype || (from_size == to_size && ik_is_integer(x->dtype) && ik_is_integer(y->dtype))) {
        ik_block block = ik_block_of(to_size, y->ndim, y->shape, j.y, y->strides, j.x, x->strides);
        ik_move(&block);
        return IK_SUCCESS;
    }
    j.stream = contiguous(y) && n * to_size >= IK_STREAM_BYTES;
    ik_parallel_for(n, IK_THREAD_BYTES / ik_max(from_size, to_size), run_tiles, &j);
    return IK_SUCCESS;
}
