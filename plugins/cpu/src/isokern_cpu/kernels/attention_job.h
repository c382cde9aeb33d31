/* The parameters of attention, the rows of its tasks, and a thread's scratch. */
#ifndef IK_ATTENTION_JOB_H
#define IK_ATTENTION_JOB_H
#include <stdatomic.h>

#include "blocks.h"
#include "gemm_core.h"
#include "operators/attention.h"
#include "operators/attention_lse.h"
#include "operators/paged_attention.h"

#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_tile.h"
#include "gemm_dots.h"
#undef IK_T
#undef IK_OF

#define INFINITE __builtin_inff()

enum {
    BLOCK = 64, /* keys that are processed at one time */
    FEW = 8, /* rows that are not worth packing keys for */
    MANY = 2 * IK_TILE_ROWS, /* rows of a tile if there are more */
    PART = 512 /* keys of a part at least */
};

typedef struct job {
    /* those that are absent are null */
    const ik_tensor *ty, *tlse, *tq, *tk, *tv, *tmask, *tlengths, *tshown, *tsinks, *talibi, *ttable;
    char *y, *lse;
    const char *q, *k, *v, *mask, *lengths, *shown, *sinks, *alibi, *table;
    int64_t page; /* keys of a page; 0 where keys are not in pages */
    int64_t b, m, h, d, s, g, e; /* the dims of the signature: q[b, m, h, d], k[b, s, g, d], v[b, s, g, e] */
    int64_t shared; /* heads of q for each head of k */
    int64_t rows, tiles, tile_rows, parts; /* of a sequence and a head of k */
    int64_t q_row, wide; /* d and e, rounded up to whole vectors and panels */
    bool packed; /* many rows */
    float scale, softcap;
    int64_t window;
    bool causal;
    char *thread_scratch, *partial; /* partial: for each task, its rows' max, total and sums */
    int64_t scratch_bytes, partial_bytes;
    _Atomic int64_t bad_sequence; /* the first one whose length is out of range */
} job;

/* The scratch of a thread. */
typedef struct scratch {
    float *q; /* [tile_rows, q_row] */
    float *scores; /* [tile_rows, BLOCK]: scores, then weights */
    float *sums; /* [tile_rows, wide] */
    float *max, *total; /* [tile_rows] */
    float *keys; /* [BLOCK / panel_width][d, panel_width]: packed keys */
    float *values; /* [BLOCK, wide]: packed values */
    float *converted; /* [BLOCK, d or e]: keys or values as F32 */
} scratch;

static job job_of(const ik_plan *plan)
{
    const ik_attention_attrs *attrs = plan->attrs;
    const bool with_lse = plan->kind == IK_OP_ATTENTION_LSE;
    const uint32_t in = with_lse ? 2 : 1;
    const ik_tensor *t = plan->tensors;
    job j = { .ty = &t[0], .tq = &t[in], .tk = &t[in + 1], .tv = &t[in + 2] };
    j.tlse = with_lse ? &t[1] : NULL;
    const bool paged = plan->kind == IK_OP_PAGED_ATTENTION;
    j.tmask = !paged && ik_present(plan, in + 3) ? &t[in + 3] : NULL;
    j.tlengths = ik_present(plan, in + 4) ? &t[in + 4] : NULL;
    j.tshown = !paged && ik_present(plan, in + 5) ? &t[in + 5] : NULL;
    j.tsinks = ik_present(plan, in + (paged ? 5 : 6)) ? &t[in + (paged ? 5 : 6)] : NULL;
    j.talibi = ik_present(plan, in + (paged ? 6 : 7)) ? &t[in + (paged ? 6 : 7)] : NULL;
    j.ttable = paged ? &t[in + 3] : NULL;
    j.page = paged ? j.tk->shape[1] : 0;
    j.b = j.tq->shape[0], j.m = j.tq->shape[1], j.h = j.tq->shape[2], j.d = j.tq->shape[3];
    j.s = paged ? j.page * j.ttable->shape[1] : j.tk->shape[1], j.g = j.tk->shape[2], j.e = j.tv->shape[3];
    j.shared = j.g == 0 ? 0 : j.h / j.g;
    j.rows = j.m * j.shared;
    j.packed = j.rows > FEW;
    j.tile_rows = j.packed ? MANY : FEW;
    j.tiles = ik_ceil_div(j.rows, j.tile_rows);
    const int64_t tasks = j.b * j.g * j.tiles, wanted = 2 * ik_threads();
    j.parts = tasks == 0 || tasks >= wanted ? 1 : ik_max(1, ik_min(ik_ceil_div(wanted, tasks), j.s / PART));
    j.q_row = ik_round_up(j.d, 16);
    j.wide = ik_round_up(ik_max(j.e, 1), panel_width_f32);
    j.scale = attrs->scale != 0 ? (float)attrs->scale : (float)(1 / ik_sqrt_f64((double)ik_max(j.d, 1)));
    j.softcap = (float)attrs->softcap;
    j.window = attrs->window;
    j.causal = attrs->causal != 0;
    const int64_t for_rows = j.tile_rows * (j.q_row + BLOCK + j.wide) + 2 * ik_round_up(j.tile_rows, 16),
                  for_keys = BLOCK * (j.d + j.wide + ik_max(j.d, j.e));
    j.scratch_bytes = ik_round_up((for_rows + for_keys) * (int64_t)sizeof(float), 64);
    j.partial_bytes = j.parts == 1 ? 0 : ik_round_up(j.tile_rows * (j.wide + 2) * (int64_t)sizeof(float), 64);
    atomic_init(&j.bad_sequence, INT64_MAX);
    return j;
}

static int64_t tasks_of(const job *j) { return j->b * j->g * j->tiles * j->parts; }

static scratch scratch_of(const job *j, int32_t worker)
{
    scratch r = { .q = (float *)(void *)(j->thread_scratch + worker * j->scratch_bytes) };
    r.scores = r.q + j->tile_rows * j->q_row;
    r.sums = r.scores + j->tile_rows * BLOCK;
    r.max = r.sums + j->tile_rows * j->wide;
    r.total = r.max + ik_round_up(j->tile_rows, 16);
    r.keys = r.total + ik_round_up(j->tile_rows, 16);
    r.values = r.keys + BLOCK * j->d;
    r.converted = r.values + BLOCK * j->wide;
    return r;
}

/* Some rows of a sequence and a head of k: row i of the tile is that of query[i] and head[i]. */
typedef struct tile {
    int64_t b, group, rows;
    int64_t query[MANY], head[MANY];
} tile;

static tile tile_at(const job *j, int64_t number)
{
    const int64_t first = number % j->tiles * j->tile_rows;
    tile t = {
        .b = number / j->tiles / j->g, .group = number / j->tiles % j->g, .rows = ik_min(j->tile_rows, j->rows - first)
    };
    for (int64_t i = 0; i < t.rows; i++) {
        t.query[i] = (first + i) / j->shared;
        t.head[i] = t.group * j->shared + (first + i) % j->shared;
    }
    return t;
}
#endif
