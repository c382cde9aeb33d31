/* conv2d: y[n, co, oh, ow] = activation(Σ x[n, ci, oh * stride - top + kh * dilation, …] * w[co, ci, kh, kw] + bias[co]
 * + residual[n, co, oh, ow]).
 *
 * Computed as the product of the matrix of filters (one row per output channel) and the matrix of windows of x (one
 * column per pixel of y), which is never stored: a work-group computes a tile of it for the channels of one group.
 * Where a group has few channels, one item computes one result. */
/* launch
 * let(channels=w.shape[0] // max(1, attrs.groups), pixels=y.shape[0] * y.shape[2] * y.shape[3])
 * let(rows=choose_tile(device)[0], cols=choose_tile(device)[1])
 * let(tiled=device.group >= 16 and channels > rows // 4 and pixels > cols // 4)
 * let(tiles=attrs.groups * ceil_div(channels, rows) * ceil_div(pixels, cols))
 * conv2d_tiles(when=tiled, groups=tiles, local=256, TILE_ROWS=rows, TILE_COLS=cols, channels=channels)
 * conv2d_items(when=not tiled, items=y.numel, channels=channels)
 */
#include "contraction.h"
#include "conv2d_attrs.h"

#ifdef IK_HAS_bias
#define BIAS(channel) IK_LOAD(bias, p.bias.offset + (channel) * p.bias.strides[0])
#else
#define BIAS(channel) 0
#endif

#ifdef IK_HAS_residual
#define RESIDUAL(image, channel, row, col) \
    IK_LOAD(residual, \
        p.residual.offset + (image) * p.residual.strides[0] + (channel) * p.residual.strides[1] \
            + (row) * p.residual.strides[2] + (col) * p.residual.strides[3])
#else
#define RESIDUAL(image, channel, row, col) 0
#endif

/* Apply the epilogue to a sum. */
static IK_INLINE ik_acc finish(ik_acc sum, ik_acc bias, ik_acc residual)
{
    sum += bias + residual;
    return IK_ROW_activation(sum);
}

/* A pixel of y, and where its window begins in x: before x where that is padding. */
typedef struct {
    ik_index image, row, col, top, left;
} pixel;

static IK_INLINE pixel pixel_of(IK_RECORD(ik_args) p, ik_index i)
{
    const ik_index area = p.y.shape[2] * p.y.shape[3];
    pixel at;
    at.image = i / area;
    i -= at.image * area;
    at.row = i / p.y.shape[3];
    at.col = i - at.row * p.y.shape[3];
    at.top = (ik_index)(at.row * STEP_H - TOP);
    at.left = (ik_index)(at.col * STEP_W - LEFT);
    return at;
}

/* Whether a position is inside a plane of x. Padding counts as zeros that are multiplied like other elements: zero
 * times Inf is NaN. */
static IK_INLINE int in_plane(IK_RECORD(ik_args) p, ik_index h, ik_index w)
{ return h >= 0 && h < p.x.shape[2] && w >= 0 && w < p.x.shape[3]; }

#ifdef TILE_ROWS
/* Write where the IK_DEPTH window elements from `from` on lie: each one's offset in a filter, its plane of x, and its
 * row and column offsets in that plane. */
static IK_INLINE void lay_taps(IK_RECORD(ik_args) p, ik_index from, ik_index k, IK_LOCAL ik_index *taps)
{
    for (int q = IK_LOCAL_ID; q < IK_DEPTH && from + q < k; q += IK_GROUP) {
        const ik_index line = (from + q) / p.w.shape[3], col = from + q - line * p.w.shape[3];
        const ik_index plane = line / p.w.shape[2], row = line - plane * p.w.shape[2];
        taps[4 * q] = plane * p.w.strides[1] + row * p.w.strides[2] + col * p.w.strides[3];
        taps[4 * q + 1] = plane * p.x.strides[1];
        taps[4 * q + 2] = row * SPREAD_H;
        taps[4 * q + 3] = col * SPREAD_W;
    }
}
#endif

