/* The activations of an epilogue, applied in place to F32 in local memory. */
#ifndef IK_XPU_ACTIVATION_H
#define IK_XPU_ACTIVATION_H
#include "elementwise_activations.h"

static inline __device__ void activate(int activation, int n, float *x) { activate_f32(activation, n, x); }

#endif
