/* What a core accumulates for several outputs: sums, products, or the largest or smallest values.
 *
 * For floats, up to 64 terms are added in lanes (eight terms where a line holds one term of each output), and their sum
 * is added without loss (TwoSum) to high + low. Sums that would overflow a float on the way are scaled by 2^-64 and
 * added to far + far_low. */
#ifndef IK_XPU_NEST_SUMS_H
#define IK_XPU_NEST_SUMS_H
#include "nest.h"
#include "vectors.h"

template <class T>
struct ik_sums {
    T value[IK_NEST_OUTS];
};

template <>
struct ik_sums<float> {
    float high[IK_NEST_OUTS], low[IK_NEST_OUTS], far[IK_NEST_OUTS], far_low[IK_NEST_OUTS];
};

static_assert(sizeof(ik_sums<float>) <= IK_NEST_SUM_BYTES, "sums of a task");

static inline __device__ float ik_none(int combine, float)
{
    return combine == IK_GENERIC_MAXIMUM ? -__builtin_inff()
        : combine == IK_GENERIC_MINIMUM  ? __builtin_inff()
        : combine == IK_GENERIC_PRODUCT  ? 1.0f
                                         : -0.0f;
}
static inline __device__ long long ik_none(int combine, long long)
{
    return combine == IK_GENERIC_MAXIMUM ? -__LONG_LONG_MAX__ - 1
        : combine == IK_GENERIC_MINIMUM  ? __LONG_LONG_MAX__
        : combine == IK_GENERIC_PRODUCT  ? 1
                                         : 0;
}
static inline __device__ unsigned long long ik_none(int combine, unsigned long long)
{ return combine == IK_GENERIC_MINIMUM ? ~0ull : combine == IK_GENERIC_PRODUCT; }

/* A product, or an extreme, which is NaN if an operand is. */
static inline __device__ float ik_choose(int combine, float a, float b)
{
    return combine == IK_GENERIC_PRODUCT ? a * b
        : combine == IK_GENERIC_MAXIMUM  ? ik_maximum_f32(a, b)
                                         : ik_minimum_f32(a, b);
}

/* Integer sums and products wrap. */
template <class T>
static inline __device__ T ik_join(int combine, T a, T b)
{
    if (combine == IK_GENERIC_SUM)
        return (T)((unsigned long long)a + (unsigned long long)b);
    if (combine == IK_GENERIC_PRODUCT)
        return (T)((unsigned long long)a * (unsigned long long)b);
    return (combine == IK_GENERIC_MAXIMUM) == (a > b) ? a : b;
}

static inline __device__ void ik_clear(int combine, ik_sums<float> *s, int n)
{
    for (int i = 0; i < n; i++) {
        s->high[i] = ik_none(combine, 0.0f);
        s->low[i] = s->far[i] = s->far_low[i] = 0;
    }
}

template <class T>
static inline __device__ void ik_clear(int combine, ik_sums<T> *s, int n)
{
    for (int i = 0; i < n; i++)
        s->value[i] = ik_none(combine, (T)0);
}

/* Whether a sum needs no scaling: 2^33 such sums stay below 2^124. */
static inline __device__ bool ik_is_near(float sum) { return ik_abs_f32(sum) <= 0x1p90f; }

static inline __device__ void ik_add_far(ik_sums<float> *s, int at, float x)
{ ik_add(&s->far[at], &s->far_low[at], x * 0x1p-64f); }

/* Add lines of n terms, one term for each output. */
static inline __device__ void ik_sum_lines(int combine, ik_sums<float> *s, const float *tile, int lines, int n)
{
    if (combine != IK_GENERIC_SUM) {
        for (int i = 0; i < lines; i++)
            for (int k = 0; k < n; k++)
                s->high[k] = ik_choose(combine, s->high[k], tile[i * n + k]);
        return;
    }
    float sum[IK_NEST_OUTS];
    for (int at = 0; at < lines; at += IK_NEST_BLOCK) {
        const int end = (int)ik_min(lines, at + IK_NEST_BLOCK);
        int far = 0;
        for (int k = 0; k < n; k++)
            sum[k] = tile[at * n + k];
        for (int i = at + 1; i < end; i++)
            for (int k = 0; k < n; k++)
                sum[k] += tile[i * n + k];
        for (int k = 0; k < n; k++)
            far |= !ik_is_near(sum[k]);
        for (int k = 0; k < n && far; k++)
            if (!ik_is_near(sum[k])) {
                for (int i = at; i < end; i++)
                    ik_add_far(s, k, tile[i * n + k]);
                sum[k] = 0;
            }
        for (int k = 0; k < n; k++)
            ik_add(&s->high[k], &s->low[k], sum[k]);
    }
}

