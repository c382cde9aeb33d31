/* The portable kernels' words in CUDA C++17, for NVRTC and for host/cuda_host.h. */
#define IK_SIMT
#ifdef __CUDACC_RTC__ /* NVRTC has no stdint.h */
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull
#define INT64_C(x) x##ll
#define UINT64_C(x) x##ull
#else
#include <stdint.h>
#endif

#define IK_INLINE __device__ __forceinline__
#define IK_ENTRY(name) extern "C" __global__ void __launch_bounds__(IK_GROUP) name
#define IK_CONSTANT const __grid_constant__ /* p stays in parameter space, even where a function gets its address */
#define IK_RECORD(type) const type &
#define IK_GLOBAL
#define IK_TABLE static __device__ const
#define IK_LOCAL
#define IK_LOCAL_ARRAY(type, name, count) __shared__ type name[count]
#define IK_BARRIER() __syncthreads()
#define IK_BARRIER_GLOBAL() __syncthreads()
#define IK_ITEM ((ik_index)blockIdx.x * IK_GROUP + (ik_index)threadIdx.x)
#define IK_GROUP_ID ((ik_index)blockIdx.x)
#define IK_LOCAL_ID ((int)threadIdx.x)

#define IK_INT64 long long
#define IK_UINT64 unsigned long long
#define IK_F32_BITS(x) __float_as_uint(x)
#define IK_BITS_F32(u) __uint_as_float(u)
#define IK_F64_BITS(x) (uint64_t)__double_as_longlong(x)
#define IK_BITS_F64(u) __longlong_as_double((int64_t)(u))
#define IK_SQRT_F32(x) __fsqrt_rn(x)
#define IK_SQRT_F64(x) __dsqrt_rn(x)
#define IK_FMA_F32(a, b, c) __fmaf_rn(a, b, c)
#define IK_FMA_F64(a, b, c) __fma_rn(a, b, c)
#define IK_FMA_ROUNDS_ONCE 1

/* Sub-groups are warps; a group smaller than a warp is one sub-group. All items of a sub-group take part in a
 * shuffle. */
#define IK_SUBGROUP (IK_GROUP < 32 ? IK_GROUP : 32)
#define IK_SUBGROUP_ID ((int)threadIdx.x / IK_SUBGROUP)
#define IK_SUBGROUP_LANE ((int)threadIdx.x % IK_SUBGROUP)
#define IK_SHUFFLE_DOWN(value, lanes) __shfl_down_sync(0xffffffffu >> (32 - IK_SUBGROUP), value, lanes, IK_SUBGROUP)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
#define IK_DOT_BYTES(a, b, sum) ((ik_u32)__dp4a((int)(a), (int)(b), (int)(sum)))
#endif

/* F16 by the GPU's own conversions, which make one NaN of all; on the host simt.h's. */
#ifdef __CUDA_ARCH__
static IK_INLINE float ik_cuda_widen(unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
static IK_INLINE unsigned short ik_cuda_narrow(float value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#define ik_load_F16(p, i) (IK_NANS ? ik_f16_to_f32((p)[i]) : ik_cuda_widen((p)[i]))
#define ik_store_F16(p, i, v) (p)[i] = IK_NANS ? ik_f32_to_f16(v) : ik_cuda_narrow(v)
#endif
