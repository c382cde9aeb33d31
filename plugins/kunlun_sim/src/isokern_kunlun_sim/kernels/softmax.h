/* The row operator of softmax, log_softmax and causal_softmax: y = exp(x - m) / s or y = (x - m) - ln s, with m = max x
 * and s = sum exp(x - m).
 *
 * A row that fits its tile is read once and its exponentials stay there. For a longer row every tile is measured
 * against its own maximum, and the exponentials are computed again. */
#ifndef IK_XPU_SOFTMAX_H
#define IK_XPU_SOFTMAX_H
#include "row_reduction.h"

struct softmax_op {
    typedef float value;
    struct stat {
        float maximum, high, low;
    };
    int log;

    __device__ stat none() const { return { -__builtin_inff(), 0, 0 }; }

    __device__ stat measure(float *x, int step, int n, long long) const
    {
        const int whole = ik_vectors(x, step, n);
        stat s = { ik_largest_of_vectors(x, whole), 0, 0 };
        if (whole < n)
            s.maximum = ik_maximum_f32(s.maximum, ik_largest(x + whole, step, n - whole));
        const float maximum = s.maximum;
        if (log) {
            ik_add_terms(n, &s.high, &s.low, [=](int i) { return ik_exp_f32(x[i * step] - maximum); });
            return s;
        }
        for (int i = 0; i < whole; i++)
            x[i] = ik_exp_f32(x[i] - maximum);
        if (whole > 0)
            mfence_lm();
        ik_add_vectors(whole, &s.high, &s.low, [=](int i) { return vload_lm_float32x16(x + i); });
        float *rest = x + whole;
        ik_add_terms(
            n - whole, &s.high, &s.low, [=](int i) { return rest[i * step] = ik_exp_f32(rest[i * step] - maximum); });
        return s;
    }

    /* The weight of a part; one of nothing but -Inf (its sum is NaN) has no weight next to others. */
    static __device__ float factor(const stat &part, float maximum)
    {
        return part.maximum == maximum          ? 1.0f
            : part.maximum == -__builtin_inff() ? 0.0f
                                                : ik_exp_f32(part.maximum - maximum);
    }

    __device__ void join(stat &whole, long long, const stat &part, long long) const
    {
        const float maximum = ik_maximum_f32(whole.maximum, part.maximum), a = factor(whole, maximum),
                    b = factor(part, maximum);
        stat all = { maximum, a == 0 ? 0 : whole.high * a, a == 0 ? 0 : whole.low * a };
        if (b != 0) {
            ik_add(&all.high, &all.low, part.high * b);
            all.low += part.low * b;
        }
        whole = all;
    }

    __device__ void write(float *x, int step, int n, const stat &s, const stat *own, const float *, const float *) const
    {
        const float maximum = s.maximum, sum = ik_sum_of(s.high, s.low),
                    kept = own != nullptr ? factor(*own, maximum) : 1;
        const float log_sum = log ? ik_log_f32(sum) : 0, inverse = kept / sum;
        const int whole = log || (own != nullptr && kept != 0) ? ik_vectors(x, step, n) : 0;
        if (log)
            ik_map_vectors(x, whole,
                [=](float32x16_t v, int) { return svadd_float32x16(-log_sum, svadd_float32x16(-maximum, v)); });
        else
            ik_map_vectors(x, whole, [=](float32x16_t v, int) { return svmul_float32x16(inverse, v); });
        for (int i = whole; i < n; i++)
            if (log)
                x[i * step] = (x[i * step] - maximum) - log_sum;
            else if (kept == 0)
                x[i * step] = inverse; /* 0, or NaN with the whole row; x[i * step] may be NaN in this tile alone */
            else
                x[i * step] = (own != nullptr ? x[i * step] : ik_exp_f32(x[i * step] - maximum)) * inverse;
    }
};
#endif
