/* The activations of an epilogue, in place on a run of F32 or F64: the elementwise operators of core of the same
 * names. */
#ifndef IK_ACTIVATION_H
#define IK_ACTIVATION_H
#include "kernel.h"
#include "operators/gemm.h"

#define IK_ROW static inline __attribute__((unused)) /* not every kernel uses them all */
#include "elementwise_activations.h"

static inline void activate_f32(int64_t activation, int64_t n, float *x)
{
    const void *const in[] = { x };
    switch (activation) {
    case IK_GEMM_RELU: row_relu_f32(n, in, x, NULL); return;
    case IK_GEMM_GELU: row_gelu_f32(n, in, x, NULL); return;
    case IK_GEMM_GELU_TANH: row_gelu_tanh_f32(n, in, x, NULL); return;
    case IK_GEMM_SILU: row_silu_f32(n, in, x, NULL); return;
    case IK_GEMM_SIGMOID: row_sigmoid_f32(n, in, x, NULL); return;
    case IK_GEMM_TANH: row_tanh_f32(n, in, x, NULL); return;
    }
}

static inline void activate_f64(int64_t activation, int64_t n, double *x)
{
    const void *const in[] = { x };
    switch (activation) {
    case IK_GEMM_RELU: row_relu_f64(n, in, x, NULL); return;
    case IK_GEMM_GELU: row_gelu_f64(n, in, x, NULL); return;
    case IK_GEMM_GELU_TANH: row_gelu_tanh_f64(n, in, x, NULL); return;
    case IK_GEMM_SILU: row_silu_f64(n, in, x, NULL); return;
    case IK_GEMM_SIGMOID: row_sigmoid_f64(n, in, x, NULL); return;
    case IK_GEMM_TANH: row_tanh_f64(n, in, x, NULL); return;
    }
}

#endif
