/* cast: every plain element type to every other by the rules of isokern_cast.h. Integers that keep their low bits are seen by size, so that
 * signs which do not matter share a program. */
/* launch
 * let(kept=x.dtype == y.dtype or (x.dtype.kind in "iub" and y.dtype.kind in "iu"))
 * let(x=bits(x) if x.dtype == y.dtype or (x.dtype.kind in "iu" and (y.dtype.kind == "b" or kept and x.dtype.itemsize >= y.dtype.itemsize)) else x)
 * let(y=bits(y) if kept else y)
 * let(lines=y.shape[-1] * 2 >= min(64, device.group))
 * cast_lines(when=lines and y.numel > 0, groups=pieces(y), local=256)
 * cast_elements(when=not lines, items=y.numel)
 */
#include "simt.h"
#include "isokern_cast.h"
#include "place.h"

/* An integer of 32 bits or more as F32 rounded to odd, 11 bits or more being kept above the last. Its sign is apart. */
static IK_INLINE float magnitude_to_odd(ik_u64 m)
{
    const int shift = m >> 52 ? 40 : m >> 38 ? 28 : m >> 24 ? 14 : 0;
    const ik_u64 kept = m >> shift, lost = m & (((ik_u64)1 << shift) - 1);
    return (float)(ik_i32)(kept | (lost != 0)) * (float)((ik_u64)1 << shift);
}

/* What x holds, and that rounded to F32 so that a second rounding is harmless (`odd`). */
#if defined(IK_COMPUTE_F32) || defined(IK_COMPUTE_F64)
#define GIVEN(i) IK_LOAD(x, i)
#ifdef IK_COMPUTE_F64
#define WHOLE(v, t) ik_f64_to_##t(v)
#define ODD(v) ik_f64_to_odd(v)
#else
#define WHOLE(v, t) ik_f32_to_##t(v)
#define ODD(v) (v)
#endif
#define CLAMPED(v, t, low, high) (t) ik_clamp_i64(WHOLE(v, i32), low, high)
#else
#define GIVEN(i) IK_PASTE(given_, IK_TYPE_x)(x[i])
#define given_BOOL(v) ((v) != 0)
#define given_I8(v) (v)
#define given_I16(v) (v)
#define given_I32(v) (v)
#define given_I64(v) (v)
#define given_U8(v) (v)
#define given_U16(v) (v)
#define given_U32(v) (v)
#define given_U64(v) (v)
#define WHOLE(v, t) (v)
#define CLAMPED(v, t, low, high) (t)(v)
#if IK_SIZE_x < 4
#define ODD(v) (float)(v)
#elif defined(IK_COMPUTE_U64)
#define ODD(v) magnitude_to_odd(v)
#else
#define ODD(v) ((v) < 0 ? -magnitude_to_odd(0 - (ik_u64)(v)) : magnitude_to_odd((ik_u64)(v)))
#endif
#endif

#define MADE(v) IK_PASTE(made_, IK_TYPE_y)(v)
#define made_I8(v) CLAMPED(v, ik_i8, INT8_MIN, INT8_MAX)
#define made_I16(v) CLAMPED(v, ik_i16, INT16_MIN, INT16_MAX)
#define made_I32(v) (ik_i32) WHOLE(v, i32)
#define made_I64(v) (ik_i64) WHOLE(v, i64)
#define made_U8(v) CLAMPED(v, ik_u8, 0, UINT8_MAX)
#define made_U16(v) CLAMPED(v, ik_u16, 0, UINT16_MAX)
#define made_U32(v) (ik_u32) WHOLE(v, u32)
#define made_U64(v) (ik_u64) WHOLE(v, u64)
#define made_BOOL(v) (ik_bool)((v) != 0)
#define made_F32(v) (float)(v)
#define made_F64(v) (ik_f64)(v)
#define made_F16(v) ik_f32_to_f16(ODD(v))
#define made_BF16(v) ik_f32_to_bf16(ODD(v))

IK_ENTRY(cast_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last]);
    const ik_place line = ik_place_of(p.y, p.x, last, at.line);
    const ik_index y_step = p.y.strides[last], x_step = p.x.strides[last];
    if (y_step == 1 && x_step == 1)
        for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP)
            y[line.y + i] = MADE(GIVEN(line.x + i));
    else
        for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP)
            y[line.y + i * y_step] = MADE(GIVEN(line.x + i * x_step));
}

IK_ENTRY(cast_elements)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, IK_ITEM);
    y[at.y] = MADE(GIVEN(at.x));
}
