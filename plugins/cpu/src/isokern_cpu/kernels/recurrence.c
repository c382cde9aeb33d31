/* recurrence: a step of RNN, GRU or LSTM after the other, h = cell(x + r h + bias). This file includes itself, for
 * float and for double.
 *
 * r is packed once: a panel has the rows of all gates for a vector of hidden units, one term of their sums after the
 * other. A task of a step is a panel, which all sequences read in turn, so that a unit's gates meet in registers:
 *
 *     for each step
 *         for each direction and panel                            a task
 *             for each sequence
 *                 sums[gate, unit] = Σ_k panel[k, gate, unit] h[k]
 *                 h'[unit], c[unit], y[unit] from these and x
 *
 * h is double, because all units of a step read the whole of it. GRU that resets h before the product has two tasks a
 * step: gates first, then the new state from what was reset. */
#ifndef IK_T
#include "gemm_tile.h"
#include "operators/gru_recurrence.h"
#include "operators/lstm_recurrence.h"
#include "operators/rnn_recurrence.h"

typedef ik_f32s vector_f32;
typedef ik_f64s vector_f64;

#if defined(__AVX512F__)
enum { ROWS = 4 }; /* sequences that share what is read of a panel */
#else
enum { ROWS = 2 };
#endif
enum { GATES = 4 };

/* The number of the tensors that all cells have, behind their outputs. */
enum { X, R, BIAS, INITIAL_H, LENGTHS, INITIAL_C, PEEPHOLES };

typedef struct job {
    const ik_plan *plan;
    void *const *data;
    uint32_t outputs;
    uint32_t kind;
    int64_t t, b, n, h, gates, lanes, blocks, padded; /* padded: h in whole vectors */
    int64_t step;
    int64_t direction; /* 0 forward, 1 reverse, 2 both */
    bool option;       /* relu of RNN, linear_before_reset of GRU */
    char *panels, *states[2], *cells, *kept, *update;
} job;

static const ik_tensor *input(const job *j, int32_t i) { return &j->plan->tensors[j->outputs + (uint32_t)i]; }
static bool given(const job *j, int32_t i) { return ik_present(j->plan, j->outputs + (uint32_t)i); }

/* The address of element [a, b, c, d] of a tensor of the plan; of fewer dims, the last ones are 0. */
static char *address_of(const job *j, uint32_t number, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const ik_tensor *t = &j->plan->tensors[number];
    const int64_t at[4] = { a, b, c, d };
    int64_t offset = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        offset += at[i] * t->strides[i];
    return (char *)ik_ptr(j->plan, j->data, number) + offset * ik_itemsize(t->dtype);
}

static char *input_at(const job *j, int32_t i, int64_t a, int64_t b, int64_t c, int64_t d)
{ return address_of(j, j->outputs + (uint32_t)i, a, b, c, d); }

static int64_t given_length(const job *j, int64_t sequence)
{ return ik_index_at(input(j, LENGTHS)->dtype, input_at(j, LENGTHS, sequence, 0, 0, 0), 0); }

/* How many steps a sequence has: none where its length is out of range. */
static int64_t length_of(const job *j, int64_t sequence)
{
    if (!given(j, LENGTHS))
        return j->t;
    const int64_t length = given_length(j, sequence);
    return length >= 0 && length <= j->t ? length : 0;
}

static job job_of(const ik_plan *plan)
{
    job j = { .plan = plan, .kind = plan->kind, .outputs = plan->kind == IK_OP_LSTM_RECURRENCE ? 3 : 2 };
    const ik_tensor *x = &plan->tensors[j.outputs + X];
    j.t = x->shape[0], j.b = x->shape[1], j.n = x->shape[2];
    j.h = plan->tensors[j.outputs + R].shape[2];
    j.lanes = IK_VECTOR / ik_itemsize(x->dtype);
    j.blocks = ik_ceil_div(j.h, j.lanes);
    j.padded = j.blocks * j.lanes;
    if (plan->kind == IK_OP_LSTM_RECURRENCE) {
        j.gates = 4;
        j.direction = ((const ik_lstm_recurrence_attrs *)plan->attrs)->direction;
    } else if (plan->kind == IK_OP_GRU_RECURRENCE) {
        const ik_gru_recurrence_attrs *attrs = plan->attrs;
        j.gates = 3, j.direction = attrs->direction, j.option = attrs->linear_before_reset != 0;
    } else {
        const ik_rnn_recurrence_attrs *attrs = plan->attrs;
        j.gates = 1, j.direction = attrs->direction, j.option = attrs->activation != 0;
    }
    return j;
}

/* Elements of all panels, and of a state. */
static int64_t panels_of(const job *j) { return j->n * j->padded * j->gates * j->h; }
static int64_t state_of(const job *j) { return j->n * j->b * j->padded; }

/* The states in the workspace: h before and after a step, and c of LSTM, or what GRU keeps between its tasks. */
static int64_t states_of(const job *j)
{ return j->kind == IK_OP_LSTM_RECURRENCE ? 3 : j->kind == IK_OP_GRU_RECURRENCE && !j->option ? 4 : 2; }

