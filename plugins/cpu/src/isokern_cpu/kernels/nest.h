/* The loops of generic.c: tiles of inputs, and what the body computes from them, which goes to y or to accumulators.
 *
 * An input that is contiguous in the compute type is read in place; others are copied to a tile, which is reused while
 * its lanes stay the same. Floats are added up to FLUSH at a time, then in F64 without loss, so that the error grows
 * with the logarithm of the tile. */
#ifndef IK_NEST_H
#define IK_NEST_H
#include "contract.h"
#include "program.h"

enum {
    TILE_BYTES = 4096,
    LIVE_BYTES = 24 << 10,
    LINES = 64,
    FLUSH = 8,
    FEW = 16,
    CHUNK = 1 << 15,
    MAX_WIDTH = TILE_BYTES / sizeof(float)
};
/* PAD: tiles start in different sets of the cache. */
enum { PAD = 64, SCRATCH_BYTES = LIVE_BYTES + (IK_PLACES + 2) * PAD };

typedef struct job {
    const ik_plan *plan;
    int32_t compute, combine, inputs, kept, reduced;
    bool sums, lines, stream, contracts; /* sums: the result is a sum of floats */
    int64_t width, size;      /* elements of a tile, bytes of one element */
    int64_t outputs, length;  /* length: terms of an output */
    int64_t span, tiles, chunks, per_chunk;
    char *y, *parts; /* parts: [chunks][outputs] of high, then of low */
    const char *init, *x[IK_PROGRAM_INPUTS];
    int64_t join; /* the opcode that combines two values */
    ik_contraction contraction;
    ik_steps steps;
} job;

/* An input as the lanes see it, and what its tile contains. */
typedef struct source {
    ik_lanes lanes;
    bool in_place, piece; /* piece: the run is within the innermost dim */
    int64_t at, offset, tile_at, tile_n;
    const char *tile_from;
    char *tile;
} source;

typedef struct frame {
    const job *j;
    source x[IK_PROGRAM_INPUTS];
    void *place[IK_PLACES];
    char *acc, *out;
    const char *made; /* results that are not sums of floats */
    int64_t waiting, lanes;
    double high[MAX_WIDTH], low[MAX_WIDTH];
    char lines[LINES * sizeof(double)];
    char scratch[SCRATCH_BYTES] __attribute__((aligned(64)));
} frame;

static void open_frame(frame *f, const job *j)
{
    const int32_t first = j->lines ? j->kept : 0, dims = j->lines ? j->reduced : j->kept;
    char *next = f->scratch;
    f->j = j;
    for (int32_t i = 0; i < j->inputs; i++, next += j->width * j->size + PAD) {
        f->x[i] = (source){ .lanes = ik_lanes_of(&j->plan->tensors[2 + i], j->compute, first, dims), .tile = next };
        f->place[i] = next;
    }
    for (int32_t i = 0; i < j->steps.constants; i++, next += j->width * j->size + PAD) {
        f->place[IK_PROGRAM_INPUTS + i] = next;
        ik_spread(j->size, &j->steps.constant[i], j->width, next);
    }
    for (int32_t i = 0; i < j->steps.depth; i++, next += j->width * j->size + PAD)
        f->place[IK_STACK + i] = next;
    for (int32_t i = 0; i < j->steps.kept; i++, next += j->width * j->size + PAD)
        f->place[IK_KEEP + i] = next;
    f->acc = next;
    f->out = next + j->width * j->size + PAD;
}

/* Select lanes at .. at + n of an input, for all that follows. */
static void aim(source *s, int64_t at, int64_t n)
{
    const ik_lanes *l = &s->lanes;
    const int64_t last = l->dims - 1;
    s->at = l->still ? 0 : at;
    s->piece = l->still || at % l->shape[last] + n <= l->shape[last];
    s->in_place = l->dtype == l->compute && (l->dense || (s->piece && l->strides[last] == 1));
    s->offset = s->in_place || s->piece ? ik_lanes_offset(l, s->at) * l->size : 0;
}

/* Return those lanes in the compute type, from element 0 at `base`. */
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
        ik_load(l->compute, l->dtype, from, 1, 1, &one);
        ik_spread(ik_width(l->compute), &one, n, s->tile);
    } else if (s->piece) {
        ik_load(l->compute, l->dtype, from, l->strides[l->dims - 1], n, s->tile);
    } else {
        ik_lanes_load(l, base, s->at, n, s->tile);
    }
    s->tile_from = from, s->tile_at = s->at, s->tile_n = n;
    return s->tile;
}

static void fetch_all(frame *f, const char *const *base, int64_t n)
{
    for (int32_t i = 0; i < f->j->inputs; i++)
        f->place[i] = (void *)(uintptr_t)fetch(&f->x[i], base[i], n);
}

/* high + low += x; the rounding error of high goes to low (Knuth's TwoSum). */
static inline void add_double(double *high, double *low, double x)
{
    double sum = *high + x, part = sum - *high;
    *low += (*high - (sum - part)) + (x - part);
    *high = sum;
}

/* Combine n terms with the accumulators. */
static void add_tile(frame *f, int64_t n)
{
    const job *j = f->j;
    if (f->waiting++ == 0) {
        const void *made = ik_evaluate(&j->steps, n, f->place, f->acc);
        if (made != f->acc)
            memcpy(f->acc, made, (size_t)(n * j->size));
        f->lanes = n;
    } else {
        const void *in[3] = { f->acc, ik_evaluate(&j->steps, n, f->place, f->out) };
        ik_run_tile(j->compute, j->join, n, in, f->acc);
    }
}

