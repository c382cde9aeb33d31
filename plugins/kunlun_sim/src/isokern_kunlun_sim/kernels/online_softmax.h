/* Softmax of scores that arrive a few at a time: for the scores so far, the largest one, m, the sum of exp(score - m),
 * and the sum of exp(score - m) times the values. */
#ifndef IK_XPU_ONLINE_SOFTMAX_H
#define IK_XPU_ONLINE_SOFTMAX_H
#include "kernel.h"

struct attention_stat {
    float maximum, sum;
};

static inline __device__ float dot(const float *a, const float *b, int n)
{
    float lane[8] = {};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            lane[k] += a[i + k] * b[i + k];
    for (int k = 0; i + k < n; k++)
        lane[k] += a[i + k] * b[i + k];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* The weight of a part whose largest score is `maximum` among all parts, whose largest is `all`. */
static inline __device__ float factor_of(float maximum, float all)
{ return maximum == all ? 1.0f : ik_exp_f32(maximum - all); }

/* Turn the scores of n keys into their weights, and rescale the sums of earlier keys to the new largest score. */
static inline __device__ void weigh(float *scores, int n, attention_stat &stat, float *sums, int cols)
{
    float maximum = stat.maximum, sum = 0;
    for (int j = 0; j < n; j++)
        maximum = ik_maximum_f32(maximum, scores[j]);
    const float before = factor_of(stat.maximum, maximum);
    for (int j = 0; j < n; j++) {
        scores[j] = scores[j] == -__builtin_inff() ? 0.0f : ik_exp_f32(scores[j] - maximum);
        sum += scores[j];
    }
    if (before != 1)
        for (int c = 0; c < cols; c++)
            sums[c] = before == 0 ? 0.0f : sums[c] * before;
    stat.sum = (before == 0 ? 0.0f : stat.sum * before) + sum;
    stat.maximum = maximum;
}
#endif
