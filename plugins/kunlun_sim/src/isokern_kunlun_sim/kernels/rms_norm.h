/* The row operator of rms_norm and add_rms_norm: y = x / sqrt(mean(x^2) + eps) * w. */
#ifndef IK_XPU_RMS_NORM_H
#define IK_XPU_RMS_NORM_H
#include "row_reduction.h"

struct rms_norm_op {
    typedef float value;
    struct stat {
        float high, low; /* the sum of squares */
    };
    float length, eps;

    __device__ stat none() const { return { 0, 0 }; }

    __device__ stat measure(const float *x, int step, int n, long long) const
    {
        stat s = none();
        const int whole = ik_vectors(x, step, n);
        const float *rest = x + whole;
        ik_add_vectors(whole, &s.high, &s.low, [=](int i) {
            const float32x16_t v = vload_lm_float32x16(x + i);
            return vvmul_float32x16(v, v);
        });
        ik_add_terms(n - whole, &s.high, &s.low, [=](int i) { return rest[i * step] * rest[i * step]; });
        return s;
    }

    __device__ void join(stat &whole, long long, const stat &part, long long) const
    {
        ik_add(&whole.high, &whole.low, part.high);
        whole.low += part.low;
    }

    __device__ void write(float *x, int step, int n, const stat &s, const stat *, const float *w, const float *) const
    {
        const float factor = 1.0f / ik_sqrt_f32(ik_sum_of(s.high, s.low) / length + eps);
        const int whole = ik_vectors(x, step, n);
        if (w == nullptr) {
            ik_map_vectors(x, whole, [=](float32x16_t v, int) { return svmul_float32x16(factor, v); });
            for (int i = whole; i < n; i++)
                x[i * step] = x[i * step] * factor;
        } else {
            ik_map_vectors(x, whole, [=](float32x16_t v, int i) {
                return vvmul_float32x16(svmul_float32x16(factor, v), vload_lm_float32x16(w + i));
            });
            for (int i = whole; i < n; i++)
                x[i * step] = x[i * step] * factor * w[i];
        }
    }
};
#endif
