/* The rules of isokern_cast.h for C's other types: 64-bit integers rounded to odd, written so that a compiler
 * vectorises it. */
#ifndef IK_CAST_H
#define IK_CAST_H
#include "convert.h"
#include "isokern_cast.h"

static IK_INLINE float ik_u64_to_odd(uint64_t x)
{
    bool wide = x >> 53 != 0; /* in that case the low bits become one sticky bit, far below the last bit of F32 */
    return ik_f64_to_odd((double)(int64_t)(wide ? x >> 12 | ((x & 0xfff) != 0) : x) * (wide ? 0x1p12 : 1.0));
}

static IK_INLINE float ik_i64_to_odd(int64_t x)
{
    float size = ik_u64_to_odd(x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
    return x < 0 ? -size : size;
}

#endif
