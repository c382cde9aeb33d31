/* A convolution with prepacked filters, for one float type; include after conv2d_block.h, with the same IK_T and IK_OF.
 *
 * Filters are packed in panels: for every product k the weights of `panel_width` adjacent outputs, so that a lane is an
 * output. A tile is some pixels of one line of y times a panel: one value at a time of each pixel's window is
 * multiplied by the vectors of the panel. Windows of 7, 14, 28, … pixels fill the registers, and no load of a filter
 * crosses a cache line. The sums of a band of lines are accumulated for one panel, whose products are computed in
 * blocks with prefetched weights, and are transposed on their way to y. */
enum { IK_OF(panel_pixels) = 128 }; /* pixels transposed at one time */

/* to[i, j] = from[i, j] + Σ_p x[offsets[p] + i] * w[p, j], negative results zeroed with `relu`; prefetches k cache
 * lines from `prefetch` on, if that is not null. */
static inline __attribute__((always_inline)) void IK_OF(pixels_of)(const int rows, const int vecs, int64_t k,
    const IK_T *x, const int64_t *offsets, const IK_T *w, const IK_T *from, int64_t from_row, IK_T *to, bool relu,
    const char *prefetch)
{
    IK_OF(vector) sum[IK_TILE_ROWS][4];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            sum[i][j] = *(const IK_OF(loose) *)(from + i * from_row + j * IK_OF(lanes));
    /* Prefetching between the loops leaves them all registers. */
    for (int64_t begin = 0; begin < k; begin += IK_PANEL_PREFETCH) {
        const int64_t end = begin + IK_PANEL_PREFETCH < k ? begin + IK_PANEL_PREFETCH : k;
        for (int64_t p = begin; prefetch != NULL && p < end; p++)
            __builtin_prefetch(prefetch + p * IK_LINE, 0, 2);
        for (int64_t p = begin; p < end; p++, w += vecs * IK_OF(lanes)) {
            IK_OF(vector) side[4];
            const IK_T *at = x + offsets[p];
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++)
                side[j] = *(const IK_OF(loose) *)(w + j * IK_OF(lanes));
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                IK_OF(vector) one = IK_OF(splat)(at + i);
#pragma GCC unroll 4
                for (int j = 0; j < vecs; j++)
                    sum[i][j] = IK_OF(fma)(one, side[j], sum[i][j]);
            }
        }
    }
    if (relu) /* once for the whole tile, as in gemm_tile.h */
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++)
                sum[i][j] = IK_OF(zero_negative)(sum[i][j]);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            *(IK_OF(loose) *)(to + (i * vecs + j) * IK_OF(lanes)) = sum[i][j];
}

static void IK_OF(pixels)(int64_t rows, int64_t vecs, int64_t k, const IK_T *x, const int64_t *offsets, const IK_T *w,
    const IK_T *from, int64_t from_row, IK_T *to, bool relu, const char *prefetch)
{
#define IK_PIXELS(n, m) \
    case 16 * m + n: IK_OF(pixels_of)(n, m, k, x, offsets, w, from, from_row, to, relu, prefetch); return;
    switch (16 * vecs + rows) {
        /* clang-format off */
        IK_PIXELS(1, 2) IK_PIXELS(2, 2) IK_PIXELS(3, 2) IK_PIXELS(4, 2) IK_PIXELS(5, 2)
#if defined(__AVX__)
        IK_PIXELS(6, 2)
#endif
#if defined(__AVX512F__)
        IK_PIXELS(7, 2) IK_PIXELS(8, 2) IK_PIXELS(9, 2) IK_PIXELS(10, 2) IK_PIXELS(11, 2) IK_PIXELS(12, 2)
        IK_PIXELS(13, 2) IK_PIXELS(14, 2)
        IK_PIXELS(1, 4) IK_PIXELS(2, 4) IK_PIXELS(3, 4) IK_PIXELS(4, 4) IK_PIXELS(5, 4) IK_PIXELS(6, 4) IK_PIXELS(7, 4)
#endif
    }
/* clang-format on */
#undef IK_PIXELS
}

