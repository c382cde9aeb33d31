/* conv2d on processors:
 *
 *     y[n, f, i, j] = activation(Σ_cuv w[f, c, u, v] x[n, c, i sh + u dh - top, j sw + v dw - left]
 *                                + bias[f] + residual[n, f, i, j])
 *
 * with x = 0 outside. For the filters of one group and one image that is a product, Σ_t w[f, t] x[t, pixel], whose sum
 * runs over the taps t = (c, u, v): register tiles of filters and pixels compute it (tiles.h). They read a panel of
 * adjacent pixels as one run at each tap, and such runs are found in one of three ways:
 *
 *     planes  x is copied to planes with the padding around it: with strides of (sh, sw), plane (a, b) of a channel
 *             has rows a, a + sh, … and columns b, b + sw, … . At a tap all pixels of y, line after line, then lie one
 *             after another, from an offset on that is listed for each tap. A line of a plane may be longer than one
 *             of y: its last pixels are computed and dropped. After the planes there is space for the last panel.
 *     LIES    windows of one element with stride 1: the planes are those of x itself.
 *     POINTS  other windows of one element without padding, where pixels are few: each tile copies its own panel,
 *             which saves a launch.
 *
 * Filters are read in place where their taps are contiguous (TAPS_LIE), and copied otherwise. Groups of one or two
 * filters, as in depthwise convolutions, use no tiles: conv2d_skinny adds up shifted planes, a few vectors at a time.
 * The workspace holds the planes, or the panels of points; at taps_at the offsets of the taps; at w_at the filters.
 *
 * Against the portable kernel, interleaved (PoCL 3.0, AVX-512, two Zen 5 cores, busy): 64x56x56 3x3 166 times as fast,
 * 3x224x224 7x7 by 2 125, 512x7x7 3x3 49, depthwise 32x112x112 59. Against the C kernels of the CPU plug-in: the layers
 * of ResNet-18 together 0.9 to 1.1. */
#include "isokern_math.h"
#include "tiles.h"

typedef struct window {
    ik_index kh, kw, sh, sw, dh, dw; /* size, stride, dilation */
    ik_index down, right;            /* planes of a channel by row and by column */
    ik_index filters, channels, taps; /* filters and channels of a group; taps of a filter */
} window;

static IK_INLINE window window_of(const ik_args *p)
{
    window g = { p->w.shape[2], p->w.shape[3], (ik_index)p->attr_stride.v[0],
        (ik_index)p->attr_stride.v[p->attr_stride.count - 1], (ik_index)p->attr_dilation.v[0],
        (ik_index)p->attr_dilation.v[p->attr_dilation.count - 1] };
    g.down = min(g.sh, g.dh * (g.kh - 1) + 1);
    g.right = min(g.sw, g.dw * (g.kw - 1) + 1);
    g.filters = p->w.shape[0] / (ik_index)p->attr_groups;
    g.channels = p->w.shape[1];
    g.taps = g.channels * g.kh * g.kw;
    return g;
}

/* An item fills one plane, and its share of the taps: where each meets the first pixel, from the planes of a group's
 * first channel on. */
IK_ENTRY(conv2d_planes)(IK_PARAMS)
{
    const window g = window_of(&p);
    for (ik_index tap = IK_GROUP_ID; tap < g.taps; tap += (ik_index)p.planes) {
        const ik_index kx = tap % g.kw * g.dw, ky = tap / g.kw % g.kh * g.dh, channel = tap / g.kw / g.kh;
        const ik_index plane = (channel * g.down + ky % g.sh) * g.right + kx % g.sw;
        ((IK_GLOBAL ik_index *)(workspace + p.taps_at))[tap] =
            (ik_index)((plane * p.high + ky / g.sh) * p.wide + kx / g.sw);
    }
    const ik_index item = IK_GROUP_ID, channel = item / g.right / g.down, wide = (ik_index)p.wide;
    const ik_index top = item / g.right % g.down - (ik_index)p.attr_padding.v[0];
    const ik_index left = item % g.right - (ik_index)p.attr_padding.v[p.attr_padding.count == 1 ? 0 : 1];
    const ik_index low = min(wide, left < 0 ? (-left + g.sw - 1) / g.sw : 0); /* columns [low, high) are inside x */
    const ik_index high = left < p.x.shape[3] ? max(low, min(wide, (p.x.shape[3] - 1 - left) / g.sw + 1)) : low;
    const ik_index from =
        p.x.offset + channel / p.x.shape[1] * p.x.strides[0] + channel % p.x.shape[1] * p.x.strides[1];
    const ik_index step = g.sw * p.x.strides[3];
    IK_GLOBAL value *to = (IK_GLOBAL value *)workspace + item * p.high * wide;
    for (ik_index row = 0; row < p.high; row++, to += wide) {
        const ik_index at = top + row * g.sh, inside = at >= 0 && at < p.x.shape[2], begin = inside ? low : wide,
                       end = inside ? high : wide;
        IK_GLOBAL const element *line = x + from + at * p.x.strides[2] + left * p.x.strides[3];
        for (ik_index i = 0; i < begin; i++)
            to[i] = 0;
        if (step == 1)
            for (ik_index i = begin; i < end; i++)
                to[i] = LOAD(line, i);
        else
            for (ik_index i = begin; i < end; i++)
                to[i] = LOAD(line, i * step);
        for (ik_index i = end; i < wide; i++)
            to[i] = 0;
    }
}