/* Whether F32 sums are no longer finite. */
static bool overflows(const frame *f)
{
    const float *acc = (const float *)(const void *)f->acc;
    const int64_t n = f->j->compute == IK_F32 ? f->lanes : 0;
    int bad = 0;
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        bad |= acc[i] - acc[i] != 0;
    return bad;
}

static void flush_columns(frame *f)
{
    if (f->j->compute == IK_F32) {
        const float *acc = (const float *)(const void *)f->acc;
        IK_VECTORISE for (int64_t i = 0; i < f->lanes; i++)
            f->high[i] += (double)acc[i];
    } else {
        const double *acc = (const double *)(const void *)f->acc;
        IK_VECTORISE for (int64_t i = 0; i < f->lanes; i++)
            add_double(&f->high[i], &f->low[i], acc[i]);
    }
    f->waiting = 0;
}

/* Combine the accumulators into one, the first of them, by halves. */
static void fold(frame *f)
{
    const job *j = f->j;
    for (int64_t n = f->lanes; n > 1; n -= n / 2) {
        const void *in[3] = { f->acc, f->acc + (n - n / 2) * j->size };
        ik_run_tile(j->compute, j->join, n / 2, in, f->acc);
    }
    f->waiting = 0;
}

static double value_of(const job *j, const char *at)
{ return j->compute == IK_F32 ? (double)*(const float *)(const void *)at : *(const double *)(const void *)at; }

/* Sum F32 accumulators in F64. */
static double fold_wide(frame *f)
{
    enum { PARTS = 16 };
    const float *acc = (const float *)(const void *)f->acc;
    double part[PARTS] = { 0 }, sum = 0;
    for (int64_t i = 0; i < f->lanes; i++)
        part[i % PARTS] += (double)acc[i];
    for (int64_t i = 0; i < PARTS; i++)
        sum += part[i];
    f->waiting = 0;
    return sum;
}

static void clear_sums(frame *f, int64_t n)
{
    memset(f->high, 0, (size_t)n * sizeof *f->high);
    memset(f->low, 0, (size_t)n * sizeof *f->low);
    f->waiting = 0;
}

/* The position of a walk over terms. */
typedef struct cursor {
    const char *base[IK_PROGRAM_INPUTS];
    int64_t index[IK_MAX_RANK], left;
} cursor;

/* Compute outputs at .. at + n from terms from .. from + count of each: lanes are outputs. */
static void columns(frame *f, int64_t at, int64_t n, int64_t from, int64_t count)
{
    const job *j = f->j;
    const ik_tensor *x = &j->plan->tensors[2];
    cursor c = { .left = count };
    for (int32_t i = 0; i < j->inputs; i++) {
        const ik_lanes terms = ik_lanes_of(&x[i], j->compute, j->kept, j->reduced);
        c.base[i] = j->x[i] + ik_lanes_offset(&terms, from) * terms.size;
        aim(&f->x[i], at, n);
    }
    for (int32_t d = j->reduced - 1; d >= 0; d--) {
        c.index[d] = from % x->shape[j->kept + d];
        from /= x->shape[j->kept + d];
    }
    f->made = f->acc;
    cursor mark = c; /* where the sums not yet flushed began */
    for (int64_t flush = FLUSH; c.left > 0;) {
        fetch_all(f, c.base, n);
        add_tile(f, n);
        for (int32_t d = j->reduced - 1; d >= 0 && c.left > 1; d--) { /* advance the indices, innermost dim first */
            bool wraps = ++c.index[d] == x->shape[j->kept + d];
            for (int32_t i = 0; i < j->inputs; i++)
                c.base[i] += x[i].strides[j->kept + d] * (wraps ? 1 - c.index[d] : 1) * f->x[i].lanes.size;
            if (!wraps)
                break;
            c.index[d] = 0;
        }
        c.left--;
        if (!j->sums || (f->waiting < flush && c.left > 0))
            continue;
        if (flush > 1 && overflows(f)) { /* add them again one by one: later terms may make the sum finite again */
            flush = 1, f->waiting = 0, c = mark;
            continue;
        }
        flush_columns(f);
        mark = c;
    }
}

/* Compute the same where lanes are terms. */
static void lines(frame *f, int64_t at, int64_t n, int64_t from, int64_t count)
{
    const job *j = f->j;
    const char *base[IK_PROGRAM_INPUTS];
    f->made = f->lines;
    for (int64_t output = 0; output < n; output++) {
        for (int32_t i = 0; i < j->inputs; i++) {
            ik_lanes kept = ik_lanes_of(&j->plan->tensors[2 + i], j->compute, 0, j->kept);
            base[i] = j->x[i] + ik_lanes_offset(&kept, at + output) * kept.size;
        }
        for (int64_t done = 0, mark = 0, flush = FLUSH, run; done < count;) {
            run = ik_min(j->width, count - done);
            for (int32_t i = 0; i < j->inputs; i++)
                aim(&f->x[i], from + done, run);
            fetch_all(f, base, run);
            add_tile(f, run);
            done += run;
            if (!j->sums || (f->waiting < flush && done < count))
                continue;
            const double wide = flush == 1 ? fold_wide(f) : 0;
            if (flush > 1)
                fold(f);
            f->lanes = 1;
            /* Add them again tile by tile: later terms may make the sum finite again. */
            if (flush > 1 && overflows(f)) {
                flush = 1, done = mark;
                continue;
            }
            add_double(&f->high[output], &f->low[output], flush > 1 ? value_of(j, f->acc) : wide);
            mark = done;
        }
        if (j->sums)
            continue;
        fold(f);
        memcpy(f->lines + output * j->size, f->acc, (size_t)j->size);
    }
}

#endif
