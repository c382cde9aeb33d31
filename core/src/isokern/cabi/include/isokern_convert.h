/* Runs of elements of any type to and from the compute types: F32 for the small floats, F64, and I64 and U64 for
 * integers and booleans. ik_load and ik_store choose by the types; any alignment of the elements' own size. */
#ifndef ISOKERN_CONVERT_H
#define ISOKERN_CONVERT_H
#include <stdint.h>
#include <string.h>

#include "isokern_dtypes.h"
#include "isokern_half.h"

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

static inline void ik_f16_run_to_f32(int64_t n, const uint16_t *in, float *out)
{
    int64_t whole = 0; /* elements in whole vectors */
#if defined(__AVX512F__)
    whole = n - n % 16;
    for (int64_t i = 0; i < whole; i += 16)
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(in + i))));
#elif defined(__F16C__)
    whole = n - n % 8;
    for (int64_t i = 0; i < whole; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i))));
#else
    IK_VECTORISE
#endif
    for (int64_t i = whole; i < n; i++)
        out[i] = ik_f16_to_f32(in[i]);
}

static inline void ik_f32_run_to_f16(int64_t n, const float *in, uint16_t *out)
{
    int64_t whole = 0; /* elements in whole vectors */
#if defined(__AVX512F__)
    whole = n - n % 16;
    for (int64_t i = 0; i < whole; i += 16)
        _mm256_storeu_si256((__m256i *)(out + i),
            _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    whole = n - n % 8;
    for (int64_t i = 0; i < whole; i += 8)
        _mm_storeu_si128((__m128i *)(out + i),
            _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    IK_VECTORISE
#endif
    for (int64_t i = whole; i < n; i++)
        out[i] = ik_f32_to_f16(in[i]);
}

static inline void ik_bf16_run_to_f32(int64_t n, const uint16_t *in, float *out)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        out[i] = ik_bf16_to_f32(in[i]);
}

static inline void ik_f32_run_to_bf16(int64_t n, const float *in, uint16_t *out)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        out[i] = ik_f32_to_bf16(in[i]);
}

static inline void ik_f8e4m3fn_run_to_f32(int64_t n, const uint8_t *in, float *out)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        out[i] = ik_f8e4m3fn_to_f32(in[i]);
}

static inline void ik_f32_run_to_f8e4m3fn(int64_t n, const float *in, uint8_t *out)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        out[i] = ik_f32_to_f8e4m3fn(in[i]);
}

static inline void ik_f8e5m2_run_to_f32(int64_t n, const uint8_t *in, float *out)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        out[i] = ik_f8e5m2_to_f32(in[i]);
}

static inline void ik_f32_run_to_f8e5m2(int64_t n, const float *in, uint8_t *out)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        out[i] = ik_f32_to_f8e5m2(in[i]);
}

/* Every float that is computed in F32 and is not F32: its code, its name in the functions that convert it, and its type
 * in memory. */
#define IK_SMALL_FLOATS(X) \
    X(IK_F16, f16, uint16_t) X(IK_BF16, bf16, uint16_t) X(IK_F8E4M3FN, f8e4m3fn, uint8_t) X(IK_F8E5M2, f8e5m2, uint8_t)

/* Load n elements of a float dtype, `stride` elements apart, as F32. */
static inline void ik_load_f32(int32_t dtype, const void *from, int64_t stride, int64_t n, float *to)
{
    switch (dtype) {
    case IK_F32:
        if (stride == 1 && n > 0) /* with no elements, the pointers may be null, which memcpy does not take */
            memcpy(to, from, (size_t)n * sizeof *to);
        else
            for (int64_t i = 0; i < n; i++)
                to[i] = ((const float *)from)[i * stride];
        return;
#define IK_CASE(code, name, type) \
    case code: \
        if (stride == 1) \
            ik_##name##_run_to_f32(n, from, to); \
        else \
            for (int64_t i = 0; i < n; i++) \
                to[i] = ik_##name##_to_f32(((const type *)from)[i * stride]); \
        return;
        IK_SMALL_FLOATS(IK_CASE)
#undef IK_CASE
    }
}

/* Store n F32 values to a float dtype, `stride` elements apart. */
static inline void ik_store_f32(int32_t dtype, const float *from, void *to, int64_t stride, int64_t n)
{
    switch (dtype) {
    case IK_F32:
        if (stride == 1 && n > 0) /* as above */
            memcpy(to, from, (size_t)n * sizeof *from);
        else
            for (int64_t i = 0; i < n; i++)
                ((float *)to)[i * stride] = from[i];
        return;
#define IK_CASE(code, name, type) \
    case code: \
        if (stride == 1) \
            ik_f32_run_to_##name(n, from, to); \
        else \
            for (int64_t i = 0; i < n; i++) \
                ((type *)to)[i * stride] = ik_f32_to_##name(from[i]); \
        return;
        IK_SMALL_FLOATS(IK_CASE)
#undef IK_CASE
    }
}