/* An item copies one filter. */
IK_ENTRY(conv2d_filters)(IK_PARAMS)
{
    const window g = window_of(&p);
    const ik_index from = p.w.offset + IK_GROUP_ID * p.w.strides[0];
    IK_GLOBAL value *to = (IK_GLOBAL value *)(workspace + p.w_at) + IK_GROUP_ID * g.taps;
    for (ik_index c = 0; c < g.channels; c++)
        for (ik_index ky = 0; ky < g.kh; ky++, to += g.kw)
            for (ik_index kx = 0; kx < g.kw; kx++)
                to[kx] = LOAD(w, from + c * p.w.strides[1] + ky * p.w.strides[2] + kx * p.w.strides[3]);
}

#ifdef IK_HAS_residual
#define RESIDUAL residual
#else
#define RESIDUAL 0
#endif

/* Store pixels [from + begin, from + end) of some channels of an image of y, from `channel` on, from their sums, which
 * are `pitch` apart and are overwritten; rows of the sums' pixels are `wide`. `added` is the residual, if there is
 * one. */
static IK_INLINE void store_pixels(const ik_args *p, IK_GLOBAL element *to, IK_GLOBAL const element *added,
    ik_index image, ik_index channel, int channels, ik_index wide, ik_index from, int begin, int end, value *sums,
    int pitch)
{
    to += p->y.offset + image * p->y.strides[0] + channel * p->y.strides[1];
#ifdef IK_HAS_residual
    added += p->residual.offset + image * p->residual.strides[0] + channel * p->residual.strides[1];
#endif
    const ik_index step = p->y.strides[3];
    for (int j = begin, run; j < end; j += run) { /* one row of y at a time */
        const ik_index row = (from + j) / wide, col = (from + j) % wide;
        run = (int)min((ik_index)(end - j), wide - col);
        const int count = (int)min((ik_index)run, max((ik_index)0, p->y.shape[3] - col));
        for (int i = 0; i < channels; i++) {
            IK_GLOBAL element *line = to + i * p->y.strides[1] + row * p->y.strides[2] + col * step;
            value *sum = sums + i * pitch + j;
#ifdef IK_HAS_residual
            IK_GLOBAL const element *other =
                added + i * p->residual.strides[1] + row * p->residual.strides[2] + col * p->residual.strides[3];
            for (int v = 0; v < count; v++)
                sum[v] += LOAD(other, v * p->residual.strides[3]);
#endif
            for (int v = 0; v < count; v++)
                sum[v] = IK_ROW_activation(sum[v]);
            if (step == 1)
                for (int v = 0; v < count; v++)
                    IK_STORE_AS(y, line, v, sum[v]);
            else
                for (int v = 0; v < count; v++)
                    IK_STORE_AS(y, line, v * step, sum[v]);
        }
    }
}

#if defined(TAPS_LIE) && TAPS_LIE
#define FILTER(i) ((IK_GLOBAL const value *)w + p.w.offset + (i) * p.w.strides[0])
#else
#define FILTER(i) ((IK_GLOBAL const value *)(workspace + p.w_at) + (i) * g.taps)
#endif
#ifdef IK_HAS_bias
#define BIAS(i) LOAD(bias, p.bias.offset + (i) * p.bias.strides[0])
#else
#define BIAS(i) 0
#endif

/* Copy the elements of one plane of x at the pixels of a panel, from `first` on; beyond the last pixel, that one is
 * repeated. */
static IK_INLINE void copy_points(
    const ik_args *p, IK_GLOBAL const element *plane, ik_index first, ik_index pixels, IK_GLOBAL value *to)
{
    const window g = window_of(p);
    const ik_index wide = p->y.shape[3], step = g.sw * p->x.strides[3];
    for (int j = 0, run; j < PANEL_COLS; j += run) { /* one row of y at a time */
        const ik_index pixel = min(first + j, pixels - 1), row = pixel / wide, col = pixel % wide;
        run = first + j < pixels ? (int)min((ik_index)(PANEL_COLS - j), wide - col) : 1;
        IK_GLOBAL const element *line = plane + row * g.sh * p->x.strides[2];
        for (int i = 0; i < run; i++)
            to[j + i] = LOAD(line, (col + i) * step);
    }
}

