/* The activations of an epilogue, applied in place to F32 in local memory. They are core's elementwise operators of the
 * same names, and every operator that has an activation numbers them alike. */
#ifndef IK_XPU_ACTIVATION_H
#define IK_XPU_ACTIVATION_H
#include "elementwise_activations.h"

static inline __device__ void activate(int activation, int n, float *x)
{
    const void *in[1] = { x };
    switch (activation) {
    case IK_GEMM_RELU: row_relu_f32(n, in, x, nullptr); return;
    case IK_GEMM_GELU: row_gelu_f32(n, in, x, nullptr); return;
    case IK_GEMM_GELU_TANH: row_gelu_tanh_f32(n, in, x, nullptr); return;
    case IK_GEMM_SILU: row_silu_f32(n, in, x, nullptr); return;
    case IK_GEMM_SIGMOID: row_sigmoid_f32(n, in, x, nullptr); return;
    case IK_GEMM_TANH: row_tanh_f32(n, in, x, nullptr); return;
    }
}

#endif
