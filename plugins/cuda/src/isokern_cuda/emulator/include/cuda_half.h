/* half and bfloat16: each operation is computed in float and rounded to nearest even, as CUDA documents it. */
#ifndef ISOKERN_CUDA_HALF_H
#define ISOKERN_CUDA_HALF_H
#include "isokern_half.h"

#define CUDA_EMULATOR_HALF(T, widen, narrow) \
    struct T##_raw { \
        unsigned short x; \
    }; \
    struct T { \
        uint16_t bits; \
        T() = default; \
        T(float x) : bits(narrow(x)) {} \
        T(double x) : bits(narrow(static_cast<float>(x))) {} \
        T(int x) : bits(narrow(static_cast<float>(x))) {} \
        T(unsigned x) : bits(narrow(static_cast<float>(x))) {} \
        T(long x) : bits(narrow(static_cast<float>(x))) {} \
        T(unsigned long x) : bits(narrow(static_cast<float>(x))) {} \
        T(long long x) : bits(narrow(static_cast<float>(x))) {} \
        T(unsigned long long x) : bits(narrow(static_cast<float>(x))) {} \
        T(T##_raw raw) : bits(raw.x) {} \
        operator T##_raw() const { return { bits }; } \
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
    CUDA_EMULATOR_INLINE T hexp2(T x) { return T(exp2f(float(x))); } \
    CUDA_EMULATOR_INLINE T hexp10(T x) { return T(exp10f(float(x))); } \
    CUDA_EMULATOR_INLINE T hlog2(T x) { return T(log2f(float(x))); } \
    CUDA_EMULATOR_INLINE T hlog10(T x) { return T(log10f(float(x))); } \
    CUDA_EMULATOR_INLINE T hceil(T x) { return T(ceilf(float(x))); } \
    CUDA_EMULATOR_INLINE T hfloor(T x) { return T(floorf(float(x))); } \
    CUDA_EMULATOR_INLINE T hrint(T x) { return T(rintf(float(x))); } \
    CUDA_EMULATOR_INLINE T htrunc(T x) { return T(truncf(float(x))); } \
    CUDA_EMULATOR_INLINE T __hadd_rn(T x, T y) { return x + y; } \
    CUDA_EMULATOR_INLINE T __hsub_rn(T x, T y) { return x - y; } \
    CUDA_EMULATOR_INLINE T __hmul_rn(T x, T y) { return x * y; } \
    CUDA_EMULATOR_INLINE T __hadd_sat(T x, T y) { return T(__saturatef(float(x + y))); } \
    CUDA_EMULATOR_INLINE T __hsub_sat(T x, T y) { return T(__saturatef(float(x - y))); } \
    CUDA_EMULATOR_INLINE T __hmul_sat(T x, T y) { return T(__saturatef(float(x * y))); } \
    CUDA_EMULATOR_INLINE T __hfma_sat(T x, T y, T z) { return T(__saturatef(float(__hfma(x, y, z)))); } \
    CUDA_EMULATOR_INLINE T __hfma_relu(T x, T y, T z) { return T(fmaxf(float(__hfma(x, y, z)), 0.0f)); } \
    CUDA_EMULATOR_INLINE T __hmax_nan(T x, T y) { return __hisnan(x) ? x : __hisnan(y) ? y : __hmax(x, y); } \
    CUDA_EMULATOR_INLINE T __hmin_nan(T x, T y) { return __hisnan(x) ? x : __hisnan(y) ? y : __hmin(x, y); } \
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
    CUDA_EMULATOR_INLINE T##2 &operator+=(T##2 & a, T##2 b) { return a = a + b; } \
    CUDA_EMULATOR_INLINE T##2 &operator-=(T##2 & a, T##2 b) { return a = a - b; } \
    CUDA_EMULATOR_INLINE T##2 &operator*=(T##2 & a, T##2 b) { return a = a * b; } \
    CUDA_EMULATOR_HALF_RELATION(T, heq2, hbeq2, __heq) \
    CUDA_EMULATOR_HALF_RELATION(T, hne2, hbne2, __hne) \
    CUDA_EMULATOR_HALF_RELATION(T, hlt2, hblt2, __hlt) \
    CUDA_EMULATOR_HALF_RELATION(T, hle2, hble2, __hle) \
    CUDA_EMULATOR_HALF_RELATION(T, hgt2, hbgt2, __hgt) \
    CUDA_EMULATOR_HALF_RELATION(T, hge2, hbge2, __hge) \
    CUDA_EMULATOR_HALF_EACH(T, h2exp, hexp) \
    CUDA_EMULATOR_HALF_EACH(T, h2exp2, hexp2) \
    CUDA_EMULATOR_HALF_EACH(T, h2log, hlog) \
    CUDA_EMULATOR_HALF_EACH(T, h2log2, hlog2) \
    CUDA_EMULATOR_HALF_EACH(T, h2sqrt, hsqrt) \
    CUDA_EMULATOR_HALF_EACH(T, h2rsqrt, hrsqrt) \
    CUDA_EMULATOR_HALF_EACH(T, h2rcp, hrcp) \
    CUDA_EMULATOR_HALF_EACH(T, h2sin, hsin) \
    CUDA_EMULATOR_HALF_EACH(T, h2cos, hcos) \
    CUDA_EMULATOR_HALF_EACH(T, h2tanh, htanh) \
    CUDA_EMULATOR_HALF_EACH(T, __habs2, __habs) \
    CUDA_EMULATOR_HALF_EACH(T, __hneg2, __hneg) \
    CUDA_EMULATOR_INLINE T##2 __hadd2_rn(T##2 a, T##2 b) { return a + b; } \
    CUDA_EMULATOR_INLINE T##2 __hmul2_rn(T##2 a, T##2 b) { return a * b; } \
    CUDA_EMULATOR_INLINE T##2 __hadd2_sat(T##2 a, T##2 b) { return { __hadd_sat(a.x, b.x), __hadd_sat(a.y, b.y) }; } \
    CUDA_EMULATOR_INLINE T##2 __hfma2_relu(T##2 a, T##2 b, T##2 c) \
    { return { __hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y) }; } \
    /* a complex product, of (x, y) as x + iy, and a sum */ \
    CUDA_EMULATOR_INLINE T##2 __hcmadd(T##2 a, T##2 b, T##2 c) \
    { return { __hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y)) }; } \
    CUDA_EMULATOR_INLINE T##2 __lowhigh2highlow(T##2 a) { return { a.y, a.x }; } \
    CUDA_EMULATOR_INLINE float __low2float(T##2 a) { return float(a.x); } \
    CUDA_EMULATOR_INLINE float __high2float(T##2 a) { return float(a.y); } \
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
#define CUDA_EMULATOR_HALF_RELATION(T, name, all, relation) \
    CUDA_EMULATOR_INLINE T##2 __##name(T##2 a, T##2 b) { return { T(relation(a.x, b.x)), T(relation(a.y, b.y)) }; } \
    CUDA_EMULATOR_INLINE bool __##all(T##2 a, T##2 b) { return relation(a.x, b.x) && relation(a.y, b.y); }
#define CUDA_EMULATOR_HALF_EACH(T, name, function) \
    CUDA_EMULATOR_INLINE T##2 name(T##2 a) { return { function(a.x), function(a.y) }; }
CUDA_EMULATOR_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

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
    CUDA_EMULATOR_INLINE T __float2##t##_rz(float x) \
    { \
        const T nearest(x); /* one bit less if that is further from zero */ \
        return fabsf(float(nearest)) > fabsf(x) ? T(T##_raw{ static_cast<unsigned short>(nearest.bits - 1) }) \
                                                : nearest; \
    } \
    CUDA_EMULATOR_INLINE T __uint2##t##_rn(unsigned x) { return T(x); } \
    CUDA_EMULATOR_INLINE T __short2##t##_rn(short x) { return T(static_cast<int>(x)); } \
    CUDA_EMULATOR_INLINE T __ushort2##t##_rn(unsigned short x) { return T(static_cast<int>(x)); } \
    CUDA_EMULATOR_INLINE T __ll2##t##_rn(long long x) { return T(x); } \
    CUDA_EMULATOR_INLINE int __##t##2int_rn(T x) { return static_cast<int>(nearbyintf(float(x))); } \
    CUDA_EMULATOR_INLINE int __##t##2int_rz(T x) { return static_cast<int>(float(x)); } \
    CUDA_EMULATOR_INLINE int __##t##2int_rd(T x) { return static_cast<int>(floorf(float(x))); } \
    CUDA_EMULATOR_INLINE int __##t##2int_ru(T x) { return static_cast<int>(ceilf(float(x))); } \
    CUDA_EMULATOR_INLINE unsigned __##t##2uint_rn(T x) { return static_cast<unsigned>(nearbyintf(float(x))); } \
    CUDA_EMULATOR_INLINE unsigned short __##t##_as_ushort(T x) { return x.bits; } \
    CUDA_EMULATOR_INLINE short __##t##_as_short(T x) { return static_cast<short>(x.bits); } \
    CUDA_EMULATOR_INLINE T __ushort_as_##t(unsigned short bits) { return T(T##_raw{ bits }); } \
    CUDA_EMULATOR_INLINE T __short_as_##t(short bits) { return T(T##_raw{ static_cast<unsigned short>(bits) }); } \
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
CUDA_EMULATOR_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
CUDA_EMULATOR_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
CUDA_EMULATOR_INLINE __half2 __low2half2(__half2 a) { return { a.x, a.x }; }
CUDA_EMULATOR_INLINE __half2 __high2half2(__half2 a) { return { a.y, a.y }; }
CUDA_EMULATOR_INLINE __half2 __lows2half2(__half2 a, __half2 b) { return { a.x, b.x }; }
CUDA_EMULATOR_INLINE __half2 __highs2half2(__half2 a, __half2 b) { return { a.y, b.y }; }
#endif
