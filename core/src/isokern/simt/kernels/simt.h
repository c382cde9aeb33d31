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
#define ik_element_F32 ik_f32
#define ik_element_F64 ik_f64
#define ik_element_F16 ik_f16
#define ik_element_BF16 ik_bf16
#define ik_element_I8 ik_i8
#define ik_element_I16 ik_i16
#define ik_element_I32 ik_i32
#define ik_element_I64 ik_i64
#define ik_element_U8 ik_u8
#define ik_element_U16 ik_u16
#define ik_element_U32 ik_u32
#define ik_element_U64 ik_u64
#define ik_element_BOOL ik_bool
#define ik_element_Q4_0 ik_q4_0
#define ik_element_Q4_1 ik_q4_1
#define ik_element_Q8_0 ik_q8_0

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

/* By dtype; p is a pointer to global memory. A prelude may define its own for F16. */
#define ik_load_F32(p, i) (p)[i]
#define ik_load_F64(p, i) (p)[i]
#ifndef ik_load_F16
#define ik_load_F16(p, i) ik_f16_to_f32((p)[i])
#endif
#define ik_load_BF16(p, i) ik_bf16_to_f32((p)[i])
#define ik_load_I8(p, i) (ik_i64)(p)[i]
#define ik_load_I16(p, i) (ik_i64)(p)[i]
#define ik_load_I32(p, i) (ik_i64)(p)[i]
#define ik_load_I64(p, i) (p)[i]
#define ik_load_U8(p, i) (ik_i64)(p)[i]
#define ik_load_U16(p, i) (ik_i64)(p)[i]
#define ik_load_U32(p, i) (ik_i64)(p)[i]
#define ik_load_U64(p, i) (p)[i]
#define ik_load_BOOL(p, i) (ik_i64)(p)[i]

#define ik_store_F32(p, i, v) (p)[i] = (v)
#define ik_store_F64(p, i, v) (p)[i] = (v)
#ifndef ik_store_F16
#define ik_store_F16(p, i, v) (p)[i] = ik_f32_to_f16(v)
#endif
#define ik_store_BF16(p, i, v) (p)[i] = ik_f32_to_bf16(v)
#define ik_store_I8(p, i, v) (p)[i] = (ik_i8)(v)
#define ik_store_I16(p, i, v) (p)[i] = (ik_i16)(v)
#define ik_store_I32(p, i, v) (p)[i] = (ik_i32)(v)
#define ik_store_I64(p, i, v) (p)[i] = (ik_i64)(v)
#define ik_store_U8(p, i, v) (p)[i] = (ik_u8)(v)
#define ik_store_U16(p, i, v) (p)[i] = (ik_u16)(v)
#define ik_store_U32(p, i, v) (p)[i] = (ik_u32)(v)
#define ik_store_U64(p, i, v) (p)[i] = (ik_u64)(v)
#define ik_store_BOOL(p, i, v) (p)[i] = (ik_bool)((v) != 0)

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
