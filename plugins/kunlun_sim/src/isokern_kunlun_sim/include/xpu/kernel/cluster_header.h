/* XDNN's older name of cluster.h, which Paddle's kernel primitives include. */
#ifndef XPU_KERNEL_CLUSTER_HEADER_H
#define XPU_KERNEL_CLUSTER_HEADER_H
#include "cluster.h"
#endif
