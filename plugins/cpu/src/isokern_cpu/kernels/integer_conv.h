/* Convolutions of bytes, summed in I32, for the kernels of conv_integer and qlinear_conv. Include byte_pairs.h or
 * byte_quads.h before.
 *
 * The loops are those of conv2d_panels.h over groups of GROUP channels: a lane is an output, and planes hold a group
 * for each pixel. As in integer_products.h, numbers are packed less a shift; with what is left of the zero points,
 *
 *     Σ (x - zx)(w - zw) = Σ x' w' - zx' Σ w' - zw' (Σ x' - k zx')
 *
 * where the border counts as zx. Packed filters have Σ w' behind them. qlinear_conv adds a bias and writes bytes:
 *
 *     y = rint(sum * (x_scale * w_scale / y_scale)) + y_zero_point */
#ifndef IK_INTEGER_CONV_H
#define IK_INTEGER_CONV_H
#include "byte_groups.h"
#include "conv2d.h"
#include "operators/conv_integer.h"
#include "operators/qlinear_conv.h"
#include "transpose.h"

#define IK_TALL_TILES
#define IK_T uint32_t
#define IK_OF(name) name##_group
#include "gemm_tile.h"
#include "pixel_tile.h"

enum { PIXELS = 128, WIDEST = 4 * lanes_group }; /* pixels that are finished at one time; outputs of the widest panel */

/* One number, or one for each output. */
typedef struct numbers {
    const char *at; /* null: zeros */
    int64_t step;
    int32_t dtype;
} numbers;

typedef struct byte_conv {
    ik_conv v; /* its channels are groups of channels, its w the packed panels */
    int64_t channels, together; /* together: lines that are finished at one time */
    bool quantised;
    int32_t x_rest, w_shift; /* zx', and the shift of w */
    narrow x_shift;
    numbers w_zeros, w_scales, bias;
    float x_scale, y_scale, y_zero, low, high; /* of qlinear_conv; low and high: the least and most of a byte */
    uint64_t packed_bytes;
} byte_conv;

/* Some lines of an image and a group; x is where the first line's first pixel lies for a tap with offset 0. */
typedef struct byte_band {
    int64_t image, group, first, last;
    const uint32_t *x;
    uint32_t *sums;
} byte_band;

static numbers numbers_of(const ik_plan *plan, void *const *data, uint32_t i)
{
    numbers n = { 0 };
    if (ik_present(plan, i)) {
        const ik_tensor *t = &plan->tensors[i];
        n = (numbers){ data == NULL ? NULL : ik_ptr(plan, data, i),
            t->ndim == 0 || t->shape[0] == 1 ? 0 : t->strides[0], t->dtype };
    }
    return n;
}

static int32_t integer_at(const numbers *n, int64_t i)
{
    int32_t x = 0;
    if (n->at != NULL && n->dtype == IK_I32)
        memcpy(&x, n->at + i * n->step * (int64_t)sizeof x, sizeof x);
    else if (n->at != NULL)
        x = byte_at(n->dtype, n->at + i * n->step);
    return x;
}

static float float_at(const numbers *n, int64_t i)
{
    float x;
    memcpy(&x, n->at + i * n->step * (int64_t)sizeof x, sizeof x);
    return x;
}

static uint32_t filters_at(const ik_plan *plan)
{ return plan->kind == IK_OP_QLINEAR_CONV ? IK_QLINEAR_CONV_W : IK_CONV_INTEGER_W; }

/* Outputs in a panel: 4 vectors where lines are short, as in conv2d; 0 where most lanes would be idle. */
static int64_t width_of(const ik_conv *v)
{
#if defined(__AVX512F__)
    if (v->kh * v->kw > 1 && v->ow <= IK_TILE_ROWS / 2 && 4 * v->outputs >= 3 * ik_round_up(v->outputs, WIDEST))
        return WIDEST;
#endif
    return 2 * v->outputs >= ik_round_up(v->outputs, panel_width_group) ? panel_width_group : 0;
}

