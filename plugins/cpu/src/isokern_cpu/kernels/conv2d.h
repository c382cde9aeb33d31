/* The parameters of a convolution, its blocking into bands, and where each tap of a window lies in the planes of a
 * band.
 *
 *     y[n, o, oy, ox] = activation(bias[o] + residual[n, o, oy, ox]
 *             + Σ_{c, ky, kx} w[o, c, ky, kx] * x[n, c, oy sh + ky dh - top, ox sw + kx dw - left])
 *
 * A band is some rows of y. Its part of x is copied into planes (padded, widened, with the strides taken out) such that
 * for each tap the values for all pixels of the band form one run: the pixel's index plus an offset. Then the sum is a
 * matrix product whose right-hand side needs no further copy. Plane (c, v, u), v < planes, u < phases, has the rows u,
 * u + sh, … of the padded channel; `exact` planes have one v for each tap column and the width of y, the others one v
 * for each residue of sw, which taps share, and extra columns. */
#ifndef IK_CONV2D_H
#define IK_CONV2D_H
#include "gemm_tile.h"
#include "operators/conv2d.h"

typedef struct ik_conv {
    const ik_tensor *tx, *tw, *ty, *tr; /* tr: the residual's, or null */
    const char *x, *w, *bias, *residual;
    char *y;
    int64_t bias_step, activation, early;         /* early: applied to runs of sums before the rest */
    int64_t images, groups, channels, outputs;    /* channels and outputs of a group */
    int64_t kh, kw, sh, sw, dh, dw, top, left, k; /* window, stride, dilation, padding; products of a window */
    int64_t ih, iw, oh, ow;                       /* heights and widths of x and y */

    bool depthwise;  /* one channel per group: sums of shifted planes */
    bool rows;       /* depthwise, and rows of x and y are computed where they lie */
    bool point;      /* 1 × 1: the pixels of y are those of x */
    bool x_in_place; /* a point over contiguous pixels: x itself is the planes; only its last panel is copied */
    bool w_in_place; /* w is read in place */
    bool y_in_place; /* sums are accumulated in y */
    bool direct;     /* the epilogue only adds a residual and applies relu, on contiguous runs of one type */
    bool local;      /* planes are those of a band, else of whole images; only with prepacked filters */
    bool shared;     /* planes are not exact */
    bool plain;      /* x and w have the compute type */
    int64_t planes, phases, width, reach; /* of a channel; the width of a plane, and its rows beyond those of y */
    int64_t max_band, bands, row_blocks;  /* rows of y in a band, bands, and blocks of filters */
    int64_t k_blocks, max_k;              /* blocks of products, and products in a block */
    int64_t offset_bytes, plane_bytes, panel_bytes, slice_bytes; /* of the workspace; a thread has a slice */
    char *workspace;

    /* Only with prepacked filters */
    int64_t panel_width, panels, tile; /* outputs in a panel, panels of a group, pixels of a tile */
    int64_t task_panels; /* panels of a task, one after the other */
    bool tiled; /* x is in place but for a task's copy of it, [tile, k, pixel], which all its panels read */
    bool flat; /* lines are runs of tiles, else rows of y: where x is in place, or planes have the pixels of y */
    int64_t line, lines; /* a band is some lines: their pixels, and those of an image */
    int64_t round, image; /* images that are processed at one time, and the first of them */
    int64_t sum_bytes;    /* bytes of sums in a slice; its planes follow, if they are local */
} ik_conv;

/* The loops for one type: for filters as given, then for prepacked filters. */
typedef struct ik_conv_loops {
    ik_task *tiles, *panels, *planes, *pack;
} ik_conv_loops;

enum { IK_CONV_K = 384, IK_DEPTHWISE_BYTES = 24 << 10, IK_DEPTHWISE_ROWS = 7 };
/* For prepacked filters: bytes of the products of a panel in a block, of a band's sums, of its planes, and of the
 * planes processed at one time; fewest products per output for which they pay. */
enum {
    IK_PANEL_BYTES = 64 << 10,
    IK_PANEL_SUMS = 128 << 10,
    IK_PANEL_PLANES = 256 << 10,
    IK_PANEL_IMAGES = 2 << 20,
    IK_PANEL_PRODUCTS = 32
};

/* The entry for the width in a list of one, two (height, width) or four (top, left, …) integers. */
static inline int64_t ik_second(const ik_ints *v) { return v->v[v->count > 1 ? 1 : 0]; }

