/* Conversion of a nest's tiles between memory's types and the compute type, in place: besides those of kernel.h,
 * integers to F32 and F32 to integers, by the rules of `cast`.
 *
 * Values narrower than the compute type's lie at the far end of a tile before they are widened; wider ones lie at its
 * beginning, as all do after they were narrowed. */
#ifndef IK_XPU_NEST_CONVERSIONS_H
#define IK_XPU_NEST_CONVERSIONS_H
#include "kernel.h"

#include "isokern_cast.h"

static inline __device__ char *ik_given_end(void *tile, int n, int width, int size)
{ return size > width ? (char *)tile : ik_narrow_end(tile, n, width, size); }

static inline __device__ void ik_from_memory(int dtype, float *tile, int n)
{
    const char *from = ik_given_end(tile, n, 4, ik_itemsize(dtype));
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: \
        for (int i = 0; i < n; i++) \
            tile[i] = (float)((const type *)from)[i]; \
        return;
        IK_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    default: ik_widen(dtype, tile, n);
    }
}

template <class T>
static inline __device__ void ik_from_memory(int dtype, T *tile, int n)
{ ik_widen(dtype, tile, n); }

template <class T>
static inline __device__ void ik_truncate_small(float *tile, int n, int low, int high)
{
    for (int i = 0; i < n; i++)
        ((T *)tile)[i] = (T)ik_max(low, ik_min(high, ik_f32_to_i32(tile[i])));
}

static inline __device__ void ik_to_memory(int dtype, float *tile, int n)
{
    switch (dtype) {
    case IK_I8: ik_truncate_small<signed char>(tile, n, INT8_MIN, INT8_MAX); return;
    case IK_U8: ik_truncate_small<unsigned char>(tile, n, 0, UINT8_MAX); return;
    case IK_I16: ik_truncate_small<short>(tile, n, INT16_MIN, INT16_MAX); return;
    case IK_U16: ik_truncate_small<unsigned short>(tile, n, 0, UINT16_MAX); return;
    case IK_I32:
        for (int i = 0; i < n; i++)
            ((int *)tile)[i] = ik_f32_to_i32(tile[i]);
        return;
    case IK_U32:
        for (int i = 0; i < n; i++)
            ((unsigned *)tile)[i] = ik_f32_to_u32(tile[i]);
        return;
    case IK_I64:
        for (int i = n - 1; i >= 0; i--) /* they take more space */
            ((long long *)tile)[i] = ik_f32_to_i64(tile[i]);
        return;
    case IK_U64:
        for (int i = n - 1; i >= 0; i--)
            ((unsigned long long *)tile)[i] = ik_f32_to_u64(tile[i]);
        return;
    default: ik_narrow(dtype, tile, n);
    }
}

template <class T>
static inline __device__ void ik_to_memory(int dtype, T *tile, int n)
{ ik_narrow(dtype, tile, n); }
#endif
