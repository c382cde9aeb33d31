/* grid_sample: y[n, c, o] = Σ_t weight[t] * x[n, c, place[t]], over the elements of x near the place that grid[n, o]
 * names.
 *
 * A task is a block of places, whose elements and weights are listed first, in vector lanes. Then lanes are channels,
 * where x has its channels last, or where so many places are read that it pays to lay some channels of some images out
 * that way in the workspace; else lanes are places. This file includes itself, for float and for double.
 *
 * Against loop nests that make indices and weights, and a weighted gather, of F32 it takes between an eighth (cubic)
 * and a third of the time (nearest). */
#ifndef IK_T
#include "runs.h"
#include "transpose.h"
#include "walk.h"
#include "operators/grid_sample.h"

#define ALIGNED __attribute__((aligned(64)))

enum {
    MAX_DIMS = 3,
    MAX_TAPS = 4,          /* along an axis */
    BLOCK = 256,           /* places, at most */
    LISTED = 2048,         /* elements that are listed for a block */
    MIN_CHANNELS = 8,      /* from which on they are lanes */
    WIDTH = 32,            /* channels that are lanes at once, at most */
    SUMS = 4096,           /* of a block, where lanes are channels */
    PACKED = 128,          /* elements of each channel that are laid out by a task */
    KEPT_BYTES = 512 << 10 /* what is laid out for each thread at once */
};

typedef struct job {
    const ik_tensor *ty, *tx, *tgrid;
    char *y, *workspace;
    const char *x, *grid;
    int32_t mode, padding, compute, dims;
    /* rows: lanes are channels; packed: of the workspace; stream: y bypasses the caches */
    bool align, rows, packed, stream, prefetch;
    int64_t size;                 /* bytes of an element */
    int64_t channels, elements, places, taps, block, blocks;
    int64_t width, parts;         /* channels of a part, and parts of an image */
    int64_t all, first, together; /* parts of all images; the first that lies in the workspace, and how many do */
} job;

/* Bytes of the channels of a part in the workspace. */
static int64_t part_bytes(const job *j) { return j->elements * j->width * (j->compute == IK_F64 ? 8 : 4); }

static job describe(const ik_plan *plan)
{
    const ik_grid_sample_attrs *attrs = plan->attrs;
    const ik_tensor *t = plan->tensors;
    job j = { .ty = &t[IK_GRID_SAMPLE_Y],
        .tx = &t[IK_GRID_SAMPLE_X],
        .tgrid = &t[IK_GRID_SAMPLE_GRID],
        .mode = (int32_t)attrs->mode,
        .padding = (int32_t)attrs->padding,
        .align = attrs->align_corners != 0,
        .elements = 1,
        .places = 1,
        .taps = 1 };
    const int64_t along = j.mode == IK_GRID_SAMPLE_NEAREST ? 1 : j.mode == IK_GRID_SAMPLE_LINEAR ? 2 : MAX_TAPS;
    j.compute = ik_compute_of(j.ty->dtype);
    j.size = ik_itemsize(j.ty->dtype);
    j.dims = j.tx->ndim - 2;
    j.channels = j.tx->shape[1];
    for (int32_t d = 0; d < j.dims; d++)
        j.elements *= j.tx->shape[2 + d], j.places *= j.ty->shape[2 + d], j.taps *= along;
    j.parts = ik_max(1, ik_ceil_div(j.channels, WIDTH));
    j.width = ik_ceil_div(j.channels, j.parts);
    j.all = j.tx->shape[0] * j.parts;
    const bool in_place = j.tx->strides[1] == 1 && j.tx->dtype == j.compute;
    j.packed = !in_place && j.channels >= MIN_CHANNELS && j.places * j.taps >= j.elements;
    j.rows = j.packed || (in_place && j.channels >= MIN_CHANNELS);
    j.block = ik_min(BLOCK, LISTED / j.taps);
    if (j.rows)
        j.block = ik_min(j.block, SUMS / j.width);
    j.blocks = ik_ceil_div(j.places, j.block);
    j.prefetch = ik_lanes_of(j.tx, j.compute, 2, j.dims).dense;
    j.stream = ik_lanes_of(j.ty, j.compute, 2, j.dims).dense && ik_numel(j.ty) * j.size >= IK_STREAM_BYTES;
    j.together = j.packed ? ik_max(1, ik_min(j.all, ik_threads() * KEPT_BYTES / part_bytes(&j))) : j.all;
    return j;
}

