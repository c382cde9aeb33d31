/* conv2d in F16 and BF16 by tensor cores, and in F32, as the product of the matrix of filters, a row an output channel, and that of the
 * windows of x, a column a pixel of y, which is never written down: a block makes a tile of it for the channels of one group. Sums are F32.
 *
 * Tiles are small where gemm's are, and where filters come by the element, for which ptxas finds too few registers with large ones. */
/* launch
 * let(channels=w.shape[0] // max(1, attrs.groups), area=y.shape[2] * y.shape[3], half=y.dtype.name in ("F16", "BF16"))
 * let(pixels=y.shape[0] * area)
 * refuse(when=not half and y.dtype.name != "F32", reason="neither F16, BF16 nor F32")
 * refuse(when=half and "mma_" + y.dtype.name.lower() not in device.features, reason="no tensor cores for this dtype")
 * refuse(when=device.group < 64, reason="blocks of less than 64 threads")
 * refuse(when=channels <= 8 or pixels <= 16, reason="few channels or pixels")
 * refuse(when=not tensor(w, w.shape[1:], w.strides[1:], w.offset).is_contiguous, reason="filters do not lie along memory")
 * let(chunk=8 if half else 4, beside=2 if half else 4)
 * let(w_whole=0 if w.strides[0] % chunk or w.offset % chunk else 1)
 * let(planes=tensor(y, y.shape[2:], y.strides[2:], y.offset).is_contiguous)
 * let(y_whole=0 if not planes or any([s % beside for s in (area, y.strides[1], y.offset)]) or y.shape[0] > 1 and y.strides[0] % beside else 1)
 * let(large=w_whole and min(channels, pixels) > 64 and attrs.groups * ceil_div(channels, 128) * ceil_div(pixels, 64 if half else 128) >= device.units)
 * let(group=min(device.group, 128 if half else 256 if large else 64), warp=64 if large else 32)
 * let(rows=2 * warp if half else 128 if group == 256 else 64, cols=group // 2 if half else min(128, group))
 * let(tiles=attrs.groups * ceil_div(channels, rows) * ceil_div(pixels, cols))
 * conv2d_tiles(groups=tiles, local=group, BLOCK_ROWS=rows, BLOCK_COLS=cols, WARP_ROWS=warp, W_WHOLE=w_whole, Y_WHOLE=y_whole, channels=channels)
 */
#define STAGES 2
#define WARP_COLS 32
#include "products.h"
#include "conv2d_attrs.h"

/* An element of the windows: how far it lies from their first one in memory, and down and right in the plane, which has so many rows: none
 * where there is no such element. */
struct alignas(4 * sizeof(ik_index)) tap {
    ik_index far, down, right, rows;
};

/* Those of a round, by the first DEPTH threads. */
static IK_INLINE void lay_taps(const ik_args &p, ik_index round, tap *taps)
{
    const ik_index element = round * DEPTH + IK_LOCAL_ID, kw = p.w.shape[3], kh = p.w.shape[2];
    if (IK_LOCAL_ID >= DEPTH)
        return;
    tap t = {0, 0, 0, 0};
    if (element < p.w.shape[1] * kh * kw) {
        const ik_index line = element / kw, plane = line / kh;
        t.down = (line - plane * kh) * SPREAD_H;
        t.right = (element - line * kw) * SPREAD_W;
        t.far = plane * p.x.strides[1] + t.down * p.x.strides[2] + t.right * p.x.strides[3];
        t.rows = p.x.shape[2];
    }
    taps[IK_LOCAL_ID] = t;
}

/* Brings tiles of the windows, a thread those of one pixel. Padding is zeros, which are multiplied like others: zero times Inf is NaN. */
struct windows {
    typedef ::tile<BLOCK_COLS, true> tile;
    static constexpr int THREADS = IK_GROUP / BLOCK_COLS, PER = tile::CHUNKS / THREADS; /* of a pixel; chunks of a thread */
    static_assert(PER * THREADS == tile::CHUNKS, "threads bring as many chunks each");
    const ik_args &p;
    const element *x;
    tap *taps; /* of two rounds */
    ik_index from, top, left;
    bool inside;
    chunk held[PER];