#define IK_FILE "recurrence.c"
#include "each_type.h"

IK_WORKSPACE(recurrence)
{
    const job j = job_of(plan);
    return (uint64_t)((panels_of(&j) + states_of(&j) * state_of(&j)) * ik_itemsize(input(&j, X)->dtype));
}

IK_KERNEL(recurrence)
{
    IK_UNUSED;
    job j = job_of(plan);
    const int64_t size = ik_itemsize(plan->tensors[j.outputs + X].dtype), bytes = state_of(&j) * size;
    j.data = data;
    j.panels = workspace;
    j.states[0] = j.panels + panels_of(&j) * size, j.states[1] = j.states[0] + bytes;
    j.cells = j.kept = j.states[1] + bytes, j.update = j.kept + bytes;
    if (bytes != 0) {
        if (size == sizeof(double))
            run_f64(&j);
        else
            run_f32(&j);
    }
    for (int64_t i = 0; i < j.b && given(&j, LENGTHS); i++) {
        const int64_t length = given_length(&j, i);
        if (length < 0 || length > j.t)
            return ik_bad_value(i, length);
    }
    return IK_SUCCESS;
}

#else

#define LANES (IK_VECTOR / (int64_t)sizeof(IK_T))
#include "recurrent_cells.h"

/* Pack panels begin to end, over directions and vectors of hidden units: [k, gate, unit]. */
static void IK_OF(pack)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const ik_tensor *r = input(j, R);
    for (int64_t task = begin; task < end; task++) {
        IK_T *panel = (IK_T *)(void *)j->panels + task * j->h * j->gates * LANES, run[IK_TILE];
        const int64_t d = task / j->blocks, first = task % j->blocks * LANES;
        for (int64_t gate = 0; gate < j->gates; gate++)
            for (int64_t unit = 0; unit < LANES; unit++)
                for (int64_t at = 0; at < j->h; at += IK_TILE) {
                    const int64_t n = ik_min(IK_TILE, j->h - at);
                    if (first + unit < j->h)
                        IK_OF(load)(
                            r->dtype, input_at(j, R, d, gate * j->h + first + unit, at, 0), r->strides[2], n, run);
                    else
                        memset(run, 0, sizeof run);
                    for (int64_t k = 0; k < n; k++)
                        panel[((at + k) * j->gates + gate) * LANES + unit] = run[k];
                }
    }
}

/* Load rows begin to end of a state, over directions and sequences; zeros where it is not given. */
static void IK_OF(begin_state)(const job *j, int32_t tensor, IK_T *state)
{
    memset(state, 0, (size_t)state_of(j) * sizeof *state);
    if (!given(j, tensor))
        return;
    for (int64_t row = 0; row < j->n * j->b; row++)
        IK_OF(load)(input(j, tensor)->dtype, input_at(j, tensor, row / j->b, row % j->b, 0, 0),
            input(j, tensor)->strides[2], j->h, state + row * j->padded);
}

static void IK_OF(end_state)(const job *j, uint32_t tensor, const IK_T *state)
{
    const ik_tensor *t = &j->plan->tensors[tensor];
    for (int64_t row = 0; row < j->n * j->b; row++)
        IK_OF(store)(t->dtype, state + row * j->padded, address_of(j, tensor, row / j->b, row % j->b, 0, 0),
            t->strides[2], j->h);
}

/* sums[row, gate, unit] = Σ_k panel[k, gate, unit] state[row, k], for `count` gates of the panel. */
static inline __attribute__((always_inline)) void IK_OF(multiply_rows)(const int rows, const int count, int64_t h,
    const IK_T *panel, int64_t panel_step, const IK_T *state, int64_t state_step, IK_T *sums)
{
    IK_OF(vector) acc[ROWS][GATES] = { 0 };
    for (int64_t k = 0; k < h; k++)
        for (int gate = 0; gate < count; gate++) {
            IK_OF(vector) w;
            memcpy(&w, panel + k * panel_step + gate * LANES, sizeof w);
            for (int row = 0; row < rows; row++)
                acc[row][gate] = IK_OF(fma)(IK_OF(splat)(state + row * state_step + k), w, acc[row][gate]);
        }
    for (int row = 0; row < rows; row++)
        memcpy(sums + row * GATES * LANES, acc[row], (size_t)count * sizeof acc[0][0]);
}

static void IK_OF(multiply)(int64_t rows, int64_t count, int64_t h, const IK_T *panel, int64_t panel_step,
    const IK_T *state, int64_t state_step, IK_T *sums)
{
#define CASE(r, c) \
    if (rows == (r) && count == (c)) \
        IK_OF(multiply_rows)(r, c, h, panel, panel_step, state, state_step, sums);
    CASE(ROWS, 1) CASE(ROWS, 2) CASE(ROWS, 3) CASE(ROWS, 4) CASE(1, 1) CASE(1, 2) CASE(1, 3) CASE(1, 4)
#undef CASE
}

