/* The loops of a convolution of bytes over bands of lines and panels of outputs, as in conv2d_panels.h, and how its
 * sums become results; for the kernels of conv_integer and qlinear_conv. */
#ifndef IK_INTEGER_CONV_BANDS_H
#define IK_INTEGER_CONV_BANDS_H
#include "integer_conv.h"

/* sums[i] = Σ (x - zx) over the window of pixel i, for n pixels, rounded up to whole vectors. */
static void sum_windows(const byte_conv *b, const uint32_t *x, int64_t n, uint32_t *sums)
{
    const ik_conv *v = &b->v;
    const uint32_t one = GROUP == 2 ? 0x10001 : 0x1010101;
    const int64_t *offsets = (const int64_t *)(const void *)v->workspace, numbers = b->channels * v->kh * v->kw;
    const vector_group ones = splat_group(&one);
    for (int64_t i = 0; i < n; i += lanes_group) {
        vector_group sum = (uint32_t)(-numbers * b->x_rest) - (vector_group){ 0 };
        for (int64_t k = 0; k < v->k; k++)
            sum = fma_group(*(const loose_group *)(x + offsets[k] + i), ones, sum);
        *(loose_group *)(sums + i) = sum;
    }
}

/* to = the bytes that a run of sums becomes; NaN, as infinity times 0, becomes 0 as in a cast. */
static void requantise(const byte_conv *b, int64_t n, const uint32_t *sums, float factor, uint8_t *to)
{
    const float zero = b->y_zero, low = b->low, high = b->high;
    IK_VECTORISE for (int64_t i = 0; i < n; i++) {
        const float x = ik_rint_f32((float)(int32_t)sums[i] * factor) + zero;
        const float above = x < low ? low : x, inside = above > high ? high : above;
        to[i] = (uint8_t)(int32_t)(inside == inside ? inside : 0);
    }
}

/* Write n pixels of an output, from pixel `first` of the image on. */
static void write_pixels(const byte_conv *b, int64_t image, int64_t output, int64_t first, int64_t n, const char *from)
{
    const ik_tensor *t = b->v.ty;
    const int64_t *step = t->strides, size = ik_itemsize(t->dtype), width = b->v.ow;
    const bool joined = step[2] == width * step[3];
    for (int64_t left = n, run; left > 0; left -= run, first += run, from += run * size) {
        const int64_t row = first / width, col = first % width;
        run = joined ? left : ik_min(left, width - col);
        char *y = b->v.y + (image * step[0] + output * step[1] + row * step[2] + col * step[3]) * size;
        if (step[3] == 1)
            memcpy(y, from, (size_t)(run * size));
        else
            for (int64_t i = 0; i < run; i++)
                memcpy(y + i * step[3] * size, from + i * size, (size_t)size);
    }
}

/* sums[i] = sum_windows of pixel first + i of the band, for n pixels. */
static void sum_windows_of(const byte_conv *b, const byte_band *band, int64_t first, int64_t n, uint32_t *sums)
{
    const int64_t length = b->v.line, step = b->v.flat ? length : b->v.width;
    for (int64_t done = 0, run; done < n; done += run, first += run) {
        run = ik_min(n - done, length - first % length);
        sum_windows(b, band->x + first / length * step + first % length, run, sums + done);
    }
}

