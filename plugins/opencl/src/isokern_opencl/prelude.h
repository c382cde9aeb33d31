/* The portable kernels' words in OpenCL C 1.2. */
#ifndef IK_NO_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#pragma OPENCL FP_CONTRACT OFF

#define IK_SIMT
typedef char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
#define INT8_MIN CHAR_MIN
#define INT8_MAX CHAR_MAX
#define UINT8_MAX UCHAR_MAX
#define INT16_MIN SHRT_MIN
#define INT16_MAX SHRT_MAX
#define UINT16_MAX USHRT_MAX
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define UINT32_MAX UINT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT64_MAX ULONG_MAX
#define INT64_C(x) x##L
#define UINT64_C(x) x##UL

#define IK_INLINE inline __attribute__((always_inline))
#ifdef IK_TARGET_CLWB
#define IK_TARGET __attribute__((target("clwb")))
#else
#define IK_TARGET
#endif
#define IK_KERNEL_ATTRIBUTES IK_TARGET
#define IK_GLOBAL __global
#define IK_TABLE __constant
#ifdef IK_POCL
#include "pocl.h"
#endif
#ifndef IK_ENTRY
#define IK_ENTRY(name) IK_KERNEL_ATTRIBUTES __kernel __attribute__((reqd_work_group_size(IK_GROUP, 1, 1))) void name
#define IK_LOCAL __local
#define IK_LOCAL_ARRAY(type, name, count) __local type name[count]
#define IK_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define IK_BARRIER_GLOBAL() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define IK_ITEM ((ik_index)get_global_id(0))
#define IK_GROUP_ID ((ik_index)get_group_id(0))
#define IK_LOCAL_ID ((int)get_local_id(0))
#endif

#define IK_INT64 long
#define IK_UINT64 ulong
#define IK_F32_BITS(x) as_uint(x)
#define IK_BITS_F32(u) as_float(u)
#define IK_F64_BITS(x) as_ulong(x)
#define IK_BITS_F64(u) as_double(u)
#define IK_SQRT_F32(x) sqrt(x)
#define IK_SQRT_F64(x) sqrt(x)
#ifdef FP_FAST_FMAF
#define IK_FMA_F32(a, b, c) fma(a, b, c)
#define IK_FMA_F64(a, b, c) fma(a, b, c)
#define IK_FMA_ROUNDS_ONCE 1
#endif

#ifdef IK_INTEGER_DOT /* cl_khr_integer_dot_product */
#define IK_DOT_BYTES(a, b, sum) ((sum) + (uint)dot_4x8packed_ss_int(a, b))
#endif

/* The device has sub-groups with shuffles; groups and sub-groups are powers of two, so no sub-group is partial. */
#ifdef IK_SUBGROUPS
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle_relative : enable
#define IK_SUBGROUP ((int)get_sub_group_size())
#define IK_SUBGROUP_ID ((int)get_sub_group_id())
#define IK_SUBGROUP_LANE ((int)get_sub_group_local_id())
#define IK_SHUFFLE_DOWN(value, lanes) sub_group_shuffle_down(value, (uint)(lanes))
#endif
