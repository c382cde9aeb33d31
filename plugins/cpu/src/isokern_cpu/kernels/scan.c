/* scan: y[row, t] = body(x[row, t] …, y[row, t - 1]), from init[row] or the attribute `initial` on.
 *
 * A tile has rows as lanes and steps as lines. The body's program (program.h) runs over one line after the other, each
 * with the line before as an operand. A tensor whose lanes are contiguous and of the compute type is read or written in
 * place; of others a tile is converted, line by line, or row by row and transposed, whichever walks along memory.
 *
 * Sums, products, extremes and linear steps have loops of their own (scan_row.h): over long lines where memory runs
 * along these, else along several rows at a time, since steps over a few lanes are slow, and transposing takes longer.
 * Steps over 4096 lines of 4096 floats take a third of what they take in the general tiles; along such rows, two thirds
 * of what four rows and stores through the caches took, and of F16 a third. */
#include "program.h"
#include "scan_row.h"
#include "transpose.h"
#include "operators/scan.h"

enum {
    LANES = 64,            /* rows of a tile */
    LINE_BYTES = 4096,     /* a line of sums and the like, where memory runs along all lines */
    FEW = 16,              /* with fewer rows for a thread, sums and the like are made along rows */
    LIVE_BYTES = 48 << 10, /* bytes of all tiles */
    PAD = 64,              /* bytes between tiles, so that they start in different sets of the cache */
    OPERANDS = IK_PROGRAM_INPUTS + 1,
    SCRATCH_BYTES = LIVE_BYTES + (IK_PLACES + OPERANDS + 2) * PAD
};

typedef struct job {
    const ik_plan *plan;
    int32_t inputs, compute, kind; /* kind: SUMS where the body adds the input and the value before, … */
    /* along: rows are walked along; lines: memory runs along the lines of all tiles; stream: y bypasses the caches */
    bool exclusive, along, lines, stream;
    int64_t size, rows, length, lanes, block; /* size: bytes of a value; a tile has `lanes` rows and `block` steps */
    int64_t inner; /* rows of which none are in a tile with others */
    ik_number initial;
    ik_steps steps;
    char *tensor[2 + IK_PROGRAM_INPUTS]; /* y, init, inputs */
} job;

/* A tensor as tiles of some rows. */
typedef struct operand {
    ik_lanes rows;
    int64_t step; /* elements between steps */
    bool by_rows; /* memory runs along a row rather than along a line */
    char *memory, *tile, *line; /* line: the first of the current tile, in memory or in `tile` */
    int64_t pitch; /* bytes between its lines */
    bool in_place;
} operand;

typedef struct frame {
    const job *j;
    operand y, x[IK_PROGRAM_INPUTS];
    void *place[IK_PLACES];
    char *state, *staging;
    char scratch[SCRATCH_BYTES] __attribute__((aligned(64)));
} frame;

static operand open_operand(const job *j, int32_t index, char *tile)
{
    const ik_tensor *t = &j->plan->tensors[index];
    const int32_t last = t->ndim - 1;
    operand o = { .rows = ik_lanes_of(t, j->compute, 0, last), .step = t->strides[last], .tile = tile };
    o.by_rows = ik_magnitude(o.step) < ik_magnitude(t->strides[last - 1]) || j->lanes == 1;
    o.memory = j->tensor[index];
    return o;
}

static void open_frame(frame *f, const job *j)
{
    const int64_t line = j->lanes * j->size, tile = j->block * line + PAD;
    char *next = f->scratch;
    f->j = j;
    f->y = open_operand(j, 0, next);
    for (int32_t i = 0; i < j->inputs; i++)
        f->x[i] = open_operand(j, 2 + i, next += tile);
    f->staging = next += tile;
    f->state = next += tile;
    next += line;
    for (int32_t i = 0; i < j->steps.constants; i++, next += line) {
        f->place[IK_PROGRAM_INPUTS + i] = next;
        ik_spread(j->size, &j->steps.constant[i], j->lanes, next);
    }
    for (int32_t i = 0; i < j->steps.depth; i++, next += line)
        f->place[IK_STACK + i] = next;
    for (int32_t i = 0; i < j->steps.kept; i++, next += line)
        f->place[IK_KEEP + i] = next;
}

/* Where a row's steps from `at` on are in memory. */
static char *find_steps(const operand *o, int64_t row, int64_t at)
{ return o->memory + (ik_lanes_offset(&o->rows, row) + at * o->step) * o->rows.size; }

