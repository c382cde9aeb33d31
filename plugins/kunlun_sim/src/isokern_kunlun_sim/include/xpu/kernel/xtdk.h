/* The kernel language: identity, address spaces, copies, fences and barriers. Rules and sources: the page "Kunlun XPU" of the docs. */
#ifndef XPU_KERNEL_XTDK_H
#define XPU_KERNEL_XTDK_H
#include "../../xpusim/device.h"

/* Kernels and device functions are C++ functions here; what `<<<…>>>` means is rewritten before the compiler sees it. */
#define __global__
#define __device__
#define __host__

/* Qualifiers of pointers say where they point; an address tells that here. */
#define __global_ptr__
#define __shared_ptr__
#define __group_shared_ptr__
#define _global_ptr_
#define _shared_ptr_
#define _group_shared_ptr_

/* A cluster runs on one thread of the host, so what is shared in it is thread-local there. */
#define __shared__ static thread_local __attribute__((aligned(64)))
#define __local__
#define __simd__ __attribute__((aligned(64)))

XPUSIM_RUNTIME int core_id() { return xpusim_current->core; }
XPUSIM_RUNTIME int core_num() { return xpusim_current->cores; }
XPUSIM_RUNTIME int cluster_id() { return xpusim_current->cluster; }
XPUSIM_RUNTIME int cluster_num() { return xpusim_current->clusters; }
XPUSIM_RUNTIME int physical_cluster_id() { return xpusim_current->physical_cluster; }

#include "../../xpusim/copy.h"

XPUSIM_RUNTIME void sync_cluster(XPUSIM_HERE) { xpusim_barrier(-1, XPUSIM_SITE); }
XPUSIM_RUNTIME void sync_all(XPUSIM_HERE) { xpusim_barrier(-1, XPUSIM_SITE); }
XPUSIM_RUNTIME void sync_local(XPUSIM_HERE) { xpusim_barrier(int64_t{1} << core_id() / 4, XPUSIM_SITE); }
XPUSIM_RUNTIME void sync_group(unsigned groups, XPUSIM_HERE) { xpusim_barrier(groups & 0xffffu, XPUSIM_SITE); }
#endif