/* Set up the convolution. `data` may be null: then only what follows from the shapes is set. */
static byte_conv conv_of(const ik_plan *plan, void *const *data)
{
    _Static_assert(sizeof(ik_conv_integer_attrs) == sizeof(ik_qlinear_conv_attrs), "the same attributes");
    const ik_conv_integer_attrs *attrs = plan->attrs;
    const bool quantised = plan->kind == IK_OP_QLINEAR_CONV;
    const uint32_t of_w = filters_at(plan);
    byte_conv b = { .quantised = quantised };
    ik_conv *v = &b.v;
    v->ty = &plan->tensors[0], v->tx = &plan->tensors[1], v->tw = &plan->tensors[of_w];
    const int64_t *x = v->tx->shape, *w = v->tw->shape, *y = v->ty->shape, *ys = v->ty->strides;
    b.channels = w[1];
    v->images = x[0], v->groups = attrs->groups, v->channels = ik_ceil_div(w[1], GROUP), v->outputs = w[0] / v->groups;
    v->kh = w[2], v->kw = w[3], v->k = v->channels * v->kh * v->kw;
    v->ih = x[2], v->iw = x[3], v->oh = y[2], v->ow = y[3];
    v->sh = attrs->stride.v[0], v->sw = ik_second(&attrs->stride);
    v->dh = attrs->dilation.v[0], v->dw = ik_second(&attrs->dilation);
    v->top = attrs->padding.v[0], v->left = ik_second(&attrs->padding);
    v->panel_width = width_of(v);
    if (v->panel_width == 0 || v->k == 0)
        return b;
    ik_conv_choose_blocking(v, sizeof(uint32_t), IK_TILE_ROWS, panel_width_group);
    v->flat = v->kh * v->kw == 1 && (ys[2] == v->ow * ys[3] || v->oh == 1);
    ik_conv_choose_panel_blocking(v, sizeof(uint32_t), lanes_group);
    const int64_t band = ik_ceil_div(v->lines, v->bands), planes = v->slice_bytes - v->sum_bytes;
    b.together = v->k_blocks > 1 ? band : ik_max(1, ik_min(band, PIXELS / 2 / ik_max(1, v->line)));
    v->sum_bytes = ik_round_up(b.together * v->line, lanes_group) * v->panel_width * (int64_t)sizeof(uint32_t);
    v->plane_bytes += IK_VECTOR,
        v->slice_bytes = v->sum_bytes + planes + IK_VECTOR; /* sum_windows reads whole vectors */
    b.packed_bytes = (uint64_t)(v->groups * v->panels * (v->k + 1) * v->panel_width) * sizeof(uint32_t);
    b.w_shift = shift_of(v->tw->dtype, false, 0);
    if (data == NULL)
        return b;
    const numbers x_zero =
        numbers_of(plan, data, quantised ? IK_QLINEAR_CONV_X_ZERO_POINT : IK_CONV_INTEGER_X_ZERO_POINT);
    const int32_t zero = integer_at(&x_zero, 0), shift = shift_of(v->tx->dtype, true, zero);
    b.x_shift = (narrow)shift, b.x_rest = zero - shift;
    b.w_zeros = numbers_of(plan, data, quantised ? IK_QLINEAR_CONV_W_ZERO_POINT : IK_CONV_INTEGER_W_ZERO_POINT);
    v->x = ik_ptr(plan, data, 1), v->y = ik_ptr(plan, data, 0);
    if (quantised) {
        const numbers x_scale = numbers_of(plan, data, IK_QLINEAR_CONV_X_SCALE),
                      y_scale = numbers_of(plan, data, IK_QLINEAR_CONV_Y_SCALE),
                      y_zero = numbers_of(plan, data, IK_QLINEAR_CONV_Y_ZERO_POINT);
        const bool is_signed = v->ty->dtype == IK_I8;
        b.x_scale = float_at(&x_scale, 0), b.y_scale = float_at(&y_scale, 0), b.y_zero = (float)integer_at(&y_zero, 0);
        b.low = is_signed ? -128 : 0, b.high = is_signed ? 127 : 255;
        b.w_scales = numbers_of(plan, data, IK_QLINEAR_CONV_W_SCALE);
        b.bias = numbers_of(plan, data, IK_QLINEAR_CONV_BIAS);
    }
    return b;
}