/* Geometry and blocking, for elements of `size` bytes and panels of `panel_width` columns. */
static inline void ik_conv_choose_blocking(ik_conv *v, int64_t size, int64_t tile_rows, int64_t panel_width)
{
    v->plain = ik_itemsize(v->tx->dtype) == size;
    const int64_t *xs = v->tx->strides, *ws = v->tw->strides, *ys = v->ty->strides;
    v->depthwise = v->channels == 1 && v->groups > 1;
    v->x_in_place = !v->depthwise && v->point && v->plain && xs[3] == 1 && (xs[2] == v->iw || v->ih == 1);
    v->flat = v->x_in_place;
    v->phases = ik_min(v->sh, (v->kh - 1) * v->dh + 1);
    v->shared = v->depthwise || v->panel_width > 0;
    v->planes = v->shared ? ik_min(v->sw, (v->kw - 1) * v->dw + 1) : v->kw;
    v->width = v->ow + (v->shared ? (v->kw - 1) * v->dw / v->sw : 0);
    v->reach = (v->kh - 1) * v->dh / v->sh;
    v->k_blocks = ik_max(1, ik_ceil_div(v->k, IK_CONV_K));
    v->max_k = ik_ceil_div(v->k, v->k_blocks);

    int64_t row_bytes = ik_max(1, v->channels * v->planes * v->phases * v->width * size);
    int64_t rows = ik_max(1, (v->depthwise ? IK_DEPTHWISE_BYTES : 2 * IK_BLOCK_BYTES) / row_bytes - v->reach);
    double products =
        (double)v->images * (double)v->groups * (double)v->outputs * (double)v->k * (double)v->oh * (double)v->ow;
    int64_t wanted = (int64_t)(products / IK_THREAD_PRODUCTS < 3.0 * ik_threads() ? products / IK_THREAD_PRODUCTS
                                                                                  : 3.0 * ik_threads());
    int64_t others = ik_max(1, v->images * v->groups);
    v->bands = ik_max(1, ik_ceil_div(v->oh, rows));
    if (others * v->bands < wanted) /* bands of at least 4 panels of pixels, then blocks of at least 4 panels of w */
        v->bands = ik_max(v->bands, ik_min(ik_ceil_div(wanted, others), v->oh * v->ow / (4 * panel_width)));
    v->bands = ik_max(1, ik_min(v->bands, v->oh));
    v->max_band = ik_ceil_div(v->oh, v->bands);
    v->bands = v->oh == 0 ? 0 : ik_ceil_div(v->oh, v->max_band);
    v->row_blocks = 1;
    if (!v->depthwise && others * v->bands < wanted)
        v->row_blocks =
            ik_max(1, ik_min(ik_ceil_div(wanted, ik_max(1, others * v->bands)), v->outputs / (4 * tile_rows)));

    bool joined = ws[3] == 1 && (ws[2] == v->kw || v->kh == 1) && (ws[1] == v->kh * v->kw || v->channels == 1);
    bool clash = ik_rows_clash(ws[0] * size);
    v->w_in_place = v->plain && !clash && (joined || v->k == 1);
    v->direct = v->plain && ys[3] == 1 && (v->tr == NULL || v->tr->strides[3] == 1)
        && (v->activation == IK_CONV2D_NONE || v->activation == IK_CONV2D_RELU);
    v->y_in_place = !v->depthwise && v->direct && (ys[2] == v->ow || v->oh == 1);
    if (v->tr != NULL) /* the residual may be in y's memory, which then must not hold unfinished sums */
        v->y_in_place &= v->k_blocks == 1 && (v->tr->strides[2] == v->ow || v->oh == 1);
    int64_t pixels = ik_round_up(v->max_band * v->width, panel_width);
    v->offset_bytes = ik_round_up(2 * v->k * 8, 64);
    v->plane_bytes = ik_round_up(
        (v->x_in_place ? v->k * panel_width
                       : v->channels * v->planes * v->phases * (v->max_band + v->reach) * v->width + panel_width)
            * size,
        64);
    v->panel_bytes = v->w_in_place ? 0 : ik_round_up((v->depthwise ? v->k : tile_rows * (v->max_k + 16)) * size, 64);
    v->slice_bytes = v->plane_bytes + v->panel_bytes
        + ik_round_up((v->y_in_place ? tile_rows * panel_width : (v->depthwise ? 1 : tile_rows) * pixels) * size, 64);
}

