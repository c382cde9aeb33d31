/* XDNN's older name of the scalar mathematics. */
#ifndef XPU_KERNEL_MATH_H
#define XPU_KERNEL_MATH_H
#include "xtdk_math.h"
#endif
