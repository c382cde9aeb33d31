/* Depthwise convolutions of F32 whose rows are read where they lie, with masks at the edges of the image instead of a
 * padded copy.
 *
 *     for each channel (a task is some channels, or bands of their rows): for each block of rows of y
 *         for each vector of pixels of a row                  one vector of sums for each row of the block
 *             for each row of x that the block reads, for each tap of a row of the window
 *                 value = x[row, pixels' columns for the tap]         loaded once
 *                 for each row of the block that the row of x belongs to: sums += w[tap] * value
 *
 * A sum adds its terms in the order of the taps, whatever the block. */
#ifndef IK_CONV2D_DEPTHWISE_H
#define IK_CONV2D_DEPTHWISE_H
#include "conv2d.h"
#include "masks.h"

#if defined(IK_MASKS)
enum { MAX_WINDOW = 7 };

/* Compute `rows` rows of one channel of y from row `first` on. `rows`, `size` and `step` are constants where this is
 * inlined. */
static inline __attribute__((always_inline)) void depthwise_block(const int rows, const int size, const int step,
    const ik_conv *v, const float *x, const float *w, float bias, int64_t first, float *y)
{
    const int64_t pitch = v->tx->strides[2], top = first * step - v->top;
    const bool relu = v->activation == IK_CONV2D_RELU;
    for (int64_t col = 0; col < v->ow; col += IK_F32_LANES) {
        const int64_t left = col * step - v->left;
        ik_mask inside[MAX_WINDOW + 1][2]; /* with a step, a tap has two vectors, which the next tap shares */
        for (int i = 0; i < size; i += step)
            for (int part = 0; part < step; part++)
                inside[i][part] = ik_mask_inside(left + i + part * IK_F32_LANES, 0, v->iw);
        ik_f32s sum[IK_DEPTHWISE_ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            sum[r] = splat_f32(&bias);
#pragma GCC unroll 32
        for (int i = 0; i < (rows - 1) * step + size; i++) {
            if (top + i < 0 || top + i >= v->ih)
                continue;
            const float *row = x + (top + i) * pitch + left;
            ik_f32s a = { 0 }, b = { 0 };
#pragma GCC unroll 8
            for (int j = 0; j < size; j++) {
                if (j % step == 0)
                    a = ik_load_masked(inside[j][0], row + j);
                if (step == 2 && j % step == 0)
                    b = ik_load_masked(inside[j][1], row + j + IK_F32_LANES);
                const ik_f32s value = step == 1 ? a : ik_every_other(a, b, j % step == 1);
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++)
                    if (i - r * step >= 0 && i - r * step < size)
                        sum[r] = fma_f32(splat_f32(w + (i - r * step) * size + j), value, sum[r]);
            }
        }
        const ik_mask kept = ik_mask_inside(col, 0, v->ow);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            ik_store_masked(kept, y + (first + r) * v->ow + col, relu ? zero_negative_f32(sum[r]) : sum[r]);
    }
}

/* Compute rows first .. last of one channel; the last block begins early rather than being low. */
static inline __attribute__((always_inline)) void depthwise_rows_of(const int size, const int step, const ik_conv *v,
    const float *x, const float *w, float bias, int64_t first, int64_t last, float *y)
{
    enum { ROWS = IK_DEPTHWISE_ROWS };
    for (int64_t row = first; last - first >= ROWS && row < last; row += ROWS)
        depthwise_block(ROWS, size, step, v, x, w, bias, ik_min(row, last - ROWS), y);
    for (int64_t row = first; last - first < ROWS && row < last; row++)
        depthwise_block(1, size, step, v, x, w, bias, row, y);
}

/* Run tasks begin .. end, numbered (image * groups + group) * bands + band. */
void IK_SHARED(conv2d_rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_conv *v = context;
    const int64_t *xs = v->tx->strides, *ys = v->ty->strides;
    for (int64_t task = begin; task < end; task++) {
        const int64_t band = task % v->bands, group = task / v->bands % v->groups, image = task / v->bands / v->groups,
                      first = band * v->max_band, last = ik_min(v->oh, first + v->max_band);
        const float *x = (const float *)(const void *)v->x + image * xs[0] + group * xs[1];
        for (int64_t o = group * v->outputs; o < (group + 1) * v->outputs; o++) {
            const float *w = (const float *)(const void *)v->w + o * v->tw->strides[0];
            float *y = (float *)(void *)v->y + image * ys[0] + o * ys[1], bias = bias_of_f32(v, o);
            switch (10 * v->kh + v->sh) {
            case 31: depthwise_rows_of(3, 1, v, x, w, bias, first, last, y); break;
            case 32: depthwise_rows_of(3, 2, v, x, w, bias, first, last, y); break;
            case 51: depthwise_rows_of(5, 1, v, x, w, bias, first, last, y); break;
            case 52: depthwise_rows_of(5, 2, v, x, w, bias, first, last, y); break;
            default: depthwise_rows_of(7, 1, v, x, w, bias, first, last, y); break;
            }
            if (v->activation != IK_CONV2D_RELU)
                ik_activate_f32(v->activation, (last - first) * v->ow, y + first * v->ow);
        }
    }
}
#else
void IK_SHARED(conv2d_rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{ (void)context, (void)begin, (void)end, (void)worker; } /* never called: ik_conv_choose_rows declines */
#endif
#endif