/* Bands for rows that are computed where they lie (conv2d_depthwise.h), if they can be: F32 in contiguous rows, and one
 * of the usual windows. */
static inline void ik_conv_choose_rows(ik_conv *v)
{
    const int64_t *xs = v->tx->strides, *ws = v->tw->strides, *ys = v->ty->strides, size = v->kh;
#if defined(__AVX2__)
    const bool masks = true; /* a load of some lanes of a vector */
#else
    const bool masks = false;
#endif
    v->rows = masks && v->depthwise && v->ty->dtype == IK_F32 && v->tr == NULL && v->kw == size && v->sw == v->sh
        && ((v->sh <= 2 && (size == 3 || size == 5)) || (v->sh == 1 && size == 7)) && v->dh == 1 && v->dw == 1
        && xs[3] == 1 && ys[3] == 1 && ys[2] == v->ow && ws[3] == 1 && ws[2] == size;
    if (!v->rows || v->oh == 0)
        return;
    const int64_t channels = ik_max(1, v->images * v->groups),
                  wanted = ik_max(1, ik_min(ik_ceil_div(4 * ik_threads(), channels), v->oh / IK_DEPTHWISE_ROWS));
    v->max_band = wanted == 1 ? v->oh : ik_round_up(ik_ceil_div(v->oh, wanted), IK_DEPTHWISE_ROWS);
    v->bands = ik_ceil_div(v->oh, v->max_band);
}

/* Outputs in a panel of prepacked filters: 4 vectors where lines are short, else 2, or 1 where outputs are few; 0 where
 * too many lanes would be idle or where tiles do not apply. */
static inline int64_t ik_conv_panel_width(const ik_conv *v, int64_t lanes)
{
    const int64_t outputs = v->outputs;
    const bool few = v->k < IK_PANEL_PRODUCTS && v->oh * v->ow >= lanes; /* fewer pixels would leave lanes idle */
    if ((v->channels == 1 && v->groups > 1) || few || v->k == 0) /* without products, no tile begins with the bias */
        return 0;
#if defined(__AVX512F__)
    if (!v->point && v->ow <= IK_TILE_ROWS / 2 && 4 * outputs >= 3 * ik_round_up(outputs, 4 * lanes))
        return 4 * lanes;
#endif
    if (4 * outputs >= 3 * ik_round_up(outputs, 2 * lanes))
        return 2 * lanes;
    return 4 * outputs >= 3 * ik_round_up(outputs, lanes) ? lanes : 0;
}

/* The name of the layout of prepacked filters. Where panels end with a group, it tells how many groups there are. */
static inline const char *ik_filters_name(const ik_conv *v, const char *filters)
{
    const long long width = v->panel_width, groups = v->outputs % v->panel_width == 0 ? 1 : v->groups;
    return groups == 1 ? ik_layout_name("panels of %lld %s", width, filters)
                       : ik_layout_name("panels of %lld %s in %lld groups", width, filters, groups);
}

/* Blocking for prepacked filters, after ik_conv_choose_blocking: bands of lines, several for each thread. Where y has
 * many lines, a task is a band: it makes its own planes and goes over all panels. Otherwise the planes of whole images
 * are made first, and a task is a band and a panel. */