/* What a task reads of a vector of hidden units: their rows of a matrix of `count` parts; zeros where it is absent. */
static void IK_OF(load_units)(const job *j, int32_t tensor, int64_t count, int64_t d, int64_t first, IK_T *to)
{
    memset(to, 0, (size_t)(count * LANES) * sizeof *to);
    for (int64_t i = 0; i < count && given(j, tensor); i++)
        IK_OF(load)(input(j, tensor)->dtype, input_at(j, tensor, d, i * j->h + first, 0, 0),
            input(j, tensor)->strides[1], ik_min(LANES, j->h - first), to + i * LANES);
}

/* A step's panels begin to end; `second` is GRU's task of what was reset. */
static void IK_OF(run_panels)(const job *j, int64_t begin, int64_t end, bool second)
{
    const bool two = j->kind == IK_OP_GRU_RECURRENCE && !j->option;
    const int64_t gate = second ? 2 : 0, count = second ? 1 : two ? 2 : j->gates;
    const ik_tensor *x = input(j, X), *y = &j->plan->tensors[0];
    for (int64_t task = begin; task < end; task++) {
        const int64_t d = task / j->blocks, first = task % j->blocks * LANES, n = ik_min(LANES, j->h - first);
        const IK_T *panel = (const IK_T *)(const void *)j->panels + (task * j->h * j->gates + gate) * LANES;
        const int64_t base = d * j->b * j->padded;
        const IK_T *before = (const IK_T *)(const void *)j->states[j->step % 2] + base;
        IK_T *after = (IK_T *)(void *)j->states[(j->step + 1) % 2] + base, *cells = (IK_T *)(void *)j->cells + base,
             *kept = (IK_T *)(void *)j->kept + base, *update = (IK_T *)(void *)j->update + base;
        IK_T bias[GATES * LANES], peepholes[GATES * LANES], sums[ROWS * GATES * LANES], gates[GATES * LANES] = { 0 };
        IK_OF(load_units)(j, BIAS, j->gates, d, first, bias);
        IK_OF(load_units)(j, PEEPHOLES, j->kind == IK_OP_LSTM_RECURRENCE ? 3 : 0, d, first, peepholes);
        for (int64_t row = 0, rows; row < j->b; row += rows) {
            rows = j->b - row >= ROWS ? ROWS : 1;
            IK_OF(multiply)(rows, count, j->h, panel, j->gates * LANES, (second ? kept : before) + row * j->padded,
                j->padded, sums);
            for (int64_t b = row; b < row + rows; b++) {
                const int64_t at = b * j->padded + first, length = length_of(j, b);
                if (j->step >= length) {
                    memcpy(after + at, before + at, (size_t)LANES * sizeof *after);
                    memset(gates, 0, sizeof gates);
                    IK_OF(store)(y->dtype, gates, address_of(j, 0, j->step, d, b, first), y->strides[3], n);
                    continue;
                }
                const int64_t time = j->direction == 1 || d == 1 ? length - 1 - j->step : j->step;
                for (int64_t g = 0; g < j->gates; g++)
                    IK_OF(load)(
                        x->dtype, input_at(j, X, time, b, d, g * j->h + first), x->strides[3], n, gates + g * LANES);
                IK_OF(finish)(j->kind, j->option, second, gates, sums + (b - row) * GATES * LANES, bias, peepholes,
                    before + at, cells + at, kept + at, update + at, after + at);
                if (second || !two)
                    IK_OF(store)(y->dtype, after + at, address_of(j, 0, time, d, b, first), y->strides[3], n);
            }
        }
    }
}

static void IK_OF(run_first)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    IK_OF(run_panels)(context, begin, end, false);
}

static void IK_OF(run_second)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    IK_OF(run_panels)(context, begin, end, true);
}

static void IK_OF(run)(job *j)
{
    const int64_t panels = j->n * j->blocks, products = j->b * j->gates * LANES * j->h;
    const int64_t grain = 1 + IK_THREAD_PRODUCTS / 8 / ik_max(1, products);
    ik_parallel_for(panels, 1 + IK_THREAD_BYTES / ik_max(1, j->gates * j->h * IK_VECTOR), IK_OF(pack), j);
    IK_OF(begin_state)(j, INITIAL_H, (IK_T *)(void *)j->states[0]);
    if (j->kind == IK_OP_LSTM_RECURRENCE)
        IK_OF(begin_state)(j, INITIAL_C, (IK_T *)(void *)j->cells);
    for (j->step = 0; j->step < j->t; j->step++) {
        ik_parallel_for(panels, grain, IK_OF(run_first), j);
        if (j->kind == IK_OP_GRU_RECURRENCE && !j->option)
            ik_parallel_for(panels, grain, IK_OF(run_second), j);
    }
    IK_OF(end_state)(j, 1, (const IK_T *)(const void *)j->states[j->t % 2]);
    if (j->kind == IK_OP_LSTM_RECURRENCE)
        IK_OF(end_state)(j, 2, (const IK_T *)(const void *)j->cells);
}

#undef LANES

#endif