/* Elements of some dims, at once where they are contiguous: rows of an image are short. */
static void load_elements(const ik_lanes *l, const char *base, int64_t at, int64_t n, void *to)
{
    if (l->dense)
        ik_load(l->compute, l->dtype, base + at * l->size, 1, n, to);
    else
        ik_lanes_load(l, base, at, n, to);
}

static void store_elements(const ik_lanes *l, char *base, int64_t at, int64_t n, const void *from)
{
    if (l->dense)
        ik_store(l->compute, l->dtype, from, base + at * l->size, 1, n);
    else
        ik_lanes_store(l, base, at, n, from);
}

#define IK_FILE "grid_sample.c"
#include "each_type.h"

IK_WORKSPACE(grid_sample)
{
    const job j = describe(plan);
    const bool any = j.packed && ik_numel(j.ty) != 0;
    return any ? (uint64_t)(j.together * part_bytes(&j)) : 0;
}

IK_KERNEL(grid_sample)
{
    IK_UNUSED;
    job j = describe(plan);
    const bool wide = j.compute == IK_F64;
    if (ik_numel(j.ty) == 0)
        return IK_SUCCESS;
    j.y = ik_ptr(plan, data, IK_GRID_SAMPLE_Y);
    j.x = ik_ptr(plan, data, IK_GRID_SAMPLE_X);
    j.grid = ik_ptr(plan, data, IK_GRID_SAMPLE_GRID);
    j.workspace = workspace;
    if (!j.rows) {
        const int64_t work = j.block * j.channels * j.taps * j.size;
        ik_parallel_for(j.tx->shape[0] * j.blocks, 1 + IK_THREAD_BYTES / work, wide ? read_f64 : read_f32, &j);
        return IK_SUCCESS;
    }
    for (; j.first < j.all; j.first += j.together) {
        const int64_t count = ik_min(j.together, j.all - j.first), work = j.width * j.size;
        if (j.packed)
            ik_parallel_for(count * ik_ceil_div(j.elements, PACKED), 1 + IK_THREAD_BYTES / (work * PACKED),
                wide ? pack_f64 : pack_f32, &j);
        ik_parallel_for(
            count * j.blocks, 1 + IK_THREAD_BYTES / (work * j.block * j.taps), wide ? add_rows_f64 : add_rows_f32, &j);
    }
    return IK_SUCCESS;
}

#else

/* The weight of an element at a distance (Keys 1981 for cubic, a = -0.75). */
static inline __attribute__((always_inline)) IK_T IK_OF(weigh)(const int32_t mode, IK_T d)
{
    const IK_T a = (IK_T)-0.75;
    if (mode == IK_GRID_SAMPLE_NEAREST)
        return 1;
    if (mode == IK_GRID_SAMPLE_LINEAR)
        return 1 - d > 0 ? 1 - d : 0;
    const IK_T near = ((a + 2) * d - (a + 3)) * d * d + 1, far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    return d <= 1 ? near : d < 2 ? far : 0;
}

static inline __attribute__((always_inline)) IK_T IK_OF(limit)(IK_T v, IK_T end)
{ return v < -end ? -end : v > end ? end : v; }

/* From coordinates of an axis, which elements each place reads and their weights, `pitch` apart. Coordinates beyond
 * `far` count as this, so that elements are exact in 32 bits and in the compute type. */