    IK_INLINE void begin(ik_index round, element *)
    {
        const tap *const now = taps + (round & 1) * DEPTH;
#pragma unroll
        for (int i = 0; i < PER; i++)
#pragma unroll
            for (int j = 0; j < CHUNK; j++) {
                const tap t = now[(i * THREADS + IK_LOCAL_ID / BLOCK_COLS) * CHUNK + j];
                const ik_index row = top + t.down, col = left + t.right;
                held[i].v[j] = 0;
                if (inside && row >= 0 && row < t.rows && col >= 0 && col < p.x.shape[3])
                    held[i].v[j] = x[from + t.far];
            }
        lay_taps(p, round + 1, taps + (~round & 1) * DEPTH);
    }

    IK_INLINE void end(element *to)
    {
#pragma unroll
        for (int i = 0; i < PER; i++)
            tile::put(to, IK_LOCAL_ID % BLOCK_COLS, i * THREADS + IK_LOCAL_ID / BLOCK_COLS, held[i]);
    }
};

IK_ENTRY(conv2d_tiles)(IK_PARAMS)
{
    typedef matrix<tile<BLOCK_ROWS, true>, W_WHOLE> filters;
    IK_LOCAL_ARRAY(chunk, lefts, STAGES * filters::tile::SIZE / CHUNK);
    IK_LOCAL_ARRAY(chunk, rights, STAGES * windows::tile::SIZE / CHUNK);
    IK_LOCAL_ARRAY(tap, taps, 2 * DEPTH);
    const ik_index k = p.w.shape[1] * p.w.shape[2] * p.w.shape[3], channels = p.channels;
    const ik_index area = p.y.shape[2] * p.y.shape[3], pixels = p.y.shape[0] * area;
    const ik_index row_tiles = (channels + BLOCK_ROWS - 1) / BLOCK_ROWS, col_tiles = (pixels + BLOCK_COLS - 1) / BLOCK_COLS;
    const ik_index line = IK_GROUP_ID / row_tiles, group = line / col_tiles;
    const ik_index row = (IK_GROUP_ID - line * row_tiles) * BLOCK_ROWS, col = (line - group * col_tiles) * BLOCK_COLS;

    filters left;
    left.from = w + p.w.offset + (group * channels + row) * p.w.strides[0];
    left.step = p.w.strides[0];
    left.outer = channels - row;
    left.depth = k;
    const ik_index own = col + IK_LOCAL_ID % BLOCK_COLS, image = own / area, in_image = own - image * area;
    const ik_index own_row = in_image / p.y.shape[3], own_col = in_image - own_row * p.y.shape[3];
    const ik_index top = (ik_index)(own_row * STEP_H - TOP), left_side = (ik_index)(own_col * STEP_W - LEFT);
    const ik_index plane = p.x.offset + image * p.x.strides[0] + group * p.w.shape[1] * p.x.strides[1];
    windows right = {p, x, taps, plane + top * p.x.strides[2] + left_side * p.x.strides[3], top, left_side, own < pixels, {}};
    lay_taps(p, 0, taps);
    IK_BARRIER();
    tile_sums sums;
    sums.clear();
    add_products(sums, left, right, lefts, rights, k);

    sums.each([&](int r, int s, const float *v) {
        const ik_index channel = group * channels + row + r, at = col + s;
        if (row + r >= channels)
            return;
        float bias_of = 0;
#ifdef IK_HAS_bias
        bias_of = IK_LOAD(bias, p.bias.offset + channel * p.bias.strides[0]);
#endif
        const auto finished = [&](ik_index pixel, float sum) {
            sum += bias_of;
#ifdef IK_HAS_residual
            const ik_index n = pixel / area, rest = pixel - n * area, i = rest / p.y.shape[3], j = rest - i * p.y.shape[3];
            sum += IK_LOAD(residual, p.residual.offset + n * p.residual.strides[0] + channel * p.residual.strides[1] + i * p.residual.strides[2] + j * p.residual.strides[3]);
#endif
            return IK_ROW_activation(sum);
        };
        const ik_index to = p.y.offset + channel * p.y.strides[1];
        if (Y_WHOLE && at + EACH <= pixels) { /* and so in one image */
            auto made = pack_of(y);
#pragma unroll
            for (int e = 0; e < EACH; e++)
                STORE_OF(y, made, e, finished(at + e, v[e]));
            put(y + to + at / area * p.y.strides[0] + at % area, made);
            return;
        }
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (at + e < pixels) {
                const ik_index n = (at + e) / area, rest = at + e - n * area, i = rest / p.y.shape[3], j = rest - i * p.y.shape[3];
                IK_STORE(y, to + n * p.y.strides[0] + i * p.y.strides[2] + j * p.y.strides[3], finished(at + e, v[e]));
            }
    });
}
