/* The loops of a convolution for one float type; include after gemm_tile.h and masks.h, with the same IK_T and
 * IK_OF, and IK_TILE_OFFSETS. */

/* Fill columns low .. high of a row of planes from a row of x, where `row` is the value for column low; the other
 * columns become zero. */
static inline void IK_OF(plane_row)(const ik_conv *v, const char *row, int64_t low, int64_t high, IK_T *to)
{
    const int64_t step = v->tx->strides[3], n = high - low;
#ifdef IK_MASKS
    if (sizeof(IK_T) == sizeof(float) && v->sw <= 2 && step == 1 && v->plain) { /* faster than calls and short loops */
        for (int64_t i = 0; i < v->width; i += IK_F32_LANES) {
            const float *from = (const float *)(const void *)row + (i - low) * v->sw;
            const int64_t begin = low * v->sw, end = (high - 1) * v->sw + 1;
            ik_f32s value = ik_load_masked(ik_mask_inside(i * v->sw, begin, end), from);
            if (v->sw == 2) {
                const ik_mask behind = ik_mask_inside(i * 2 + IK_F32_LANES, begin, end);
                value = ik_every_other(value, ik_load_masked(behind, from + IK_F32_LANES), false);
            }
            ik_store_masked(ik_mask_of(0, ik_min(IK_F32_LANES, v->width - i)), (float *)(void *)to + i, value);
        }
        return;
    }
#endif
    for (int64_t i = 0; i < low; i++) /* a few: a call would take longer */
        to[i] = 0;
    if (v->sw == 1 && step == 1 && v->plain) {
        memcpy(to + low, row, (size_t)n * sizeof *to);
    } else if (v->sw == 2 && step == 1 && v->plain) { /* faster than element by element */
        const IK_T *from = (const IK_T *)(const void *)row;
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            to[low + i] = from[2 * i];
    } else {
        IK_OF(load)(v->tx->dtype, row, step * v->sw, n, to + low);
    }
    for (int64_t i = high; i < v->width; i++)
        to[i] = 0;
}

/* Make the planes of some channels for the rows first .. first + band of y. */
static void IK_OF(planes)(const ik_conv *v, const char *x, int64_t channels, int64_t first, int64_t band, IK_T *to)
{
    const int64_t size = ik_itemsize(v->tx->dtype), *step = v->tx->strides, rows = v->max_band + v->reach;
    for (int64_t p = 0; p < v->planes; p++) {
        const int64_t start = (v->shared ? p : p * v->dw) - v->left;
        const int64_t low = start < 0 ? ik_min(v->width, ik_ceil_div(-start, v->sw)) : 0;
        const int64_t high = start < v->iw ? ik_max(low, ik_min(v->width, (v->iw - 1 - start) / v->sw + 1)) : low;
        for (int64_t c = 0; c < channels; c++)
            for (int64_t phase = 0; phase < v->phases; phase++) {
                IK_T *plane = to + ((c * v->planes + p) * v->phases + phase) * rows * v->width;
                for (int64_t row = 0; row < band + v->reach; row++) {
                    int64_t y = (first + row) * v->sh + phase - v->top;
                    if (y < 0 || y >= v->ih)
                        memset(plane + row * v->width, 0, (size_t)v->width * sizeof *to);
                    else
                        IK_OF(plane_row)(v, x + (c * step[1] + y * step[2] + (start + low * v->sw) * step[3]) * size,
                            low, high, plane + row * v->width);
                }
            }
    }
}

/* Copy the last pixels of a band where x is read in place: one panel from every channel, padded with zeros. */
static void IK_OF(copy_last_panel)(const ik_conv *v, const IK_T *x, int64_t pixels, IK_T *to)
{
    memset(to, 0, (size_t)(v->k * IK_OF(panel_width)) * sizeof *to);
    for (int64_t k = 0; k < v->k; k++)
        memcpy(to + k * IK_OF(panel_width), x + k * v->tx->strides[1], (size_t)pixels * sizeof *to);
}

