/* What a convolution is told, how it is cut into bands, and where each tap of a window lies in the planes of a band.
 *
 *     y[n, o, oy, ox] = bias[o] + Σ_{c, ky, kx} w[o, c, ky, kx] * x[n, c, oy sh + ky dh - top, ox sw + kx dw - left]
 *
 * A band is some rows of y. Its part of x is copied into planes (padded, widened, without the strides) such that for each tap the
 * values for all pixels of the band lie in one run: the pixel's index plus an offset. Then the sum is a matrix product whose right
 * side needs no further copy. Plane (c, v, u), v < planes, u < phases, has the rows u, u + sh, … of the padded channel; `exact` planes
 * have one v a tap column and the width of y, the others one v a residue of sw, shared by the taps, with columns to spare. */
#ifndef IK_CONV2D_H
#define IK_CONV2D_H
#include "gemm_tile.h"

typedef struct ik_conv {
    const ik_tensor *tx, *tw, *ty;
    const char *x, *w, *bias;
    char *y;
    int64_t bias_step;
    int64_t images, groups, channels, outputs; /* channels and outputs of a group */
    int64_t kh, kw, sh, sw, dh, dw, top, left, k;
    int64_t ih, iw, oh, ow;

    bool depthwise;  /* one channel a group: sums of shifted planes */
    bool lies;       /* 1 × 1 over contiguous pixels: x itself is the planes, and only the last strip is copied */
    bool w_in_place; /* w is read where it lies */
    bool y_in_place; /* sums are made in y */
    int64_t planes, phases, width, most_band, bands, reach, row_blocks;
    int64_t k_blocks, most_k;
    int64_t offset_bytes, plane_bytes, panel_bytes, slice_bytes;
    char *workspace;
} ik_conv;

enum { IK_CONV_K = 384, IK_DEPTHWISE_BYTES = 24 << 10 };

/* The entry for the width of one, two (height, width) or four (top, left, …) integers. */
static inline int64_t ik_second(const ik_ints *v) { return v->v[v->count > 1 ? 1 : 0]; }

/* Geometry and the cut, for elements of `size` bytes and strips of `strip` columns. */
static inline void ik_conv_cut(ik_conv *v, int64_t size, int64_t tile_rows, int64_t strip)
{
    bool plain = ik_itemsize(v->tx->dtype) == size;
    const int64_t *xs = v->tx->strides, *ws = v->tw->strides, *ys = v->ty->strides;
    v->depthwise = v->channels == 1 && v->groups > 1;
    bool window = v->kh * v->kw == 1 && v->sh == 1 && v->sw == 1 && v->top == 0 && v->left == 0 && v->oh == v->ih && v->ow == v->iw;
    v->lies = !v->depthwise && window && plain && xs[3] == 1 && (xs[2] == v->iw || v->ih == 1);
    v->phases = ik_min(v->sh, (v->kh - 1) * v->dh + 1);
    v->planes = v->depthwise ? ik_min(v->sw, (v->kw - 1) * v->dw + 1) : v->kw;
    v->width = v->ow + (v->depthwise ? (v->kw - 1) * v->dw / v->sw : 0);
    v->reach = (v->kh - 1) * v->dh / v->sh;
    v->k_blocks = ik_max(1, ik_ceil_div(v->k, IK_CONV_K));
    v->most_k = ik_ceil_div(v->k, v->k_blocks);

    int64_t row_bytes = ik_max(1, v->channels * v->planes * v->phases * v->width * size);
    int64_t rows = ik_max(1, (v->depthwise ? IK_DEPTHWISE_BYTES : 2 * IK_BLOCK_BYTES) / row_bytes - v->reach);
    double products = (double)v->images * (double)v->groups * (double)v->outputs * (double)v->k * (double)v->oh * (double)v->ow;
    int64_t wanted = (int64_t)(products / IK_THREAD_PRODUCTS < 3.0 * ik_threads() ? products / IK_THREAD_PRODUCTS : 3.0 * ik_threads());
    int64_t others = ik_max(1, v->images * v->groups);
    v->bands = ik_max(1, ik_ceil_div(v->oh, rows));
    if (others * v->bands < wanted) /* bands of at least 4 strips, then blocks of at least 4 panels of w */
        v->bands = ik_max(v->bands, ik_min(ik_ceil_div(wanted, others), v->oh * v->ow / (4 * strip)));
    v->bands = ik_max(1, ik_min(v->bands, v->oh));
    v->most_band = ik_ceil_div(v->oh, v->bands);
    v->bands = v->oh == 0 ? 0 : ik_ceil_div(v->oh, v->most_band);
    v->row_blocks = 1;
    if (!v->depthwise && others * v->bands < wanted)
        v->row_blocks = ik_max(1, ik_min(ik_ceil_div(wanted, ik_max(1, others * v->bands)), v->outputs / (4 * tile_rows)));

    bool joined = ws[3] == 1 && (ws[2] == v->kw || v->kh == 1) && (ws[1] == v->kh * v->kw || v->channels == 1);
    bool clash = ik_rows_clash(ws[0] * size);
    v->w_in_place = plain && !clash && (joined || v->k == 1);
    v->y_in_place = !v->depthwise && plain && ys[3] == 1 && (ys[2] == v->ow || v->oh == 1);
    int64_t pixels = ik_round_up(v->most_band * v->width, strip);
    v->offset_bytes = ik_round_up(2 * v->k * 8, 64);
    v->plane_bytes = ik_round_up((v->lies ? v->k * strip : v->channels * v->planes * v->phases * (v->most_band + v->reach) * v->width + strip) * size, 64);
    v->panel_bytes = v->w_in_place ? 0 : ik_round_up((v->depthwise ? v->k : tile_rows * (v->most_k + 16)) * size, 64);
    v->slice_bytes = v->plane_bytes + v->panel_bytes + ik_round_up((v->y_in_place ? tile_rows * strip : (v->depthwise ? 1 : tile_rows) * pixels) * size, 64);
}

static inline int64_t ik_conv_tasks(const ik_conv *v) { return v->images * v->groups * v->bands * v->row_blocks; }

static inline int64_t ik_conv_grain(const ik_conv *v)
{
    double products = (double)(v->outputs / v->row_blocks) * (double)v->k * (double)v->most_band * (double)v->ow * (v->depthwise ? 8 : 1) + 64;
    return products >= IK_THREAD_PRODUCTS ? 1 : (int64_t)(IK_THREAD_PRODUCTS / products) + 1;
}

/* Where tap k of a pixel lies, in elements from the pixel's own index; then the same for a strip that was copied. */
static inline void ik_conv_offsets(const ik_conv *v, int64_t strip, int64_t *offsets)
{
    int64_t plane = (v->most_band + v->reach) * v->width;
    for (int64_t k = 0; k < v->k; k++) {
        int64_t c = k / (v->kh * v->kw), kx = k % v->kw, down = k / v->kw % v->kh * v->dh, right = kx * v->dw;
        int64_t x = v->depthwise ? right % v->sw : kx, beside = v->depthwise ? right / v->sw : 0;
        offsets[k] = v->lies ? c * v->tx->strides[1] : ((c * v->planes + x) * v->phases + down % v->sh) * plane + down / v->sh * v->width + beside;
        offsets[v->k + k] = k * strip;
    }
}

#endif