/* Turn the sums of n pixels of the band, from its pixel `first` on, and of all outputs of a panel into results. */
static void finish_pixels(const byte_conv *b, const byte_band *band, int64_t output, int64_t outputs, int64_t first,
    int64_t n, const uint32_t *sums)
{
    const int64_t width = b->v.panel_width, begin = band->first * b->v.line;
    uint32_t runs[WIDEST * PIXELS], windows[PIXELS + lanes_group];
    uint8_t bytes[PIXELS];
    for (int64_t at = 0; at < n; at += PIXELS) {
        const int64_t count = ik_min(PIXELS, n - at), whole = ik_round_up(count, lanes_group);
        ik_transpose_sized(4, ik_round_up(outputs, lanes_group), whole, (char *)runs, PIXELS * 4, 4,
            (const char *)(sums + at * width), 4, width * 4, false);
        bool summed = false;
        for (int64_t o = 0; o < outputs; o++) {
            uint32_t *run = runs + o * PIXELS;
            const uint32_t rest = (uint32_t)(integer_at(&b->w_zeros, output + o) - b->w_shift);
            if (rest != 0 && !summed)
                sum_windows_of(b, band, first + at, count, windows), summed = true;
            for (int64_t i = 0; rest != 0 && i < count; i++)
                run[i] -= rest * windows[i];
            if (b->quantised)
                requantise(b, whole, run, b->x_scale * float_at(&b->w_scales, output + o) / b->y_scale, bytes);
            write_pixels(b, band->image, output + o, begin + first + at, count,
                b->quantised ? (const char *)bytes : (const char *)run);
        }
    }
}

/* Add products k0 .. k0 + t->k of the pixels of some lines of a band. */
static void add_products(const byte_conv *b, const byte_band *band, int64_t first, int64_t last, const uint32_t *from,
    ik_pixel_tile *t, uint32_t *sums)
{
    const ik_conv *v = &b->v;
    const int64_t width = v->panel_width, area = v->oh * v->ow, step = v->flat ? v->line : v->width;
    for (int64_t line = first; line < last; line++, sums += v->line * width) {
        const int64_t length = ik_min(v->line, area - line * v->line), tiles = ik_ceil_div(length, v->tile);
        for (int64_t n = 0; n < tiles; n++) {
            const int64_t col = length * n / tiles, pixels = length * (n + 1) / tiles - col;
            t->x = band->x + (line - band->first) * step + col, t->to = sums + col * width;
            t->from = t->from_row > 0 ? t->to : from;
            pixel_tile_group(pixels, width / lanes_group, t);
        }
    }
}

/* Compute one panel of outputs over a band. */
static void contract_panel(const byte_conv *b, const byte_band *band, int64_t panel)
{
    const ik_conv *v = &b->v;
    const int64_t width = v->panel_width, area = v->oh * v->ow, at = band->group * v->panels + panel;
    const int64_t *offsets = (const int64_t *)(const void *)v->workspace;
    const int64_t output = band->group * v->outputs + panel * width,
                  outputs = ik_min(width, v->outputs - panel * width);
    const uint32_t *packed = (const uint32_t *)(const void *)v->w, *w = packed + at * v->k * width,
                   *sums_of_w = packed + (v->groups * v->panels * v->k + at) * width;
    uint32_t from[WIDEST] = { 0 };
    for (int64_t o = 0; o < outputs; o++)
        from[o] = (uint32_t)integer_at(&b->bias, output + o) - (uint32_t)b->x_rest * sums_of_w[o];
    for (int64_t line = band->first; line < band->last; line += b->together) {
        const int64_t last = ik_min(line + b->together, band->last);
        for (int64_t k0 = 0; k0 < v->k; k0 += v->max_k) {
            ik_pixel_tile t = { .k = ik_min(v->max_k, v->k - k0), .offsets = offsets + k0, .w = w + k0 * width };
            t.from_row = k0 > 0 ? width : 0;
            add_products(b, band, line, last, from, &t, band->sums);
        }
        finish_pixels(b, band, output, outputs, (line - band->first) * v->line,
            ik_min(area, last * v->line) - line * v->line, band->sums);
    }
}

/* Make the planes of groups begin .. end of channels of a round of images. */
static void plane_tasks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const byte_conv *b = context;
    const ik_conv *v = &b->v;
    const int64_t *step = v->tx->strides, plane = v->planes * v->phases * (v->max_band + v->reach) * v->width;
    uint32_t *to = (uint32_t *)(void *)(v->workspace + v->offset_bytes);
    for (int64_t at = begin; at < end; at++) {
        const int64_t group = at / v->channels % v->groups, image = v->image + at / (v->channels * v->groups);
        make_plane(
            b, v->x + image * step[0] + group * b->channels * step[1], at % v->channels, 0, v->oh, to + at * plane);
    }
}

