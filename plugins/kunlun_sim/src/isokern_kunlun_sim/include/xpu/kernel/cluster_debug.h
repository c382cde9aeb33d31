/* XDNN's header: output of kernels. */
#ifndef XPU_KERNEL_CLUSTER_DEBUG_H
#define XPU_KERNEL_CLUSTER_DEBUG_H
#include "xtdk_io.h"
#endif
