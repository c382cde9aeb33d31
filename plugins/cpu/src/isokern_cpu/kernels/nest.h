/* The loops of generic.c over tiles: the inputs of a tile are fetched, the body runs over it (program.h), and the
 * results go to y or to accumulators.
 *
 *     y[k] = body(x[k])                      without a reduction: `map` in generic.c
 *     y[k] = init[k] + Σ_r body(x[k, r])     or their product, maximum or minimum
 *
 * The lanes of a tile are outputs or terms:
 *
 *     accumulate_columns    for each term: for a run of outputs: acc[lane] += body       a lane is an output
 *     accumulate_lines      for each output: for a run of terms: acc[lane] += body       a lane is a term; the lanes
 *                                                                                        are added up at the end
 *
 * An input that is contiguous and has the compute type is read in place. Others are converted to a tile, each from a
 * dtype of its own, and the tile is used again for as long as the same elements are wanted.
 *
 * Sums of floats are made in the compute type for GROUP tiles, and in F64 without loss over the groups, so that the
 * error does not grow with the number of terms. A group of F32 whose sum is not finite is added again tile by tile,
 * because a later group may make the whole sum finite. */
#ifndef IK_NEST_H
#define IK_NEST_H
#include "contract.h"
#include "program.h"

#include "isokern_mixed.h"
#include "operators/generic.h"

enum {
    TILE_BYTES = 4096,     /* bytes of a tile at most */
    LIVE_BYTES = 24 << 10, /* bytes of all tiles, which stay in the level-1 cache */
    PAD = 64,              /* bytes between tiles, so that they start in different sets of the cache */
    GROUP = 8,             /* tiles that are added up in the compute type */
    LINES = 64,            /* outputs of a task where lanes are terms */
    MAX_WIDTH = TILE_BYTES / sizeof(float),
    SCRATCH_BYTES = LIVE_BYTES + (IK_PLACES + 2) * PAD
};

/* A call, and how it is divided: the same for all threads. */
typedef struct job {
    const ik_plan *plan;
    int32_t inputs, kept, reduced; /* numbers of inputs, and of dims; a body's init is its last input */
    int32_t combine;               /* IK_GENERIC_SUM, …; IK_GENERIC_NONE without a reduction */
    int64_t combine_code;          /* the opcode that combines two values */
    int32_t compute;               /* the type in which the body computes */
    int64_t size, width;           /* bytes of an element of that type, lanes of a tile */
    ik_steps steps;                /* the body */
    bool float_sums;               /* results are added, and are floats */
    bool lanes_are_terms;
    bool contracts; /* a matrix product, which contract.h computes */
    bool stream;    /* y is written past the caches */
    ik_contraction contraction;
    int64_t outputs, terms;                   /* elements of y, and terms of each */
    int64_t span, spans, chunks, chunk_terms; /* a task is a span of the outputs and a chunk of their terms */
    char *y, *partial; /* partial: the results of chunks, 8 bytes each: [chunks][outputs], for sums high, then low */
    const char *init, *x[IK_PROGRAM_INPUTS];
} job;

/* The tensor of an input. */
static inline const ik_tensor *input_of(const job *j, int32_t i)
{ return &j->plan->tensors[j->combine == IK_GENERIC_NONE && 2 + i == (int32_t)j->plan->tensor_count ? 1 : 2 + i]; }

/* An input as a run of lanes, and what its tile contains. */
typedef struct source {
    ik_lanes lanes;
    bool in_place, piece; /* piece: the run lies in the innermost dim, so that one stride leads through it */
    int64_t at, offset;   /* the first lane, and its offset in bytes; 0 where the run is no piece */
    char *tile;
    const char *tile_from; /* the tile has tile_n lanes from tile_at on, of an input that starts here */
    int64_t tile_at, tile_n;
} source;

/* The state of a thread. */
typedef struct frame {
    const job *j;
    source x[IK_PROGRAM_INPUTS];
    void *place[IK_PLACES];
    char *acc, *out;                        /* two more tiles: accumulators, and results */
    int64_t lanes;                          /* lanes of acc in use */
    double high[MAX_WIDTH], low[MAX_WIDTH]; /* sums of floats, for each output of a task */
    const char *results;                    /* all other results of a task: acc or lines */
    char lines[LINES * sizeof(double)];
    char scratch[SCRATCH_BYTES] __attribute__((aligned(64)));
} frame;

static void open_frame(frame *f, const job *j)
{
    const int32_t first = j->lanes_are_terms ? j->kept : 0, dims = j->lanes_are_terms ? j->reduced : j->kept;
    const int64_t step = j->width * j->size + PAD;
    char *next = f->scratch;
    f->j = j;
    for (int32_t i = 0; i < j->inputs; i++, next += step) {
        f->x[i] = (source){ .lanes = ik_lanes_of(input_of(j, i), j->compute, first, dims), .tile = next };
        f->place[i] = next;
    }
    for (int32_t i = 0; i < j->steps.constants; i++, next += step) {
        f->place[IK_PROGRAM_INPUTS + i] = next;
        ik_spread(j->size, &j->steps.constant[i], j->width, next);
    }
    for (int32_t i = 0; i < j->steps.depth; i++, next += step)
        f->place[IK_STACK + i] = next;
    for (int32_t i = 0; i < j->steps.kept; i++, next += step)
        f->place[IK_KEEP + i] = next;
    f->acc = next;
    f->out = next + step;
}

