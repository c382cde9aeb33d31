/* half and bfloat16: each operation is computed in float and rounded to nearest even, as CUDA documents it. */
#ifndef ISOKERN_CUDA_HALF_H
#define ISOKERN_CUDA_HALF_H
#include "isokern_half.h"

#define CUDA_EMULATOR_HALF(T, widen, narrow) \
    struct T { \
        uint16_t bits; \
        T() = default; \
        T(float x) : bits(narrow(x)) {} \
        T(double x) : bits(narrow(static_cast<float>(x))) {} \
        T(int x) : bits(narrow(static_cast<float>(x))) {} \
        T(unsigned x) : bits(narrow(static_cast<float>(x))) {} \
        T(long long x) : bits(narrow(static_cast<float>(x))) {} \
        operator float() const { return widen(bits); } \
        T &operator+=(T y) { return *this = T(float(*this) + float(y)); } \
        T &operator-=(T y) { return *this = T(float(*this) - float(y)); } \
        T &operator*=(T y) { return *this = T(float(*this) * float(y)); } \
        T &operator/=(T y) { return *this = T(float(*this) / float(y)); } \
    }; \
    CUDA_EMULATOR_INLINE T operator-(T x) { return T(-float(x)); } \
    CUDA_EMULATOR_HALF_BINARY(T, T, +, __hadd) \
    CUDA_EMULATOR_HALF_BINARY(T, T, -, __hsub) \
    CUDA_EMULATOR_HALF_BINARY(T, T, *, __hmul) \
    CUDA_EMULATOR_HALF_BINARY(T, T, /, __hdiv) \
    CUDA_EMULATOR_HALF_BINARY(bool, T, ==, __heq) \
    CUDA_EMULATOR_HALF_BINARY(bool, T, !=, __hne) \
    CUDA_EMULATOR_HALF_BINARY(bool, T, <, __hlt) \
    CUDA_EMULATOR_HALF_BINARY(bool, T, <=, __hle) \
    CUDA_EMULATOR_HALF_BINARY(bool, T, >, __hgt) \
    CUDA_EMULATOR_HALF_BINARY(bool, T, >=, __hge) \
    CUDA_EMULATOR_INLINE T __hfma(T x, T y, T z) { return T(fmaf(float(x), float(y), float(z))); } \
    CUDA_EMULATOR_INLINE T __hmin(T x, T y) { return T(fminf(float(x), float(y))); } \
    CUDA_EMULATOR_INLINE T __hmax(T x, T y) { return T(fmaxf(float(x), float(y))); } \
    CUDA_EMULATOR_INLINE T __hneg(T x) { return -x; } \
    CUDA_EMULATOR_INLINE T __habs(T x) { return T(fabsf(float(x))); } \
    CUDA_EMULATOR_INLINE bool __hisnan(T x) { return __builtin_isnan(float(x)); } \
    CUDA_EMULATOR_INLINE bool __hisinf(T x) { return __builtin_isinf(float(x)); } \
    CUDA_EMULATOR_INLINE T hexp(T x) { return T(expf(float(x))); } \
    CUDA_EMULATOR_INLINE T hlog(T x) { return T(logf(float(x))); } \
    CUDA_EMULATOR_INLINE T hsqrt(T x) { return T(sqrtf(float(x))); } \
    CUDA_EMULATOR_INLINE T hrsqrt(T x) { return T(1.0f / sqrtf(float(x))); } \
    CUDA_EMULATOR_INLINE T hrcp(T x) { return T(1.0f / float(x)); } \
    CUDA_EMULATOR_INLINE T hsin(T x) { return T(sinf(float(x))); } \
    CUDA_EMULATOR_INLINE T hcos(T x) { return T(cosf(float(x))); } \
    CUDA_EMULATOR_INLINE T htanh(T x) { return T(tanhf(float(x))); } \
    struct alignas(4) T##2 \
    { \
        T x, y; \
        T##2() = default; \
        T##2(T x, T y) : x(x), y(y) {} \
        T##2(const T##2 & other) { *this = other; } \
        T##2 &operator=(const T##2 & other) \
        { \
            typedef cuda_emulator::whole<4>::type whole; \
            *reinterpret_cast<whole *>(this) = *reinterpret_cast<const whole *>(&other); \
            return *this; \
        } \
    }; \
    CUDA_EMULATOR_HALF_PAIRS(T##2, +, __hadd2) \
    CUDA_EMULATOR_HALF_PAIRS(T##2, -, __hsub2) \
    CUDA_EMULATOR_HALF_PAIRS(T##2, *, __hmul2) \
    CUDA_EMULATOR_HALF_PAIRS(T##2, /, __h2div) \
    CUDA_EMULATOR_INLINE T##2 __hfma2(T##2 a, T##2 b, T##2 c) \
    { return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) }; } \
    CUDA_EMULATOR_INLINE T##2 __hmax2(T##2 a, T##2 b) { return { __hmax(a.x, b.x), __hmax(a.y, b.y) }; } \
    CUDA_EMULATOR_INLINE T##2 __hmin2(T##2 a, T##2 b) { return { __hmin(a.x, b.x), __hmin(a.y, b.y) }; }
#define CUDA_EMULATOR_HALF_BINARY(R, T, operator_, name) \
    CUDA_EMULATOR_INLINE R operator operator_(T x, T y) { return R(float(x) operator_ float(y)); } \
    CUDA_EMULATOR_INLINE R name(T x, T y) { return x operator_ y; }
#define CUDA_EMULATOR_HALF_PAIRS(T, operator_, name) \
    CUDA_EMULATOR_INLINE T operator operator_(T a, T b) { return { a.x operator_ b.x, a.y operator_ b.y }; } \
    CUDA_EMULATOR_INLINE T name(T a, T b) { return a operator_ b; }

CUDA_EMULATOR_HALF(__half, ik_f16_to_f32, ik_f32_to_f16)
CUDA_EMULATOR_HALF(__nv_bfloat16, ik_bf16_to_f32, ik_f32_to_bf16)
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define CUDA_EMULATOR_HALF_NAMES(T, T2, t) \
    CUDA_EMULATOR_INLINE float __##t##2float(T x) { return float(x); } \
    CUDA_EMULATOR_INLINE T __float2##t(float x) { return T(x); } \
    CUDA_EMULATOR_INLINE T __float2##t##_rn(float x) { return T(x); } \
    CUDA_EMULATOR_INLINE T __double2##t(double x) { return T(x); } \
    CUDA_EMULATOR_INLINE T __int2##t##_rn(int x) { return T(x); } \
    CUDA_EMULATOR_INLINE int __##t##2int_rn(T x) { return static_cast<int>(nearbyintf(float(x))); } \
    CUDA_EMULATOR_INLINE T2 __##t##2##t##2(T x) { return { x, x }; } \
    CUDA_EMULATOR_INLINE T2 __floats2##t##2_rn(float x, float y) { return { T(x), T(y) }; } \
    CUDA_EMULATOR_INLINE T2 __float2##t##2_rn(float x) { return { T(x), T(x) }; } \
    CUDA_EMULATOR_INLINE T2 __halves2##t##2(T x, T y) { return { x, y }; }
CUDA_EMULATOR_HALF_NAMES(__half, __half2, half)
CUDA_EMULATOR_HALF_NAMES(__nv_bfloat16, __nv_bfloat162, bfloat16)
CUDA_EMULATOR_INLINE float2 __half22float2(__half2 a) { return { float(a.x), float(a.y) }; }
CUDA_EMULATOR_INLINE float2 __bfloat1622float2(__nv_bfloat162 a) { return { float(a.x), float(a.y) }; }
CUDA_EMULATOR_INLINE __half2 __float22half2_rn(float2 a) { return { __half(a.x), __half(a.y) }; }
CUDA_EMULATOR_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 a)
{ return { __nv_bfloat16(a.x), __nv_bfloat16(a.y) }; }
CUDA_EMULATOR_INLINE __half2 make_half2(__half x, __half y) { return { x, y }; }
CUDA_EMULATOR_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return { x, y }; }
CUDA_EMULATOR_INLINE __half __low2half(__half2 a) { return a.x; }
CUDA_EMULATOR_INLINE __half __high2half(__half2 a) { return a.y; }
CUDA_EMULATOR_INLINE float __low2float(__half2 a) { return float(a.x); }
CUDA_EMULATOR_INLINE float __high2float(__half2 a) { return float(a.y); }
CUDA_EMULATOR_INLINE unsigned short __half_as_ushort(__half x) { return x.bits; }
CUDA_EMULATOR_INLINE __half __ushort_as_half(unsigned short bits)
{
    __half x;
    x.bits = bits;
    return x;
}
#endif
