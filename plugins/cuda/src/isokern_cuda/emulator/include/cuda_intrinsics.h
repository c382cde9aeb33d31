/* Further intrinsics of ordinary kernels: atomics of vectors, address spaces, asynchronous copies of a thread, rounding
 * modes, and arithmetic of bytes and half words. */
#ifndef ISOKERN_CUDA_INTRINSICS_H
#define ISOKERN_CUDA_INTRINSICS_H
#include "cuda_language.h"

#define __builtin_assume(condition) ((void)0)
#define __assume(condition) ((void)0)

/* Atomics of vectors are atomic for each element. */
CUDA_EMULATOR_INLINE float2 atomicAdd(float2 *p, float2 value)
{ return { atomicAdd(&p->x, value.x), atomicAdd(&p->y, value.y) }; }
CUDA_EMULATOR_INLINE float4 atomicAdd(float4 *p, float4 value)
{
    return { atomicAdd(&p->x, value.x), atomicAdd(&p->y, value.y), atomicAdd(&p->z, value.z),
        atomicAdd(&p->w, value.w) };
}

/* Address spaces */
CUDA_EMULATOR_INLINE size_t __cvta_generic_to_shared(const void *p) { return cuda_emulator_shared_address(p); }
CUDA_EMULATOR_INLINE void *__cvta_shared_to_generic(size_t address)
{ return cuda_emulator_shared_pointer(static_cast<unsigned>(address)); }
CUDA_EMULATOR_INLINE size_t __cvta_generic_to_global(const void *p) { return reinterpret_cast<size_t>(p); }
CUDA_EMULATOR_INLINE unsigned __isShared(const void *p) { return cuda_emulator_is_shared(p) != 0; }
CUDA_EMULATOR_INLINE unsigned __isGlobal(const void *p) { return cuda_emulator_is_shared(p) == 0; }

/* Asynchronous copies of one thread ("Pipeline Interface") */
CUDA_EMULATOR_INLINE void __pipeline_memcpy_async(void *to, const void *from, size_t bytes, size_t zeros = 0)
{ cuda_emulator_copy_async(to, from, static_cast<int>(bytes), static_cast<int>(bytes - zeros)); }
CUDA_EMULATOR_INLINE void __pipeline_commit() { cuda_emulator_commit_copies(); }
CUDA_EMULATOR_INLINE void __pipeline_wait_prior(size_t pending)
{ cuda_emulator_wait_copies(static_cast<int>(pending)); }

/* Nothing that a result depends on */
CUDA_EMULATOR_INLINE unsigned long long globaltimer() { return static_cast<unsigned long long>(cuda_emulator_clock()); }
CUDA_EMULATOR_INLINE void __prof_trigger(int) {}
CUDA_EMULATOR_INLINE void __brkpt() { cuda_emulator_trap("__brkpt()"); }