/* Choose where the tile of n rows from `row` on, and steps from `at` on, is worked on. */
static void select_tile(const job *j, operand *o, int64_t row, int64_t n, int64_t at)
{
    char *place =
        n == 1 && o->rows.dtype == j->compute ? find_steps(o, row, 0) : ik_lanes_in_place(&o->rows, o->memory, row, n);
    if (j->stream && o->memory == j->tensor[0])
        place = NULL;
    o->in_place = place != NULL;
    o->line = o->in_place ? place + at * o->step * o->rows.size : o->tile;
    o->pitch = o->in_place ? o->step * o->rows.size : n * j->size;
}

static void load_tile(const frame *f, operand *o, int64_t row, int64_t n, int64_t at, int64_t count)
{
    const job *j = f->j;
    select_tile(j, o, row, n, at);
    for (int64_t t = at + count; j->stream && t < ik_min(j->length, at + 2 * count); t++)
        ik_prefetch(find_steps(o, row, t), n * o->rows.size);
    if (o->in_place)
        return;
    if (!o->by_rows) {
        for (int64_t t = 0; t < count; t++)
            ik_lanes_load(&o->rows, o->memory + (at + t) * o->step * o->rows.size, row, n, o->line + t * o->pitch);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ik_load(
            j->compute, o->rows.dtype, find_steps(o, row + i, at), o->step, count, f->staging + i * count * j->size);
    ik_transpose(j->size, count, n, o->tile, o->pitch, j->size, f->staging, j->size, count * j->size, false);
}

static void store_tile(const frame *f, operand *o, int64_t row, int64_t n, int64_t at, int64_t count)
{
    const job *j = f->j;
    if (o->in_place)
        return;
    if (j->stream) {
        for (int64_t t = 0; t < count; t++)
            ik_stream_copy(find_steps(o, row, at + t), o->line + t * o->pitch, n * j->size);
        return;
    }
    if (!o->by_rows) {
        for (int64_t t = 0; t < count; t++)
            ik_lanes_store(&o->rows, o->memory + (at + t) * o->step * o->rows.size, row, n, o->line + t * o->pitch);
        return;
    }
    ik_transpose(j->size, n, count, f->staging, count * j->size, j->size, o->tile, j->size, o->pitch, false);
    for (int64_t i = 0; i < n; i++)
        ik_store(
            j->compute, o->rows.dtype, f->staging + i * count * j->size, find_steps(o, row + i, at), o->step, count);
}

/* Step over the tile; the value before its first step is in `state`, and then the value after its last. */
static void step_over(frame *f, int64_t n, int64_t count)
{
    const job *j = f->j;
    const size_t line = (size_t)(n * j->size);
    if (j->kind != ANY) {
        const operand *x = &f->x[j->kind == LINEAR ? 1 : 0], *a = &f->x[0];
        const lines_of_rows lines = { x->line, a->line, f->y.line, x->pitch / j->size, a->pitch / j->size,
            f->y.pitch / j->size };
        step_lines(j->compute, n, j->kind, j->exclusive, &lines, count, f->state);
        return;
    }
    void *before = f->state;
    for (int64_t t = 0; t < count; t++) {
        char *y = f->y.line + t * f->y.pitch, *to = j->exclusive ? f->state : y;
        for (int32_t i = 0; i < j->inputs; i++)
            f->place[i] = f->x[i].line + t * f->x[i].pitch;
        f->place[j->inputs] = before;
        if (j->exclusive)
            memcpy(y, f->state, line);
        const void *made = ik_evaluate(&j->steps, n, f->place, to);
        if (made != to)
            memcpy(to, made, line);
        before = to;
    }
    if (before != f->state)
        memcpy(f->state, before, line);
}

/* Load the values before the first step of n rows. */
static void load_state(const job *j, int64_t row, int64_t n, char *state)
{
    const ik_tensor *start = &j->plan->tensors[1];
    if (j->tensor[1] == NULL) {
        ik_spread(j->size, &j->initial, n, state);
        return;
    }
    const ik_lanes init = ik_lanes_of(start, j->compute, 0, start->ndim - 1);
    ik_lanes_load(&init, j->tensor[1], row, n, state);
}

/* Where `count` steps of a row can be walked along: in memory, or in `buffer`, with `step` between them. */
static const char *fetch_steps(
    const job *j, const operand *o, int64_t row, int64_t at, int64_t count, char *buffer, int64_t *step)
{
    const char *from = find_steps(o, row, at);
    const bool in_place = o->rows.dtype == j->compute;
    *step = in_place ? o->step : 1;
    if (j->stream && at + 2 * count <= j->length && ik_magnitude(o->step) == 1)
        ik_prefetch(find_steps(o, row, at + (o->step < 0 ? 2 * count - 1 : count)), count * o->rows.size);
    if (in_place)
        return from;
    ik_load(j->compute, o->rows.dtype, from, o->step, count, buffer);
    return buffer;
}

/* Write n numbers of another type than they were computed in past the caches. */
static __attribute__((noinline)) void stream_narrow(const job *j, int32_t dtype, char *to, int64_t n, const char *from)
{
    char narrow[CHUNK];
    ik_store(j->compute, dtype, from, narrow, 1, n);
    ik_stream_copy(to, narrow, n * ik_itemsize(dtype));
}

/* Write the steps of a row from the buffer, where they lie as in memory where its steps are 1 or -1. */
static void put_steps(const job *j, const operand *o, int64_t row, int64_t at, int64_t count, const char *buffer)
{
    const bool back = o->step == -1;
    char *to = find_steps(o, row, back ? at + count - 1 : at);
    if (j->stream && o->rows.dtype != j->compute)
        stream_narrow(j, o->rows.dtype, to, count, buffer);
    else if (j->stream)
        ik_stream_copy(to, buffer, count * j->size);
    else
        ik_store(j->compute, o->rows.dtype, buffer, to, back ? 1 : o->step, count);
}

/* Walk along the rows of groups begin .. end, a chunk of steps at a time. */
static void walk_groups(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const bool linear = j->kind == LINEAR;
    const operand y = open_operand(j, 0, NULL), x = open_operand(j, linear ? 3 : 2, NULL), a = open_operand(j, 2, NULL);
    const int64_t chunk = CHUNK / j->size, step = y.step == -1 ? -1 : 1;
    run_of_rows f = { .step_a = 1 };
    _Alignas(64) char made[ROWS * ROW_PITCH], given[ROWS * ROW_PITCH], factors[ROWS * ROW_PITCH];
    _Alignas(8) char state[ROWS * sizeof(double)];
    for (int64_t row = begin * j->lanes; row < ik_min(j->rows, end * j->lanes); row += j->lanes) {
        const int64_t n = ik_min(j->lanes, j->rows - row);
        load_state(j, row, n, state);
        for (int64_t at = 0; at < j->length; at += chunk) {
            const int64_t count = ik_min(chunk, j->length - at);
            for (int64_t r = 0; r < n; r++) {
                f.x[r] = fetch_steps(j, &x, row + r, at, count, given + r * ROW_PITCH, &f.step_x);
                f.a[r] = f.x[r];
                if (linear)
                    f.a[r] = fetch_steps(j, &a, row + r, at, count, factors + r * ROW_PITCH, &f.step_a);
            }
            char *first = made + (step < 0 ? (count - 1) * j->size : 0);
            accumulate(j->compute, n, j->kind, j->exclusive, &f, first, step, count, state);
            for (int64_t r = 0; r < n; r++)
                put_steps(j, &y, row + r, at, count, made + r * ROW_PITCH);
        }
    }
    if (j->stream)
        ik_stream_fence();
}

/* Scan rows begin .. end, numbered by tiles. */
static void run(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    frame f;
    open_frame(&f, j);
    const int64_t tiles = ik_ceil_div(j->inner, j->lanes);
    for (int64_t tile = begin; tile < end; tile++) {
        const int64_t within = tile % tiles * j->lanes, n = ik_min(j->lanes, j->inner - within),
                      row = tile / tiles * j->inner + within;
        load_state(j, row, n, f.state);
        for (int64_t at = 0; at < j->length; at += j->block) {
            const int64_t count = ik_min(j->block, j->length - at);
            for (int32_t i = 0; i < j->inputs; i++)
                load_tile(&f, &f.x[i], row, n, at, count);
            select_tile(j, &f.y, row, n, at);
            step_over(&f, n, count);
            store_tile(&f, &f.y, row, n, at, count);
        }
    }
    if (j->stream)
        ik_stream_fence();
}

/* Whether a step takes two operands, in either order. */
static bool takes(const ik_step *step, int32_t a, int32_t b)
{ return (step->from[0] == a && step->from[1] == b) || (step->from[0] == b && step->from[1] == a); }

/* What a step is, by the program of the body. */
static int32_t kind_of(const job *j)
{
    const ik_step *first = j->steps.step, *second = first + 1;
    const bool product = first->code == IK_CODE_MUL, sum = first->code == IK_CODE_ADD;
    if (j->inputs == 1 && j->steps.count == 1 && takes(first, 0, 1)) {
        if (first->from[0] == 0 && !j->exclusive
            && (first->code == IK_CODE_FN_MAXIMUM || first->code == IK_CODE_FN_MINIMUM))
            return first->code == IK_CODE_FN_MAXIMUM ? MAXIMA : MINIMA;
        return sum ? SUMS : product ? PRODUCTS : ANY;
    }
    const bool linear = j->inputs == 2 && j->steps.count == 2 && product && second->code == IK_CODE_ADD;
    return linear && takes(first, 0, 2) && takes(second, first->to, 1) ? LINEAR : ANY;
}

static const char *set_up(const ik_plan *plan, job *j)
{
    const ik_scan_attrs *attrs = plan->attrs;
    const ik_tensor *y = &plan->tensors[0];
    *j = (job){ .plan = plan, .inputs = (int32_t)plan->tensor_count - 2, .exclusive = attrs->exclusive != 0 };
    if (j->inputs < 1 || j->inputs >= IK_PROGRAM_INPUTS || y->ndim < 2)
        return "a scan without one to seven inputs, or without rows";
    j->compute = ik_compute_of(y->dtype);
    j->size = ik_width(j->compute);
    j->initial = ik_number_of(j->compute, attrs->initial);
    const char *reason = ik_steps_of(&attrs->body, j->compute, j->inputs + 1, &j->steps);
    if (reason != NULL)
        return reason;
    j->kind = kind_of(j);
    j->length = y->shape[y->ndim - 1];
    j->rows = j->length > 0 ? ik_numel(y) / j->length : 0;
    bool by_lines = true, by_rows = true;
    for (uint32_t i = 0; i < plan->tensor_count && j->kind != ANY; i++) {
        const ik_tensor *t = &plan->tensors[i];
        const int64_t step = ik_magnitude(t->strides[t->ndim - 1]), apart = ik_magnitude(t->strides[t->ndim - 2]);
        by_lines &= i == 1 || apart == 1;
        by_rows &= i == 1 || step <= apart;
    }
    const int64_t share = ik_max(1, ik_ceil_div(j->rows, ik_threads())), inner = y->shape[y->ndim - 2];
    j->along = j->kind != ANY && (by_rows || share < FEW);
    j->lines = j->kind != ANY && !j->along && by_lines && (inner >= LANES || inner == j->rows);
    j->inner = j->lines ? inner : j->rows;
    j->lanes = ik_min(share, j->along ? ROWS : j->lines ? LINE_BYTES / j->size : LANES);
    j->stream = ik_numel(y) * ik_itemsize(y->dtype) > IK_STREAM_BYTES
        && (j->along ? ik_magnitude(y->strides[y->ndim - 1]) == 1 : j->lines && y->dtype == j->compute);
    const int64_t lines = LIVE_BYTES / (j->size * j->lanes) - j->steps.constants - j->steps.depth - j->steps.kept - 1;
    j->block = ik_max(1, ik_min(j->length, lines / (j->inputs + 2)));
    return NULL;
}

IK_SUPPORTED(scan)
{
    job j;
    return set_up(plan, &j);
}

IK_KERNEL(scan)
{
    IK_UNUSED;
    job j;
    const char *reason = set_up(plan, &j);
    if (reason != NULL)
        return ik_fail(IK_NOT_IMPLEMENTED, reason);
    for (int32_t i = 0; i < 2 + j.inputs; i++)
        j.tensor[i] = ik_ptr(plan, data, (uint32_t)i);
    const int64_t work = j.lanes * j.length * j.size * (1 + j.steps.count);
    const int64_t groups = j.rows / ik_max(1, j.inner) * ik_ceil_div(j.inner, j.lanes);
    ik_parallel_for(groups, 1 + IK_THREAD_BYTES / (1 + work), j.along ? walk_groups : run, &j);
    return IK_SUCCESS;
}
