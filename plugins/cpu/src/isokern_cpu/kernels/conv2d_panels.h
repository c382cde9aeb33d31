/* A convolution with prepacked filters, for one float type; include after conv2d_block.h and pixel_tile.h, with the
 * same IK_T and IK_OF.
 *
 *     y[o, i] = activation(bias[o] + residual[o, i] + Σ_p w[p, o] * x[offsets[p] + i])    p: channel and tap
 *
 * Filters are packed in panels: for every p the weights of `panel_width` adjacent outputs, so that a lane is an output.
 *
 *     for each band of lines: for each panel         a task, for all panels of the band where its planes are local
 *         for each block of products p
 *             for each line: for each tile of its pixels
 *                 sums[pixel, output] += Σ_p x[offsets[p] + pixel] * w[p, output]     in registers
 *         y[output, pixel] = sums, transposed        line by line where there is one block
 *
 * A tile multiplies one value of x at a time by the vectors of a row of the panel. Lines of 7, 14, 28, … pixels fill
 * the registers, and no load of a filter crosses a cache line. */
enum { IK_OF(panel_pixels) = 128 }; /* pixels transposed at one time */

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

#if defined(IK_MASKS) && !defined(IK_FINISH_RUN)
#define IK_FINISH_RUN
/* Write a run of sums to y, with the run of a residual, which may be absent. */
static inline void finish_run(const ik_conv *v, int64_t n, const float *sums, const float *other, float *y)
{
    typedef float loose __attribute__((vector_size(IK_VECTOR), aligned(sizeof(float)), may_alias));
    const bool relu = v->activation == IK_CONV2D_RELU;
    for (int64_t i = 0; i < n; i += IK_F32_LANES) { /* the sums have scratch for whole vectors */
        const ik_mask mask = ik_mask_of(0, ik_min(IK_F32_LANES, n - i));
        ik_f32s x = *(const loose *)(sums + i);
        if (other != NULL)
            x += ik_load_masked(mask, other + i);
        __typeof__(x < 0) keep = ~(x < 0);
        ik_store_masked(mask, y + i, relu ? (ik_f32s)((__typeof__(keep))x & keep) : x);
    }
}
#endif

/* Transpose some pixels of one panel, from the sums of all outputs for each pixel to runs of pixels for each output;
 * whole vectors go straight to y where no epilogue is left and y has a run for them. */
static void IK_OF(transpose_pixels)(
    const ik_conv *v, int64_t image, int64_t output, int64_t outputs, int64_t first, int64_t n, IK_T *sums)
{
    enum { LANES = IK_OF(lanes), RUN = IK_OF(panel_pixels), SIZE = sizeof(IK_T) };
    IK_T runs[4 * LANES * RUN];
    const int64_t *ys = v->ty->strides, row = first / v->ow, col = first % v->ow;
    if (v->early != IK_CONV2D_NONE)
        IK_OF(ik_activate)(v->early, n * v->panel_width, sums);
    if (n == 1 && v->residual == NULL) { /* its outputs are a run themselves */
        IK_OF(store)(v->ty->dtype, sums,
            v->y + (image * ys[0] + output * ys[1] + row * ys[2] + col * ys[3]) * ik_itemsize(v->ty->dtype), ys[1],
            outputs);
        return;
    }
    if (v->direct && v->residual == NULL && (ys[2] == v->ow || col + n <= v->ow)) {
        const int64_t whole = n / LANES * LANES;
        IK_T *y = (IK_T *)(void *)v->y + image * ys[0] + output * ys[1] + row * ys[2] + col;
        ik_transpose_sized(SIZE, outputs, whole, (char *)y, ys[1] * SIZE, SIZE, (const char *)sums, SIZE,
            v->panel_width * SIZE, false);
        sums += whole * v->panel_width, first += whole, n -= whole;
    }
#ifdef IK_MASKS
    const int64_t *rs = v->tr != NULL ? v->tr->strides : ys;
    const bool runs_of_y = sizeof(IK_T) == sizeof(float) && v->direct
        && ((ys[2] == v->ow && rs[2] == v->ow) || first % v->ow + n <= v->ow);
#endif
    for (int64_t at = 0; at < n; at += RUN) {
        /* The sums have scratch for whole vectors of pixels. */
        const int64_t count = ik_min(RUN, n - at), whole = ik_round_up(count, LANES);
        ik_transpose_sized(SIZE, ik_round_up(outputs, LANES), whole, (char *)runs, RUN * SIZE, SIZE,
            (const char *)(sums + at * v->panel_width), SIZE, v->panel_width * SIZE, false);
#ifdef IK_MASKS
        if (runs_of_y) {
            const int64_t y_row = (first + at) / v->ow, y_col = (first + at) % v->ow;
            IK_T *y = (IK_T *)(void *)v->y + image * ys[0] + output * ys[1] + y_row * ys[2] + y_col;
            const IK_T *other = v->residual == NULL
                ? NULL
                : (const IK_T *)(const void *)v->residual + image * rs[0] + output * rs[1] + y_row * rs[2] + y_col;
            for (int64_t o = 0; o < outputs; o++)
                finish_run(v, count, (const float *)(const void *)(runs + o * RUN),
                    other != NULL ? (const float *)(const void *)(other + o * rs[1]) : NULL,
                    (float *)(void *)(y + o * ys[1]));
            continue;
        }
#endif
        IK_OF(finish_pixels)(v, image, output, outputs, first + at, count, runs, RUN, v->ow);
    }
}

