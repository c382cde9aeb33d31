/* The rules of conversion between element types, one value at a time, which cast, fill and pad share. Written for C and
 * C++, on the host or a device (functions that take a double only where the device has doubles).
 *
 * Float to integer truncates, saturates, and maps NaN to 0; integer to integer keeps the low bits; anything to BOOL is
 * != 0. Values wider than F32 are converted to F16 and BF16 by way of F32 rounded to odd, so that only the second
 * rounding is to nearest. */
#ifndef ISOKERN_CAST_H
#define ISOKERN_CAST_H
#ifndef IK_SIMT
#include <isokern_dtypes.h>
#endif
#include "isokern_half.h"

static IK_INLINE int32_t ik_f32_to_i32(float x)
{ return x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : x == x ? (int32_t)x : 0; }
static IK_INLINE int64_t ik_f32_to_i64(float x)
{ return x >= 0x1p63f ? INT64_MAX : x < -0x1p63f ? INT64_MIN : x == x ? (int64_t)x : 0; }
static IK_INLINE uint32_t ik_f32_to_u32(float x)
{ return x >= 0x1p32f ? UINT32_MAX : x >= 1.0f ? (uint32_t)(int64_t)x : 0; }
static IK_INLINE uint64_t ik_f32_to_u64(float x) { return x >= 0x1p64f ? UINT64_MAX : x >= 1.0f ? (uint64_t)x : 0; }
#if !(defined(IK_SIMT) && defined(IK_NO_F64)) /* the word double must not occur in a SIMT source without F64 */
static IK_INLINE int32_t ik_f64_to_i32(double x)
{ return x >= 0x1p31 ? INT32_MAX : x < -0x1p31 ? INT32_MIN : x == x ? (int32_t)x : 0; }
static IK_INLINE int64_t ik_f64_to_i64(double x)
{ return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : x == x ? (int64_t)x : 0; }
static IK_INLINE uint32_t ik_f64_to_u32(double x)
{ return x >= 0x1p32 ? UINT32_MAX : x >= 1.0 ? (uint32_t)(int64_t)x : 0; }
static IK_INLINE uint64_t ik_f64_to_u64(double x) { return x >= 0x1p64 ? UINT64_MAX : x >= 1.0 ? (uint64_t)x : 0; }
#endif

/* Round to odd. `near` is a value rounded to nearest, and `above` is 1 where it exceeds that value in magnitude:
 * returns the F32 at or below the value in magnitude, with the last bit set where it is inexact. An infinity that
 * stands for a finite value becomes the largest finite number. */
static IK_INLINE float ik_odd(float near, int above, int exact)
{ return ik_float(exact ? ik_bits(near) : (ik_bits(near) - (uint32_t)above) | 1); }

#if !(defined(IK_SIMT) && defined(IK_NO_F64)) /* the word double must not occur in a SIMT source without F64 */
static IK_INLINE float ik_f64_to_odd(double x)
{
    float near = (float)x;
    double back = near, size = x < 0 ? -x : x, back_size = back < 0 ? -back : back;
    return ik_odd(near, back_size > size, back == x || x != x);
}
#endif

static IK_INLINE int64_t ik_clamp_i64(int64_t x, int64_t low, int64_t high)
{ return x < low ? low : x > high ? high : x; }

#ifndef IK_SIMT /* SIMT kernels know the dtype when they are compiled */
/* Write `value` to `to` as one element of `dtype`. isokern_convert.h or the plug-in has defined
 * IK_SMALL_FLOATS. */
static inline void ik_convert_value(double value, int32_t dtype, void *to)
{
    const int64_t i = ik_f64_to_i64(value);
    const float f32 = (float)value;
    const uint32_t u32 = ik_f64_to_u32(value);
    const uint64_t u64 = ik_f64_to_u64(value);
    uint64_t bits = 0;
    switch (dtype) {
    case IK_F64: memcpy(to, &value, 8); return;
    case IK_F32: memcpy(to, &f32, 4); return;
    case IK_I64: memcpy(to, &i, 8); return;
    case IK_U32: memcpy(to, &u32, 4); return;
    case IK_U64: memcpy(to, &u64, 8); return;
#define IK_CASE(code, name, type) \
    case code: bits = ik_f32_to_##name(ik_f64_to_odd(value)); break;
        IK_SMALL_FLOATS(IK_CASE)
#undef IK_CASE
    case IK_I8: bits = (uint64_t)ik_clamp_i64(i, INT8_MIN, INT8_MAX); break;
    case IK_I16: bits = (uint64_t)ik_clamp_i64(i, INT16_MIN, INT16_MAX); break;
    case IK_I32: bits = (uint64_t)ik_clamp_i64(i, INT32_MIN, INT32_MAX); break;
    case IK_U8: bits = (uint64_t)ik_clamp_i64(i, 0, UINT8_MAX); break;
    case IK_U16: bits = (uint64_t)ik_clamp_i64(i, 0, UINT16_MAX); break;
    default: bits = value != 0; /* BOOL */
    }
    const uint32_t low = (uint32_t)bits;
    const uint16_t half = (uint16_t)bits;
    const uint8_t byte = (uint8_t)bits;
    switch (ik_itemsize(dtype)) {
    case 4: memcpy(to, &low, 4); return;
    case 2: memcpy(to, &half, 2); return;
    default: memcpy(to, &byte, 1);
    }
}

/* Write `value` plus `offset` to the 8 bytes at `to` as one element of `dtype`: integers are added after the
 * conversion, and wrap; other types are converted from the sum in F64, in which -0 + 0 would be 0. */
static inline void ik_convert_sum(double value, int64_t offset, int32_t dtype, uint64_t *to)
{
    *to = 0;
    ik_convert_value(ik_is_integer(dtype) || offset == 0 ? value : value + (double)offset, dtype, to);
    if (ik_is_integer(dtype))
        *to += (uint64_t)offset;
}
#endif

#endif
