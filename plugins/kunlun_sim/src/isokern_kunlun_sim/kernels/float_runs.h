/* Runs of floats of strided tensors of up to four dims, fetched and stored one by one: what recurrences read at a
 * step. */
#ifndef IK_XPU_FLOAT_RUNS_H
#define IK_XPU_FLOAT_RUNS_H
#include "kernel.h"

struct ik_run_tensor {
    long long strides[4];
    int dtype;

    /* The bytes from element 0 to element [a, b, c, d]; of fewer dims, the last ones are 0. */
    inline __device__ long long at(long long a, long long b, long long c, long long d) const
    { return (a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]) * ik_itemsize(dtype); }
};

/* Fetch n elements `step` apart as floats. */
static inline __device__ void ik_fetch_floats(
    int dtype, __global_ptr__ const char *from, long long step, int n, float *to)
{
    if (n == 0)
        return;
    ik_fetch_run(from, step, n, ik_itemsize(dtype), ik_narrow_end(to, n, 4, ik_itemsize(dtype)));
    mfence();
    ik_widen_f32(dtype, to, n);
}

/* Store n floats `step` apart; `from` is overwritten. */
static inline __device__ void ik_store_floats(int dtype, float *from, long long step, int n, __global_ptr__ char *to)
{
    if (n == 0)
        return;
    ik_narrow_f32(dtype, from, n);
    mfence_lm();
    ik_store_run((const char *)from, step, n, ik_itemsize(dtype), to);
    mfence();
}

/* Host: a tensor of a plan; without strides where it is absent. */
static inline ik_run_tensor ik_run_tensor_of(const ik_plan *plan, uint32_t at)
{
    ik_run_tensor t = {};
    if (at >= plan->tensor_count || plan->tensors[at].dtype == IK_NONE)
        return t;
    t.dtype = plan->tensors[at].dtype;
    for (int i = 0; i < plan->tensors[at].ndim; i++)
        t.strides[i] = plan->tensors[at].strides[i];
    return t;
}
#endif
