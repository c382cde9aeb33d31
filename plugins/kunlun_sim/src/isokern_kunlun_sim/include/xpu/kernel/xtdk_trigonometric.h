/* Public sources name this header and none of its functions: <math.h>'s sinf, cosf and the others are the host's. */
#ifndef XPU_KERNEL_XTDK_TRIGONOMETRIC_H
#define XPU_KERNEL_XTDK_TRIGONOMETRIC_H
#include "xtdk_math.h"
#endif
