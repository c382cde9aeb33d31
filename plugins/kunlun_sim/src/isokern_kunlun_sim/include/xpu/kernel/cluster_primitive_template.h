/* XDNN's header: pointers that know their kind of memory, and buffers of two and three parts. Its operations on whole
 * arrays are not here. */
#ifndef XPU_KERNEL_CLUSTER_PRIMITIVE_TEMPLATE_H
#define XPU_KERNEL_CLUSTER_PRIMITIVE_TEMPLATE_H
#include "cluster_primitive.h"

/* A pointer to local, shared or group-shared memory; lengths are in elements. */
#define XPUSIM_POINTER(name, memory, fence) \
    template <class Type> \
    struct name { \
        using T = Type; \
        T *ptr; \
        XPUSIM_MEMBER name(T *p) : ptr(p) {} \
        XPUSIM_MEMBER void gm_load(const T *gm, uint32_t len, XPUSIM_HERE) const \
        { GM2##memory(gm, ptr, len * sizeof(T), file, line); } \
        XPUSIM_MEMBER void gm_load_async(const T *gm, uint32_t len, XPUSIM_HERE) const \
        { GM2##memory##_ASYNC(gm, ptr, len * sizeof(T), file, line); } \
        XPUSIM_MEMBER void gm_store(T *gm, uint32_t len, XPUSIM_HERE) const \
        { memory##2GM(ptr, gm, len * sizeof(T), file, line); } \
        XPUSIM_MEMBER void gm_store_async(T *gm, uint32_t len, XPUSIM_HERE) const \
        { memory##2GM_ASYNC(ptr, gm, len * sizeof(T), file, line); } \
        XPUSIM_MEMBER void mfence(XPUSIM_HERE) const { fence(file, line); } \
    }; \
    template <class T> \
    XPUSIM_INLINE name<T> operator+(name<T> p, int n) \
    { return name<T>(p.ptr + n); }
XPUSIM_POINTER(LmPtr, LM, mfence_lm)
XPUSIM_POINTER(SmPtr, SM, mfence_sm)
XPUSIM_POINTER(GsmPtr, GSM, mfence_lm)
#undef XPUSIM_POINTER

/* One of several buffers of SIZE elements, in turn: the pointer is the buffer in use, and next() is the one that is
 * used after toggle(). */
template <int SIZE, class Ptr, int COUNT>
struct xpusim_ring : Ptr {
    XPUSIM_MEMBER explicit xpusim_ring(Ptr first) : Ptr(first), first_(first.ptr) {}
    XPUSIM_MEMBER Ptr next() const { return Ptr(first_ + (now_ + 1) % COUNT * SIZE); }
    XPUSIM_MEMBER void toggle()
    {
        Ptr::ptr = next().ptr;
        now_ = (now_ + 1) % COUNT;
    }

  private:
    typename Ptr::T *first_;
    int now_ = 0;
};
template <int SIZE, class Ptr>
struct DoublePtr : xpusim_ring<SIZE, Ptr, 2> {
    XPUSIM_MEMBER DoublePtr(Ptr first) : xpusim_ring<SIZE, Ptr, 2>(first) {}
};
template <int SIZE, class Ptr>
struct TriplePtr : xpusim_ring<SIZE, Ptr, 3> {
    XPUSIM_MEMBER TriplePtr(Ptr first) : xpusim_ring<SIZE, Ptr, 3>(first) {}
};
#endif