/* Mathematics. Sums and products by a rounding mode: of the exact result in F64, rounded once. */
CUDA_EMULATOR_MATH(sinpif, float, static_cast<float>(sin(3.14159265358979323846 * remainder(x, 2.0))))
CUDA_EMULATOR_MATH(cospif, float, static_cast<float>(cos(3.14159265358979323846 * remainder(x, 2.0))))
CUDA_EMULATOR_MATH(sinpi, double, sin(3.14159265358979323846 * remainder(x, 2.0)))
CUDA_EMULATOR_MATH(cospi, double, cos(3.14159265358979323846 * remainder(x, 2.0)))
CUDA_EMULATOR_MATH(erfcxf, float, static_cast<float>(exp(static_cast<double>(x) * x) * erfc(static_cast<double>(x))))
CUDA_EMULATOR_MATH2(rhypotf, float, 1.0f / hypotf(x, y))
CUDA_EMULATOR_INLINE float norm3df(float x, float y, float z) { return sqrtf(x * x + y * y + z * z); }
CUDA_EMULATOR_INLINE float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
CUDA_EMULATOR_INLINE float normf(int n, const float *p)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += p[i] * p[i];
    return sqrtf(sum);
}
CUDA_EMULATOR_INLINE float rnormf(int n, const float *p) { return 1.0f / normf(n, p); }
namespace cuda_emulator
{
/* F64 to F32 towards zero, up or down. */
CUDA_EMULATOR_INLINE float round_zero(double x)
{
    const float y = static_cast<float>(x);
    return fabs(static_cast<double>(y)) > fabs(x) ? nextafterf(y, 0.0f) : y;
}
CUDA_EMULATOR_INLINE float round_up(double x)
{
    const float y = static_cast<float>(x);
    return static_cast<double>(y) < x ? nextafterf(y, __builtin_inff()) : y;
}
CUDA_EMULATOR_INLINE float round_down(double x)
{
    const float y = static_cast<float>(x);
    return static_cast<double>(y) > x ? nextafterf(y, -__builtin_inff()) : y;
}
} // namespace cuda_emulator
#define CUDA_EMULATOR_DIRECTED(name, expression) \
    CUDA_EMULATOR_MATH2(name##_rz, float, cuda_emulator::round_zero(expression)) \
    CUDA_EMULATOR_MATH2(name##_ru, float, cuda_emulator::round_up(expression)) \
    CUDA_EMULATOR_MATH2(name##_rd, float, cuda_emulator::round_down(expression))
CUDA_EMULATOR_DIRECTED(__fadd, static_cast<double>(x) + y)
CUDA_EMULATOR_DIRECTED(__fsub, static_cast<double>(x) - y)
CUDA_EMULATOR_DIRECTED(__fmul, static_cast<double>(x) * y)
CUDA_EMULATOR_DIRECTED(__fdiv, static_cast<double>(x) / y)

/* Integers */
CUDA_EMULATOR_INLINE int __hadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y) >> 1); }
CUDA_EMULATOR_INLINE int __rhadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1); }
CUDA_EMULATOR_INLINE unsigned __uhadd(unsigned x, unsigned y)
{ return static_cast<unsigned>((static_cast<uint64_t>(x) + y) >> 1); }
CUDA_EMULATOR_INLINE unsigned __sad(int x, int y, unsigned z)
{ return z + static_cast<unsigned>(x > y ? static_cast<long long>(x) - y : static_cast<long long>(y) - x); }
CUDA_EMULATOR_INLINE unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
CUDA_EMULATOR_INLINE long long __mul64hi(long long x, long long y)
{ return static_cast<long long>(static_cast<__int128>(x) * y >> 64); }
CUDA_EMULATOR_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift)
{ return shift >= 32 ? low : __funnelshift_l(low, high, shift); }
CUDA_EMULATOR_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift)
{ return shift >= 32 ? high : __funnelshift_r(low, high, shift); }
CUDA_EMULATOR_INLINE unsigned __bfind(unsigned x)
{ return x == 0 ? ~0u : 31u - static_cast<unsigned>(__builtin_clz(x)); }
CUDA_EMULATOR_INLINE unsigned __fns(unsigned mask, unsigned base, int offset)
{
    for (int at = static_cast<int>(base),
             left = offset < 0 ? -offset
            : offset           ? offset
                               : 1;
        at >= 0 && at < 32; at += offset < 0 ? -1 : 1)
        if ((mask >> at & 1) != 0 && --left == 0)
            return static_cast<unsigned>(at);
    return ~0u;
}
CUDA_EMULATOR_INLINE int __dp2a_lo(int x, int y, int sum)
{ return sum + static_cast<short>(x) * static_cast<signed char>(y) + (x >> 16) * static_cast<signed char>(y >> 8); }
CUDA_EMULATOR_INLINE int __dp2a_hi(int x, int y, int sum)
{
    return sum + static_cast<short>(x) * static_cast<signed char>(y >> 16)
        + (x >> 16) * static_cast<signed char>(y >> 24);
}
CUDA_EMULATOR_INLINE unsigned __dp4a(unsigned x, unsigned y, unsigned sum)
{
    for (int i = 0; i < 32; i += 8)
        sum += (x >> i & 0xff) * (y >> i & 0xff);
    return sum;
}
/* Each byte, or half word, of a register by itself ("SIMD Intrinsics") */
namespace cuda_emulator
{
template <class T, class F>
CUDA_EMULATOR_INLINE unsigned each(unsigned x, unsigned y, F function)
{
    constexpr int BITS = 8 * sizeof(T);
    unsigned result = 0;
    for (int i = 0; i < 32; i += BITS)
        result |= (static_cast<unsigned>(function(static_cast<T>(x >> i), static_cast<T>(y >> i))) & ((1u << BITS) - 1))
            << i;
    return result;
}
template <class T>
CUDA_EMULATOR_INLINE int saturated(int x)
{
    constexpr int LOW = static_cast<T>(-1) < 0 ? -(1 << (8 * sizeof(T) - 1)) : 0;
    constexpr int HIGH = static_cast<T>(-1) < 0 ? (1 << (8 * sizeof(T) - 1)) - 1 : (1 << 8 * sizeof(T)) - 1;
    return x < LOW ? LOW : x > HIGH ? HIGH : x;
}
} // namespace cuda_emulator
#define CUDA_EMULATOR_EACH(name, T, expression) \
    CUDA_EMULATOR_INLINE unsigned name(unsigned a, unsigned b) \
    { \
        return cuda_emulator::each<T>(a, b, [](int x, int y) { return expression; }); \
    }
