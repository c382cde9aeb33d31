/* Runs of elements of any type to and from any compute type, by the rules of `cast`, for loop nests: ik_load and
 * ik_store of isokern_convert.h, and besides them integers to floats, floats to integers, and smaller floats to F64. */
#ifndef ISOKERN_MIXED_H
#define ISOKERN_MIXED_H
#include "isokern_convert.h"

#include "isokern_cast.h"

/* Integers as floats, rounded to nearest even. */
IK_LOOP ik_round_loop_f32(int32_t dtype, const void *from, int64_t stride, int64_t n, float *to)
{
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: IK_VECTORISE for (int64_t i = 0; i < n; i++) to[i] = (float)((const type *)from)[i * stride]; return;
        IK_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    }
}

IK_LOOP ik_round_loop_f64(int32_t dtype, const void *from, int64_t stride, int64_t n, double *to)
{
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: IK_VECTORISE for (int64_t i = 0; i < n; i++) to[i] = (double)((const type *)from)[i * stride]; return;
        IK_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    }
}

/* Not inlined: each expands to eight loops, twice. */
static __attribute__((noinline, unused)) void ik_round_f32(
    int32_t dtype, const void *from, int64_t stride, int64_t n, float *to)
{ stride == 1 ? ik_round_loop_f32(dtype, from, 1, n, to) : ik_round_loop_f32(dtype, from, stride, n, to); }

static __attribute__((noinline, unused)) void ik_round_f64(
    int32_t dtype, const void *from, int64_t stride, int64_t n, double *to)
{ stride == 1 ? ik_round_loop_f64(dtype, from, 1, n, to) : ik_round_loop_f64(dtype, from, stride, n, to); }

/* Floats truncated to integers of 8 and 16 bits, whose limits floats hold; NaN becomes 0. */
static IK_INLINE int32_t ik_narrow_f32(float x, float low, float high)
{
    x = low == 0 || x == x ? x : 0;
    x = x > low ? x : low;
    return (int32_t)(x < high ? x : high);
}

static IK_INLINE int32_t ik_narrow_f64(double x, double low, double high)
{
    x = low == 0 || x == x ? x : 0;
    x = x > low ? x : low;
    return (int32_t)(x < high ? x : high);
}

/* Floats truncated to each integer type, which saturates: its code, its type in memory, and a float of the type `c` as
 * one. */
#define IK_TRUNCATED(X, c) \
    X(IK_I8, int8_t, ik_narrow_##c(v, INT8_MIN, INT8_MAX)) \
    X(IK_I16, int16_t, ik_narrow_##c(v, INT16_MIN, INT16_MAX)) \
    X(IK_I32, int32_t, ik_##c##_to_i32(v)) \
    X(IK_I64, int64_t, ik_##c##_to_i64(v)) \
    X(IK_U8, uint8_t, ik_narrow_##c(v, 0, UINT8_MAX)) \
    X(IK_U16, uint16_t, ik_narrow_##c(v, 0, UINT16_MAX)) \
    X(IK_U32, uint32_t, ik_##c##_to_u32(v)) \
    X(IK_U64, uint64_t, ik_##c##_to_u64(v))

IK_LOOP ik_truncate_loop_f32(int32_t dtype, const float *from, void *to, int64_t stride, int64_t n)
{
    switch (dtype) {
#define IK_CASE(code, type, value) \
    case code: \
        IK_VECTORISE for (int64_t i = 0; i < n; i++) \
        { \
            const float v = from[i]; \
            ((type *)to)[i * stride] = (type)value; \
        } \
        return;
        IK_TRUNCATED(IK_CASE, f32)
#undef IK_CASE
    }
}

IK_LOOP ik_truncate_loop_f64(int32_t dtype, const double *from, void *to, int64_t stride, int64_t n)
{
    switch (dtype) {
#define IK_CASE(code, type, value) \
    case code: \
        IK_VECTORISE for (int64_t i = 0; i < n; i++) \
        { \
            const double v = from[i]; \
            ((type *)to)[i * stride] = (type)value; \
        } \
        return;
        IK_TRUNCATED(IK_CASE, f64)
#undef IK_CASE
    }
}

static __attribute__((noinline, unused)) void ik_truncate_f32(
    int32_t dtype, const float *from, void *to, int64_t stride, int64_t n)
{ stride == 1 ? ik_truncate_loop_f32(dtype, from, to, 1, n) : ik_truncate_loop_f32(dtype, from, to, stride, n); }

static __attribute__((noinline, unused)) void ik_truncate_f64(
    int32_t dtype, const double *from, void *to, int64_t stride, int64_t n)
{ stride == 1 ? ik_truncate_loop_f64(dtype, from, to, 1, n) : ik_truncate_loop_f64(dtype, from, to, stride, n); }

/* Smaller floats to F64, a piece at a time by way of F32. */
static __attribute__((noinline, unused)) void ik_load_wide(
    int32_t dtype, const char *from, int64_t stride, int64_t n, double *to)
{
    enum { PIECE = 64 };
    float piece[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = n - at < PIECE ? n - at : PIECE;
        ik_load_f32(dtype, from + at * stride * ik_itemsize(dtype), stride, count, piece);
        for (int64_t i = 0; i < count; i++)
            to[at + i] = piece[i];
    }
}

/* Load n elements, `stride` elements apart, as values of the compute type; store values as elements. */
static inline void ik_load_mixed(int32_t compute, int32_t dtype, const char *from, int64_t stride, int64_t n, void *to)
{
    if (compute == IK_F32 && ik_is_integer(dtype))
        ik_round_f32(dtype, from, stride, n, to);
    else if (compute == IK_F64 && ik_is_integer(dtype))
        ik_round_f64(dtype, from, stride, n, to);
    else if (compute == IK_F64 && dtype != IK_F64 && dtype != IK_BOOL)
        ik_load_wide(dtype, from, stride, n, to);
    else
        ik_load(compute, dtype, from, stride, n, to);
}

static inline void ik_store_mixed(int32_t compute, int32_t dtype, const void *from, char *to, int64_t stride, int64_t n)
{
    if (compute == IK_F32 && ik_is_integer(dtype))
        ik_truncate_f32(dtype, from, to, stride, n);
    else if (compute == IK_F64 && ik_is_integer(dtype))
        ik_truncate_f64(dtype, from, to, stride, n);
    else
        ik_store(compute, dtype, from, to, stride, n);
}

#endif
