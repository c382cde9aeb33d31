/* The rules of conversion between element types, one value at a time: what cast, fill and pad agree on.
 *
 * Float to integer truncates, saturates, and maps NaN to 0; integer to integer keeps the low bits; anything to BOOL is != 0. Values
 * wider than F32 reach F16 and BF16 by way of F32 rounded to odd, so that only the second rounding is to nearest. */
#ifndef IK_CAST_H
#define IK_CAST_H
#include "convert.h"

#define IK_SCALAR static inline __attribute__((always_inline))

IK_SCALAR int32_t ik_f32_to_i32(float x) { return x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : x == x ? (int32_t)x : 0; }
IK_SCALAR int64_t ik_f32_to_i64(float x) { return x >= 0x1p63f ? INT64_MAX : x < -0x1p63f ? INT64_MIN : x == x ? (int64_t)x : 0; }
IK_SCALAR uint32_t ik_f32_to_u32(float x) { return x >= 0x1p32f ? UINT32_MAX : x >= 1.0f ? (uint32_t)(int64_t)x : 0; }
IK_SCALAR uint64_t ik_f32_to_u64(float x) { return x >= 0x1p64f ? UINT64_MAX : x >= 1.0f ? (uint64_t)x : 0; }
IK_SCALAR int32_t ik_f64_to_i32(double x) { return x >= 0x1p31 ? INT32_MAX : x < -0x1p31 ? INT32_MIN : x == x ? (int32_t)x : 0; }
IK_SCALAR int64_t ik_f64_to_i64(double x) { return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : x == x ? (int64_t)x : 0; }
IK_SCALAR uint32_t ik_f64_to_u32(double x) { return x >= 0x1p32 ? UINT32_MAX : x >= 1.0 ? (uint32_t)(int64_t)x : 0; }
IK_SCALAR uint64_t ik_f64_to_u64(double x) { return x >= 0x1p64 ? UINT64_MAX : x >= 1.0 ? (uint64_t)x : 0; }

/* `near` is a value rounded to nearest and `above` how it compares with that value in magnitude: the F32 at or below it in
 * magnitude, its last bit set where it is inexact. An infinity that stands for a finite value becomes the largest number. */
IK_SCALAR float ik_odd(float near, bool above, bool exact) { return ik_float(exact ? ik_bits(near) : (ik_bits(near) - above) | 1); }

IK_SCALAR float ik_f64_to_odd(double x)
{
    float near = (float)x;
    double back = near, size = x < 0 ? -x : x, back_size = back < 0 ? -back : back;
    return ik_odd(near, back_size > size, back == x || x != x);
}

IK_SCALAR float ik_u64_to_odd(uint64_t x)
{
    bool wide = x >> 53 != 0; /* then the low bits become one sticky bit, far below F32's last */
    return ik_f64_to_odd((double)(int64_t)(wide ? x >> 12 | ((x & 0xfff) != 0) : x) * (wide ? 0x1p12 : 1.0));
}

IK_SCALAR float ik_i64_to_odd(int64_t x)
{
    float size = ik_u64_to_odd(x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
    return x < 0 ? -size : size;
}

#undef IK_SCALAR

/* `value` as one element of `dtype`. */
static inline void ik_convert_value(double value, int32_t dtype, void *to)
{
    int64_t i = ik_f64_to_i64(value);
    switch (dtype) {
    case IK_F64: memcpy(to, &value, 8); return;
    case IK_F32: memcpy(to, &(float){ (float)value }, 4); return;
    case IK_F16: memcpy(to, &(uint16_t){ ik_f32_to_f16(ik_f64_to_odd(value)) }, 2); return;
    case IK_BF16: memcpy(to, &(uint16_t){ ik_f32_to_bf16(ik_f64_to_odd(value)) }, 2); return;
    case IK_I8: memcpy(to, &(int8_t){ (int8_t)ik_max(INT8_MIN, ik_min(INT8_MAX, i)) }, 1); return;
    case IK_I16: memcpy(to, &(int16_t){ (int16_t)ik_max(INT16_MIN, ik_min(INT16_MAX, i)) }, 2); return;
    case IK_I32: memcpy(to, &(int32_t){ ik_f64_to_i32(value) }, 4); return;
    case IK_I64: memcpy(to, &i, 8); return;
    case IK_U8: memcpy(to, &(uint8_t){ (uint8_t)ik_max(0, ik_min(UINT8_MAX, i)) }, 1); return;
    case IK_U16: memcpy(to, &(uint16_t){ (uint16_t)ik_max(0, ik_min(UINT16_MAX, i)) }, 2); return;
    case IK_U32: memcpy(to, &(uint32_t){ ik_f64_to_u32(value) }, 4); return;
    case IK_U64: memcpy(to, &(uint64_t){ ik_f64_to_u64(value) }, 8); return;
    default: memcpy(to, &(uint8_t){ value != 0 }, 1);
    }
}

#endif
