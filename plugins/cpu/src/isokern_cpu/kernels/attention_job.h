/* The parameters of attention in all its forms, the rows of its tasks, and a thread's scratch. */
#ifndef IK_ATTENTION_JOB_H
#define IK_ATTENTION_JOB_H
#include <stdatomic.h>

#include "attention_forms.h"
#include "blocks.h"
#include "gemm_core.h"

#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_tile.h"
#include "gemm_dots.h"
#undef IK_T
#undef IK_OF

#define INFINITE __builtin_inff()

enum {
    BLOCK = 128, /* keys that are processed at one time: 64 take 1.1 times as long */
    FEW = 8, /* rows that are not worth packing keys for */
    MANY = 6 * IK_TILE_ROWS, /* rows of a tile if there are more: of 14, 28 rows took 1.2 times as long, 112 no less */
    PART = 512 /* keys of a part at least */
};

typedef struct job {
    ik_tensor y, q, k,
        v; /* [b, m, h, e], [b, m, h, d], [b, s, g, d], [b, s, g, e]; k and v of pages [page, row, g, …] */
    char *to, *lse;
    const char *of_q, *of_k, *of_v;
    operand mask, lengths, seen, sinks, alibi, table, starts, key_starts;
    const ik_tensor *tlse;
    int64_t page; /* keys of a page; 0 where keys are not in pages */
    int64_t sequences; /* of packed queries; -1 where queries are not packed */
    int64_t b, m, h, d, s, g, e; /* the dims above; s: of pages, the keys that a table has room for */
    int64_t shared; /* heads of q for each head of k */
    int64_t rows, tiles, tile_rows, parts; /* of a sequence and a head of k */
    int64_t q_row, wide; /* d and e, rounded up to whole vectors and panels */
    float scale, softcap;
    int64_t window;
    bool causal;
    int64_t *ends, *key_ends; /* where the packed sequences end, in order */
    char *thread_scratch, *partial; /* partial: for each task, its rows' max, total and sums */
    int64_t ends_bytes, scratch_bytes, partial_bytes;
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
    const form *f = find_form(plan->kind);
    const common_attrs attrs = attrs_of(f, plan->attrs);
    const ik_tensor *t = plan->tensors;
    job j = { .y = with_four_dims(&t[0], 0),
        .q = with_four_dims(&t[f->q], 0),
        .k = with_four_dims(&t[f->k], f->latent ? 2 : 0),
        .v = with_four_dims(&t[f->v], f->latent ? 2 : 0),
        .tlse = f->lse != 0 ? &t[f->lse] : NULL };
    j.b = j.q.shape[0], j.m = j.q.shape[1], j.h = j.q.shape[2], j.d = j.q.shape[3];
    j.g = j.k.shape[2], j.e = j.v.shape[3] = j.y.shape[3]; /* a latent's value is its beginning */
    j.page = f->table != 0 ? j.k.shape[1] : 0;
    j.s = f->table != 0 ? j.page * t[f->table].shape[1] : j.k.shape[1];
    j.sequences = f->starts != 0 ? t[f->starts].shape[0] - 1 : -1;
    j.shared = j.g == 0 ? 0 : j.h / j.g;
    j.rows = j.m * j.shared;
    j.tile_rows = j.rows > FEW ? MANY : FEW;
    j.tiles = ik_ceil_div(j.rows, j.tile_rows);
    const int64_t tasks = j.b * j.g * j.tiles, wanted = 2 * ik_threads();
    j.parts = tasks == 0 || tasks >= wanted ? 1 : ik_max(1, ik_min(ik_ceil_div(wanted, tasks), j.s / PART));
    j.q_row = ik_round_up(j.d, 16);
    j.wide = ik_round_up(ik_max(j.e, 1), panel_width_f32);
    j.scale = attrs.scale != 0 ? (float)attrs.scale : (float)(1 / ik_sqrt_f64((double)ik_max(j.d, 1)));
    j.softcap = (float)attrs.softcap;
    j.window = attrs.window;
    j.causal = attrs.causal != 0;
    const int64_t for_rows = j.tile_rows * (j.q_row + BLOCK + j.wide) + 2 * ik_round_up(j.tile_rows, 16),
                  for_keys = BLOCK * (j.d + j.wide + ik_max(j.d, j.e));
    j.ends_bytes = ik_round_up(2 * ik_max(0, j.sequences) * (int64_t)sizeof(int64_t), 64);
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

/* Some rows of a sequence and a head of k: row i of the tile is that of query[i] and head[i]. The rows of packed
 * queries may be of several sequences. */
typedef struct tile {
    int64_t b, group, rows;
    int64_t query[MANY], head[MANY];
} tile;

static tile tile_at(const job *j, int64_t number)
{
    const int64_t first = number % j->tiles * j->tile_rows;
    tile t;
    t.b = number / j->tiles / j->g, t.group = number / j->tiles % j->g, t.rows = ik_min(j->tile_rows, j->rows - first);
    for (int64_t i = 0; i < t.rows; i++) {
        t.query[i] = (first + i) / j->shared;
        t.head[i] = t.group * j->shared + (first + i) % j->shared;
    }
    return t;
}

/* Rows begin .. end - 1 of a tile. */
static tile rows_of(const tile *t, int64_t begin, int64_t end)
{
    tile part;
    part.b = t->b, part.group = t->group, part.rows = end - begin;
    memcpy(part.query, t->query + begin, (size_t)part.rows * sizeof *part.query);
    memcpy(part.head, t->head + begin, (size_t)part.rows * sizeof *part.head);
    return part;
}
#endif