/* Select lanes at .. at + n of an input, for all that follows. */
static void select_lanes(source *s, int64_t at, int64_t n)
{
    const ik_lanes *l = &s->lanes;
    const int64_t last = l->dims - 1;
    s->at = l->still ? 0 : at;
    s->piece = l->still || at % l->shape[last] + n <= l->shape[last];
    s->in_place = l->dtype == l->compute && (l->dense || (s->piece && l->strides[last] == 1));
    s->offset = s->in_place || s->piece ? ik_lanes_offset(l, s->at) * l->size : 0;
}

static inline __attribute__((always_inline)) void load_piece(
    int32_t compute, int32_t dtype, char *memory, int64_t stride, int64_t n, char *to)
{ ik_load_mixed(compute, dtype, memory, stride, n, to); }

static inline __attribute__((always_inline)) void store_piece(
    int32_t compute, int32_t dtype, char *memory, int64_t stride, int64_t n, char *from)
{ ik_store_mixed(compute, dtype, from, memory, stride, n); }

/* As ik_lanes_load and ik_lanes_store of walk.h, for any type. */
static __attribute__((noinline)) void load_lanes(const ik_lanes *l, const char *base, int64_t at, int64_t n, void *to)
{ ik_walk(l, (char *)(uintptr_t)base, at, n, to, load_piece); }

static __attribute__((noinline)) void store_lanes(
    const ik_lanes *l, char *base, int64_t at, int64_t n, const void *from)
{ ik_walk(l, base, at, n, (char *)(uintptr_t)from, store_piece); }

/* Return those lanes in the compute type, where lane 0 is at `base`. */
static const void *fetch(source *s, const char *base, int64_t n)
{
    const ik_lanes *l = &s->lanes;
    const char *from = base + s->offset;
    if (s->in_place)
        return from;
    if (from == s->tile_from && s->at == s->tile_at && n <= s->tile_n)
        return s->tile;
    if (l->still) {
        ik_number one;
        ik_load_mixed(l->compute, l->dtype, from, 1, 1, &one);
        ik_spread(ik_width(l->compute), &one, n, s->tile);
    } else if (s->piece) {
        ik_load_mixed(l->compute, l->dtype, from, l->strides[l->dims - 1], n, s->tile);
    } else {
        load_lanes(l, base, s->at, n, s->tile);
    }
    s->tile_from = from, s->tile_at = s->at, s->tile_n = n;
    return s->tile;
}

static void fetch_inputs(frame *f, const char *const *base, int64_t n)
{
    for (int32_t i = 0; i < f->j->inputs; i++)
        f->place[i] = (void *)(uintptr_t)fetch(&f->x[i], base[i], n);
}

/* acc = body, or acc = combine(acc, body), for the n lanes that were fetched. */
static void accumulate_tile(frame *f, int64_t n, bool first)
{
    const job *j = f->j;
    const void *made = ik_evaluate(&j->steps, n, f->place, first ? f->acc : f->out);
    if (!first) {
        const void *in[3] = { f->acc, made };
        ik_run_tile(j->compute, j->combine_code, n, in, f->acc);
        return;
    }
    if (made != f->acc)
        memcpy(f->acc, made, (size_t)(n * j->size));
    f->lanes = n;
}

/* Whether sums of F32 are no longer finite. */
static bool overflows(const frame *f)
{
    const float *acc = (const float *)(const void *)f->acc;
    const int64_t n = f->j->float_sums && f->j->compute == IK_F32 ? f->lanes : 0;
    int bad = 0;
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        bad |= acc[i] - acc[i] != 0;
    return bad;
}

/* Add acc to the sums, lane by lane. */
static void add_columns(frame *f)
{
    if (f->j->compute == IK_F32) {
        const float *acc = (const float *)(const void *)f->acc;
        IK_VECTORISE for (int64_t i = 0; i < f->lanes; i++)
            f->high[i] += (double)acc[i];
    } else {
        const double *acc = (const double *)(const void *)f->acc;
        IK_VECTORISE for (int64_t i = 0; i < f->lanes; i++)
            ik_add_double(&f->high[i], &f->low[i], acc[i], true);
    }
}

/* Combine the lanes of acc into its first, by halves. */
static void fold_lanes(frame *f)
{
    const job *j = f->j;
    for (int64_t n = f->lanes; n > 1; n -= n / 2) {
        const void *in[3] = { f->acc, f->acc + (n - n / 2) * j->size };
        ik_run_tile(j->compute, j->combine_code, n / 2, in, f->acc);
    }
    f->lanes = 1;
}