static inline __attribute__((always_inline)) void IK_OF(find)(const int32_t mode, const int32_t padding, bool align,
    int32_t length, int64_t n, int64_t pitch, IK_T *at, int32_t *index, IK_T *weight)
{
    const int32_t taps = mode == IK_GRID_SAMPLE_NEAREST ? 1
        : mode == IK_GRID_SAMPLE_LINEAR                 ? 2
                                                        : MAX_TAPS,
                  before = mode == IK_GRID_SAMPLE_CUBIC ? 1 : 0, period = 2 * (align ? length - 1 : length),
                  back = align ? period : period - 1;
    const IK_T far = (IK_T)(sizeof(IK_T) == 8 ? 1 << 30 : 1 << 22), whole = (IK_T)length;
    IK_VECTORISE for (int64_t k = 0; k < n; k++) {
        const IK_T given = at[k] == at[k] ? at[k] : -1, lifted = IK_OF(limit)(given, far) + 1,
                   place = align ? lifted * (whole - 1) : lifted * whole - 1;
        at[k] = IK_OF(limit)(place * (IK_T)0.5, far);
    }
    for (int32_t t = 0; t < taps; t++) {
        IK_VECTORISE for (int64_t k = 0; k < n; k++) {
            const IK_T first = mode == IK_GRID_SAMPLE_NEAREST ? IK_OF(ik_rint)(at[k]) : IK_OF(ik_floor)(at[k]),
                       own = first + (IK_T)(t - before), w = IK_OF(weigh)(mode, IK_OF(ik_abs)(own - at[k]));
            const bool inside = padding != IK_GRID_SAMPLE_ZEROS || ((own >= 0) & (own < whole));
            weight[t * pitch + k] = inside ? w : 0;
            int32_t i = (int32_t)own;
            if (padding == IK_GRID_SAMPLE_REFLECTION) {
                const int32_t r = i - period * (int32_t)ik_floor_f64((double)i / (double)(period > 0 ? period : 1));
                i = r < length ? r : back - r;
            }
            index[t * pitch + k] = i < 0 ? 0 : i > length - 1 ? length - 1 : i;
        }
    }
}

static inline __attribute__((always_inline)) void IK_OF(find_padded)(
    const int32_t mode, const job *j, int32_t length, int64_t n, IK_T *at, int32_t *index, IK_T *weight)
{
    if (j->padding == IK_GRID_SAMPLE_ZEROS)
        IK_OF(find)(mode, IK_GRID_SAMPLE_ZEROS, j->align, length, n, j->block, at, index, weight);
    else if (j->padding == IK_GRID_SAMPLE_BORDER)
        IK_OF(find)(mode, IK_GRID_SAMPLE_BORDER, j->align, length, n, j->block, at, index, weight);
    else
        IK_OF(find)(mode, IK_GRID_SAMPLE_REFLECTION, j->align, length, n, j->block, at, index, weight);
}

/* List what the n places from `from` on of an image read: offsets, by the steps along the axes, and weights, of the
 * first element of each place, then of the second, … */
static void IK_OF(list)(
    const job *j, int64_t image, int64_t from, int64_t n, const int64_t *steps, int64_t *offset, IK_T *weight)
{
    IK_T at[BLOCK] ALIGNED, own[MAX_TAPS * BLOCK] ALIGNED;
    int32_t index[MAX_TAPS * BLOCK] ALIGNED;
    const int64_t *strides = j->tgrid->strides, pitch = j->block;
    const int32_t taps = j->mode == IK_GRID_SAMPLE_NEAREST ? 1 : j->mode == IK_GRID_SAMPLE_LINEAR ? 2 : MAX_TAPS;
    const ik_lanes lanes = ik_lanes_of(j->tgrid, j->compute, 1, j->dims);
    int64_t listed = 1;
    memset(offset, 0, (size_t)n * sizeof *offset);
    for (int64_t k = 0; k < n; k++)
        weight[k] = 1;
    for (int32_t d = 0; d < j->dims; d++) {
        const int64_t column = image * strides[0] + (j->dims - 1 - d) * strides[j->dims + 1];
        const int32_t length = (int32_t)j->tx->shape[2 + d];
        ik_lanes_load(&lanes, j->grid + column * j->size, from, n, at);
        if (j->mode == IK_GRID_SAMPLE_NEAREST)
            IK_OF(find_padded)(IK_GRID_SAMPLE_NEAREST, j, length, n, at, index, own);
        else if (j->mode == IK_GRID_SAMPLE_LINEAR)
            IK_OF(find_padded)(IK_GRID_SAMPLE_LINEAR, j, length, n, at, index, own);
        else
            IK_OF(find_padded)(IK_GRID_SAMPLE_CUBIC, j, length, n, at, index, own);
        for (int64_t i = listed - 1; i >= 0; i--) /* from the end, since what is listed is in the same memory */
            for (int32_t t = taps - 1; t >= 0; t--) {
                const int64_t to = (i * taps + t) * pitch;
                IK_VECTORISE for (int64_t k = 0; k < n; k++) {
                    offset[to + k] = offset[i * pitch + k] + index[t * pitch + k] * steps[d];
                    weight[to + k] = weight[i * pitch + k] * own[t * pitch + k];
                }
            }
        listed *= taps;
    }
}

