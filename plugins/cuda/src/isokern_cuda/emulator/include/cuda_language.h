/* CUDA C++ for g++: the keywords, variables and functions of device code, for a kernel that runs on the processor.
 *
 * The threads of a block are fibers of the emulator, which this header calls for all that involves more than one
 * thread. Its functions are inlined, so that the line of a finding is the kernel's own. `__global__`, `__device__`,
 * `__host__` and `__shared__` are not macros: emulator/rewriting.py replaces them. Shared variables become thread-local
 * ones, because all threads of all blocks are fibers of one thread of the processor. */
#ifndef ISOKERN_CUDA_LANGUAGE_H
#define ISOKERN_CUDA_LANGUAGE_H
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "cuda_operations.h"
#include "cuda_vectors.h"

#define __constant__
#define __managed__
#define __noinline__ __attribute__((noinline))
#define __CUDACC__ 1
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDA_EMULATOR_INLINE static inline __attribute__((always_inline, unused))

struct cuda_emulator_index {
    unsigned x, y, z;
    operator dim3() const { return { x, y, z }; }
    operator uint3() const { return { x, y, z }; }
};

/* What the emulator exports. The variables do not change while a thread runs, hence `const`. */
extern "C" {
extern const cuda_emulator_index threadIdx, blockIdx, blockDim, gridDim;
extern char *const cuda_emulator_dynamic;
int cuda_emulator_barrier(int predicate); /* returns how many threads of the block gave a predicate that is not 0 */
/* Meet the lanes of `mask`: a shuffle from `lane` within `width` lanes, or one of the other operations, with the lanes'
 * `bits`. CUDA_REDUCE gives each lane's bits to `given`, of 32 entries, and returns the lanes that gave theirs: those
 * that have returned, or that the block does not have, do not. */
uint64_t cuda_emulator_meet(int operation, unsigned mask, uint64_t bits, int lane, int width, uint64_t *given);
unsigned cuda_emulator_active();
void cuda_emulator_fence(int device);
uint64_t cuda_emulator_atomic_load(const volatile void *p, int bytes);
void cuda_emulator_atomic_store(volatile void *p, int bytes, uint64_t bits);
void cuda_emulator_watch(const volatile void *variable, uint64_t bytes, const char *name);
void *cuda_emulator_memcpy(void *to, const void *from, size_t bytes);
void *cuda_emulator_memset(void *to, int value, size_t bytes);
void cuda_emulator_copy_async(void *to, const void *from, int bytes, int given);
void cuda_emulator_commit_copies();
void cuda_emulator_wait_copies(int pending);
unsigned cuda_emulator_shared_address(const void *p);
void *cuda_emulator_shared_pointer(unsigned address);
int cuda_emulator_is_shared(const void *p);
int64_t cuda_emulator_clock();
[[noreturn]] void cuda_emulator_trap(const char *what);
}
constexpr int warpSize = 32;
#define memcpy cuda_emulator_memcpy
#define memset cuda_emulator_memset
namespace std
{
using ::cuda_emulator_memcpy;
using ::cuda_emulator_memset;
} // namespace std

