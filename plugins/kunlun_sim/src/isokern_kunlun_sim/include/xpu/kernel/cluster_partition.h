/* XDNN's header: the shares of threads in a range. */
#ifndef XPU_KERNEL_CLUSTER_PARTITION_H
#define XPU_KERNEL_CLUSTER_PARTITION_H
#include "xtdk.h"

/* Compute thread `tid`'s share [*start, *end) of `len` elements: whole units of `align` except for the last, as even as
 * possible, with the longer shares first. */
template <class N>
XPUSIM_RUNTIME void partition(int tid, int nthreads, N len, int align, N *start, N *end)
{
    const N units = (len + align - 1) / align, each = units / nthreads, longer = units % nthreads;
    const N before = each * tid + (tid < longer ? tid : longer), first = before * align,
            last = (before + each + (tid < longer ? 1 : 0)) * align;
    *start = first < len ? first : len;
    *end = last < len ? last : len;
}
#endif
