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
    PART = 512, /* keys of a part at least, where it is of one head of k */
    ADJACENT = 4096, /* bytes of heads of k that lie side by side, and whose keys are read together */
    HEADS = 16, /* of k, that are read together at most */
    STEP = 32, /* keys of all those heads that are read at one time */
    NEAR = 1 << 21 /* bytes of keys that stay in a processor's caches, where heads are read one by one */
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
    int64_t together, bundles; /* heads of k of a task, and how many tasks' worth of them there are */
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

/* The scratch of a thread. What is of each head of k is that of the first one. */
typedef struct scratch {
    float *q; /* [together, tile_rows, q_row] */
    float *sums; /* [together, tile_rows, wide] */
    float *scores; /* [together, tile_rows, BLOCK]: scores, then weights */
    float *max, *total; /* [together, tile_rows] */
    float *keys; /* [BLOCK / panel_width][d, panel_width]: packed keys */
    float *values; /* [BLOCK, wide]: packed values */
    float *converted; /* [BLOCK, d or e]: keys or values as F32 */
} scratch;

/* Whether kernels of few rows read keys or values where they lie: floats of a dtype that they have vectors of. */
static bool is_read_in_place(const ik_tensor *t)
{ return t->strides[3] == 1 && ik_itemsize(t->dtype) > 1 && ik_has_vectors(t->dtype); }

/* How many heads of k a task reads. Those whose rows lie side by side are read together, some keys at a time: one alone
 * is a short run of bytes in each page of memory, and all of those fall into the same sets of the first cache. */
static int64_t find_adjacent(const job *j)
{
    const int64_t *k = j->k.strides, *v = j->v.strides;
    if (j->tile_rows > FEW || j->g <= 1 || !is_read_in_place(&j->k) || !is_read_in_place(&j->v))
        return 1;
    if (k[2] <= 0 || k[2] >= k[1] || v[2] <= 0 || v[2] >= v[1] || j->s * k[1] * ik_itemsize(j->k.dtype) < NEAR)
        return 1;
    const int64_t fitting =
        ADJACENT / ik_itemsize(j->k.dtype) / ik_max(k[2], v[2]); /* strides of nothing may overflow a product */
    return ik_max(1, ik_min(ik_min(j->g, HEADS), fitting));
}

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
    j.together = find_adjacent(&j);
    j.bundles = ik_ceil_div(j.g, j.together);
    const int64_t tasks = j.b * j.bundles * j.tiles, wanted = 2 * ik_threads(), shortest = PART / j.together;
    j.parts = tasks == 0 || tasks >= wanted ? 1 : ik_max(1, ik_min(ik_ceil_div(wanted, tasks), j.s / shortest));
    j.q_row = ik_round_up(j.d, 16);
    j.wide = ik_round_up(ik_max(j.e, 1), panel_width_f32);
    j.scale = attrs.scale != 0 ? (float)attrs.scale : (float)(1 / ik_sqrt_f64((double)ik_max(j.d, 1)));
    j.softcap = (float)attrs.softcap;
    j.window = attrs.window;
    j.causal = attrs.causal != 0;
    const int64_t rows = j.together * j.tile_rows;
    const int64_t for_rows = rows * (j.q_row + j.wide + BLOCK) + 2 * ik_round_up(rows, 16),
                  for_keys = BLOCK * (j.d + j.wide + ik_max(j.d, j.e));
    j.ends_bytes = ik_round_up(2 * ik_max(0, j.sequences) * (int64_t)sizeof(int64_t), 64);
    j.scratch_bytes = ik_round_up((for_rows + for_keys) * (int64_t)sizeof(float), 64);
    j.partial_bytes = j.parts == 1 ? 0 : ik_round_up(rows * (j.wide + 2) * (int64_t)sizeof(float), 64);
    atomic_init(&j.bad_sequence, INT64_MAX);
    return j;
}

static int64_t tasks_of(const job *j) { return j->b * j->bundles * j->tiles * j->parts; }

static scratch scratch_of(const job *j, int32_t worker)
{
    const int64_t rows = j->together * j->tile_rows;
    scratch r = { .q = (float *)(void *)(j->thread_scratch + worker * j->scratch_bytes) };
    r.sums = r.q + rows * j->q_row;
    r.scores = r.sums + rows * j->wide;
    r.max = r.scores + rows * BLOCK;
    r.total = r.max + ik_round_up(rows, 16);
    r.keys = r.total + ik_round_up(rows, 16);
    r.values = r.keys + BLOCK * j->d;
    r.converted = r.values + BLOCK * j->wide;
    return r;
}

/* The same scratch, for head of k `own` of a task. */
static scratch scratch_of_head(const job *j, const scratch *r, int64_t own)
{
    scratch of_head = *r;
    of_head.q += own * j->tile_rows * j->q_row;
    of_head.sums += own * j->tile_rows * j->wide;
    of_head.scores += own * j->tile_rows * BLOCK;
    of_head.max += own * j->tile_rows, of_head.total += own * j->tile_rows;
    return of_head;
}

/* The maximum, total and sums of a row of a task's head of k `own`. */
static float *partial_of(const job *j, int64_t task, int64_t own, int64_t row)
{
    float *rows = (float *)(void *)(j->partial + task * j->partial_bytes);
    return rows + (own * j->tile_rows + row) * (j->wide + 2);
}

/* Some rows of a sequence and `groups` heads of k from `group` on: row i of the first one's is that of query[i] and
 * head[i]. The rows of packed queries may be of several sequences. */
typedef struct tile {
    int64_t b, group, groups, rows;
    int64_t query[MANY], head[MANY];
} tile;

static tile tile_at(const job *j, int64_t number)
{
    const int64_t first = number % j->tiles * j->tile_rows, bundle = number / j->tiles;
    tile t;
    t.b = bundle / j->bundles, t.group = bundle % j->bundles * j->together;
    t.groups = ik_min(j->together, j->g - t.group), t.rows = ik_min(j->tile_rows, j->rows - first);
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
    part.b = t->b, part.group = t->group, part.groups = t->groups, part.rows = end - begin;
    memcpy(part.query, t->query + begin, (size_t)part.rows * sizeof *part.query);
    memcpy(part.head, t->head + begin, (size_t)part.rows * sizeof *part.head);
    return part;
}

/* The rows of head of k `own` of a tile. */
static tile tile_of_head(const job *j, const tile *t, int64_t own)
{
    tile part = rows_of(t, 0, t->rows);
    part.group += own, part.groups = 1;
    for (int64_t i = 0; i < part.rows; i++)
        part.head[i] += own * j->shared;
    return part;
}
#endif