namespace cuda_emulator
{

template <class T>
CUDA_EMULATOR_INLINE uint64_t to_bits(T value)
{
    static_assert(sizeof(T) <= 8, "a value of more than 8 bytes cannot be exchanged");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
CUDA_EMULATOR_INLINE T from_bits(uint64_t bits)
{
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T>
struct identity {
    typedef T type;
};
template <class T, class F>
CUDA_EMULATOR_INLINE T update(volatile T *p, F function)
{
    const T old = from_bits<T>(cuda_emulator_atomic_load(p, sizeof(T)));
    cuda_emulator_atomic_store(p, sizeof(T), to_bits<T>(function(old)));
    return old;
}
/* Announce a local variable that was declared without a value; where it has a constructor, that gave it one. */
template <class T>
CUDA_EMULATOR_INLINE void watch(T &variable, const char *name)
{
    if constexpr (__is_trivially_constructible(T))
        cuda_emulator_watch(&variable, sizeof variable, name);
}

/* Lies between two `__shared__` variables of a checked kernel, so that an overrun of the first is seen. */
struct alignas(16) gap {
    char bytes[64];
};

} // namespace cuda_emulator

#include "cuda_half.h"

/* Barriers and fences ("Synchronization Functions", "Memory Fence Functions") */
CUDA_EMULATOR_INLINE void __syncthreads() { cuda_emulator_barrier(0); }
CUDA_EMULATOR_INLINE int __syncthreads_count(int predicate) { return cuda_emulator_barrier(predicate); }
CUDA_EMULATOR_INLINE int __syncthreads_or(int predicate) { return cuda_emulator_barrier(predicate) != 0; }
CUDA_EMULATOR_INLINE int __syncthreads_and(int predicate) { return cuda_emulator_barrier(!predicate) == 0; }
CUDA_EMULATOR_INLINE void __syncwarp(unsigned mask = 0xffffffffu)
{ cuda_emulator_meet(CUDA_SYNC_WARP, mask, 0, 0, 32, nullptr); }
CUDA_EMULATOR_INLINE void __threadfence() { cuda_emulator_fence(1); }
CUDA_EMULATOR_INLINE void __threadfence_system() { cuda_emulator_fence(1); }
CUDA_EMULATOR_INLINE void __threadfence_block() { cuda_emulator_fence(0); }
CUDA_EMULATOR_INLINE long long clock64() { return cuda_emulator_clock(); }
CUDA_EMULATOR_INLINE void __nanosleep(unsigned) { cuda_emulator_active(); }
CUDA_EMULATOR_INLINE void __trap() { cuda_emulator_trap("__trap()"); }
#undef assert
#ifdef NDEBUG
#define assert(...) ((void)0)
#else
#define assert(...) ((__VA_ARGS__) ? (void)0 : cuda_emulator_trap("assert(" #__VA_ARGS__ ")"))
#endif

/* Warps ("Warp Shuffle Functions", "Warp Vote Functions", "Warp Match Functions", "Warp Reduce Functions") */
#define CUDA_EMULATOR_SHUFFLE(name, operation, parameter) \
    template <class T> \
    CUDA_EMULATOR_INLINE T name(unsigned mask, T value, parameter lane, int width = 32) \
    { \
        return cuda_emulator::from_bits<T>(cuda_emulator_meet( \
            operation, mask, cuda_emulator::to_bits(value), static_cast<int>(lane), width, nullptr)); \
    }
CUDA_EMULATOR_SHUFFLE(__shfl_sync, CUDA_SHUFFLE, int)
CUDA_EMULATOR_SHUFFLE(__shfl_up_sync, CUDA_SHUFFLE_UP, unsigned)
CUDA_EMULATOR_SHUFFLE(__shfl_down_sync, CUDA_SHUFFLE_DOWN, unsigned)
CUDA_EMULATOR_SHUFFLE(__shfl_xor_sync, CUDA_SHUFFLE_XOR, int)
CUDA_EMULATOR_INLINE unsigned __ballot_sync(unsigned mask, int predicate)
{ return static_cast<unsigned>(cuda_emulator_meet(CUDA_BALLOT, mask, predicate != 0, 0, 32, nullptr)); }
CUDA_EMULATOR_INLINE int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
CUDA_EMULATOR_INLINE int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
CUDA_EMULATOR_INLINE unsigned __activemask() { return cuda_emulator_active(); }
template <class T>
CUDA_EMULATOR_INLINE unsigned __match_any_sync(unsigned mask, T value)
{
    return static_cast<unsigned>(
        cuda_emulator_meet(CUDA_MATCH_ANY, mask, cuda_emulator::to_bits(value), 0, 32, nullptr));
}
template <class T>
CUDA_EMULATOR_INLINE unsigned __match_all_sync(unsigned mask, T value, int *all)
{
    const auto found =
        static_cast<unsigned>(cuda_emulator_meet(CUDA_MATCH_ALL, mask, cuda_emulator::to_bits(value), 0, 32, nullptr));
    *all = found != 0;
    return found;
}
#define CUDA_EMULATOR_REDUCE(name, T, expression) \
    CUDA_EMULATOR_INLINE T name(unsigned mask, T value) \
    { \
        uint64_t given[32]; \
        const uint64_t lanes = cuda_emulator_meet(CUDA_REDUCE, mask, static_cast<uint64_t>(value), 0, 32, given); \
        bool first = true; \
        T result = value; \
        for (int lane = 0; lane < 32; lane++) \
            if ((lanes >> lane & 1) != 0) { \
                const T a = result, b = static_cast<T>(given[lane]); \
                result = first ? b : (expression); \
                first = false; \
            } \
        return result; \
    }
CUDA_EMULATOR_REDUCE(__reduce_add_sync, int, a + b)
CUDA_EMULATOR_REDUCE(__reduce_add_sync, unsigned, a + b)
CUDA_EMULATOR_REDUCE(__reduce_min_sync, int, a < b ? a : b)
CUDA_EMULATOR_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
CUDA_EMULATOR_REDUCE(__reduce_max_sync, int, a > b ? a : b)
CUDA_EMULATOR_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
CUDA_EMULATOR_REDUCE(__reduce_and_sync, unsigned, a &b)
CUDA_EMULATOR_REDUCE(__reduce_or_sync, unsigned, a | b)
CUDA_EMULATOR_REDUCE(__reduce_xor_sync, unsigned, a ^ b)

/* Atomic functions; the suffixes _block and _system are of no consequence here. */
#define CUDA_EMULATOR_ATOMIC(name, expression) \
    template <class T> \
    CUDA_EMULATOR_INLINE T name(T *p, typename cuda_emulator::identity<T>::type value) \
    { \
        return cuda_emulator::update(p, [=](T old) -> T { return expression; }); \
    } \
    template <class T> \
    CUDA_EMULATOR_INLINE T name##_block(T *p, typename cuda_emulator::identity<T>::type value) \
    { return name(p, value); } \
    template <class T> \
    CUDA_EMULATOR_INLINE T name##_system(T *p, typename cuda_emulator::identity<T>::type value) \
    { return name(p, value); }
CUDA_EMULATOR_ATOMIC(atomicAdd, old + value)
CUDA_EMULATOR_ATOMIC(atomicSub, old - value)
CUDA_EMULATOR_ATOMIC(atomicMin, value < old ? value : old)
CUDA_EMULATOR_ATOMIC(atomicMax, old < value ? value : old)
CUDA_EMULATOR_ATOMIC(atomicExch, (static_cast<void>(old), value))
CUDA_EMULATOR_ATOMIC(atomicAnd, old &value)
CUDA_EMULATOR_ATOMIC(atomicOr, old | value)
CUDA_EMULATOR_ATOMIC(atomicXor, old ^ value)
CUDA_EMULATOR_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUDA_EMULATOR_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
template <class T>
CUDA_EMULATOR_INLINE T atomicCAS(
    T *p, typename cuda_emulator::identity<T>::type compare, typename cuda_emulator::identity<T>::type value)
{
    return cuda_emulator::update(p, [=](T old) -> T { return old == compare ? value : old; });
}

/* Loads and stores with cache hints */
#define CUDA_EMULATOR_LOAD(name) \
    template <class T> \
    CUDA_EMULATOR_INLINE T name(const T *p) \
    { return *p; }
CUDA_EMULATOR_LOAD(__ldg)
CUDA_EMULATOR_LOAD(__ldca)
CUDA_EMULATOR_LOAD(__ldcg)
CUDA_EMULATOR_LOAD(__ldcs)
CUDA_EMULATOR_LOAD(__ldlu)
CUDA_EMULATOR_LOAD(__ldcv)
#define CUDA_EMULATOR_STORE(name) \
    template <class T> \
    CUDA_EMULATOR_INLINE void name(T *p, typename cuda_emulator::identity<T>::type value) \
    { *p = value; }
CUDA_EMULATOR_STORE(__stwb)
CUDA_EMULATOR_STORE(__stcg)
CUDA_EMULATOR_STORE(__stcs)
CUDA_EMULATOR_STORE(__stwt)

/* Mathematics: the C library's functions; what the GPU approximates is as exact here as the library is. */
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;
#define CUDA_EMULATOR_MATH(name, T, expression) \
    CUDA_EMULATOR_INLINE T name(T x) { return expression; }
#define CUDA_EMULATOR_MATH2(name, T, expression) \
    CUDA_EMULATOR_INLINE T name(T x, T y) { return expression; }
CUDA_EMULATOR_MATH(rsqrtf, float, 1.0f / sqrtf(x))
CUDA_EMULATOR_MATH(rsqrt, double, 1.0 / sqrt(x))
CUDA_EMULATOR_MATH(rcbrtf, float, 1.0f / cbrtf(x))
CUDA_EMULATOR_MATH(rcbrt, double, 1.0 / cbrt(x))
CUDA_EMULATOR_MATH(normcdff, float, 0.5f * erfcf(-x * 0.70710678118654752440f))
CUDA_EMULATOR_MATH(normcdf, double, 0.5 * erfc(-x * 0.70710678118654752440))
/* glibc has its own functions of these names. */
#define __expf cuda_emulator_expf
#define __exp10f cuda_emulator_exp10f
#define __logf cuda_emulator_logf
#define __log2f cuda_emulator_log2f
#define __log10f cuda_emulator_log10f
#define __sinf cuda_emulator_sinf
#define __cosf cuda_emulator_cosf
#define __tanf cuda_emulator_tanf
#define __powf cuda_emulator_powf
#define __sincosf cuda_emulator_sincosf
CUDA_EMULATOR_MATH(__expf, float, expf(x))
CUDA_EMULATOR_MATH(__exp10f, float, exp10f(x))
CUDA_EMULATOR_MATH(__logf, float, logf(x))
CUDA_EMULATOR_MATH(__log2f, float, log2f(x))
CUDA_EMULATOR_MATH(__log10f, float, log10f(x))
CUDA_EMULATOR_MATH(__sinf, float, sinf(x))
CUDA_EMULATOR_MATH(__cosf, float, cosf(x))
CUDA_EMULATOR_MATH(__tanf, float, tanf(x))
CUDA_EMULATOR_MATH(__frcp_rn, float, 1.0f / x)
CUDA_EMULATOR_MATH(__fsqrt_rn, float, sqrtf(x))
CUDA_EMULATOR_MATH(__frsqrt_rn, float, static_cast<float>(1.0 / sqrt(static_cast<double>(x))))
CUDA_EMULATOR_MATH(__drcp_rn, double, 1.0 / x)
CUDA_EMULATOR_MATH(__dsqrt_rn, double, sqrt(x))
CUDA_EMULATOR_MATH2(__powf, float, powf(x, y))
CUDA_EMULATOR_MATH2(__fdividef, float, x / y)
CUDA_EMULATOR_MATH2(fdividef, float, x / y)
CUDA_EMULATOR_MATH2(__fadd_rn, float, x + y)
CUDA_EMULATOR_MATH2(__fsub_rn, float, x - y)
CUDA_EMULATOR_MATH2(__fmul_rn, float, x *y)
CUDA_EMULATOR_MATH2(__fdiv_rn, float, x / y)
CUDA_EMULATOR_MATH2(__dadd_rn, double, x + y)
CUDA_EMULATOR_MATH2(__dsub_rn, double, x - y)
CUDA_EMULATOR_MATH2(__dmul_rn, double, x *y)
CUDA_EMULATOR_MATH2(__ddiv_rn, double, x / y)
CUDA_EMULATOR_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
CUDA_EMULATOR_INLINE double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
CUDA_EMULATOR_INLINE void __sincosf(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }

/* min and max of each pair of arithmetic types, as nvcc declares them */
#define CUDA_EMULATOR_EXTREMES(T) \
    CUDA_EMULATOR_MATH2(min, T, x < y ? x : y) \
    CUDA_EMULATOR_MATH2(max, T, x > y ? x : y)
CUDA_EMULATOR_EXTREMES(int)
CUDA_EMULATOR_EXTREMES(unsigned)
CUDA_EMULATOR_EXTREMES(long)
CUDA_EMULATOR_EXTREMES(unsigned long)
CUDA_EMULATOR_EXTREMES(long long)
CUDA_EMULATOR_EXTREMES(unsigned long long)
CUDA_EMULATOR_MATH2(min, float, fminf(x, y))
CUDA_EMULATOR_MATH2(max, float, fmaxf(x, y))
CUDA_EMULATOR_MATH2(min, double, fmin(x, y))
CUDA_EMULATOR_MATH2(max, double, fmax(x, y))
#define CUDA_EMULATOR_MIXED(name, relation) \
    template <class A, class B> \
    CUDA_EMULATOR_INLINE auto name(A x, B y) -> decltype(x + y) \
    { \
        const decltype(x + y) a = x, b = y; \
        return a relation b ? a : b; \
    }
CUDA_EMULATOR_MIXED(min, <)
CUDA_EMULATOR_MIXED(max, >)

/* Bits and integers */
CUDA_EMULATOR_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
CUDA_EMULATOR_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
CUDA_EMULATOR_INLINE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
CUDA_EMULATOR_INLINE int __clzll(long long x)
{ return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
CUDA_EMULATOR_INLINE int __ffs(int x) { return __builtin_ffs(x); }
CUDA_EMULATOR_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
CUDA_EMULATOR_INLINE unsigned long long __brevll(unsigned long long x)
{
    unsigned long long reversed = 0;
    for (int i = 0; i < 64; i++)
        reversed |= (x >> i & 1) << (63 - i);
    return reversed;
}
CUDA_EMULATOR_INLINE unsigned __brev(unsigned x) { return static_cast<unsigned>(__brevll(x) >> 32); }
CUDA_EMULATOR_INLINE int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
CUDA_EMULATOR_INLINE unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
CUDA_EMULATOR_INLINE int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
CUDA_EMULATOR_INLINE unsigned __umulhi(unsigned x, unsigned y)
{ return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32); }
CUDA_EMULATOR_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{ return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64); }
CUDA_EMULATOR_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}
CUDA_EMULATOR_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{ return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32); }
CUDA_EMULATOR_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{ return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31)); }
/* Four products of bytes, added */
CUDA_EMULATOR_INLINE int __dp4a(int x, int y, int sum)
{
    for (int i = 0; i < 32; i += 8)
        sum += static_cast<signed char>(x >> i) * static_cast<signed char>(y >> i);
    return sum;
}

