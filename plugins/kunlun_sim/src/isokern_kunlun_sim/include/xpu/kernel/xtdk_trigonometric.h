/* Public sources name this header but none of its functions: sinf, cosf and the others of <math.h> are the host's. */
#ifndef XPU_KERNEL_XTDK_TRIGONOMETRIC_H
#define XPU_KERNEL_XTDK_TRIGONOMETRIC_H
#include "xtdk_math.h"
#endif