/* Read taps k0 .. k0 + k of `rows` filters into contiguous rows. */
static void IK_OF(filters)(
    const ik_conv *v, const char *w, int64_t rows, int64_t k0, int64_t k, IK_T *to, int64_t to_row)
{
    const int64_t size = ik_itemsize(v->tw->dtype), *step = v->tw->strides;
    bool joined = step[3] == 1 && (step[2] == v->kw || v->kh == 1) && (step[1] == v->kh * v->kw || v->channels == 1);
    for (int64_t i = 0; i < rows; i++, w += step[0] * size, to += to_row) {
        if (joined) {
            IK_OF(load)(v->tw->dtype, w + k0 * size, 1, k, to);
            continue;
        }
        for (int64_t at = k0, run; at < k0 + k; at += run) { /* one row of a window at a time */
            int64_t c = at / (v->kh * v->kw), ky = at / v->kw % v->kh, kx = at % v->kw;
            run = ik_min(v->kw - kx, k0 + k - at);
            IK_OF(load)(
                v->tw->dtype, w + (c * step[1] + ky * step[2] + kx * step[3]) * size, step[3], run, to + at - k0);
        }
    }
}

static IK_T IK_OF(bias_of)(const ik_conv *v, int64_t output)
{
    IK_T bias = 0;
    if (v->bias != NULL)
        IK_OF(load)(v->ty->dtype, v->bias + output * v->bias_step * ik_itemsize(v->ty->dtype), 1, 1, &bias);
    return bias;
}

/* Finish a run of sums and write it to y: adds the run of the residual and applies the activation. May overwrite the
 * sums. */
static inline void IK_OF(finish)(const ik_conv *v, int64_t n, IK_T *sums, const char *residual, char *y)
{
    enum { RUN = 256 };
    const int64_t size = ik_itemsize(v->ty->dtype);
    if (v->direct) {
        const IK_T *other = (const IK_T *)(const void *)residual;
        IK_T *to = (IK_T *)(void *)y;
        const bool relu = v->activation == IK_CONV2D_RELU;
        IK_VECTORISE for (int64_t i = 0; i < n; i++) {
            IK_T x = other != NULL ? sums[i] + other[i] : sums[i];
            to[i] = relu && x < 0 ? 0 : x;
        }
        return;
    }
    for (int64_t at = 0, count; residual != NULL && at < n; at += count) {
        IK_T other[RUN];
        count = ik_min(RUN, n - at);
        IK_OF(load)(v->tr->dtype, residual + at * v->tr->strides[3] * size, v->tr->strides[3], count, other);
        for (int64_t i = 0; i < count; i++)
            sums[at + i] += other[i];
    }
    IK_OF(ik_activate)(v->activation, n, sums);
    IK_OF(store)(v->ty->dtype, sums, y, v->ty->strides[3], n);
}

/* Finish `n` pixels of some outputs, from pixel `first` of the image on. The sums of consecutive outputs are `pitch`
 * apart; rows of pixels are `width` apart. */
static void IK_OF(finish_pixels)(const ik_conv *v, int64_t image, int64_t output, int64_t outputs, int64_t first,
    int64_t n, IK_T *sums, int64_t pitch, int64_t width)
{
    const int64_t *ys = v->ty->strides, *rs = v->tr != NULL ? v->tr->strides : ys, size = ik_itemsize(v->ty->dtype);
    const bool joined = width == v->ow && ys[2] == v->ow * ys[3] && rs[2] == v->ow * rs[3];
    int64_t row = first / v->ow, col = first % v->ow;
    for (int64_t left = n, run; left > 0; left -= run, row++, sums += width - col, col = 0) {
        run = joined ? left : ik_min(left, v->ow - col);
        char *y = v->y + (image * ys[0] + output * ys[1] + row * ys[2] + col * ys[3]) * size;
        const char *residual = v->residual != NULL
            ? v->residual + (image * rs[0] + output * rs[1] + row * rs[2] + col * rs[3]) * size
            : NULL;
        for (int64_t o = 0; o < outputs; o++)
            IK_OF(finish)(
                v, run, sums + o * pitch, residual != NULL ? residual + o * rs[1] * size : NULL, y + o * ys[1] * size);
    }
}