static inline void ik_load_f64(const void *from, int64_t stride, int64_t n, double *to)
{
    const double *x = from;
    for (int64_t i = 0; i < n; i++)
        to[i] = x[i * stride];
}

static inline void ik_store_f64(const double *from, void *to, int64_t stride, int64_t n)
{
    double *y = to;
    for (int64_t i = 0; i < n; i++)
        y[i * stride] = from[i];
}

/* Loops over elements `stride` apart: with a constant stride of 1 they vectorise, hence the pairs of calls below. */
#define IK_LOOP static inline __attribute__((always_inline, unused)) void

/* Booleans to 0 and 1 of the compute type, and back: everything but zero is true. */
IK_LOOP ik_bool_loop_f32(const uint8_t *from, int64_t stride, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i * stride] != 0;
}

IK_LOOP ik_bool_loop_f64(const uint8_t *from, int64_t stride, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i * stride] != 0;
}

IK_LOOP ik_truth_loop_f32(const float *from, uint8_t *to, int64_t stride, int64_t n)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        to[i * stride] = from[i] != 0;
}

IK_LOOP ik_truth_loop_f64(const double *from, uint8_t *to, int64_t stride, int64_t n)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        to[i * stride] = from[i] != 0;
}

static inline void ik_load_bool_f32(const uint8_t *from, int64_t stride, int64_t n, float *to)
{ stride == 1 ? ik_bool_loop_f32(from, 1, n, to) : ik_bool_loop_f32(from, stride, n, to); }

static inline void ik_load_bool_f64(const uint8_t *from, int64_t stride, int64_t n, double *to)
{ stride == 1 ? ik_bool_loop_f64(from, 1, n, to) : ik_bool_loop_f64(from, stride, n, to); }

static inline void ik_store_bool_f32(const float *from, uint8_t *to, int64_t stride, int64_t n)
{ stride == 1 ? ik_truth_loop_f32(from, to, 1, n) : ik_truth_loop_f32(from, to, stride, n); }

static inline void ik_store_bool_f64(const double *from, uint8_t *to, int64_t stride, int64_t n)
{ stride == 1 ? ik_truth_loop_f64(from, to, 1, n) : ik_truth_loop_f64(from, to, stride, n); }

/* Widen n integers or booleans to 64 bits (sign- or zero-extended; U64 keeps its bits). */
IK_LOOP ik_widen_loop(int32_t dtype, const void *from, int64_t stride, int64_t n, int64_t *to)
{
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: \
        for (int64_t i = 0; i < n; i++) \
            to[i] = (int64_t)((const type *)from)[i * stride]; \
        return;
        IK_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] = ((const uint8_t *)from)[i * stride] != 0;
    }
}

/* Narrow n 64-bit integers to an integer dtype (the low bits) or to booleans. */
IK_LOOP ik_narrow_loop(int32_t dtype, const int64_t *from, void *to, int64_t stride, int64_t n)
{
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: \
        for (int64_t i = 0; i < n; i++) \
            ((type *)to)[i * stride] = (type)from[i]; \
        return;
        IK_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    default:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)to)[i * stride] = from[i] != 0;
    }
}

/* Not inlined: each expands to nine loops, twice. */
static __attribute__((noinline, unused)) void ik_load_i64(
    int32_t dtype, const void *from, int64_t stride, int64_t n, int64_t *to)
{ stride == 1 ? ik_widen_loop(dtype, from, 1, n, to) : ik_widen_loop(dtype, from, stride, n, to); }

static __attribute__((noinline, unused)) void ik_store_i64(
    int32_t dtype, const int64_t *from, void *to, int64_t stride, int64_t n)
{ stride == 1 ? ik_narrow_loop(dtype, from, to, 1, n) : ik_narrow_loop(dtype, from, to, stride, n); }

/* Not inlined: it has many loops. */
static __attribute__((noinline, unused)) void ik_load(
    int32_t compute, int32_t dtype, const char *from, int64_t stride, int64_t n, void *to)
{
    const float *x = (const float *)(const void *)from;
    float *values = to;
    if (compute == IK_F32 && dtype == IK_F32 && stride == 2) /* windows with a step of two, which vectorises */
        for (int64_t i = 0; i < n; i++)
            values[i] = x[2 * i];
    else if (compute == IK_F32 && dtype != IK_BOOL)
        ik_load_f32(dtype, from, stride, n, to);
    else if (compute == IK_F64 && dtype != IK_BOOL)
        ik_load_f64(from, stride, n, to);
    else if (compute == IK_I64 || compute == IK_U64)
        ik_load_i64(dtype, from, stride, n, to);
    else if (compute == IK_F32) /* a condition next to floats */
        ik_load_bool_f32((const uint8_t *)from, stride, n, to);
    else
        ik_load_bool_f64((const uint8_t *)from, stride, n, to);
}

static __attribute__((noinline, unused)) void ik_store(
    int32_t compute, int32_t dtype, const void *from, char *to, int64_t stride, int64_t n)
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

#endif