/* Some lines of an image and a group. */
typedef struct IK_OF(band) {
    int64_t image, group, first, last;
    const IK_T *x; /* the values of the first line's first pixel for a tap with offset 0 */
    IK_T *sums; /* [pixels, panel_width]: those of the band; of one line where there is one block */
} IK_OF(band);

/* Copy the pixels of a band's tiles, all channels of a tile one after the other: a channel of a large image is far from
 * the next one, and each panel of outputs would wait for them again. */
static void IK_OF(copy_tiles)(const ik_conv *v, const IK_OF(band) * band, const IK_T *x, IK_T *to)
{
    enum { TILE = IK_TILE_ROWS, PREFETCH = 8 }; /* channels that are prefetched */
    const int64_t area = v->oh * v->ow, channel = v->tx->strides[1];
    for (int64_t line = band->first; line < band->last; line++, to += v->line * v->k) {
        const int64_t length = ik_min(v->line, area - line * v->line), tiles = ik_ceil_div(length, TILE);
        int64_t cols[9] = { 0 };
        for (int64_t n = 0; n <= tiles; n++)
            cols[n] = length * n / tiles;
        for (int64_t c = 0; c < v->k; c++) {
            const IK_T *from = x + line * v->line + c * channel;
            for (int64_t i = 0; i < length && c + PREFETCH < v->k; i += IK_LINE / (int64_t)sizeof *x)
                __builtin_prefetch(from + PREFETCH * channel + i);
            for (int64_t n = 0; n < tiles; n++) {
                IK_T *tile = to + (n * v->k + c) * TILE;
                if (cols[n] + TILE <= length || (c < v->k - 1 && channel >= area)) /* what is beyond is in x */
                    memcpy(tile, from + cols[n], TILE * sizeof *to);
                else
                    memcpy(tile, from + cols[n], (size_t)(length - cols[n]) * sizeof *to);
            }
        }
    }
}