/* Pack panels begin .. end of the filters: element (k, output) of a panel is at k * panel_width + output, zero beyond
 * the last output. */
static void IK_OF(pack_panels)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_conv *v = context;
    enum { RUN = 512 };
    IK_T taps[RUN];
    for (int64_t at = begin; at < end; at++) {
        const int64_t group = at / v->panels, first = at % v->panels * v->panel_width;
        IK_T *to = (IK_T *)(void *)v->workspace + at * v->k * v->panel_width;
        for (int64_t o = 0; o < v->panel_width; o++)
            for (int64_t k = 0, run; k < v->k; k += run) {
                run = ik_min(RUN, v->k - k);
                if (first + o < v->outputs)
                    IK_OF(filters)(v,
                        v->w + (group * v->outputs + first + o) * v->tw->strides[0] * ik_itemsize(v->tw->dtype), 1, k,
                        run, taps, run);
                else
                    memset(taps, 0, sizeof taps);
                for (int64_t i = 0; i < run; i++)
                    to[(k + i) * v->panel_width + o] = taps[i];
            }
    }
}

/* Make the planes of channels begin .. end of a round of images. */
static void IK_OF(plane_tasks)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_conv *v = context;
    const int64_t channels = v->groups * v->channels, size = ik_itemsize(v->tx->dtype), *step = v->tx->strides;
    const int64_t plane = v->planes * v->phases * (v->max_band + v->reach) * v->width;
    IK_T *to = (IK_T *)(void *)(v->workspace + v->offset_bytes);
    for (int64_t at = begin; at < end; at++)
        IK_OF(planes)(v, v->x + ((v->image + at / channels) * step[0] + at % channels * step[1]) * size, 1, 0, v->oh,
            to + at * plane);
}

/* Transpose some pixels of one panel, from the sums of all outputs for each pixel to runs of pixels for each output;
 * whole vectors go straight to y where no epilogue is left and y has a run for them. */
static void IK_OF(transpose_pixels)(
    const ik_conv *v, int64_t image, int64_t output, int64_t outputs, int64_t first, int64_t n, IK_T *sums)
{
    enum { LANES = IK_OF(lanes), RUN = IK_OF(panel_pixels), SIZE = sizeof(IK_T) };
    IK_T runs[4 * LANES * RUN];
    const int64_t *ys = v->ty->strides, row = first / v->ow, col = first % v->ow;
    if (v->direct && v->residual == NULL && (ys[2] == v->ow || col + n <= v->ow)) {
        const int64_t whole = n / LANES * LANES;
        IK_T *y = (IK_T *)(void *)v->y + image * ys[0] + output * ys[1] + row * ys[2] + col;
        ik_transpose_sized(SIZE, outputs, whole, (char *)y, ys[1] * SIZE, SIZE, (const char *)sums, SIZE,
            v->panel_width * SIZE, false);
        sums += whole * v->panel_width, first += whole, n -= whole;
    }
    for (int64_t at = 0; at < n; at += RUN) {
        /* The sums have scratch for whole vectors of pixels. */
        const int64_t count = ik_min(RUN, n - at), whole = ik_round_up(count, LANES);
        ik_transpose_sized(SIZE, ik_round_up(outputs, LANES), whole, (char *)runs, RUN * SIZE, SIZE,
            (const char *)(sums + at * v->panel_width), SIZE, v->panel_width * SIZE, false);
        IK_OF(finish_pixels)(v, image, output, outputs, first + at, count, runs, RUN, v->ow);
    }
}