template <class T>
static inline __device__ void ik_sum_lines(int combine, ik_sums<T> *s, const T *tile, int lines, int n)
{
    for (int i = 0; i < lines; i++)
        for (int k = 0; k < n; k++)
            s->value[k] = ik_join(combine, s->value[k], tile[i * n + k]);
}

/* Add lines of n terms, all of one output. */
static inline __device__ void ik_sum_along(int combine, ik_sums<float> *s, int at, const float *tile, int lines, int n)
{
    for (int i = 0; i < lines; i++) {
        const float *x = tile + i * n;
        if (combine != IK_GENERIC_SUM) {
            for (int k = 0; k < n; k++)
                s->high[at + i] = ik_choose(combine, s->high[at + i], x[k]);
            continue;
        }
        for (int k = 0; k < n; k += IK_TERMS) {
            const int end = (int)ik_min(n, k + IK_TERMS);
            const float sum = ik_block_sum(k, end, [=](int q) { return x[q]; });
            if (ik_is_near(sum))
                ik_add(&s->high[at + i], &s->low[at + i], sum);
            else
                for (int q = k; q < end; q++)
                    ik_add_far(s, at + i, x[q]);
        }
    }
}

template <class T>
static inline __device__ void ik_sum_along(int combine, ik_sums<T> *s, int at, const T *tile, int lines, int n)
{
    for (int i = 0; i < lines; i++) {
        T sum = s->value[at + i];
        for (int k = 0; k < n; k++)
            sum = ik_join(combine, sum, tile[i * n + k]);
        s->value[at + i] = sum;
    }
}

/* Store the sums of n outputs of a part to device memory; a part has `total` outputs. */
static inline __device__ void ik_give(
    const ik_sums<float> *s, __global_ptr__ char *part, long long total, long long out, int n)
{
    const float *const of[] = { s->high, s->low, s->far, s->far_low };
    mfence_lm();
    for (int i = 0; i < 4; i++)
        LM2GM_ASYNC(of[i], part + (i * total + out) * 4, n * 4);
    mfence();
}

template <class T>
static inline __device__ void ik_give(const ik_sums<T> *s, __global_ptr__ char *part, long long, long long out, int n)
{
    mfence_lm();
    LM2GM(s->value, part + out * 8, n * 8);
}

/* Join the sums of another part; `scratch` has space for its sums. */
static inline __device__ void ik_take(int combine, ik_sums<float> *s, __global_ptr__ const char *part, long long total,
    long long out, int n, ik_sums<float> *scratch)
{
    float *const of[] = { scratch->high, scratch->low, scratch->far, scratch->far_low };
    for (int i = 0; i < 4; i++)
        GM2LM_ASYNC(part + (i * total + out) * 4, of[i], n * 4);
    mfence();
    for (int i = 0; i < n; i++)
        if (combine == IK_GENERIC_SUM) {
            ik_add(&s->high[i], &s->low[i], scratch->high[i]);
            s->low[i] += scratch->low[i];
            ik_add(&s->far[i], &s->far_low[i], scratch->far[i]);
            s->far_low[i] += scratch->far_low[i];
        } else {
            s->high[i] = ik_choose(combine, s->high[i], scratch->high[i]);
        }
}

template <class T>
static inline __device__ void ik_take(
    int combine, ik_sums<T> *s, __global_ptr__ const char *part, long long, long long out, int n, ik_sums<T> *scratch)
{
    GM2LM(part + out * 8, scratch->value, n * 8);
    for (int i = 0; i < n; i++)
        s->value[i] = ik_join(combine, s->value[i], scratch->value[i]);
}

/* Combine n results with `init`, in place. */
static inline __device__ void ik_finish(int combine, ik_sums<float> *s, float *init, int n)
{
    for (int i = 0; i < n; i++)
        if (combine == IK_GENERIC_SUM) {
            if (ik_is_near(init[i]))
                ik_add(&s->high[i], &s->low[i], init[i]);
            else
                ik_add_far(s, i, init[i]);
            const float near = ik_sum_of(s->high[i], s->low[i]), far = ik_sum_of(s->far[i], s->far_low[i]);
            init[i] = far == 0 ? near : (far + near * 0x1p-64f) * 0x1p64f;
        } else {
            init[i] = ik_choose(combine, init[i], s->high[i]);
        }
}

template <class T>
static inline __device__ void ik_finish(int combine, ik_sums<T> *s, T *init, int n)
{
    for (int i = 0; i < n; i++)
        init[i] = ik_join(combine, init[i], s->value[i]);
}
#endif