/* Compute filters first .. last of a group over one band: each panel of w against all panels of pixels. */
static void IK_OF(contract_band)(const ik_conv *v, const IK_T *x, const char *w, int64_t image, int64_t first,
    int64_t last, int64_t output0, int64_t row0, int64_t band, char *slice)
{
    const int64_t panel_width = IK_OF(panel_width), *step = v->ty->strides,
                  *other = v->tr != NULL ? v->tr->strides : step, pixels = band * v->ow,
                  spread = ik_round_up(v->max_band * v->width, panel_width);
    const int64_t *offsets = (const int64_t *)(const void *)v->workspace,
                  panels = ik_ceil_div(last - first, IK_TILE_ROWS);
    const IK_T *tail = (const IK_T *)(const void *)slice;
    IK_T *panel = (IK_T *)(void *)(slice + v->plane_bytes),
         *sums = (IK_T *)(void *)(slice + v->plane_bytes + v->panel_bytes);
    IK_T bias[IK_TILE_ROWS * IK_OF(panel_width)];
    for (int64_t i = 0; i < panels; i++) {
        int64_t row = first + (last - first) * i / panels, rows = first + (last - first) * (i + 1) / panels - row;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < panel_width; j++)
                bias[r * panel_width + j] = IK_OF(bias_of)(v, output0 + row + r);
        IK_T *at =
            v->y_in_place ? (IK_T *)(void *)v->y + image * step[0] + (output0 + row) * step[1] + row0 * step[2] : NULL;
        const IK_T *add = v->y_in_place && v->residual != NULL
            ? (const IK_T *)(const void *)v->residual + image * other[0] + (output0 + row) * other[1] + row0 * other[2]
            : NULL;
        for (int64_t block = 0; block < v->k_blocks; block++) {
            int64_t k0 = block * v->max_k;
            ik_tile t = { .k = ik_min(v->max_k, v->k - k0), .a_row = v->tw->strides[0], .a_step = 1 };
            const char *from = w + row * t.a_row * ik_itemsize(v->tw->dtype);
            t.a = from + k0 * (int64_t)sizeof(IK_T);
            if (!v->w_in_place) {
                t.a = panel, t.a_row = v->max_k + 16;
                IK_OF(filters)(v, from, rows, k0, t.k, panel, t.a_row);
            }
            for (int64_t j = 0; j < pixels; j += panel_width) {
                int64_t width = ik_min(panel_width, pixels - j);
                bool copied = v->x_in_place && width < panel_width;
                t.b = copied ? tail : x + j;
                t.b_offsets = offsets + k0 + (copied ? v->k : 0);
                t.to = v->y_in_place ? at + j : sums + j;
                t.to_row = v->y_in_place ? step[1] : spread;
                bool edge = v->y_in_place && width < panel_width, last_block = block + 1 == v->k_blocks;
                t.add = v->y_in_place && last_block && !edge && add != NULL ? add + j : NULL;
                t.add_row = other[1];
                t.relu = v->y_in_place && last_block && !edge && v->activation == IK_CONV2D_RELU;
                IK_T *home = t.to;
                if (edge) {
                    for (int64_t r = 0; r < rows && block > 0; r++)
                        memcpy(sums + r * panel_width, home + r * t.to_row, (size_t)width * sizeof *home);
                    t.to = sums, t.to_row = panel_width;
                }
                t.from = block > 0 ? t.to : bias;
                t.from_row = block > 0 ? t.to_row : panel_width;
                IK_OF(tile)(rows, width > IK_OF(lanes) ? 2 : 1, &t);
                for (int64_t r = 0; r < rows && edge; r++)
                    if (last_block)
                        IK_OF(finish)(v, width, sums + r * panel_width,
                            add != NULL ? (const char *)(add + r * t.add_row + j) : NULL, (char *)(home + r * step[1]));
                    else
                        memcpy(home + r * step[1], sums + r * panel_width, (size_t)width * sizeof *home);
            }
        }
        for (int64_t r = 0; r < rows && v->early != IK_CONV2D_NONE; r++) /* y_in_place */
            IK_OF(ik_activate)(v->early, pixels, at + r * step[1]);
        if (!v->y_in_place)
            IK_OF(finish_pixels)(v, image, output0 + row, rows, row0 * v->ow, band * v->ow, sums, spread, v->width);
    }
}

/* Finish a band of one output whose rows of pixels are `width` apart, in whole vectors: what one row writes too much,
 * the next ones overwrite. Only without a residual, which may lie in y's memory. Overwrites the sums. */
static void IK_OF(finish_band)(const ik_conv *v, int64_t image, int64_t output, int64_t row0, int64_t band, IK_T *sums)
{
    enum { LANES = IK_OF(lanes) };
    const int64_t *ys = v->ty->strides, end = band * v->ow;
    IK_T *y = (IK_T *)(void *)v->y + image * ys[0] + output * ys[1] + row0 * ys[2];
    IK_OF(ik_activate)(v->activation, (band - 1) * v->width + v->ow, sums);
    for (int64_t row = 0; row < band; row++) {
        const IK_T *from = sums + row * v->width;
        IK_T *to = y + row * v->ow;
        int64_t i = 0;
        for (; i < v->ow && row * v->ow + i + LANES <= end; i += LANES)
            *(IK_OF(loose) *)(to + i) = *(const IK_OF(loose) *)(from + i);
        for (; i < v->ow; i++)
            to[i] = from[i];
    }
}

