/* recurrence: h = cell(x + r h + bias) of RNN, GRU or LSTM, one step after the other.
 *
 * The workspace has h before and after a step and, behind it, c of LSTM or what GRU keeps between its two phases, a row
 * of hidden units for each direction and sequence. An item computes all gates of a unit. Either a work-group computes
 * a row for all steps, with a barrier between them; or, where rows are few, each step is a launch, in which several
 * groups share a row. Where a group has many items, a first launch transposes r, so that neighbours read neighbours.
 *
 * GRU that resets h before the product has two phases a step: its gates, then the state from what was reset. */
#include "simt.h"

#include "isokern_math.h"
#ifdef IK_HAS_lengths
#define IK_GIVEN IK_ELEMENT(lengths)
#endif
#include "min.h"

#if defined(IK_OP_lstm_recurrence)
enum { GATES = 4 };
#elif defined(IK_OP_gru_recurrence)
enum { GATES = 3 };
#else
enum { GATES = 1 };
#endif

/* Partial sums of an item that is alone in its group: a register's worth. */
enum { PARTS = 16 };

#ifdef IK_COMPUTE_F32
#define MULTIPLY_ADD(a, b, c) IK_FMA_F32(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

/* Part i of the workspace: h before and after a step, c, or what is kept and z; then r transposed. */
#define STATE(i) ((IK_GLOBAL ik_c *)workspace + (ik_i64)(i) * p.size)

#ifdef IK_COMPUTE_FLOAT /* recurrence_check may have lengths alone */
static IK_INLINE ik_c sigmoid(ik_c x)
{
    const ik_c e = IK_FN(exp)(-IK_FN(abs)(x));
    return (x >= 0 ? (ik_c)1 : e) / (1 + e);
}
#endif

/* Items: the elements of r, as [direction, term, gate and unit]. */
IK_ENTRY(recurrence_transpose)(IK_PARAMS)
{
    const ik_index at = IK_ITEM;
    if (at >= p.items)
        return;
    const ik_index width = p.r.shape[1], line = at / width, row = at - line * width, d = line / p.r.shape[2],
                   k = line - d * p.r.shape[2];
    STATE(p.states)[at] = IK_LOAD(r, p.r.offset + d * p.r.strides[0] + row * p.r.strides[1] + k * p.r.strides[2]);
}

/* Items: the elements of a state, as [direction, sequence, unit]. */
IK_ENTRY(recurrence_begin)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
#ifdef IK_HAS_initial_h
    STATE(0)[IK_ITEM] = IK_LOAD(initial_h, ik_offset(p.initial_h, IK_ITEM));
#else
    STATE(0)[IK_ITEM] = 0;
#endif
#ifdef IK_OP_lstm_recurrence
#ifdef IK_HAS_initial_c
    STATE(2)[IK_ITEM] = IK_LOAD(initial_c, ik_offset(p.initial_c, IK_ITEM));
#else
    STATE(2)[IK_ITEM] = 0;
#endif
#endif
}

IK_ENTRY(recurrence_end)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    IK_STORE(y_h, ik_offset(p.y_h, IK_ITEM), STATE(p.last)[IK_ITEM]);
#ifdef IK_OP_lstm_recurrence
    IK_STORE(y_c, ik_offset(p.y_c, IK_ITEM), STATE(2)[IK_ITEM]);
#endif
}

IK_ENTRY(recurrence_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    report_outside(p.lengths, lengths, p.x.shape[0], places, error);
}

#ifdef IK_HAS_bias
#define BIAS(g) IK_LOAD(bias, p.bias.offset + d * p.bias.strides[0] + ((g) * h + unit) * p.bias.strides[1])
#else
#define BIAS(g) 0
#endif
#ifdef IK_HAS_peepholes
#define PEEPHOLE(g) \
    IK_LOAD(peepholes, p.peepholes.offset + d * p.peepholes.strides[0] + ((g) * h + unit) * p.peepholes.strides[1])
#else
#define PEEPHOLE(g) 0
#endif
#define X(g) \
    IK_LOAD(x, \
        p.x.offset + time * p.x.strides[0] + sequence * p.x.strides[1] + d * p.x.strides[2] \
            + ((g) * h + unit) * p.x.strides[3])
#define GATE(g) (X(g) + (sums[g] + BIAS(g)))

/* sums[g] of the gates [from, to): row (g, unit) of r times a state. */
#if TRANSPOSED
#define PRODUCTS(from, to, given) \
    for (ik_index k = 0; k < h; k++) { \
        const ik_c v = (given)[k]; \
        for (int g = from; g < (to); g++) \
            sums[g] = MULTIPLY_ADD(v, matrix[(k * GATES + g) * h + unit], sums[g]); \
    }