#define CUDA_EMULATOR_EACH_WIDTH(n, S, U) \
    CUDA_EMULATOR_EACH(__vadd##n, U, x + y) \
    CUDA_EMULATOR_EACH(__vsub##n, U, x - y) \
    CUDA_EMULATOR_EACH(__vaddss##n, S, cuda_emulator::saturated<S>(x + y)) \
    CUDA_EMULATOR_EACH(__vaddus##n, U, cuda_emulator::saturated<U>(x + y)) \
    CUDA_EMULATOR_EACH(__vsubss##n, S, cuda_emulator::saturated<S>(x - y)) \
    CUDA_EMULATOR_EACH(__vsubus##n, U, cuda_emulator::saturated<U>(x - y)) \
    CUDA_EMULATOR_EACH(__vabsdiffu##n, U, x > y ? x - y : y - x) \
    CUDA_EMULATOR_EACH(__vabsdiffs##n, S, x > y ? x - y : y - x) \
    CUDA_EMULATOR_EACH(__vavgu##n, U, (x + y + 1) >> 1) \
    CUDA_EMULATOR_EACH(__vmaxs##n, S, x > y ? x : y) \
    CUDA_EMULATOR_EACH(__vmaxu##n, U, x > y ? x : y) \
    CUDA_EMULATOR_EACH(__vmins##n, S, x < y ? x : y) \
    CUDA_EMULATOR_EACH(__vminu##n, U, x < y ? x : y) \
    CUDA_EMULATOR_EACH(__vcmpeq##n, U, x == y ? -1 : 0) \
    CUDA_EMULATOR_EACH(__vcmpne##n, U, x != y ? -1 : 0) \
    CUDA_EMULATOR_EACH(__vcmpgtu##n, U, x > y ? -1 : 0) \
    CUDA_EMULATOR_EACH(__vcmpgts##n, S, x > y ? -1 : 0) \
    CUDA_EMULATOR_EACH(__vcmpltu##n, U, x < y ? -1 : 0) \
    CUDA_EMULATOR_EACH(__vseteq##n, U, x == y)
CUDA_EMULATOR_EACH_WIDTH(2, short, unsigned short)
CUDA_EMULATOR_EACH_WIDTH(4, signed char, unsigned char)

/* Conversions */
CUDA_EMULATOR_ROUNDS(__float2ull, unsigned long long, float)
CUDA_EMULATOR_ROUNDS(__double2uint, unsigned, double)
CUDA_EMULATOR_ROUNDS(__double2ull, unsigned long long, double)
CUDA_EMULATOR_ROUND(__int2float_rz, float, int, cuda_emulator::round_zero(x))
CUDA_EMULATOR_ROUND(__int2float_ru, float, int, cuda_emulator::round_up(x))
CUDA_EMULATOR_ROUND(__int2float_rd, float, int, cuda_emulator::round_down(x))
CUDA_EMULATOR_ROUND(__uint2float_rz, float, unsigned, cuda_emulator::round_zero(x))
CUDA_EMULATOR_ROUND(__uint2float_ru, float, unsigned, cuda_emulator::round_up(x))
CUDA_EMULATOR_ROUND(__uint2float_rd, float, unsigned, cuda_emulator::round_down(x))
CUDA_EMULATOR_ROUND(__ull2float_rn, float, unsigned long long, x)
CUDA_EMULATOR_ROUND(__uint2double_rn, double, unsigned, x)
CUDA_EMULATOR_ROUND(__ll2double_rn, double, long long, x)
CUDA_EMULATOR_ROUND(__ull2double_rn, double, unsigned long long, x)
CUDA_EMULATOR_ROUND(__double2float_rz, float, double, cuda_emulator::round_zero(x))
CUDA_EMULATOR_ROUND(__double2float_ru, float, double, cuda_emulator::round_up(x))
CUDA_EMULATOR_ROUND(__double2float_rd, float, double, cuda_emulator::round_down(x))
CUDA_EMULATOR_INLINE int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
CUDA_EMULATOR_INLINE int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
CUDA_EMULATOR_INLINE double __hiloint2double(int high, int low)
{
    const auto bits = static_cast<uint64_t>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low);
    return __longlong_as_double(static_cast<long long>(bits));
}
#endif
