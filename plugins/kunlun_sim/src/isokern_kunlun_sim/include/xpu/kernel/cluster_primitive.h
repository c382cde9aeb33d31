/* XDNN's header: vectors by the type of their lanes, and casts of whole arrays. Its other primitives are not here. */
#ifndef XPU_KERNEL_CLUSTER_PRIMITIVE_H
#define XPU_KERNEL_CLUSTER_PRIMITIVE_H
#include "cluster_simd.h"

template <class T>
struct simd_type_trait;
template <>
struct simd_type_trait<float> {
    typedef float IntOrFloat;
    typedef float32x16_t VT;
};
template <>
struct simd_type_trait<int> {
    typedef int IntOrFloat;
    typedef int32x16_t VT;
};
template <>
struct simd_type_trait<bfloat16> {
    typedef float IntOrFloat;
};
template <>
struct simd_type_trait<float16> {
    typedef float IntOrFloat;
};
template <class T>
using VType = typename simd_type_trait<T>::VT;

template <class T>
XPUSIM_INLINE VType<T> vzero()
{ return VType<T>(static_cast<T>(0)); }
template <class T>
XPUSIM_INLINE VType<T> vone()
{ return VType<T>(static_cast<T>(1)); }

template <class T>
constexpr bool xpusim_castable = std::is_same_v<T, float> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;
__attribute__((error("not modelled: primitive_cast is here for float, float16 and bfloat16, to or from float"))) void
xpusim_cast_of_other_types();

/* Cast `len` elements of an array, 32 at a time: the last 32 may reach beyond the array. Floats become bfloat16 towards
 * zero, and half precision to nearest. An array may be cast in place, because what gets wider is cast from its end. */
#define XPUSIM_CAST(name, place, fence) \
    template <class TX, class TY> \
    XPUSIM_INLINE void name(const TX *x, TY *y, int len, XPUSIM_HERE) \
    { \
        if constexpr ((std::is_same_v<TX, float> || std::is_same_v<TY, float>) \
            && xpusim_castable<TX> && xpusim_castable<TY>) { \
            if (static_cast<const void *>(x) == y && sizeof(TX) == sizeof(TY)) \
                return; \
            const int last = (len - 1) / 32 * 32; \
            for (int done = 0; done < len; done += 32) { \
                const int i = sizeof(TX) < sizeof(TY) ? last - done : done; \
                float32x16_t low, high; \
                vload2_##place(x + i, low, high, file, line); \
                vstore2_##place(y + i, low, high, file, line); \
            } \
            fence(file, line); \
        } else { \
            xpusim_cast_of_other_types(); \
        } \
    }
XPUSIM_CAST(primitive_cast, lm, mfence_lm)
XPUSIM_CAST(primitive_cast_sm, sm, mfence_sm)
XPUSIM_CAST(primitive_cast_gsm, gsm, mfence_lm)
#undef XPUSIM_CAST

#define XPUSIM_PRIMITIVE(name) \
    XPUSIM_NOT_MODELLED(primitive_##name, "write the loop over vectors, and then mfence_lm()")
XPUSIM_PRIMITIVE(add)
XPUSIM_PRIMITIVE(sub)
XPUSIM_PRIMITIVE(mul)
XPUSIM_PRIMITIVE(div)
XPUSIM_PRIMITIVE(min)
XPUSIM_PRIMITIVE(max)
XPUSIM_PRIMITIVE(constant)
XPUSIM_PRIMITIVE(reduce_sum)
XPUSIM_PRIMITIVE(reduce_prod)
XPUSIM_PRIMITIVE(reduce_min)
XPUSIM_PRIMITIVE(reduce_max)
#undef XPUSIM_PRIMITIVE
#endif