/* Run tasks begin .. end of a round of images, numbered ((image * bands + band) * groups + group) * parts + part;
 * a task is the panels of a part. */
static void panel_tasks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const byte_conv *b = context;
    const ik_conv *v = &b->v;
    const int64_t parts = ik_conv_parts(v);
    const int64_t *step = v->tx->strides, plane = v->planes * v->phases * (v->max_band + v->reach) * v->width;
    char *slice = v->workspace + v->offset_bytes + v->plane_bytes + worker * v->slice_bytes;
    for (int64_t task = begin; task < end; task++) {
        const int64_t part = task % parts, number = task / (parts * v->groups) % v->bands,
                      image = task / (parts * v->groups * v->bands); /* in the round */
        byte_band band = { .image = v->image + image,
            .group = task / parts % v->groups,
            .first = v->lines * number / v->bands,
            .last = v->lines * (number + 1) / v->bands,
            .sums = (uint32_t *)(void *)slice };
        if (v->local) {
            uint32_t *planes = (uint32_t *)(void *)(slice + v->sum_bytes);
            const char *x = v->x + band.image * step[0] + band.group * b->channels * step[1];
            for (int64_t c = 0; c < v->channels; c++)
                make_plane(b, x, c, band.first, band.last - band.first, planes + c * plane);
            band.x = planes;
        } else {
            band.x = (const uint32_t *)(const void *)(v->workspace + v->offset_bytes)
                + (image * v->groups + band.group) * v->channels * plane + band.first * (v->flat ? v->line : v->width);
        }
        for (int64_t panel = part * v->task_panels; panel < ik_min(v->panels, (part + 1) * v->task_panels); panel++)
            contract_panel(b, &band, panel);
    }
}

static uint64_t conv_workspace(const ik_plan *plan)
{
    const byte_conv b = conv_of(plan, NULL);
    if (ik_numel(b.v.ty) == 0)
        return 0;
    return (uint64_t)(b.v.offset_bytes + b.v.plane_bytes + b.v.slice_bytes * ik_threads())
        + (IK_IS_PREPACKED(plan, filters_at(plan)) ? 0 : b.packed_bytes);
}

static ik_status convolve_bytes(const ik_plan *plan, void *const *data, void *workspace)
{
    byte_conv b = conv_of(plan, data);
    ik_conv *v = &b.v;
    if (ik_numel(v->ty) == 0)
        return IK_SUCCESS;
    if (IK_IS_PREPACKED(plan, filters_at(plan))) {
        v->w = data[filters_at(plan)];
    } else {
        char *packed = (char *)workspace + v->offset_bytes + v->plane_bytes + v->slice_bytes * ik_threads();
        pack_conv(plan, data[filters_at(plan)], packed);
        v->w = packed;
    }
    v->workspace = workspace;
    ik_conv_offsets(v, 0, workspace);
    const int64_t parts = v->groups * v->bands * ik_conv_parts(v);
    const double products =
        (double)v->groups * (double)v->outputs * (double)v->k * (double)(v->oh * v->ow) / (double)parts;
    const int64_t grain = products >= IK_THREAD_PRODUCTS ? 1 : (int64_t)(IK_THREAD_PRODUCTS / products) + 1;
    const int64_t channel = v->planes * v->phases * (v->oh + v->reach) * v->width * (int64_t)sizeof(uint32_t);
    for (v->image = 0; v->image < v->images; v->image += v->round) {
        const int64_t images = ik_min(v->round, v->images - v->image);
        if (!v->local)
            ik_parallel_for(images * v->groups * v->channels, IK_THREAD_BYTES / channel + 1, plane_tasks, &b);
        ik_parallel_for(images * parts, grain, panel_tasks, &b);
    }
    return IK_SUCCESS;
}

#endif
