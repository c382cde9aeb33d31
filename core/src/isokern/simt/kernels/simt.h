/* Common definitions of every kernel file: elements by dtype, offsets of strided tensors.
 *
 * Values are in the compute type of their dtype (ik_c is the call's): float, double, ik_i64 or ik_u64. */
#ifndef IK_SIMT_H
#define IK_SIMT_H
#include "isokern_half.h"

#define IK_PASTE_(a, b) a##b
#define IK_PASTE(a, b) IK_PASTE_(a, b)

/* The type of an element of tensor x in memory; for a block type, a byte. */
#define IK_ELEMENT(x) IK_PASTE(ik_element_, IK_TYPE_##x)

/* Load element i of the buffer of tensor x, in its compute type; store a value there. */
#define IK_LOAD(x, i) IK_PASTE(ik_load_, IK_TYPE_##x)(x, i)
#define IK_STORE(x, i, v) IK_PASTE(ik_store_, IK_TYPE_##x)(x, i, v)

/* In the call's compute type: IK_FN(exp), the function of isokern_math.h (isokern_int.h); the lowest and the largest
 * value. IK_COMPUTE_FLOAT is defined for floats. */
#if defined(IK_COMPUTE_F32)
#define IK_FN(name) ik_##name##_f32
#elif defined(IK_COMPUTE_F64)
#define IK_FN(name) ik_##name##_f64
#elif defined(IK_COMPUTE_U64)
#define IK_FN(name) ik_##name##_u64
#define IK_LOWEST 0
#define IK_LARGEST UINT64_MAX
#else
#define IK_FN(name) ik_##name##_i64
#define IK_LOWEST INT64_MIN
#define IK_LARGEST INT64_MAX
#endif
#if defined(IK_COMPUTE_F32) || defined(IK_COMPUTE_F64)
#define IK_COMPUTE_FLOAT
#define IK_LOWEST (-IK_LARGEST)
#define IK_LARGEST ((ik_c)IK_BITS_F32(0x7f800000u)) /* Inf */
#endif

/* By float dtype; p is a pointer to global memory. A prelude may define its own for F16, which has to keep the bits of
 * NaN where IK_NANS is not 0. A dtype that is not here is refused (source.py). */
#define ik_load_F32(p, i) (p)[i]
#define ik_load_F64(p, i) (p)[i]
#ifndef IK_NANS
#define IK_NANS 0
#endif
#ifndef ik_load_F16
#define ik_load_F16(p, i) ik_f16_to_f32((p)[i])
#endif
#define ik_load_BF16(p, i) ik_bf16_to_f32((p)[i])
#define ik_load_F8E4M3FN(p, i) ik_f8e4m3fn_to_f32((p)[i])
#define ik_load_F8E5M2(p, i) ik_f8e5m2_to_f32((p)[i])

#define ik_store_F32(p, i, v) (p)[i] = (v)
#define ik_store_F64(p, i, v) (p)[i] = (v)
#ifndef ik_store_F16
#define ik_store_F16(p, i, v) (p)[i] = ik_f32_to_f16(v)
#endif
#define ik_store_BF16(p, i, v) (p)[i] = ik_f32_to_bf16(v)
#define ik_store_F8E4M3FN(p, i, v) (p)[i] = ik_f32_to_f8e4m3fn(v)
#define ik_store_F8E5M2(p, i, v) (p)[i] = ik_f32_to_f8e5m2(v)

/* The qualifier of an entry's record, where a language has to know that nothing changes it. */
#ifndef IK_CONSTANT
#define IK_CONSTANT
#endif

/* A record (ik_tensor, ik_ints, ik_args) as a function's parameter. A language with references passes one: a copy that
 * is indexed by a variable may end up in memory. */
#ifndef IK_RECORD
#define IK_RECORD(type) const type
#endif

/* The offset of element i of the dims [first, end) of a tensor from their first element, with elements counted in
 * row-major order. */
static IK_INLINE ik_index ik_offset_within(IK_RECORD(ik_tensor) t, int first, int end, ik_index i)
{
    ik_index at = 0;
    for (int d = end - 1; d > first; d--) {
        const ik_index rest = i / t.shape[d];
        at += (i - rest * t.shape[d]) * t.strides[d];
        i = rest;
    }
    return first < end ? at + i * t.strides[first] : at;
}

/* The offset of element i of a tensor. */
static IK_INLINE ik_index ik_offset(IK_RECORD(ik_tensor) t, ik_index i)
{ return t.offset + ik_offset_within(t, 0, (int)t.ndim, i); }
#endif
