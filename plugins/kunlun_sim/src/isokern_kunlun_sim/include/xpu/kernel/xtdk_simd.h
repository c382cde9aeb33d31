/* The SIMD unit of KL2 and KL3: 512-bit vectors.
 *
 * Names are <form><op>_<type>[_mask][_round]. The form is vv (vector, vector), sv (scalar, vector) or v. The mask is
 * _mz (0 in lanes that it lacks) or _mh (an operand's lanes there). The rounding is _rz, _ru, _rd, or to nearest if
 * absent.
 *
 * Not public, and chosen here: mac rounds once; max and min are `a > b ? a : b` and `a < b ? a : b` also for NaN. */
#ifndef XPU_KERNEL_XTDK_SIMD_H
#define XPU_KERNEL_XTDK_SIMD_H
#include "../../xpusim/not_modelled.h"
#include "../../xpusim/vector.h"
#include "xtdk.h"
#include "xtdk_bf16.h"
#include "xtdk_fp16.h"

typedef xpusim::vector<float> float32x16_t;
typedef xpusim::vector<int32_t> int32x16_t;
typedef xpusim::vector<uint32_t> uint32x16_t;
typedef xpusim::vector<int16_t> int16x32_t;
typedef xpusim::vector<uint16_t> uint16x32_t;
typedef xpusim::vector<int8_t> int8x64_t;
typedef xpusim::vector<xpusim::bf16> bfloat16x32_t;
#ifdef __arch_xpu2__
/* KL2 has half precision only in vectors of the other 16-bit type, without arithmetic. */
typedef bfloat16x32_t xpusim_fp16_vector;
#else
typedef xpusim::vector<xpusim::fp16> float16x32_t;
typedef float16x32_t xpusim_fp16_vector;
#endif

/* ---- Loads and stores: addresses are multiples of 64 bytes. ---- */

