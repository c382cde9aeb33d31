/* XDNN's older name of cluster_debug.h. */
#ifndef XPU_KERNEL_DEBUG_H
#define XPU_KERNEL_DEBUG_H
#include "cluster_debug.h"
#endif