IK_ENTRY(conv2d)(IK_PARAMS)
{
    vector scratch[SUMS];
    value *sums = (value *)scratch;
    const window g = window_of(&p);
    const ik_index block = (ik_index)p.block, blocks = (g.filters + block - 1) / block,
                   pixels = p.y.shape[2] * (ik_index)p.wide;
    const ik_index panels = (pixels + PANEL_COLS - 1) / PANEL_COLS, item = IK_GROUP_ID, panel_number = item % panels,
                   row = item / panels % blocks * block;
    const ik_index set = item / panels / blocks, group = set % (ik_index)p.attr_groups,
                   image = set / (ik_index)p.attr_groups;
    const ik_index filter = group * g.filters + row;
    const int rows = (int)min(block, g.filters - row);
#if LIES /* the last panel ends with the channel, and repeats pixels of the one before */
    const ik_index step = p.x.strides[1], first = max((ik_index)0, min(panel_number * PANEL_COLS, pixels - PANEL_COLS));
    IK_GLOBAL const value *from =
        (IK_GLOBAL const value *)x + p.x.offset + image * p.x.strides[0] + group * g.channels * step + first;
    IK_GLOBAL const ik_index *offsets = 0;
#elif POINTS
    const ik_index step = PANEL_COLS, first = panel_number * PANEL_COLS;
    IK_GLOBAL value *from = (IK_GLOBAL value *)workspace + item * g.channels * step;
    IK_GLOBAL const ik_index *offsets = 0;
    for (ik_index channel = 0; channel < g.channels; channel++)
        copy_points(&p, x + p.x.offset + image * p.x.strides[0] + (group * g.channels + channel) * p.x.strides[1],
            first, pixels, from + channel * step);
#else
    const ik_index step = 0, first = panel_number * PANEL_COLS;
    IK_GLOBAL const value *from =
        (IK_GLOBAL const value *)workspace + set * g.channels * g.down * g.right * p.high * p.wide + first;
    IK_GLOBAL const ik_index *offsets = (IK_GLOBAL const ik_index *)(workspace + p.taps_at);
#endif
    for (ik_index tap = 0; tap == 0 || tap < g.taps; tap += BLOCK_K) /* at least once: a sum of no products is zero */
        contract(FILTER(filter) + tap, (ik_index)(FILTER(1) - FILTER(0)), rows, from + tap * step, step,
            offsets != 0 ? offsets + tap : 0, (int)min((ik_index)BLOCK_K, g.taps - tap), sums, tap == 0);
    for (int i = 0; i < rows; i++) {
        const value more = BIAS(filter + i);
        for (int j = 0; j < PANEL_COLS; j++)
            sums[i * PANEL_COLS + j] += more;
    }
    store_pixels(&p, y, RESIDUAL, image, filter, rows, (ik_index)p.wide, first,
        (int)(panel_number * PANEL_COLS - first), (int)min((ik_index)PANEL_COLS, pixels - first), sums, PANEL_COLS);
}

/* An item computes one channel of y. */
IK_ENTRY(conv2d_skinny)(IK_PARAMS)
{
    enum { VECTORS = 4, SPAN = VECTORS * LANES };
    const window g = window_of(&p);
    const ik_index filter = IK_GROUP_ID % p.y.shape[1], image = IK_GROUP_ID / p.y.shape[1],
                   set = IK_GROUP_ID / g.filters;
    const ik_index pixels = p.y.shape[2] * (ik_index)p.wide;
    IK_GLOBAL const value *from = (IK_GLOBAL const value *)workspace
        + set * g.channels * g.down * g.right * p.high * p.wide,
                          *taps = FILTER(filter);
    IK_GLOBAL const ik_index *offsets = (IK_GLOBAL const ik_index *)(workspace + p.taps_at);
    for (ik_index first = 0; first < pixels; first += SPAN) {
        vector sum[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; j++)
            sum[j] = BIAS(filter);
#pragma nounroll
        for (ik_index tap = 0; tap < g.taps; tap++) {
            IK_GLOBAL const value *run = from + offsets[tap] + first;
#pragma unroll
            for (int j = 0; j < VECTORS; j++)
                sum[j] += taps[tap] * *(IK_GLOBAL const loose *)(run + j * LANES);
        }
        store_pixels(&p, y, RESIDUAL, image, filter, 1, (ik_index)p.wide, first, 0,
            (int)min((ik_index)SPAN, pixels - first), (value *)sum, SPAN);
    }
}