#define XPUSIM_MEMORY(place, space, T) \
    XPUSIM_INLINE T##_t vload_##place##_##T(const void *p, XPUSIM_HERE) \
    { return xpusim::load<xpusim::lane_of<T##_t>>(p, space, XPUSIM_SITE); } \
    XPUSIM_INLINE T##_t vload_##place##_##T##_mh(const void *p, T##_t hold, int mask = -1, XPUSIM_HERE) \
    { return xpusim::load(p, mask, hold, space, XPUSIM_SITE); } \
    XPUSIM_INLINE T##_t vload_##place##_##T##_mz(const void *p, int mask = -1, XPUSIM_HERE) \
    { return xpusim::load(p, mask, xpusim::zero<T##_t>(), space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vstore_##place##_##T(void *p, T##_t a, XPUSIM_HERE) \
    { xpusim::store(p, a, -1, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vstore_##place##_##T##_mh(void *p, T##_t a, int mask = -1, XPUSIM_HERE) \
    { xpusim::store(p, a, mask, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vstore_##place##_##T##_mz(void *p, T##_t a, int mask = -1, XPUSIM_HERE) \
    { xpusim::store(p, xpusim::zero_masked(a, mask), -1, space, XPUSIM_SITE); }
#define XPUSIM_MEMORIES(T) \
    XPUSIM_MEMORY(lm, XPUSIM_LM, T) \
    XPUSIM_MEMORY(sm, XPUSIM_SM, T) \
    XPUSIM_MEMORY(gsm, XPUSIM_LM, T)
XPUSIM_MEMORIES(float32x16)
XPUSIM_MEMORIES(int32x16)
XPUSIM_MEMORIES(uint32x16)
XPUSIM_MEMORIES(int16x32)
XPUSIM_MEMORIES(bfloat16x32)
#ifndef __arch_xpu2__
XPUSIM_MEMORIES(float16x32)
#endif
#undef XPUSIM_MEMORIES
#undef XPUSIM_MEMORY

/* Bytes: 64 lanes, for which a mask has too few bits. Public sources store them by `_mh` without one. */
#define XPUSIM_BYTES(place, space) \
    XPUSIM_INLINE int8x64_t vload_##place##_int8x64(const void *p, XPUSIM_HERE) \
    { return xpusim::load<int8_t>(p, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vstore_##place##_int8x64(void *p, int8x64_t a, XPUSIM_HERE) \
    { xpusim::store(p, xpusim::vector_cast<int32x16_t>(a), -1, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vstore_##place##_int8x64_mh(void *p, int8x64_t a, XPUSIM_HERE) \
    { xpusim::store(p, xpusim::vector_cast<int32x16_t>(a), -1, space, XPUSIM_SITE); }
XPUSIM_BYTES(lm, XPUSIM_LM)
XPUSIM_BYTES(sm, XPUSIM_SM)
XPUSIM_BYTES(gsm, XPUSIM_LM)
#undef XPUSIM_BYTES

/* The builtin behind vload2_lm of floats: all lanes, which mask register 1 selects, from an address (XDNN,
 * cluster3_simd.h: vload2_lm). The unit of its offset is not public, and all sources give 0. */
__attribute__((
    error("not modelled: __builtin_xpu2_vload_mask16_mr1: the unit of its offset is not public, so only 0 is"))) void
xpusim_offset_of_vload();
XPUSIM_INLINE float32x16_t __builtin_xpu2_vload_mask16_mr1(const void *p, int offset, XPUSIM_HERE)
{
    if (offset != 0)
        xpusim_offset_of_vload();
    return xpusim::load<float>(p, XPUSIM_LM, XPUSIM_SITE);
}

/* Offsets are in bytes. */
#define XPUSIM_SPREAD(place, space, T) \
    XPUSIM_INLINE T##_t vgather_##place##_##T(const void *base, int32x16_t offsets, XPUSIM_HERE) \
    { return xpusim::gather(base, offsets, -1, xpusim::zero<T##_t>(), space, XPUSIM_SITE); } \
    XPUSIM_INLINE T##_t vgather_##place##_##T##_mz(const void *base, int32x16_t offsets, int mask = -1, XPUSIM_HERE) \
    { return xpusim::gather(base, offsets, mask, xpusim::zero<T##_t>(), space, XPUSIM_SITE); } \
    XPUSIM_INLINE T##_t vgather_##place##_##T##_mh( \
        const void *base, int32x16_t offsets, T##_t hold, int mask = -1, XPUSIM_HERE) \
    { return xpusim::gather(base, offsets, mask, hold, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vscatter_##place##_##T(void *base, T##_t a, int32x16_t offsets, XPUSIM_HERE) \
    { xpusim::scatter(base, a, offsets, -1, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vscatter_##place##_##T##_mh( \
        void *base, T##_t a, int32x16_t offsets, int mask = -1, XPUSIM_HERE) \
    { xpusim::scatter(base, a, offsets, mask, space, XPUSIM_SITE); } \
    XPUSIM_NOT_MODELLED(vscatter_##place##_##T##_mz, \
        "nothing public says which addresses the lanes without a bit write their zeros to; use _mh")
#define XPUSIM_SPREADS(T) \
    XPUSIM_SPREAD(lm, XPUSIM_LM, T) \
    XPUSIM_SPREAD(sm, XPUSIM_SM, T)
XPUSIM_SPREADS(float32x16)
XPUSIM_SPREADS(int32x16)
XPUSIM_SPREADS(uint32x16)
#undef XPUSIM_SPREADS
#undef XPUSIM_SPREAD
#define XPUSIM_NO_SPREAD(name) \
    XPUSIM_NOT_MODELLED(name, "offsets are for 16 lanes, and 16-bit types have 32; gather as 32-bit lanes")
XPUSIM_NO_SPREAD(vgather_lm_bfloat16x32)
XPUSIM_NO_SPREAD(vgather_sm_bfloat16x32)
XPUSIM_NO_SPREAD(vscatter_lm_bfloat16x32)
XPUSIM_NO_SPREAD(vscatter_sm_bfloat16x32)
XPUSIM_NO_SPREAD(vgather_lm_int16x32)
XPUSIM_NO_SPREAD(vgather_sm_int16x32)
XPUSIM_NO_SPREAD(vscatter_lm_int16x32)
XPUSIM_NO_SPREAD(vscatter_sm_int16x32)
#undef XPUSIM_NO_SPREAD

/* ---- Arithmetic. ---- */

#define XPUSIM_BINARY(op, T, S, suffix, mode) \
    XPUSIM_INLINE T##_t vv##op##_##T##suffix(T##_t a, T##_t b) \
    { return xpusim::compute<xpusim::op>(a, b, xpusim::round::mode); } \
    XPUSIM_INLINE T##_t vv##op##_##T##_mz##suffix(T##_t a, T##_t b, int mask = -1) \
    { return xpusim::zero_masked(vv##op##_##T##suffix(a, b), mask); } \
    XPUSIM_INLINE T##_t vv##op##_##T##_mh##suffix(T##_t a, T##_t b, T##_t hold, int mask = -1) \
    { return xpusim::blend(vv##op##_##T##suffix(a, b), hold, mask); } \
    XPUSIM_INLINE T##_t sv##op##_##T##suffix(S a, T##_t b) \
    { return vv##op##_##T##suffix(xpusim::every<T##_t>(a), b); } \
    XPUSIM_INLINE T##_t sv##op##_##T##_mz##suffix(S a, T##_t b, int mask = -1) \
    { return xpusim::zero_masked(sv##op##_##T##suffix(a, b), mask); } \
    XPUSIM_INLINE T##_t sv##op##_##T##_mh##suffix(S a, T##_t b, T##_t hold, int mask = -1) \
    { return xpusim::blend(sv##op##_##T##suffix(a, b), hold, mask); }
/* a b + c; _mh keeps lanes of c. */
#define XPUSIM_MAC(T, S, suffix, mode) \
    XPUSIM_INLINE T##_t vvmac_##T##suffix(T##_t a, T##_t b, T##_t c) \
    { return xpusim::multiply_accumulate(a, b, c, xpusim::round::mode); } \
    XPUSIM_INLINE T##_t vvmac_##T##_mz##suffix(T##_t a, T##_t b, T##_t c, int mask = -1) \
    { return xpusim::zero_masked(vvmac_##T##suffix(a, b, c), mask); } \
    XPUSIM_INLINE T##_t vvmac_##T##_mh##suffix(T##_t a, T##_t b, T##_t c, int mask = -1) \
    { return xpusim::blend(vvmac_##T##suffix(a, b, c), c, mask); } \
    XPUSIM_INLINE T##_t svmac_##T##suffix(S a, T##_t b, T##_t c) \
    { return vvmac_##T##suffix(xpusim::every<T##_t>(a), b, c); } \
    XPUSIM_INLINE T##_t svmac_##T##_mz##suffix(S a, T##_t b, T##_t c, int mask = -1) \
    { return xpusim::zero_masked(svmac_##T##suffix(a, b, c), mask); } \
    XPUSIM_INLINE T##_t svmac_##T##_mh##suffix(S a, T##_t b, T##_t c, int mask = -1) \
    { return xpusim::blend(svmac_##T##suffix(a, b, c), c, mask); }
#define XPUSIM_ARITHMETIC(T, S, suffix, mode) \
    XPUSIM_BINARY(add, T, S, suffix, mode) \
    XPUSIM_BINARY(sub, T, S, suffix, mode) \
    XPUSIM_BINARY(mul, T, S, suffix, mode) \
    XPUSIM_MAC(T, S, suffix, mode)
#define XPUSIM_EXTREMES(T, S) \
    XPUSIM_BINARY(max, T, S, , rn) \
    XPUSIM_BINARY(min, T, S, , rn)
XPUSIM_ARITHMETIC(float32x16, float, , rn)
XPUSIM_ARITHMETIC(float32x16, float, _rz, rz)
XPUSIM_ARITHMETIC(float32x16, float, _ru, ru)
XPUSIM_ARITHMETIC(float32x16, float, _rd, rd)
XPUSIM_EXTREMES(float32x16, float)
XPUSIM_ARITHMETIC(int32x16, int32_t, , rn)
XPUSIM_EXTREMES(int32x16, int32_t)
XPUSIM_ARITHMETIC(uint32x16, uint32_t, , rn)
XPUSIM_EXTREMES(uint32x16, uint32_t)

#ifdef __arch_xpu2__
/* The scalar is the 16 bits of a bfloat16. */
XPUSIM_ARITHMETIC(bfloat16x32, int32_t, , rn)
XPUSIM_ARITHMETIC(bfloat16x32, int32_t, _rz, rz)
XPUSIM_ARITHMETIC(bfloat16x32, int32_t, _ru, ru)
XPUSIM_ARITHMETIC(bfloat16x32, int32_t, _rd, rd)
XPUSIM_EXTREMES(bfloat16x32, int32_t)
#else
#define XPUSIM_ABSENT(name) \
    XPUSIM_NOT_MODELLED(name, \
        "KL3 computes bfloat16 in float; load with vload2_lm, compute in float32x16, store with " \
        "vstore2_lm")
/* clang-format off */
#define XPUSIM_ABSENT_ALL(name) \
    XPUSIM_ABSENT(name) XPUSIM_ABSENT(name##_mz) XPUSIM_ABSENT(name##_mh) \
    XPUSIM_ABSENT(name##_rz) XPUSIM_ABSENT(name##_mz_rz) XPUSIM_ABSENT(name##_mh_rz) \
    XPUSIM_ABSENT(name##_ru) XPUSIM_ABSENT(name##_mz_ru) XPUSIM_ABSENT(name##_mh_ru) \
    XPUSIM_ABSENT(name##_rd) XPUSIM_ABSENT(name##_mz_rd) XPUSIM_ABSENT(name##_mh_rd)
/* clang-format on */
#define XPUSIM_ABSENT_OP(op) XPUSIM_ABSENT_ALL(vv##op##_bfloat16x32) XPUSIM_ABSENT_ALL(sv##op##_bfloat16x32)
XPUSIM_ABSENT_OP(add)
XPUSIM_ABSENT_OP(sub)
XPUSIM_ABSENT_OP(mul)
XPUSIM_ABSENT_OP(mac)
XPUSIM_ABSENT_OP(max)
XPUSIM_ABSENT_OP(min)
#undef XPUSIM_ABSENT_OP
#undef XPUSIM_ABSENT_ALL
#undef XPUSIM_ABSENT

XPUSIM_ARITHMETIC(float16x32, float16, , rn)
XPUSIM_EXTREMES(float16x32, float16)
/* KL3's headers have a form with the rounding spelt out, and scalar forms without an operand to hold, which keep the
 * vector's lanes. */
XPUSIM_INLINE float16x32_t vvmac_float16x32_mz_rn(float16x32_t a, float16x32_t b, float16x32_t c, int mask = -1)
{ return vvmac_float16x32_mz(a, b, c, mask); }
XPUSIM_INLINE float16x32_t svmul_float16x32_mh(float16 a, float16x32_t b, int mask = -1)
{ return svmul_float16x32_mh(a, b, b, mask); }
XPUSIM_INLINE float16x32_t svadd_float16x32_mh(float16 a, float16x32_t b, int mask = -1)
{ return svadd_float16x32_mh(a, b, b, mask); }
#endif
#undef XPUSIM_EXTREMES
#undef XPUSIM_ARITHMETIC
#undef XPUSIM_MAC
#undef XPUSIM_BINARY

/* ---- Bits. ---- */

#define XPUSIM_BITWISE_OP(op, T, S) \
    XPUSIM_INLINE T##_t vv##op##_##T(T##_t a, T##_t b) { return xpusim::bitwise<xpusim::bit_##op>(a, b); } \
    XPUSIM_INLINE T##_t vv##op##_##T##_mz(T##_t a, T##_t b, int mask = -1) \
    { return xpusim::zero_masked(vv##op##_##T(a, b), mask); } \
    XPUSIM_INLINE T##_t vv##op##_##T##_mh(T##_t a, T##_t b, T##_t hold, int mask = -1) \
    { return xpusim::blend(vv##op##_##T(a, b), hold, mask); } \
    XPUSIM_INLINE T##_t sv##op##_##T(S a, T##_t b) { return vv##op##_##T(xpusim::every<T##_t>(a), b); } \
    XPUSIM_INLINE T##_t sv##op##_##T##_mz(S a, T##_t b, int mask = -1) \
    { return xpusim::zero_masked(sv##op##_##T(a, b), mask); } \
    XPUSIM_INLINE T##_t sv##op##_##T##_mh(S a, T##_t b, T##_t hold, int mask = -1) \
    { return xpusim::blend(sv##op##_##T(a, b), hold, mask); }
#define XPUSIM_BITWISE(T, S) \
    XPUSIM_BITWISE_OP(and, T, S) \
    XPUSIM_BITWISE_OP(or, T, S) \
    XPUSIM_BITWISE_OP(xor, T, S) \
    XPUSIM_BITWISE_OP(xnor, T, S)
XPUSIM_BITWISE(float32x16, float)
XPUSIM_BITWISE(int32x16, int32_t)
XPUSIM_BITWISE(uint32x16, uint32_t)
XPUSIM_BITWISE(bfloat16x32, int32_t)
#ifndef __arch_xpu2__
XPUSIM_BITWISE(float16x32, float16)
#endif
#undef XPUSIM_BITWISE
#undef XPUSIM_BITWISE_OP

/* Shifts of each lane by `count` bits. */
#define XPUSIM_SHIFT(name, op) \
    XPUSIM_INLINE uint32x16_t name(int count, uint32x16_t a) \
    { \
        return xpusim::shift_lanes(a, [count](auto x) __attribute__((always_inline)) { return x op(count & 31); }); \
    } \
    XPUSIM_INLINE uint32x16_t name##_mz(int count, uint32x16_t a, int mask = -1) \
    { return xpusim::zero_masked(name(count, a), mask); } \
    XPUSIM_INLINE uint32x16_t name##_mh(int count, uint32x16_t a, uint32x16_t hold, int mask = -1) \
    { return xpusim::blend(name(count, a), hold, mask); }
XPUSIM_SHIFT(svsll_uint32x16, <<)
XPUSIM_SHIFT(svsrl_uint32x16, >>)
#undef XPUSIM_SHIFT
XPUSIM_INLINE float32x16_t vabs_float32x16(float32x16_t a)
{ return xpusim::vector_cast<float32x16_t>(svand_uint32x16(0x7fffffffu, xpusim::vector_cast<uint32x16_t>(a))); }
XPUSIM_NOT_MODELLED(svsllp, "nothing public says whether it shifts lanes or the whole register; use svsll_uint32x16")
XPUSIM_NOT_MODELLED(svsrlp, "nothing public says whether it shifts lanes or the whole register; use svsrl_uint32x16")

/* Shifts the register as a whole: lane i of the result is lane i + bits / 32, or 0. The sums over all lanes in
 * FastDeploy (draft_model_postprocess.xpu: v_reduce) say so, which shift by 256, 128, 64 and 32 bits. */
__attribute__((error("not modelled: vsrlp_int32x16: public sources shift by 32, 64, 128 and 256 bits only"))) void
xpusim_shift_by_other_bits();
XPUSIM_INLINE int32x16_t vsrlp_int32x16(int bits, int32x16_t a)
{
    if (bits != 32 && bits != 64 && bits != 128 && bits != 256)
        xpusim_shift_by_other_bits();
    return xpusim::shift_down(a, bits / 32);
}

XPUSIM_INLINE int vpopcnt512(int32x16_t a, XPUSIM_HERE)
{
    xpusim::uses(a.tainted(), XPUSIM_SITE);
    int count = 0;
    for (int i = 0; i < 16; i++)
        count += __builtin_popcount(static_cast<unsigned>(a.v[i]));
    return count;
}

/* ---- Comparisons: results are the bits of an int or, for `set`, 0 and 1 in the lanes' type. ---- */

#define XPUSIM_COMPARISON(op, T, S) \
    XPUSIM_INLINE int vv##op##_##T(T##_t a, T##_t b, XPUSIM_HERE) \
    { return xpusim::compare<xpusim::op>(a, b, -1, 0, XPUSIM_SITE); } \
    XPUSIM_INLINE int vv##op##_##T##_mz(T##_t a, T##_t b, int mask = -1, XPUSIM_HERE) \
    { return xpusim::compare<xpusim::op>(a, b, mask, 0, XPUSIM_SITE); } \
    XPUSIM_INLINE int vv##op##_##T##_mh(T##_t a, T##_t b, int mask = -1, int hold = -1, XPUSIM_HERE) \
    { return xpusim::compare<xpusim::op>(a, b, mask, hold, XPUSIM_SITE); } \
    XPUSIM_INLINE int sv##op##_##T(S a, T##_t b, XPUSIM_HERE) \
    { return xpusim::compare<xpusim::op>(xpusim::every<T##_t>(a), b, -1, 0, XPUSIM_SITE); } \
    XPUSIM_INLINE int sv##op##_##T##_mz(S a, T##_t b, int mask = -1, XPUSIM_HERE) \
    { return xpusim::compare<xpusim::op>(xpusim::every<T##_t>(a), b, mask, 0, XPUSIM_SITE); } \
    XPUSIM_INLINE int sv##op##_##T##_mh(S a, T##_t b, int mask = -1, int hold = -1, XPUSIM_HERE) \
    { return xpusim::compare<xpusim::op>(xpusim::every<T##_t>(a), b, mask, hold, XPUSIM_SITE); }
#define XPUSIM_SET(op, T) \
    XPUSIM_INLINE T##_t vvset##op##_##T(T##_t a, T##_t b) { return xpusim::ones_where<xpusim::op>(a, b); } \
    XPUSIM_INLINE T##_t vvset##op##_##T##_mz(T##_t a, T##_t b, int mask = -1) \
    { return xpusim::zero_masked(vvset##op##_##T(a, b), mask); } \
    XPUSIM_INLINE T##_t vvset##op##_##T##_mh(T##_t a, T##_t b, T##_t hold, int mask = -1) \
    { return xpusim::blend(vvset##op##_##T(a, b), hold, mask); }
#define XPUSIM_COMPARISONS(T, S) \
    XPUSIM_COMPARISON(lt, T, S) \
    XPUSIM_COMPARISON(le, T, S) \
    XPUSIM_COMPARISON(eq, T, S) \
    XPUSIM_COMPARISON(neq, T, S) \
    XPUSIM_SET(lt, T) \
    XPUSIM_SET(gt, T)
XPUSIM_COMPARISONS(float32x16, float)
XPUSIM_COMPARISONS(int32x16, int32_t)
XPUSIM_COMPARISONS(uint32x16, uint32_t)
#ifdef __arch_xpu2__
XPUSIM_COMPARISONS(bfloat16x32, int32_t)
#endif
#undef XPUSIM_COMPARISONS
#undef XPUSIM_SET
#undef XPUSIM_COMPARISON

/* ---- Whole vectors. ---- */

XPUSIM_INLINE float32x16_t vset_zero() { return xpusim::zero<float32x16_t>(); }
XPUSIM_INLINE int32x16_t vset_zero_int() { return xpusim::zero<int32x16_t>(); }
XPUSIM_INLINE float32x16_t vset_one() { return float32x16_t(1.0f); }
XPUSIM_INLINE float vrmax_float32x16(float32x16_t a, XPUSIM_HERE) { return xpusim::greatest(a, XPUSIM_SITE); }
#ifndef __arch_xpu2__
XPUSIM_INLINE float16x32_t vset_zero_fp16() { return xpusim::zero<float16x32_t>(); }
XPUSIM_INLINE float16 vrmax_float16x32(float16x32_t a, XPUSIM_HERE)
{ return float16(static_cast<short>(xpusim::greatest(a, XPUSIM_SITE))); }
#endif

/* The lane of the mask's bit. */
XPUSIM_INLINE float vextract_float32x16(float32x16_t a, int mask = 1, XPUSIM_HERE)
{ return xpusim::extract(a, mask, XPUSIM_SITE); }
XPUSIM_INLINE int32_t vextract_int32x16(int32x16_t a, int mask = 1, XPUSIM_HERE)
{ return xpusim::extract(a, mask, XPUSIM_SITE); }
XPUSIM_INLINE uint32_t vextract_uint32x16(uint32x16_t a, int mask = 1, XPUSIM_HERE)
{ return xpusim::extract(a, mask, XPUSIM_SITE); }
XPUSIM_INLINE int32_t vextract_bfloat16x32(bfloat16x32_t a, int mask = 1, XPUSIM_HERE)
{ return xpusim::extract(a, mask, XPUSIM_SITE); }

/* Lane 2i of a merge is a's and lane 2i + 1 is b's, from their low (l) or high (h) halves. A shuffle swaps the lanes of
 * each pair. */
#define XPUSIM_MOVES(T) \
    XPUSIM_INLINE T##_t vvmerge_l_##T(T##_t a, T##_t b) { return xpusim::merge(a, b, 0); } \
    XPUSIM_INLINE T##_t vvmerge_h_##T(T##_t a, T##_t b) { return xpusim::merge(a, b, 1); } \
    XPUSIM_INLINE T##_t vmerge_l_##T(T##_t a, T##_t b) { return xpusim::merge(a, b, 0); } \
    XPUSIM_INLINE T##_t vmerge_h_##T(T##_t a, T##_t b) { return xpusim::merge(a, b, 1); } \
    XPUSIM_INLINE T##_t vshuffle2_##T(T##_t a) { return xpusim::swap_neighbours(a); }
XPUSIM_MOVES(float32x16)
XPUSIM_MOVES(int32x16)
XPUSIM_MOVES(uint32x16)
XPUSIM_MOVES(bfloat16x32)
#ifndef __arch_xpu2__
XPUSIM_MOVES(float16x32)
#endif
#undef XPUSIM_MOVES

/* ---- Conversions: to the low (l) or high (h) half of b, or to both halves of a vector. ---- */

#define XPUSIM_NARROWING(name, format, V, suffix, mode) \
    XPUSIM_INLINE V vfloat2##name##_l##suffix(float32x16_t a, V b) \
    { return xpusim::narrow_half<xpusim::format>(a, b, 0, xpusim::round::mode); } \
    XPUSIM_INLINE V vfloat2##name##_h##suffix(float32x16_t a, V b) \
    { return xpusim::narrow_half<xpusim::format>(a, b, 1, xpusim::round::mode); } \
    XPUSIM_INLINE V vfloat2##name##_lh##suffix(float32x16_t a, float32x16_t b) \
    { return vfloat2##name##_h##suffix(b, vfloat2##name##_l##suffix(a, xpusim::zero<V>())); }
#define XPUSIM_NARROWINGS(name, format, V) \
    XPUSIM_NARROWING(name, format, V, , rn) \
    XPUSIM_NARROWING(name, format, V, _rz, rz) \
    XPUSIM_NARROWING(name, format, V, _ru, ru) \
    XPUSIM_NARROWING(name, format, V, _rd, rd)
XPUSIM_NARROWINGS(bf16, bf16, bfloat16x32_t)
XPUSIM_NARROWINGS(fp16, fp16, xpusim_fp16_vector)
#undef XPUSIM_NARROWINGS
#undef XPUSIM_NARROWING

/* Widening is exact in every mode. */
#define XPUSIM_WIDENING(suffix) \
    XPUSIM_INLINE float32x16_t vfp162float_l##suffix(xpusim_fp16_vector a) \
    { return xpusim::widen_half<xpusim::fp16>(a, 0); } \
    XPUSIM_INLINE float32x16_t vfp162float_h##suffix(xpusim_fp16_vector a) \
    { return xpusim::widen_half<xpusim::fp16>(a, 1); }
XPUSIM_WIDENING()
XPUSIM_WIDENING(_rz)
XPUSIM_WIDENING(_ru)
XPUSIM_WIDENING(_rd)
#undef XPUSIM_WIDENING
XPUSIM_INLINE float32x16_t vbf162float_l(bfloat16x32_t a) { return xpusim::widen_half<xpusim::bf16>(a, 0); }
XPUSIM_INLINE float32x16_t vbf162float_h(bfloat16x32_t a) { return xpusim::widen_half<xpusim::bf16>(a, 1); }

/* int to float, to nearest (XDNN, cluster_primitive.h: primitive_cast). */
XPUSIM_INLINE float32x16_t vfix2float(int32x16_t a) { return xpusim::nearest_float(a); }

/* ---- KL1's SIMD, which works on memory, 8 floats at a time. ---- */

#define XPUSIM_KL1(name) \
    XPUSIM_NOT_MODELLED(name, \
        "this is KL1's SIMD, and the emulated cards are KL2 and KL3; use vvadd_float32x16 and its " \
        "relatives")
XPUSIM_KL1(_x256_vvadd_ls)
XPUSIM_KL1(_x256_vvsub_ls)
XPUSIM_KL1(_x256_vvmul_ls)
XPUSIM_KL1(_x256_svadd_ls)
XPUSIM_KL1(_x256_svsub_ls)
XPUSIM_KL1(_x256_svmul_ls)
XPUSIM_KL1(_x256_vvxor_ls)
XPUSIM_KL1(_x256_vvxnor_ls)
#undef XPUSIM_KL1
#endif
