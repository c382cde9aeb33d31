/* conv2d in F16 and BF16 by tensor cores, and in F32.
 *
 * It is computed as the product of the matrix of filters (one row per output channel) and the matrix of windows of x
 * (one column per pixel of y), which is never stored: a block computes a tile of it for the channels of one group. Sums
 * are F32.
 *
 * Tiles are small where gemm's are, and where filters are loaded element by element, for which ptxas runs out of
 * registers with large tiles. */
#define STAGES 2
#define WARP_COLS 32
#include "products.h"
#include "conv2d_attrs.h"

/* An element of the windows: its offset in memory from the window's first element, its row and column offsets in the
 * plane, and the number of rows of the plane, which is 0 where the element does not exist. */
struct alignas(4 * sizeof(ik_index)) tap {
    ik_index far, down, right, rows;
};

/* Write the taps of a round, by the first DEPTH threads. */
static IK_INLINE void lay_taps(const ik_args &p, ik_index round, tap *taps)
{
    const ik_index element = round * DEPTH + IK_LOCAL_ID, kw = p.w.shape[3], kh = p.w.shape[2];
    if (IK_LOCAL_ID >= DEPTH)
        return;
    tap t = { 0, 0, 0, 0 };
    if (element < p.w.shape[1] * kh * kw) {
        const ik_index line = element / kw, plane = line / kh;
        t.down = (line - plane * kh) * SPREAD_H;
        t.right = (element - line * kw) * SPREAD_W;
        t.far = plane * p.x.strides[1] + t.down * p.x.strides[2] + t.right * p.x.strides[3];
        t.rows = p.x.shape[2];
    }
    taps[IK_LOCAL_ID] = t;
}

/* Loads tiles of the windows; a thread loads those of one pixel. Padding counts as zeros that are multiplied like other
 * elements: zero times Inf is NaN. */
struct windows {
    typedef ::tile<BLOCK_COLS, true> tile;
    /* Threads per pixel; chunks per thread. */
    static constexpr int THREADS = IK_GROUP / BLOCK_COLS, PER = tile::CHUNKS / THREADS;
    static_assert(PER * THREADS == tile::CHUNKS, "threads bring as many chunks each");
    const ik_args &p;
    const element *x;
    tap *taps; /* taps of two rounds */
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
    const ik_index row_tiles = (channels + BLOCK_ROWS - 1) / BLOCK_ROWS,
                   col_tiles = (pixels + BLOCK_COLS - 1) / BLOCK_COLS;
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
    windows right = { p, x, taps, plane + top * p.x.strides[2] + left_side * p.x.strides[3], top, left_side,
        own < pixels, {} };
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
        const auto finish = [&](ik_index pixel, float sum) {
            sum += bias_of;
#ifdef IK_HAS_residual
            const ik_index n = pixel / area, rest = pixel - n * area, i = rest / p.y.shape[3],
                           j = rest - i * p.y.shape[3];
            sum += IK_LOAD(residual,
                p.residual.offset + n * p.residual.strides[0] + channel * p.residual.strides[1]
                    + i * p.residual.strides[2] + j * p.residual.strides[3]);
#endif
            return IK_ROW_activation(sum);
        };
        const ik_index to = p.y.offset + channel * p.y.strides[1];
        if (Y_WHOLE && at + EACH <= pixels) { /* and so all are in one image */
            auto made = pack_of(y);
#pragma unroll
            for (int e = 0; e < EACH; e++)
                STORE_OF(y, made, e, finish(at + e, v[e]));
            put(y + to + at / area * p.y.strides[0] + at % area, made);
            return;
        }
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (at + e < pixels) {
                const ik_index n = (at + e) / area, rest = at + e - n * area, i = rest / p.y.shape[3],
                               j = rest - i * p.y.shape[3];
                IK_STORE(y, to + n * p.y.strides[0] + i * p.y.strides[2] + j * p.y.strides[3], finish(at + e, v[e]));
            }
    });
}