static const char *why_not_conv(const ik_plan *plan)
{
    const byte_conv b = conv_of(plan, NULL);
    return b.v.k == 0 ? "there are no products" : b.v.panel_width == 0 ? "a vector has more lanes than outputs" : NULL;
}

static const char *packed_filters(const ik_plan *plan, uint32_t tensor, uint64_t *bytes)
{
    const byte_conv b = conv_of(plan, NULL);
    *bytes = b.packed_bytes;
    if (tensor != filters_at(plan) || b.packed_bytes == 0)
        return NULL;
    return ik_filters_name(&b.v, GROUP == 2 ? "filters of pairs" : "filters of quads");
}

/* Pack panels begin .. end of the filters: group k of an output of a panel is at k * panel_width + output. Sums of all
 * panels follow. */
static void pack_filters(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const byte_conv *b = context;
    const ik_conv *v = &b->v;
    const int64_t *step = v->tw->strides, width = v->panel_width, taps = v->kh * v->kw;
    uint32_t *packed = (uint32_t *)(void *)v->workspace;
    for (int64_t at = begin; at < end; at++) {
        const int64_t first = at % v->panels * width, outputs = ik_min(width, v->outputs - first);
        uint32_t *to = packed + at * v->k * width, *sums = packed + (v->groups * v->panels * v->k + at) * width;
        memset(to, 0, (size_t)(v->k * width) * sizeof *to);
        memset(sums, 0, (size_t)width * sizeof *sums);
        for (int64_t o = 0; o < outputs; o++)
            for (int64_t c = 0; c < b->channels; c++)
                for (int64_t tap = 0; tap < taps; tap++) {
                    const int32_t x = byte_at(v->tw->dtype,
                                          v->w + (at / v->panels * v->outputs + first + o) * step[0] + c * step[1]
                                              + tap / v->kw * step[2] + tap % v->kw * step[3])
                        - b->w_shift;
                    to[(c / GROUP * taps + tap) * width + o] |= (uint32_t)(narrow)x << 32 / GROUP * (c % GROUP);
                    sums[o] += (uint32_t)x;
                }
    }
}

static ik_status pack_conv(const ik_plan *plan, const void *from, void *to)
{
    byte_conv b = conv_of(plan, NULL);
    b.v.w = (const char *)from + b.v.tw->offset;
    b.v.workspace = to;
    ik_parallel_for(b.v.groups * b.v.panels, 1, pack_filters, &b);
    return IK_SUCCESS;
}

/* Make the planes of a group c of channels, for the rows first .. first + band of y (conv2d_block.h has the same for
 * floats); x is the first channel's. */
static void make_plane(const byte_conv *b, const char *x, int64_t c, int64_t first, int64_t band, uint32_t *to)
{
    const ik_conv *v = &b->v;
    const int64_t *step = v->tx->strides, rows = v->max_band + v->reach, count = ik_min(GROUP, b->channels - c * GROUP);
    uint32_t border = 0;
    for (int64_t q = 0; q < count; q++)
        border |= (uint32_t)(narrow)b->x_rest << 32 / GROUP * q;
    x += c * GROUP * step[1];
    for (int64_t p = 0; p < v->planes; p++) {
        const int64_t start = p - v->left;
        const int64_t low = start < 0 ? ik_min(v->width, ik_ceil_div(-start, v->sw)) : 0;
        const int64_t high = start < v->iw ? ik_max(low, ik_min(v->width, (v->iw - 1 - start) / v->sw + 1)) : low;
        for (int64_t phase = 0; phase < v->phases; phase++)
            for (int64_t row = 0; row < band + v->reach; row++) {
                const int64_t y = (first + row) * v->sh + phase - v->top;
                const bool inside = y >= 0 && y < v->ih;
                uint32_t *line = to + ((p * v->phases + phase) * rows + row) * v->width;
                for (int64_t i = 0; i < (inside ? low : v->width); i++)
                    line[i] = border;
                if (!inside)
                    continue;
                group_pixels(v->tx->dtype, count, x + y * step[2] + (start + low * v->sw) * step[3], step[1],
                    step[3] * v->sw, high - low, b->x_shift, line + low);
                for (int64_t i = high; i < v->width; i++)
                    line[i] = border;
            }
    }
}

#endif