/* Lay elements of the parts from `first` on out with channels last; pieces part * chunks + chunk. */
static void IK_OF(pack)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t chunks = ik_ceil_div(j->elements, PACKED), *steps = j->tx->strides, value = sizeof(IK_T);
    const ik_lanes lanes = ik_lanes_of(j->tx, j->compute, 2, j->dims);
    IK_T scratch[WIDTH * PACKED] ALIGNED;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t part = piece / chunks, from = piece % chunks * PACKED, n = ik_min(PACKED, j->elements - from),
                      image = (j->first + part) / j->parts, channel = (j->first + part) % j->parts * j->width,
                      count = ik_min(j->width, j->channels - channel);
        const char *x = j->x + (image * steps[0] + channel * steps[1]) * j->size;
        char *to = j->workspace + (part * j->elements + from) * j->width * value;
        const char *source = ik_lanes_in_place(&lanes, (char *)(uintptr_t)x, from, n);
        int64_t pitch = steps[1] * j->size;
        if (source == NULL) {
            source = (const char *)scratch, pitch = PACKED * value;
            for (int64_t c = 0; c < count; c++)
                load_elements(&lanes, x + c * steps[1] * j->size, from, n, scratch + c * PACKED);
        }
        for (int64_t c = 0; c < count && j->prefetch && from + 2 * n <= j->elements; c++)
            ik_prefetch(x + (c * steps[1] + from + n) * j->size, n * j->size);
        ik_transpose(value, n, count, to, j->width * value, value, source, value, pitch, false);
    }
}

/* out = the sum of rows of `count` channels by their weights, which stays in registers. An element of weight 0 does not
 * count. The last vector may reach beyond out's end. */
static inline __attribute__((always_inline)) void IK_OF(add_row)(
    const int64_t count, const job *j, const IK_T *x, const int64_t *offset, const IK_T *weight, IK_T *out)
{
    typedef IK_OF(ik_vector) vector;
    enum { LANES = IK_VECTOR / sizeof(IK_T) };
    int64_t c = 0;
    for (; c + 2 * LANES <= count; c += 2 * LANES) {
        vector first = { 0 }, second = { 0 };
        for (int64_t t = 0; t < j->taps; t++) {
            const IK_T w = weight[t * j->block];
            const vector *row = (const vector *)(x + offset[t * j->block] + c);
            if (w != 0)
                first += w * row[0], second += w * row[1];
        }
        vector *to = (vector *)(out + c);
        to[0] = first, to[1] = second;
    }
    for (; c < count; c += LANES) {
        const int64_t some = ik_min(LANES, count - c);
        vector sum = { 0 };
        for (int64_t t = 0; t < j->taps; t++) {
            const IK_T w = weight[t * j->block], *row = x + offset[t * j->block] + c;
            if (w != 0)
                sum += w * (some == LANES ? *(const vector *)row : IK_OF(ik_load_some)(row, some, 0));
        }
        *(vector *)(out + c) = sum;
    }
}

