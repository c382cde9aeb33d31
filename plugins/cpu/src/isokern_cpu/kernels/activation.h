/* The activations of an epilogue, in place on a run of F32 or F64: the expressions of core's rows of the same names. */
#ifndef IK_ACTIVATION_H
#define IK_ACTIVATION_H
#include "kernel.h"

static inline __attribute__((always_inline)) float activation_of_f32(const int64_t activation, float x)
{
    switch (activation) { /* a constant: one of these is left */
    case IK_GEMM_RELU: return ik_maximum_f32(x, 0);
    case IK_GEMM_GELU: return x < -14 ? (float)-0.0 : (float)0.5 * x * (1 + ik_erf_f32(x * (float)0.7071067811865476));
    case IK_GEMM_GELU_TANH: return x < -14 ? (float)-0.0 : (float)0.5 * x * (1 + ik_tanh_f32((float)0.7978845608028654 * (x + (float)0.044715 * x * x * x)));
    case IK_GEMM_SILU: return x < -10000 ? (float)-0.0 : x * (x >= 0 ? 1 : ik_exp_f32(-ik_abs_f32(x))) / (1 + ik_exp_f32(-ik_abs_f32(x)));
    case IK_GEMM_SIGMOID: return (x >= 0 ? 1 : ik_exp_f32(-ik_abs_f32(x))) / (1 + ik_exp_f32(-ik_abs_f32(x)));
    case IK_GEMM_TANH: return ik_tanh_f32(x);
    default: return x;
    }
}

static inline __attribute__((always_inline)) void activation_run_f32(const int64_t activation, int64_t n, float *x)
{
    IK_VECTORISE
    for (int64_t i = 0; i < n; i++)
        x[i] = activation_of_f32(activation, x[i]);
}

static inline void activate_f32(int64_t activation, int64_t n, float *x)
{
    switch (activation) {
    case IK_GEMM_RELU: activation_run_f32(IK_GEMM_RELU, n, x); return;
    case IK_GEMM_GELU: activation_run_f32(IK_GEMM_GELU, n, x); return;
    case IK_GEMM_GELU_TANH: activation_run_f32(IK_GEMM_GELU_TANH, n, x); return;
    case IK_GEMM_SILU: activation_run_f32(IK_GEMM_SILU, n, x); return;
    case IK_GEMM_SIGMOID: activation_run_f32(IK_GEMM_SIGMOID, n, x); return;
    case IK_GEMM_TANH: activation_run_f32(IK_GEMM_TANH, n, x); return;
    }
}

static inline __attribute__((always_inline)) double activation_of_f64(const int64_t activation, double x)
{
    switch (activation) { /* a constant: one of these is left */
    case IK_GEMM_RELU: return ik_maximum_f64(x, 0);
    case IK_GEMM_GELU: return x < -14 ? (double)-0.0 : (double)0.5 * x * (1 + ik_erf_f64(x * (double)0.7071067811865476));
    case IK_GEMM_GELU_TANH: return x < -14 ? (double)-0.0 : (double)0.5 * x * (1 + ik_tanh_f64((double)0.7978845608028654 * (x + (double)0.044715 * x * x * x)));
    case IK_GEMM_SILU: return x < -10000 ? (double)-0.0 : x * (x >= 0 ? 1 : ik_exp_f64(-ik_abs_f64(x))) / (1 + ik_exp_f64(-ik_abs_f64(x)));
    case IK_GEMM_SIGMOID: return (x >= 0 ? 1 : ik_exp_f64(-ik_abs_f64(x))) / (1 + ik_exp_f64(-ik_abs_f64(x)));
    case IK_GEMM_TANH: return ik_tanh_f64(x);
    default: return x;
    }
}

static inline __attribute__((always_inline)) void activation_run_f64(const int64_t activation, int64_t n, double *x)
{
    IK_VECTORISE
    for (int64_t i = 0; i < n; i++)
        x[i] = activation_of_f64(activation, x[i]);
}

static inline void activate_f64(int64_t activation, int64_t n, double *x)
{
    switch (activation) {
    case IK_GEMM_RELU: activation_run_f64(IK_GEMM_RELU, n, x); return;
    case IK_GEMM_GELU: activation_run_f64(IK_GEMM_GELU, n, x); return;
    case IK_GEMM_GELU_TANH: activation_run_f64(IK_GEMM_GELU_TANH, n, x); return;
    case IK_GEMM_SILU: activation_run_f64(IK_GEMM_SILU, n, x); return;
    case IK_GEMM_SIGMOID: activation_run_f64(IK_GEMM_SIGMOID, n, x); return;
    case IK_GEMM_TANH: activation_run_f64(IK_GEMM_TANH, n, x); return;
    }
}

#endif