static double value_of(const job *j, const char *at)
{ return j->compute == IK_F32 ? (double)*(const float *)(const void *)at : *(const double *)(const void *)at; }

/* Sum lanes of F32 in F64. */
static double sum_lanes(const frame *f)
{
    enum { PARTS = 16 };
    const float *acc = (const float *)(const void *)f->acc;
    double part[PARTS] = { 0 }, sum = 0;
    for (int64_t i = 0; i < f->lanes; i++)
        part[i % PARTS] += (double)acc[i];
    for (int64_t i = 0; i < PARTS; i++)
        sum += part[i];
    return sum;
}

static void clear_sums(frame *f, int64_t n)
{
    memset(f->high, 0, (size_t)n * sizeof *f->high);
    memset(f->low, 0, (size_t)n * sizeof *f->low);
}

/* A term: its indices in the reduced dims, and where lane 0 of each input is there. */
typedef struct cursor {
    const char *base[IK_PROGRAM_INPUTS];
    int64_t index[IK_MAX_RANK];
} cursor;

static cursor find_term(const job *j, int64_t term)
{
    const ik_tensor *x = &j->plan->tensors[2];
    cursor c = { .base = { NULL } };
    for (int32_t i = 0; i < j->inputs; i++) {
        const ik_lanes terms = ik_lanes_of(&x[i], j->compute, j->kept, j->reduced);
        c.base[i] = j->x[i] + ik_lanes_offset(&terms, term) * terms.size;
    }
    for (int32_t d = j->reduced - 1; d >= 0; d--) {
        c.index[d] = term % x->shape[j->kept + d];
        term /= x->shape[j->kept + d];
    }
    return c;
}

/* Advance the indices, innermost dim first; after the last term comes the first. */
static void advance(const frame *f, cursor *c)
{
    const job *j = f->j;
    const ik_tensor *x = &j->plan->tensors[2];
    for (int32_t d = j->reduced - 1; d >= 0; d--) {
        const bool wraps = ++c->index[d] == x->shape[j->kept + d];
        for (int32_t i = 0; i < j->inputs; i++)
            c->base[i] += x[i].strides[j->kept + d] * (wraps ? 1 - c->index[d] : 1) * f->x[i].lanes.size;
        if (!wraps)
            return;
        c->index[d] = 0;
    }
}

/* Combine `count` terms, from term `begin` on, of each of the outputs first .. first + n; a lane is an output. */
static void accumulate_columns(frame *f, int64_t first, int64_t n, int64_t begin, int64_t count)
{
    const job *j = f->j;
    int64_t group = j->float_sums ? GROUP : count;
    cursor c = find_term(j, begin);
    for (int32_t i = 0; i < j->inputs; i++)
        select_lanes(&f->x[i], first, n);
    for (int64_t done = 0, end; done < count; done = end) {
        const cursor start = c;
        end = ik_min(count, done + group);
        for (int64_t term = done; term < end; term++) {
            fetch_inputs(f, c.base, n);
            accumulate_tile(f, n, term == done);
            advance(f, &c);
        }
        if (group > 1 && overflows(f))
            group = 1, end = done, c = start; /* again, tile by tile */
        else if (j->float_sums)
            add_columns(f);
    }
    f->results = f->acc;
}

/* Combine the same; a lane is a term. */
static void accumulate_lines(frame *f, int64_t first, int64_t n, int64_t begin, int64_t count)
{
    const job *j = f->j;
    const char *base[IK_PROGRAM_INPUTS];
    for (int64_t output = 0; output < n; output++) {
        for (int32_t i = 0; i < j->inputs; i++) {
            const ik_lanes kept = ik_lanes_of(&j->plan->tensors[2 + i], j->compute, 0, j->kept);
            base[i] = j->x[i] + ik_lanes_offset(&kept, first + output) * kept.size;
        }
        bool overflowed = false;
        for (int64_t done = 0, end; done < count; done = end) {
            end = ik_min(count, done + (overflowed ? j->width : j->float_sums ? GROUP * j->width : count));
            for (int64_t at = done, run; at < end; at += run) {
                run = ik_min(j->width, end - at);
                for (int32_t i = 0; i < j->inputs; i++)
                    select_lanes(&f->x[i], begin + at, run);
                fetch_inputs(f, base, run);
                accumulate_tile(f, run, at == done);
            }
            if (overflowed) {
                ik_add_double(&f->high[output], &f->low[output], sum_lanes(f), true);
                continue;
            }
            fold_lanes(f);
            if (overflows(f))
                overflowed = true, end = done; /* again, tile by tile */
            else if (j->float_sums)
                ik_add_double(&f->high[output], &f->low[output], value_of(j, f->acc), true);
        }
        memcpy(f->lines + output * j->size, f->acc, (size_t)j->size);
    }
    f->results = f->lines;
}

#endif