IK_ENTRY(conv2d_tiles)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_acc, left, IK_DEPTH * IK_LEFT);
    IK_LOCAL_ARRAY(ik_acc, right, IK_DEPTH * IK_RIGHT);
    IK_LOCAL_ARRAY(ik_index, taps, 2 * 4 * IK_DEPTH); /* of this step and the next */
    const ik_index k = p.w.shape[1] * p.w.shape[2] * p.w.shape[3];
    const ik_index channels = p.channels, pixels = p.y.shape[0] * p.y.shape[2] * p.y.shape[3];
    const ik_index row_tiles = (channels + TILE_ROWS - 1) / TILE_ROWS, col_tiles = (pixels + TILE_COLS - 1) / TILE_COLS;
    const ik_index line = IK_GROUP_ID / row_tiles, group = line / col_tiles;
    const ik_index row = (IK_GROUP_ID - line * row_tiles) * TILE_ROWS, col = (line - group * col_tiles) * TILE_COLS;
    const ik_index w_from = p.w.offset + (group * channels + row) * p.w.strides[0];
    /* The group size is a multiple of TILE_COLS, so an item copies windows of one pixel only. */
    const int j = IK_LOCAL_ID & (TILE_COLS - 1), inside = col + j < pixels;
    const pixel own = pixel_of(p, inside ? col + j : 0);
    const ik_index x_from = p.x.offset + own.image * p.x.strides[0] + group * p.w.shape[1] * p.x.strides[1];
    const int box_row = IK_LOCAL_ID / IK_BOX_COLS, box_col = IK_LOCAL_ID & (IK_BOX_COLS - 1);
    ik_acc total[IK_SIDE * IK_SIDE], run[IK_SIDE * IK_SIDE];
    for (int i = 0; i < IK_SIDE * IK_SIDE; i++)
        total[i] = run[i] = 0;
    lay_taps(p, 0, k, taps);
    IK_BARRIER();
    for (ik_index from = 0; from < k; from += IK_DEPTH) {
        const int now = (int)((from / IK_DEPTH) & 1) * 4 * IK_DEPTH;
        for (int e = IK_LOCAL_ID; e < IK_DEPTH * TILE_ROWS; e += IK_GROUP) {
            const int i = e / IK_DEPTH, q = e & (IK_DEPTH - 1);
            ik_acc v = 0;
            if (row + i < channels && from + q < k)
                v = IK_LOAD(w, w_from + i * p.w.strides[0] + taps[now + 4 * q]);
            left[q * IK_LEFT + i] = v;
        }
        for (int q = IK_LOCAL_ID / TILE_COLS; q < IK_DEPTH; q += IK_GROUP / TILE_COLS) {
            ik_acc v = 0;
            if (inside && from + q < k) {
                const ik_index h = own.top + taps[now + 4 * q + 2], w_ = own.left + taps[now + 4 * q + 3];
                if (in_plane(p, h, w_))
                    v = IK_LOAD(x, x_from + taps[now + 4 * q + 1] + h * p.x.strides[2] + w_ * p.x.strides[3]);
            }
            right[q * IK_RIGHT + j] = v;
        }
        lay_taps(p, from + IK_DEPTH, k, taps + (4 * IK_DEPTH - now));
        IK_BARRIER();
        ik_multiply(left, right, box_row, box_col, run);
        if (((from + IK_DEPTH) & (IK_RUN - 1)) == 0)
            ik_add_run(total, run);
        IK_BARRIER();
    }
    ik_add_run(total, run);
    for (int c = 0; c < IK_SIDE; c++) {
        const ik_index at = col + box_col + c * IK_BOX_COLS;
        if (at >= pixels)
            continue;
        const pixel one = pixel_of(p, at);
        const ik_index to =
            p.y.offset + one.image * p.y.strides[0] + one.row * p.y.strides[2] + one.col * p.y.strides[3];
        for (int r = 0; r < IK_SIDE; r++) {
            const ik_index channel = group * channels + row + box_row + r * IK_BOX_ROWS;
            if (row + box_row + r * IK_BOX_ROWS < channels)
                IK_STORE(y, to + channel * p.y.strides[1],
                    finish(total[r * IK_SIDE + c], BIAS(channel), RESIDUAL(one.image, channel, one.row, one.col)));
        }
    }
}

IK_ENTRY(conv2d_items)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index outputs = p.y.shape[1], line = IK_ITEM / p.y.shape[3], plane = line / p.y.shape[2];
    const ik_index image = plane / outputs, channel = plane - image * outputs;
    const pixel own = pixel_of(p, IK_ITEM - (plane - image) * p.y.shape[2] * p.y.shape[3]);
    const ik_index planes = p.w.shape[1], kh = p.w.shape[2], kw = p.w.shape[3];
    const ik_index x_from = p.x.offset + own.image * p.x.strides[0] + channel / p.channels * planes * p.x.strides[1];
    const ik_index w_from = p.w.offset + channel * p.w.strides[0];
    ik_acc total = 0, run = 0;
    int added = 0;
    for (ik_index i = 0; i < planes; i++)
        for (ik_index r = 0; r < kh; r++)
            for (ik_index s = 0; s < kw; s++) {
                const ik_index h = own.top + r * SPREAD_H, w_ = own.left + s * SPREAD_W;
                ik_acc v = 0;
                if (in_plane(p, h, w_))
                    v = IK_LOAD(x, x_from + i * p.x.strides[1] + h * p.x.strides[2] + w_ * p.x.strides[3]);
                const ik_acc f = IK_LOAD(w, w_from + i * p.w.strides[1] + r * p.w.strides[2] + s * p.w.strides[3]);
                run = IK_MULTIPLY_ADD(v, f, run);
                if (++added == IK_RUN) {
                    total += run;
                    run = 0;
                    added = 0;
                }
            }
    IK_STORE(y,
        p.y.offset + own.image * p.y.strides[0] + channel * p.y.strides[1] + own.row * p.y.strides[2]
            + own.col * p.y.strides[3],
        finish(total + run, BIAS(channel), RESIDUAL(image, channel, own.row, own.col)));
}