/* Conversions */
#define CUDA_EMULATOR_CAST(name, To, From) \
    CUDA_EMULATOR_INLINE To name(From x) \
    { \
        static_assert(sizeof(To) == sizeof(From), "the bits of one type as another"); \
        return cuda_emulator::from_bits<To>(cuda_emulator::to_bits(x)); \
    }
CUDA_EMULATOR_CAST(__float_as_int, int, float)
CUDA_EMULATOR_CAST(__float_as_uint, unsigned, float)
CUDA_EMULATOR_CAST(__int_as_float, float, int)
CUDA_EMULATOR_CAST(__uint_as_float, float, unsigned)
CUDA_EMULATOR_CAST(__double_as_longlong, long long, double)
CUDA_EMULATOR_CAST(__longlong_as_double, double, long long)
#define CUDA_EMULATOR_ROUND(name, To, From, rounded) \
    CUDA_EMULATOR_INLINE To name(From x) { return static_cast<To>(rounded); }
#define CUDA_EMULATOR_ROUNDS(name, To, From) \
    CUDA_EMULATOR_ROUND(name##_rn, To, From, std::nearbyint(x)) \
    CUDA_EMULATOR_ROUND(name##_rz, To, From, x) \
    CUDA_EMULATOR_ROUND(name##_rd, To, From, std::floor(x)) \
    CUDA_EMULATOR_ROUND(name##_ru, To, From, std::ceil(x))
CUDA_EMULATOR_ROUNDS(__float2int, int, float)
CUDA_EMULATOR_ROUNDS(__float2uint, unsigned, float)
CUDA_EMULATOR_ROUNDS(__float2ll, long long, float)
CUDA_EMULATOR_ROUNDS(__double2int, int, double)
CUDA_EMULATOR_ROUNDS(__double2ll, long long, double)
CUDA_EMULATOR_ROUND(__int2float_rn, float, int, x)
CUDA_EMULATOR_ROUND(__uint2float_rn, float, unsigned, x)
CUDA_EMULATOR_ROUND(__ll2float_rn, float, long long, x)
CUDA_EMULATOR_ROUND(__int2double_rn, double, int, x)
CUDA_EMULATOR_ROUND(__double2float_rn, float, double, x)

#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0

#include "cuda_intrinsics.h"
#include "cuda_ptx.h"
#endif
