/* The kernel language: identity, address spaces, copies, fences and barriers. The page "Kunlun XPU" of the docs has the
 * rules and their sources. */
#ifndef XPU_KERNEL_XTDK_H
#define XPU_KERNEL_XTDK_H
#include <type_traits>

#include "../../xpusim/device.h"
#include "../../xpusim/not_modelled.h"

/* The kind of card that the source is compiled for: KL3, or KL2 with -D__arch_xpu2__. */
#ifdef __arch_xpu2__
#define __XPU2__ 1
#else
#define __arch_xpu3__ 1
#define __XPU3__ 1
#endif

/* Kernels and device functions are C++ functions here; `<<<…>>>` is rewritten before the compiler sees it. The
 * attribute is for rewriting.py, which finds the kernels by it; the compiler ignores it. */
#define __global__ __attribute__((xpusim_kernel))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))

/* Qualifiers of pointers say which space they point to; here the address itself tells that. Where announcing.py looks
 * for pointers without one, before the compiler, they are marks, which it removes. */
#ifdef XPUSIM_MARKED
#define __shared_ptr__ __attribute__((xpusim_pointer))
#define __global_ptr__ __attribute__((xpusim_pointer)) __attribute__((xpusim_global))
#else
#define __shared_ptr__
#define __global_ptr__
#endif
#define __group_shared_ptr__ __shared_ptr__
#define _global_ptr_ __global_ptr__
#define _shared_ptr_ __shared_ptr__
#define _group_shared_ptr_ __shared_ptr__

/* A cluster runs on one thread of the host, so what its cores share is thread-local. */
#define __shared__ static thread_local __attribute__((aligned(64)))
#define __local__
#define __simd__ __attribute__((aligned(64)))
/* `__group_shared__` is not defined here: one object for each group of four cores needs more than a macro
 * (rewriting.py). */

/* The device's part of the standard library, of which public sources use is_same (InfiniCore, gemm_kunlun_cast.xpu;
 * XDNN, cluster_primitive_template.h). */
namespace xpu_std
{
using std::is_same;
}

XPUSIM_RUNTIME int core_id() { return xpusim_current->core; }
XPUSIM_RUNTIME int core_num() { return xpusim_current->cores; }
XPUSIM_RUNTIME int cluster_id() { return xpusim_current->cluster; }
XPUSIM_RUNTIME int cluster_num() { return xpusim_current->clusters; }
XPUSIM_RUNTIME int physical_cluster_id() { return xpusim_current->physical_cluster; }

/* Nanoseconds of the host's clock in 32 bits, which wrap. A difference is the time that the emulator took, not a
 * card's. */
XPUSIM_RUNTIME int get_clock() { return static_cast<int>(xpusim_clock()); }

/* The group of the core: of four, or with 16 cores a cluster of the core alone. */
XPUSIM_RUNTIME int xpusim_group() { return core_num() == 16 ? core_id() : core_id() / 4; }

/* What a `__group_shared__` declaration becomes: one object for each of a cluster's 16 groups, of which a core uses its
 * group's own. */
template <class T>
struct alignas(64) xpusim_padded {
    T object;
};
template <class T>
XPUSIM_RUNTIME T &xpusim_of_group(xpusim_padded<T> (&all)[16], XPUSIM_HERE)
{
    T &mine = all[xpusim_group()].object;
    xpusim_group_shared(&mine, sizeof mine, XPUSIM_SITE);
    return mine;
}

#include "../../xpusim/copy.h"

/* Atomic changes of a 32-bit word of SM: read it, then store it. A store that returns 1 has not happened, and the
 * change must start over. */
XPUSIM_RUNTIME int SM2REG_atomic(const int *from, XPUSIM_HERE) { return xpusim_load_linked(from, XPUSIM_SITE); }
XPUSIM_RUNTIME int REG2SM_atomic(int *to, int value, XPUSIM_HERE)
{ return xpusim_store_conditional(to, value, XPUSIM_SITE); }
XPUSIM_RUNTIME float SM2REG_atomic(const float *from, XPUSIM_HERE)
{
    const int bits = xpusim_load_linked(from, XPUSIM_SITE);
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
XPUSIM_RUNTIME int REG2SM_atomic(float *to, float value, XPUSIM_HERE)
{
    int bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return xpusim_store_conditional(to, bits, XPUSIM_SITE);
}

/* Atomic operations on a 32-bit word of GM (or L3), which order nothing else and return the old value. Spin locks are
 * built of them, so other cores run first. */
XPUSIM_RUNTIME int __builtin_xpu_amoadd(int *at, int value, XPUSIM_HERE)
{ return xpusim_global_atomic(at, value, 1, XPUSIM_SITE); }
XPUSIM_RUNTIME int __builtin_xpu_amoswap(int *at, int value, XPUSIM_HERE)
{ return xpusim_global_atomic(at, value, 0, XPUSIM_SITE); }

#define XPUSIM_KL1(name, instead) XPUSIM_NOT_MODELLED(name, "KL2 and KL3 have no such copy; " instead)
XPUSIM_KL1(SM2LM, "read SM directly, or with vload_sm_*")
XPUSIM_KL1(SM2LM_ASYNC, "read SM directly, or with vload_sm_*")
XPUSIM_KL1(LM2SM, "write SM directly, or with vstore_sm_*")
XPUSIM_KL1(LM2SM_ASYNC, "write SM directly, or with vstore_sm_*")
#undef XPUSIM_KL1
XPUSIM_NOT_MODELLED(mfence_local, "no public source has it; the fence of local memory is mfence_lm")

XPUSIM_RUNTIME void sync_cluster(XPUSIM_HERE) { xpusim_barrier(-1, XPUSIM_SITE); }
XPUSIM_RUNTIME void sync_all(XPUSIM_HERE) { xpusim_barrier(-1, XPUSIM_SITE); }
XPUSIM_RUNTIME void sync_local(XPUSIM_HERE) { xpusim_barrier(int64_t{ 1 } << xpusim_group(), XPUSIM_SITE); }
XPUSIM_RUNTIME void sync_group(unsigned groups, XPUSIM_HERE) { xpusim_barrier(groups & 0xffffu, XPUSIM_SITE); }
#endif