/* Compute one channel: sums of its shifted planes, 4 vectors of pixels at a time. */
static void IK_OF(depthwise_band)(const ik_conv *v, const IK_T *x, const char *w, int64_t image, int64_t output0,
    int64_t row0, int64_t band, char *slice)
{
    enum { LANES = IK_OF(lanes) };
    const int64_t pixels = (band - 1) * v->width + v->ow, *offsets = (const int64_t *)(const void *)v->workspace;
    IK_T *taps = (IK_T *)(void *)(slice + v->plane_bytes),
         *sums = (IK_T *)(void *)(slice + v->plane_bytes + v->panel_bytes);
    for (int64_t o = 0; o < v->outputs; o++) {
        const IK_T *filter = (const IK_T *)(const void *)(w + o * v->tw->strides[0] * ik_itemsize(v->tw->dtype));
        if (!v->w_in_place)
            IK_OF(filters)(v, (const char *)filter, 1, 0, v->k, taps, v->k), filter = taps;
        IK_OF(vector) bias = IK_OF(bias_of)(v, output0 + o) - (IK_OF(vector)){ 0 };
        int64_t j = 0;
        for (; j + 4 * LANES <= pixels; j += 4 * LANES) {
            IK_OF(vector) s0 = bias, s1 = bias, s2 = bias, s3 = bias;
            for (int64_t k = 0; k < v->k; k++) {
                const IK_OF(loose) *at = (const IK_OF(loose) *)(x + offsets[k] + j);
                IK_OF(vector) tap = filter[k] - (IK_OF(vector)){ 0 };
                s0 = IK_OF(fma)(tap, at[0], s0), s1 = IK_OF(fma)(tap, at[1], s1);
                s2 = IK_OF(fma)(tap, at[2], s2), s3 = IK_OF(fma)(tap, at[3], s3);
            }
            IK_OF(loose) *to = (IK_OF(loose) *)(sums + j);
            to[0] = s0, to[1] = s1, to[2] = s2, to[3] = s3;
        }
        for (; j < pixels; j += LANES) { /* the last vector reads and writes past the band, within the workspace */
            IK_OF(vector) s = bias;
            for (int64_t k = 0; k < v->k; k++)
                s = IK_OF(fma)(filter[k] - (IK_OF(vector)){ 0 }, *(const IK_OF(loose) *)(x + offsets[k] + j), s);
            *(IK_OF(loose) *)(sums + j) = s;
        }
        if (v->plain && v->tr == NULL && v->ty->strides[3] == 1 && v->ty->strides[2] == v->ow)
            IK_OF(finish_band)(v, image, output0 + o, row0, band, sums);
        else
            IK_OF(finish_pixels)(v, image, output0 + o, 1, row0 * v->ow, band * v->ow, sums, 0, v->width);
    }
}

static void IK_OF(conv_tasks)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_conv *v = context;
    char *slice = v->workspace + v->offset_bytes + worker * v->slice_bytes;
    IK_T *planes = (IK_T *)(void *)slice;
    const int64_t size = ik_itemsize(v->ty->dtype), *xs = v->tx->strides;
    for (int64_t task = begin; task < end; task++) {
        int64_t block = task % v->row_blocks, band = task / v->row_blocks % v->bands,
                image = task / (v->row_blocks * v->bands * v->groups);
        int64_t group = task / (v->row_blocks * v->bands) % v->groups, row = band * v->max_band,
                rows = ik_min(v->max_band, v->oh - row);
        int64_t output0 = group * v->outputs;
        const char *x = v->x + (image * xs[0] + group * v->channels * xs[1]) * size,
                   *w = v->w + output0 * v->tw->strides[0] * size;
        const IK_T *values = planes;
        if (v->x_in_place) {
            values = (const IK_T *)(const void *)x + row * v->ow;
            int64_t rest = rows * v->ow % IK_OF(panel_width);
            if (rest != 0)
                IK_OF(copy_last_panel)(v, values + rows * v->ow - rest, rest, planes);
        } else {
            IK_OF(planes)(v, x, v->channels, row, rows, planes);
        }
        if (v->depthwise)
            IK_OF(depthwise_band)(v, values, w, image, output0, row, rows, slice);
        else
            IK_OF(contract_band)(v, values, w, image, v->outputs * block / v->row_blocks,
                v->outputs * (block + 1) / v->row_blocks, output0, row, rows, slice);
    }
}
