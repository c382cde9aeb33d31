/* XDNN's header: all of the language except its primitives, and mathematics for any type. */
#ifndef XPU_KERNEL_CLUSTER_H
#define XPU_KERNEL_CLUSTER_H
#include "cluster_partition.h"
#include "cluster_primitive.h"
#include "cluster_simd.h"
#include "xtdk.h"
#include "xtdk_bf16.h"
#include "xtdk_fp16.h"
#include "xtdk_math.h"

/* Two integers of 4 bits: the type of pointers to packed ones, and of nothing that is computed with. */
struct int4_t {
    signed char both_;
};

template <class T>
XPUSIM_INLINE T min(T a, T b)
{ return a > b ? b : a; }
template <class T>
XPUSIM_INLINE T max(T a, T b)
{ return a > b ? a : b; }
template <class N, class K>
XPUSIM_INLINE N roundup_div(N n, K k)
{ return k < 1 ? 0 : (n + static_cast<N>(k) - 1) / static_cast<N>(k); }
template <class N, class K>
XPUSIM_INLINE N roundup(N n, K k)
{ return roundup_div(n, k) * static_cast<N>(k); }
template <class N, class K>
XPUSIM_INLINE N rounddown_div(N n, K k)
{ return n < 1 || k < 1 ? 0 : n / static_cast<N>(k); }
template <class N, class K>
XPUSIM_INLINE N rounddown(N n, K k)
{ return rounddown_div(n, k) * static_cast<N>(k); }
template <class N>
XPUSIM_INLINE N roundup512(N n)
{ return roundup(n, 512); }
#endif