static inline void ik_conv_choose_panel_blocking(ik_conv *v, int64_t size, int64_t lanes)
{
    v->panels = ik_ceil_div(v->outputs, v->panel_width);
    v->tile = v->panel_width == lanes ? IK_NARROW_TILE_ROWS : 2 * lanes * IK_TILE_ROWS / v->panel_width;
    /* Lines of whole vectors that are several tiles, or fewer if threads would have no work. */
    v->line = v->flat ? 8 * v->tile : v->ow;
    const int64_t columns = ik_max(1, v->images * v->groups * v->panels), pixels = v->oh * v->ow;
    v->tiled = v->x_in_place && v->tile == IK_TILE_ROWS && v->panels > 1 && pixels >= v->tile;
    while (v->flat && v->line > v->tile
        && (columns * ik_ceil_div(pixels, v->line) < 4 * ik_threads()
            || (v->tiled && v->k * v->line * size > IK_PANEL_PLANES)))
        v->line /= 2;
    v->lines = ik_ceil_div(pixels, v->line);
    v->k_blocks = ik_max(1, ik_ceil_div(v->k * v->panel_width * size, IK_PANEL_BYTES));
    v->max_k = ik_ceil_div(v->k, v->k_blocks);
    v->local = !v->flat && v->lines >= 12 * ik_threads();
    v->row_blocks = 1;

    /* Bytes of a row in the planes of a group, or of a line of tiles. */
    const int64_t row = v->tiled ? v->k * v->line * size
        : v->x_in_place          ? 0
                                 : v->channels * v->planes * v->phases * v->width * size;
    const int64_t image = v->tiled ? 0 : v->groups * row * (v->oh + v->reach),
                  sums = ik_max(1, v->line * v->panel_width * size);
    v->round = ik_max(1, ik_min(v->images, v->local || image == 0 ? v->images : IK_PANEL_IMAGES / image));
    const bool band_by_band = v->local || v->tiled;
    const int64_t others = ik_max(1, v->round * v->groups * (band_by_band ? 1 : v->panels));
    const double products =
        (double)v->round * (double)v->groups * (double)v->outputs * (double)v->k * (double)(v->oh * v->ow);
    const int64_t wanted = products < 2.0 * IK_THREAD_PRODUCTS ? 1 : (v->local ? 2 : 4) * ik_threads();
    v->bands = ik_ceil_div(wanted, others);
    if (v->k_blocks > 1)
        v->bands = ik_max(v->bands, ik_ceil_div(v->lines * sums, IK_PANEL_SUMS));
    if (band_by_band)
        v->bands = ik_max(v->bands, ik_ceil_div(row * v->lines, IK_PANEL_PLANES));
    v->bands = ik_max(1, ik_min(v->bands, v->lines));
    v->task_panels = v->local ? v->panels : 1;
    if (v->tiled) /* where there are few bands, several tasks for each, of two panels and more */
        v->task_panels = ik_max(2, ik_ceil_div(v->panels * others * v->bands, ik_max(wanted, others * v->bands)));
    const int64_t band = ik_ceil_div(v->lines, v->bands);
    v->max_band = v->local ? band : v->oh;
    v->offset_bytes = ik_round_up(2 * v->k * 8, 64);
    v->plane_bytes = v->local ? 0 : ik_round_up(v->round * image, 64);
    v->sum_bytes = ik_round_up(ik_round_up((v->k_blocks > 1 ? band : 1) * v->line, lanes) * v->panel_width * size, 64);
    v->slice_bytes = v->sum_bytes + (band_by_band ? ik_round_up(row * (band + v->reach), 64) : 0);
}

/* The tasks of a band, for prepacked filters. */
static inline int64_t ik_conv_parts(const ik_conv *v) { return ik_ceil_div(v->panels, v->task_panels); }

static inline int64_t ik_conv_tasks(const ik_conv *v) { return v->images * v->groups * v->bands * v->row_blocks; }

static inline int64_t ik_conv_grain(const ik_conv *v)
{
    double products = (double)(v->outputs / v->row_blocks) * (double)v->k * (double)v->max_band * (double)v->ow
            * (v->depthwise ? 8 : 1)
        + 64;
    return products >= IK_THREAD_PRODUCTS ? 1 : (int64_t)(IK_THREAD_PRODUCTS / products) + 1;
}

/* List where tap k of a pixel lies, in elements from the pixel's own index; then the same for a panel that was
 * copied. */
static inline void ik_conv_offsets(const ik_conv *v, int64_t panel_width, int64_t *offsets)
{
    const int64_t plane = (v->max_band + v->reach) * v->width, channel = v->planes * v->phases * plane;
    int64_t *to = offsets;
    for (int64_t c = 0; v->x_in_place && c < v->k; c++)
        *to++ = c * (v->tiled ? v->tile : v->tx->strides[1]);
    for (int64_t ky = 0; !v->x_in_place && v->k > 0 && ky < v->kh;
        ky++) /* of channel 0: a division for each tap would take long */
        for (int64_t kx = 0; kx < v->kw; kx++) {
            const int64_t down = ky * v->dh, right = kx * v->dw;
            const int64_t x = v->shared ? right % v->sw : kx, across = v->shared ? right / v->sw : 0;
            *to++ = (x * v->phases + down % v->sh) * plane + down / v->sh * v->width + across;
        }
    for (const int64_t *window = offsets; to < offsets + v->k; window++)
        *to++ = *window + channel;
    for (int64_t k = 0; k < v->k; k++)
        to[k] = k * panel_width;
}

#endif
