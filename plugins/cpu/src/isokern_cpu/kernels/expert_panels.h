/* Products of prepacked panels of experts' weights (row_panels.h) with the rows of all experts at once.
 *
 * Rows of x are converted where they lie, in the order of their experts, and sums are written where they belong. The
 * panels of all experts are one range of work: few rows of many experts are no more calls of the thread pool than those
 * of one. At most WAVE rows are converted at once. */
#ifndef IK_EXPERT_PANELS_H
#define IK_EXPERT_PANELS_H
#include "experts.h"
#include "panel_dots.h"

#if defined(IK_PANELS)
enum { WAVE = 4096 };

/* Rows of an expert, from place `begin` in the order on, and the number of their first tile. */
typedef struct segment {
    int64_t expert, begin, rows, tile;
} segment;

typedef struct wave {
    panel_job job; /* of no rows */
    const experts *e;
    segment *segments;
    int64_t count, tiles, panels; /* segments, their tiles, the panels of an expert */
    ik_task *convert, *multiply;
} wave;

/* The job of an expert's panels, as `of` makes it of a product; its rows and weights are to be set. */
static panel_job job_of_experts(const experts *e, panel_job (*of)(const ik_plan *))
{
    product p;
    set_product(&p, e, 1);
    panel_job job = of(&p.plan);
    job.ty = e->y, job.tx = e->x;
    return job;
}

static panel_job job_of_segment(const wave *v, int64_t at)
{
    panel_job job = v->job;
    const segment *s = &v->segments[at];
    set_rows(&job, s->rows);
    job.order = v->e->order + s->begin;
    job.w = weights_of(v->e, s->expert);
    job.converted += s->tile * X_ROWS * job.converted_bytes;
    return job;
}

static void convert_tiles(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const wave *v = context;
    int64_t at = 0;
    for (int64_t tile = begin; tile < end; tile++) {
        while (at + 1 < v->count && v->segments[at + 1].tile <= tile)
            at++;
        panel_job job = job_of_segment(v, at);
        const int64_t row = (tile - v->segments[at].tile) * X_ROWS;
        v->convert(&job, row, ik_min(row + X_ROWS, job.rows), worker);
    }
}

/* Compute panels begin .. end, counted over the segments. */
static void multiply_segments(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const wave *v = context;
    for (int64_t at = begin, some; at < end; at += some) {
        const int64_t first = at % v->panels;
        some = ik_min(v->panels - first, end - at);
        panel_job job = job_of_segment(v, at / v->panels);
        v->multiply(&job, first, first + some, worker);
    }
}

static int64_t segment_bytes(const experts *e)
{ return ik_round_up(ik_min(ik_min(e->pairs, WAVE), e->count) * (int64_t)sizeof(segment), 64); }

static int64_t row_bytes(const experts *e) { return ik_round_up(4 * e->k, 64); }

/* The last tile of a segment is whole. */
static uint64_t waves_workspace(const experts *e, panel_job job)
{
    const int64_t rows = ik_min(e->pairs, WAVE), tiled = rows + (X_ROWS - 1) * ik_min(rows, e->count);
    return (uint64_t)(segment_bytes(e) + ik_threads() * row_bytes(e) + tiled * job.converted_bytes);
}

/* Cut the rows of experts that have at most `few` into segments, from the cursor on, as many as a wave has. */
static void fill_wave(wave *v, int64_t few, int64_t *expert, int64_t *at)
{
    const experts *e = v->e;
    v->count = v->tiles = 0;
    for (int64_t rows = 0; *expert < e->count && rows < WAVE;) {
        const int64_t end = e->begins[*expert + 1];
        const int64_t some = end - e->begins[*expert] > few ? 0 : ik_min(end - *at, WAVE - rows);
        if (some > 0) {
            v->segments[v->count++] = (segment){ *expert, *at, some, v->tiles };
            v->tiles += ik_ceil_div(some, X_ROWS);
            rows += some;
            *at += some;
        }
        if (some == 0 || *at == end)
            *at = end, ++*expert;
    }
}

/* Compute the rows of those experts that have at most `few`, by the job of a product. */
static void run_waves(const experts *e, panel_job job, int64_t few, ik_task *convert, ik_task *multiply)
{
    ik_tensor flat = *e->y; /* as rows without a dim of experts, where they step alike */
    if (flat.strides[0] == flat.strides[1] * flat.shape[1] || flat.shape[0] == 1)
        set_matrix(&flat, flat.dtype, e->pairs, e->n, flat.strides[1], flat.strides[2]);
    job.ty = &flat;
    job.y = e->to, job.x = e->from;
    job.direct = is_rows(job.ty);
    wave v = { .e = e,
        .segments = (segment *)(void *)e->workspace,
        .panels = ik_ceil_div(e->n, LANES),
        .convert = convert,
        .multiply = multiply };
    job.thread_scratch = e->workspace + segment_bytes(e);
    job.converted = job.thread_scratch + ik_threads() * row_bytes(e);
    v.job = job;
    for (int64_t expert = 0, at = 0;;) {
        fill_wave(&v, few, &expert, &at);
        if (v.count == 0)
            return;
        const int64_t each = ik_ceil_div(X_ROWS * v.tiles, v.count); /* rows of a segment */
        ik_parallel_for(v.tiles, DOT_BYTES / (4 * ik_max(1, X_ROWS * e->k)), convert_tiles, &v);
        ik_parallel_for(v.count * v.panels, ik_max(1, DOT_BYTES / ik_max(1, panel_bytes(job.dtype, e->k) * each)),
            multiply_segments, &v);
    }
}
#endif
#endif
