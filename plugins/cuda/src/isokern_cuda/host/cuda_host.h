/* The subset of CUDA C++ that kernels use, on the host, so that g++ compiles them unchanged. The threads of a block are
 * fibers of host.cpp.
 *
 * Warps have 32 threads in the order of threadIdx.x; blocks and grids have one dimension. */
#ifndef ISOKERN_CUDA_HOST_H
#define ISOKERN_CUDA_HOST_H
#include <stddef.h> /* and no C++ headers, which would take most of a kernel's compile time */
#include <stdint.h>
#include <string.h>

/* What host.cpp exports. The results of the first two do not change while a thread runs, which is what `const` declares
 * to the compiler. */
extern "C" {
__attribute__((const)) int64_t cuda_host_block();
__attribute__((const)) int cuda_host_thread();
void cuda_host_barrier(const char *site);
uint64_t cuda_host_shuffle_down(uint64_t bits, unsigned mask, int lanes, int width, const char *site);
/* For mma.h of the kernels: `given` are a thread's fragments, 8 elements of the left matrix and 4 of the right one. */
void cuda_host_mma(float *sums, const float *given, const char *site);
void cuda_host_load_matrices(unsigned *loaded, const void *row, int transposed, const char *site);
void cuda_host_copy_async(void *to, const void *from, int bytes, const char *site);
void cuda_host_commit_copies();
void cuda_host_wait_copies(int groups);
const char *cuda_host_run(void (*thread)(void *), void *values, int64_t blocks, int threads, char *shared,
    size_t shared_bytes, uint64_t seed);
/* Defined by the linker around the section of that name, where there is one. */
extern char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));
}

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static __attribute__((section("cuda_shared")))

struct cuda_host_index {
    unsigned x;
};
#define threadIdx (cuda_host_index{ static_cast<unsigned>(cuda_host_thread()) })
#define blockIdx (cuda_host_index{ static_cast<unsigned>(cuda_host_block()) })

#define CUDA_HOST_TEXT_(x) #x
#define CUDA_HOST_TEXT(x) CUDA_HOST_TEXT_(x)
#define CUDA_HOST_SITE __FILE__ ":" CUDA_HOST_TEXT(__LINE__)
#define __syncthreads() cuda_host_barrier(CUDA_HOST_SITE)
#define __shfl_down_sync(mask, value, lanes, width) cuda_host_shuffle(value, mask, lanes, width, CUDA_HOST_SITE)

template <class T>
static T cuda_host_shuffle(T value, unsigned mask, int lanes, int width, const char *site)
{
    static_assert(sizeof value == 4 || sizeof value == 8, "shuffles are of 32 and 64 bits");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = cuda_host_shuffle_down(bits, mask, lanes, width, site);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
static inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
static inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
static inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

/* kernel(*values[0], *values[1], …), each read as the type of its parameter, as cuLaunchKernel does. */
template <size_t... I>
struct cuda_host_numbers {};
template <class... P, size_t... I>
static void cuda_host_call(void (*kernel)(P...), void **values, cuda_host_numbers<I...>)
{ kernel(*static_cast<P *>(values[I])...); }
template <class... P>
static void cuda_host_call(void (*kernel)(P...), void *values)
{ cuda_host_call(kernel, static_cast<void **>(values), cuda_host_numbers<__integer_pack(sizeof...(P))...>()); }

/* The function that the driver finds in the library: it returns null, or what the kernel did wrong. */
#define CUDA_HOST_LAUNCH(kernel) \
    extern "C" const char *cuda_host_launch(void *values, int64_t blocks, int threads, uint64_t seed) \
    { \
        const size_t bytes = static_cast<size_t>(__stop_cuda_shared - __start_cuda_shared); \
        return cuda_host_run( \
            [](void *v) { cuda_host_call(kernel, v); }, values, blocks, threads, __start_cuda_shared, bytes, seed); \
    }
#endif
