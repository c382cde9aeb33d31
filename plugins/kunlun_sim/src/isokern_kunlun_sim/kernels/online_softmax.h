/* Softmax of scores that are met a few at a time: of those so far there are the largest, m, and the sums of exp(score - m) alone and times the values. */
#ifndef IK_XPU_ONLINE_SOFTMAX_H
#define IK_XPU_ONLINE_SOFTMAX_H
#include "kernel.h"

struct attention_stat {
    float most, sum;
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

/* What of a part with the largest score `most` counts beside all, whose largest is `all`. */
static inline __device__ float factor_of(float most, float all) { return most == all ? 1.0f : ik_exp_f32(most - all); }

/* Scores of n keys become their weights, and what was summed up of the keys before is scaled to the new largest score. */
static inline __device__ void weigh(float *scores, int n, attention_stat &stat, float *sums, int cols)
{
    float most = stat.most, sum = 0;
    for (int j = 0; j < n; j++)
        most = ik_maximum_f32(most, scores[j]);
    const float before = factor_of(stat.most, most);
    for (int j = 0; j < n; j++) {
        scores[j] = scores[j] == -__builtin_inff() ? 0.0f : ik_exp_f32(scores[j] - most);
        sum += scores[j];
    }
    if (before != 1)
        for (int c = 0; c < cols; c++)
            sums[c] = before == 0 ? 0.0f : sums[c] * before;
    stat.sum = (before == 0 ? 0.0f : stat.sum * before) + sum;
    stat.most = most;
}
#endif
