/* KL2's part of the SIMD unit, which KL3 has, too: public sources include it for either (InfiniCore,
 * sort/kunlun/heap.h). */
#ifndef XPU_KERNEL_XTDK_SIMD_XPU2_H
#define XPU_KERNEL_XTDK_SIMD_XPU2_H
#include "xtdk_simd.h"
#endif