/* Compute one panel of outputs over a band. */
static void IK_OF(contract_panel)(const ik_conv *v, const IK_OF(band) * band, int64_t panel)
{
    const int64_t panel_width = v->panel_width, area = v->oh * v->ow, begin = band->first * v->line;
    const int64_t *offsets = (const int64_t *)(const void *)v->workspace;
    const int64_t output = band->group * v->outputs + panel * panel_width,
                  outputs = ik_min(panel_width, v->outputs - panel * panel_width);
    const bool few = (band->last - band->first) * v->line <= 16 * v->tile;
    const bool one_block = v->k_blocks == 1; /* then a line is finished while its sums are in cache */
    const IK_T *w = (const IK_T *)(const void *)v->w + (band->group * v->panels + panel) * v->k * panel_width;
    IK_T bias[4 * IK_OF(lanes)];
    for (int64_t o = 0; o < panel_width; o++)
        bias[o] = o < outputs ? IK_OF(bias_of)(v, output + o) : 0;
    for (int64_t k0 = 0; k0 < v->k; k0 += v->max_k) {
        ik_pixel_tile t = { .k = ik_min(v->max_k, v->k - k0), .offsets = offsets + k0, .w = w + k0 * panel_width };
        const bool last_block = k0 + t.k == v->k;
        t.relu = last_block && v->activation == IK_CONV2D_RELU && v->residual == NULL;
        t.from_row = k0 > 0 ? panel_width : 0;
        /* Each tile prefetches k cache lines of the next block's weights, which has at most as many products, or of the
         * next panel's, which a band of few tiles would else wait for. */
        const bool next = last_block && few && panel + 1 < v->panels;
        t.prefetch = last_block && !next ? NULL : (const char *)(w + (k0 + t.k) * panel_width);
        const char *end =
            (const char *)(w + (next ? v->k + ik_min(v->k, t.k) : ik_min(v->k, k0 + 2 * t.k)) * panel_width);
        for (int64_t line = band->first; line < band->last; line++) {
            const int64_t length = ik_min(v->line, area - line * v->line), tiles = ik_ceil_div(length, v->tile);
            const IK_T *x = band->x + (line - band->first) * (v->x_in_place ? v->line : v->width);
            IK_T *sums = band->sums + (one_block ? 0 : line * v->line - begin) * panel_width;
            for (int64_t n = 0; n < tiles; n++) {
                const int64_t col = length * n / tiles, pixels = length * (n + 1) / tiles - col;
                t.x = v->tiled ? band->x + ((line - band->first) * v->line + n * v->tile) * v->k : x + col;
                t.to = sums + col * panel_width;
                t.from = k0 > 0 ? t.to : bias;
                IK_OF(pixel_tile)(pixels, panel_width / IK_OF(lanes), &t);
                t.prefetch = t.prefetch != NULL && end - t.prefetch > t.k * IK_LINE ? t.prefetch + t.k * IK_LINE : NULL;
            }
            if (one_block)
                IK_OF(transpose_pixels)(v, band->image, output, outputs, line * v->line, length, sums);
        }
    }
    if (!one_block)
        IK_OF(transpose_pixels)(
            v, band->image, output, outputs, begin, ik_min(area, band->last * v->line) - begin, band->sums);
}

/* Run tasks begin .. end of a round of images, numbered ((image * bands + band) * groups + group) * parts + part;
 * a task is the panels of a part. */
static void IK_OF(panel_tasks)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_conv *v = context;
    const int64_t parts = ik_conv_parts(v);
    const int64_t size = ik_itemsize(v->tx->dtype), *step = v->tx->strides;
    const int64_t plane = v->planes * v->phases * (v->max_band + v->reach) * v->width;
    char *slice = v->workspace + v->offset_bytes + v->plane_bytes + worker * v->slice_bytes;
    IK_T *planes = (IK_T *)(void *)(slice + v->sum_bytes);
    for (int64_t task = begin; task < end; task++) {
        const int64_t part = task % parts, number = task / (parts * v->groups) % v->bands,
                      image = task / (parts * v->groups * v->bands); /* in the round */
        IK_OF(band)
        band = { .image = v->image + image,
            .group = task / parts % v->groups,
            .first = v->lines * number / v->bands,
            .last = v->lines * (number + 1) / v->bands,
            .sums = (IK_T *)(void *)slice };
        const char *x = v->x + (band.image * step[0] + band.group * v->channels * step[1]) * size;
        if (v->local) {
            IK_OF(planes)(v, x, v->channels, band.first, band.last - band.first, planes);
            band.x = planes;
        } else if (v->tiled) {
            IK_OF(copy_tiles)(v, &band, (const IK_T *)(const void *)x, planes);
            band.x = planes;
        } else if (v->x_in_place) {
            band.x = (const IK_T *)(const void *)x + band.first * v->line;
        } else {
            band.x = (const IK_T *)(const void *)(v->workspace + v->offset_bytes)
                + (image * v->groups + band.group) * v->channels * plane + band.first * v->width;
        }
        for (int64_t panel = part * v->task_panels; panel < ik_min(v->panels, (part + 1) * v->task_panels); panel++)
            IK_OF(contract_panel)(v, &band, panel);
    }
}