/* Lanes are channels; pieces part * blocks + block. */
static void IK_OF(add_rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t *xs = j->tx->strides, *ys = j->ty->strides, value = sizeof(IK_T);
    const ik_lanes lanes = ik_lanes_of(j->ty, j->compute, 2, j->dims);
    int64_t steps[MAX_DIMS], offset[LISTED] ALIGNED;
    IK_T weight[LISTED] ALIGNED, sums[SUMS + IK_VECTOR / sizeof(IK_T)] ALIGNED, turned[SUMS] ALIGNED;
    for (int32_t d = j->dims - 1, last = d; d >= 0; d--)
        steps[d] = !j->packed ? xs[2 + d] : d == last ? j->width : steps[d + 1] * j->tx->shape[3 + d];
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t part = piece / j->blocks, from = piece % j->blocks * j->block,
                      n = ik_min(j->block, j->places - from), image = (j->first + part) / j->parts,
                      channel = (j->first + part) % j->parts * j->width,
                      count = ik_min(j->width, j->channels - channel);
        const char *x =
            j->packed ? j->workspace + part * j->elements * j->width * value : j->x + (image * xs[0] + channel) * value;
        char *y = j->y + (image * ys[0] + channel * ys[1]) * j->size;
        IK_OF(list)(j, image, from, n, steps, offset, weight);
        for (int64_t k = 0; k < n; k++)
            if (count == WIDTH)
                IK_OF(add_row)(WIDTH, j, (const IK_T *)(const void *)x, offset + k, weight + k, sums + k * WIDTH);
            else
                IK_OF(add_row)(count, j, (const IK_T *)(const void *)x, offset + k, weight + k, sums + k * count);
        char *place = j->stream ? NULL : ik_lanes_in_place(&lanes, y, from, n),
             *to = place == NULL ? (char *)turned : place;
        ik_transpose(value, count, n, to, place == NULL ? n * value : ys[1] * value, value, (const char *)sums, value,
            count * value, false);
        for (int64_t c = 0; c < count && j->stream; c++)
            ik_put(j->ty->dtype, turned + c * n, y + (c * ys[1] + from) * j->size, 1, n, true);
        for (int64_t c = 0; c < count && place == NULL && !j->stream; c++)
            store_elements(&lanes, y + c * ys[1] * j->size, from, n, turned + c * n);
    }
    if (j->stream)
        ik_stream_fence();
}

/* Lanes are places; pieces image * blocks + block. */
static void IK_OF(read)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t *xs = j->tx->strides, *ys = j->ty->strides;
    const ik_lanes lanes = ik_lanes_of(j->ty, j->compute, 2, j->dims);
    int64_t offset[LISTED] ALIGNED;
    IK_T weight[LISTED] ALIGNED, sums[BLOCK] ALIGNED, wide[BLOCK] ALIGNED;
    char narrow[BLOCK * sizeof(uint16_t)] ALIGNED;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t image = piece / j->blocks, from = piece % j->blocks * j->block,
                      n = ik_min(j->block, j->places - from);
        IK_OF(list)(j, image, from, n, xs + 2, offset, weight);
        for (int64_t c = 0; c < j->channels; c++) {
            const char *x = j->x + (image * xs[0] + c * xs[1]) * j->size;
            char *y = j->y + (image * ys[0] + c * ys[1]) * j->size, *place = ik_lanes_in_place(&lanes, y, from, n);
            IK_T *out = place == NULL ? sums : (IK_T *)(void *)place;
            memset(out, 0, (size_t)n * sizeof *out);
            for (int64_t t = 0; t < j->taps; t++) {
                const int64_t *at = offset + t * j->block;
                const IK_T *w = weight + t * j->block;
                if (j->size < 4) {
                    if (j->size == 2)
                        for (int64_t k = 0; k < n; k++)
                            ((uint16_t *)(void *)narrow)[k] = ((const uint16_t *)(const void *)x)[at[k]];
                    else
                        for (int64_t k = 0; k < n; k++)
                            narrow[k] = x[at[k]];
                    ik_load(j->compute, j->tx->dtype, narrow, 1, n, wide);
                } else {
                    for (int64_t k = 0; k < n; k++)
                        wide[k] = ((const IK_T *)(const void *)x)[at[k]];
                }
                IK_VECTORISE for (int64_t k = 0; k < n; k++)
                    out[k] += w[k] != 0 ? w[k] * wide[k] : 0;
            }
            if (place == NULL)
                store_elements(&lanes, y, from, n, sums);
        }
    }
}

#endif