/* Compute one panel over a band of lines. `x` is the start of the first line's windows. */
static void IK_OF(contract_panel)(
    const ik_conv *v, const IK_T *x, int64_t image, int64_t group, int64_t s, int64_t first, int64_t last, IK_T *sums)
{
    const int64_t *offsets = (const int64_t *)(const void *)v->workspace, panel_width = v->panel_width,
                  area = v->oh * v->ow;
    const int64_t output = group * v->outputs + s * panel_width,
                  outputs = ik_min(panel_width, v->outputs - s * panel_width);
    const int64_t begins = first * v->line, ends = ik_min(area, last * v->line);
    const bool at_once = v->k_blocks == 1; /* then a line is finished while its sums are in cache */
    const IK_T *w = (const IK_T *)(const void *)v->w + (group * v->panels + s) * v->k * panel_width;
    IK_T bias[4 * IK_OF(lanes)];
    for (int64_t o = 0; o < panel_width; o++)
        bias[o] = o < outputs ? IK_OF(bias_of)(v, output + o) : 0;
    for (int64_t block = 0; block < v->k_blocks; block++) {
        const int64_t k0 = block * v->max_k, k = ik_min(v->max_k, v->k - k0);
        const IK_T *now = w + k0 * panel_width;
        const bool relu = block + 1 == v->k_blocks && v->activation == IK_CONV2D_RELU && v->residual == NULL;
        const char *prefetch = block + 1 < v->k_blocks ? (const char *)(now + k * panel_width) : NULL,
                   *until = (const char *)(w + ik_min(v->k, k0 + 2 * k) * panel_width);
        for (int64_t line = first; line < last; line++) {
            const int64_t length = ik_min(v->line, area - line * v->line), tiles = ik_ceil_div(length, v->tile);
            const IK_T *from = x + (line - first) * (v->lies ? v->line : v->width);
            for (int64_t t = 0; t < tiles; t++) {
                const int64_t col = length * t / tiles, rows = length * (t + 1) / tiles - col;
                IK_T *to = sums + (at_once ? col : line * v->line + col - begins) * panel_width;
                IK_OF(pixels)(rows, panel_width / IK_OF(lanes), k, from + col, offsets + k0, now, block > 0 ? to : bias,
                    block > 0 ? panel_width : 0, to, relu, prefetch);
                prefetch = prefetch != NULL && until - prefetch > k * IK_LINE ? prefetch + k * IK_LINE : NULL;
            }
            if (at_once)
                IK_OF(transpose_pixels)(v, image, output, outputs, line * v->line, length, sums);
        }
    }
    if (!at_once)
        IK_OF(transpose_pixels)(v, image, output, outputs, begins, ends - begins, sums);
}

static void IK_OF(panel_tasks)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_conv *v = context;
    const int64_t parts = v->local ? 1 : v->panels, *step = v->tx->strides, size = ik_itemsize(v->tx->dtype);
    const int64_t plane = v->planes * v->phases * (v->max_band + v->reach) * v->width;
    char *slice = v->workspace + v->offset_bytes + v->plane_bytes + worker * v->slice_bytes;
    IK_T *sums = (IK_T *)(void *)slice, *own = (IK_T *)(void *)(slice + v->sum_bytes);
    for (int64_t task = begin; task < end; task++) {
        const int64_t part = task % parts, group = task / parts % v->groups,
                      band = task / (parts * v->groups) % v->bands;
        const int64_t image = task / (parts * v->groups * v->bands), first = v->lines * band / v->bands,
                      last = v->lines * (band + 1) / v->bands;
        const char *given = v->x + ((v->image + image) * step[0] + group * v->channels * step[1]) * size;
        const IK_T *x = own;
        if (v->local)
            IK_OF(planes)(v, given, v->channels, first, last - first, own);
        else if (v->lies)
            x = (const IK_T *)(const void *)given + first * v->line;
        else
            x = (const IK_T *)(const void *)(v->workspace + v->offset_bytes)
                + (image * v->groups + group) * v->channels * plane + first * v->width;
        for (int64_t s = part; s < (v->local ? v->panels : part + 1); s++)
            IK_OF(contract_panel)(v, x, v->image + image, group, s, first, last, sums);
    }
}
