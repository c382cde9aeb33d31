/* XDNN's older name of cluster_simd.h. */
#ifndef XPU_KERNEL_SIMD_HEADER_H
#define XPU_KERNEL_SIMD_HEADER_H
#include "cluster_simd.h"
#endif
