/* Keys of elements: unsigned integers of the same order, in which NaN is the largest and -0 equals 0.
 *
 * They are 32 bits wide; they are 64 bits wide for dtypes of 64 bits, and for rows whose indices need as many. */
#ifndef IK_KEYS_H
#define IK_KEYS_H
#include "runs.h"

static inline __attribute__((always_inline, unused)) uint32_t ik_float_key(float x)
{
    const uint32_t u = ik_bits(x + 0.0f), key = u & 0x80000000u ? ~u : u | 0x80000000u;
    return x == x ? key : UINT32_MAX;
}

static inline __attribute__((always_inline, unused)) uint64_t ik_double_key(double x)
{
    const uint64_t top = UINT64_C(1) << 63;
    const double plain = x + 0.0;
    uint64_t u;
    memcpy(&u, &plain, sizeof u);
    return x != x ? UINT64_MAX : u & top ? ~u : u | top;
}

static inline bool ik_needs_wide_keys(const ik_tensor *x)
{ return ik_itemsize(x->dtype) == 8 || x->shape[x->ndim - 1] > UINT32_MAX; }

/* The keys of n <= IK_TILE elements of at most 32 bits. */
static inline void ik_keys_u32(int32_t dtype, const char *from, int64_t stride, int64_t n, uint32_t *keys)
{
    int64_t scratch[IK_TILE] IK_ALIGNED;
    if (!ik_is_integer(dtype) && dtype != IK_BOOL) {
        const float *x = ik_fetch(dtype, from, stride, n, scratch);
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            keys[i] = ik_float_key(x[i]);
        return;
    }
    if (dtype == IK_I32) {
        const int32_t *x = (const int32_t *)(const void *)from;
        for (int64_t i = 0; i < n; i++)
            keys[i] = (uint32_t)x[i * stride] ^ 0x80000000u;
        return;
    }
    const int64_t lowest = dtype == IK_I8 ? INT8_MIN : dtype == IK_I16 ? INT16_MIN : 0; /* keys of no more bytes */
    ik_load_i64(dtype, from, stride, n, scratch);
    for (int64_t i = 0; i < n; i++)
        keys[i] = (uint32_t)(scratch[i] - lowest);
}

/* The keys of n <= IK_TILE elements. */
static inline void ik_keys_u64(int32_t dtype, const char *from, int64_t stride, int64_t n, uint64_t *keys)
{
    uint32_t narrow[IK_TILE] IK_ALIGNED;
    if (dtype == IK_F64) {
        const double *x = (const double *)(const void *)from;
        for (int64_t i = 0; i < n; i++)
            keys[i] = ik_double_key(x[i * stride]);
        return;
    }
    if (dtype == IK_I64 || dtype == IK_U64) {
        const uint64_t *x = (const uint64_t *)(const void *)from, flip = dtype == IK_I64 ? UINT64_C(1) << 63 : 0;
        for (int64_t i = 0; i < n; i++)
            keys[i] = x[i * stride] ^ flip;
        return;
    }
    ik_keys_u32(dtype, from, stride, n, narrow);
    for (int64_t i = 0; i < n; i++)
        keys[i] = narrow[i];
}
#endif