#else
#define PRODUCTS(from, to, given) \
    for (int g = from; g < (to); g++) { \
        const ik_index row = p.r.offset + d * p.r.strides[0] + (g * h + unit) * p.r.strides[1]; \
        ik_c run[PARTS]; \
        for (int c = 0; c < PARTS; c++) \
            run[c] = 0; \
        ik_index k = 0; \
        for (; k + PARTS <= h; k += PARTS) \
            for (int c = 0; c < PARTS; c++) \
                run[c] = MULTIPLY_ADD((given)[k + c], IK_LOAD(r, row + (k + c) * STEP), run[c]); \
        for (; k < h; k++) \
            run[0] = MULTIPLY_ADD((given)[k], IK_LOAD(r, row + k * STEP), run[0]); \
        for (int apart = PARTS / 2; apart > 0; apart /= 2) \
            for (int c = 0; c < apart; c++) \
                run[c] += run[c + apart]; \
        sums[g] = run[0]; \
    }
#endif
#if UNIT
#define STEP 1
#else
#define STEP p.r.strides[2]
#endif

IK_ENTRY(recurrence)(IK_PARAMS)
{
    const ik_index h = p.r.shape[2], batch = p.x.shape[1], row = IK_GROUP_ID / p.chunks, d = row / batch,
                   sequence = row - d * batch, first = (IK_GROUP_ID - row * p.chunks) * p.units,
                   end = first + p.units < h ? first + (ik_index)p.units : h;
#ifdef IK_HAS_lengths
    const ik_i64 given_length = lengths[p.lengths.offset + sequence * p.lengths.strides[0]];
    const ik_index length = (ik_index)(given_length >= 0 && given_length <= p.x.shape[0] ? given_length : 0);
#else
    const ik_index length = p.x.shape[0];
#endif
#if TRANSPOSED
    IK_GLOBAL const ik_c *const matrix = STATE(p.states) + d * h * GATES * h;
#endif
    for (ik_index step = (ik_index)p.start; step < p.stop; step++) {
        const ik_index time = p.attr_direction == 1 || d == 1 ? length - 1 - step : step;
        IK_GLOBAL const ik_c *const before = STATE(step & 1) + row * h;
        IK_GLOBAL ik_c *const after = STATE(1 - (step & 1)) + row * h;
        for (int phase = PHASE; phase < PHASE + PHASES; phase++) {
            for (ik_index unit = first + IK_LOCAL_ID; unit < end; unit += IK_GROUP) {
                if (step >= length) {
                    after[unit] = before[unit];
                    IK_STORE(y,
                        p.y.offset + step * p.y.strides[0] + d * p.y.strides[1] + sequence * p.y.strides[2]
                            + unit * p.y.strides[3],
                        0);
                    continue;
                }
                ik_c sums[GATES], new_h = 0;
                for (int g = 0; g < GATES; g++)
                    sums[g] = 0;
#if defined(IK_OP_lstm_recurrence)
                IK_GLOBAL ik_c *const cell = STATE(2) + row * h + unit;
                PRODUCTS(0, GATES, before)
                const ik_c c = *cell, kept = sigmoid(GATE(2) + PEEPHOLE(2) * c) * c,
                           made = kept + sigmoid(GATE(0) + PEEPHOLE(0) * c) * IK_FN(tanh)(GATE(3));
                *cell = made;
                new_h = sigmoid(GATE(1) + PEEPHOLE(1) * made) * IK_FN(tanh)(made);
#elif defined(IK_OP_gru_recurrence) && RESETS
                IK_GLOBAL ik_c *const reset = STATE(2) + row * h, *const update = STATE(3) + row * h;
                if (phase == 0) {
                    PRODUCTS(0, 2, before)
                    update[unit] = sigmoid(GATE(0));
                    reset[unit] = sigmoid(GATE(1)) * before[unit];
                    continue;
                }
                PRODUCTS(2, 3, reset)
                new_h = (1 - update[unit]) * IK_FN(tanh)(GATE(2)) + update[unit] * before[unit];
#elif defined(IK_OP_gru_recurrence)
                PRODUCTS(0, GATES, before)
                const ik_c z = sigmoid(GATE(0)), own = X(2) + sigmoid(GATE(1)) * (sums[2] + BIAS(2));
                new_h = (1 - z) * IK_FN(tanh)(own) + z * before[unit];
#else
                PRODUCTS(0, GATES, before)
                new_h = p.attr_activation ? IK_FN(maximum)(GATE(0), 0) : IK_FN(tanh)(GATE(0));
#endif
                after[unit] = new_h;
                IK_STORE(y,
                    p.y.offset + time * p.y.strides[0] + d * p.y.strides[1] + sequence * p.y.strides[2]
                        + unit * p.y.strides[3],
                    new_h);
            }
            IK_BARRIER_GLOBAL();
        }
    }
}
