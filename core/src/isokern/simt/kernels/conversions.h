/* Casts by the rules of isokern_cast.h: MAKE(y, i, GIVEN(x, j)) converts element j of x to element i of y. */
#ifndef IK_CONVERSIONS_H
#define IK_CONVERSIONS_H
#include "simt.h"
#include "isokern_cast.h"

/* The magnitude of an integer of 32 bits or more as F32, rounded to odd: at least 11 bits are kept above the last. */
static IK_INLINE float magnitude_to_odd(ik_u64 m)
{
    const int shift = m >> 52 ? 40 : m >> 38 ? 28 : m >> 24 ? 14 : 0;
    const ik_u64 kept = m >> shift, lost = m & (((ik_u64)1 << shift) - 1);
    return (float)(ik_i32)(kept | (lost != 0)) * (float)((ik_u64)1 << shift);
}

/* The value that x holds, and the same rounded to F32 such that a second rounding is harmless (`odd`). */
#if defined(IK_COMPUTE_F32) || defined(IK_COMPUTE_F64)
#define GIVEN(from, i) IK_PASTE(ik_load_, IK_TYPE_x)(from, i)
#ifdef IK_COMPUTE_F64
#define WHOLE(v, t) ik_f64_to_##t(v)
#define ODD(v) ik_f64_to_odd(v)
#else
#define WHOLE(v, t) ik_f32_to_##t(v)
#define ODD(v) (v)
#endif
#define CLAMP(v, t, low, high) (t) ik_clamp_i64(WHOLE(v, i32), low, high)
#else
#define GIVEN(from, i) IK_PASTE(given_, IK_TYPE_x)((from)[i])
#define given_BOOL(v) ((v) != 0)
#define given_I8(v) (v)
#define given_I16(v) (v)
#define given_I32(v) (v)
#define given_I64(v) (v)
#define given_U8(v) (v)
#define given_U16(v) (v)
#define given_U32(v) (v)
#define given_U64(v) (v)
#define WHOLE(v, t) (v)
#define CLAMP(v, t, low, high) (t)(v)
#if IK_SIZE_x < 4
#define ODD(v) (float)(v)
#elif defined(IK_COMPUTE_U64)
#define ODD(v) magnitude_to_odd(v)
#else
#define ODD(v) ((v) < 0 ? -magnitude_to_odd(0 - (ik_u64)(v)) : magnitude_to_odd((ik_u64)(v)))
#endif
#endif

#define MAKE(to, i, v) IK_PASTE(make_, IK_TYPE_y)(to, i, v)
#define make_I8(to, i, v) (to)[i] = CLAMP(v, ik_i8, INT8_MIN, INT8_MAX)
#define make_I16(to, i, v) (to)[i] = CLAMP(v, ik_i16, INT16_MIN, INT16_MAX)
#define make_I32(to, i, v) (to)[i] = (ik_i32)WHOLE(v, i32)
#define make_I64(to, i, v) (to)[i] = (ik_i64)WHOLE(v, i64)
#define make_U8(to, i, v) (to)[i] = CLAMP(v, ik_u8, 0, UINT8_MAX)
#define make_U16(to, i, v) (to)[i] = CLAMP(v, ik_u16, 0, UINT16_MAX)
#define make_U32(to, i, v) (to)[i] = (ik_u32)WHOLE(v, u32)
#define make_U64(to, i, v) (to)[i] = (ik_u64)WHOLE(v, u64)
#define make_BOOL(to, i, v) (to)[i] = (ik_bool)((v) != 0)
#define make_F32(to, i, v) (to)[i] = (float)(v)
#define make_F64(to, i, v) (to)[i] = (ik_f64)(v)
#endif
