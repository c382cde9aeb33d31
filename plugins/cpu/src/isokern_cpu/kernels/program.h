/* The body of a loop nest: its stack code becomes a few steps, each of which runs one vectorised loop over a tile of
 * elements of the compute type.
 *
 * Every value has a place: that of an input, of a constant (spread over a tile once), of a stack level, which steps
 * overwrite, or of a value kept for reuse. The loops are compiled from core's scalar language, one for each opcode and
 * compute type (tile_functions.h). */
#ifndef IK_PROGRAM_H
#define IK_PROGRAM_H
#include "walk.h"

#include "loop_nests.h"
#include "opcodes.h"

static const uint8_t ik_operands[] = IK_OPERANDS;

enum {
    IK_STEPS = sizeof((ik_program *)NULL)->v / sizeof(int64_t),
    IK_CONSTANTS = 8, /* constants with a place; the others are spread again for every tile */
    IK_STACK = IK_PROGRAM_INPUTS + IK_CONSTANTS,
    IK_KEEP = IK_STACK + IK_PROGRAM_DEPTH,
    IK_PLACES = IK_KEEP + IK_PROGRAM_KEPT,
};

/* One value of the compute type. */
typedef union ik_number {
    float f32;
    double f64;
    int64_t i64;
} ik_number;

typedef struct ik_step {
    int32_t code, to, from[3]; /* for a constant: `value` over the whole tile */
    ik_number value;
} ik_step;

typedef struct ik_steps {
    /* result: the place of the value where there are no steps. */
    int32_t compute, count, constants, depth, kept, result;
    ik_number constant[IK_CONSTANTS];
    ik_step step[IK_STEPS];
} ik_steps;

/* A value in the compute type; for integers truncated and saturated. */
static inline ik_number ik_number_of(int32_t compute, double value)
{
    ik_number n = { .i64 = 0 };
    if (compute == IK_F32)
        n.f32 = (float)value;
    else if (compute == IK_F64)
        n.f64 = value;
    else if (compute == IK_U64 && value >= 0x1p63)
        n.i64 = value >= 0x1p64 ? -1 : (int64_t)(uint64_t)value;
    else
        n.i64 = value >= 0x1p63 ? INT64_MAX : value <= -0x1p63 ? INT64_MIN : value == value ? (int64_t)value : 0;
    return n;
}

/* Compile stack code to steps; returns null, or what this kernel cannot do. */
static const char *ik_steps_of(const ik_program *program, int32_t compute, int32_t inputs, ik_steps *to)
{
    int32_t stack[IK_PROGRAM_DEPTH], height = 0;
    const void *const nothing[3] = { NULL, NULL, NULL };
    to->compute = compute;
    to->count = to->constants = to->depth = to->kept = 0;
    if (program->count < 1 || program->count > IK_STEPS)
        return "a body without a program";
    for (int64_t at = 0; at < program->count; at++) {
        int64_t code = program->v[at] & 255, operand = program->v[at] >> 8;
        if (code >= (int64_t)sizeof ik_operands || operand < 0 || (code == IK_CODE_INPUT && operand >= inputs)
            || (code == IK_CODE_CONST && at + 1 == program->count))
            return "a body with a word that is no instruction";
        if ((code == IK_CODE_KEEP || code == IK_CODE_AGAIN)
            && operand >= (code == IK_CODE_KEEP ? IK_PROGRAM_KEPT : to->kept))
            return "a body that keeps more than there is room for, or wants what it has not kept";
        if (code == IK_CODE_KEEP) { /* the last step's result goes there */
            ik_step *last = &to->step[to->count - 1];
            if (to->count == 0 || height == 0 || last->to != stack[height - 1])
                return "a body that keeps what no step has made";
            last->to = stack[height - 1] = IK_KEEP + (int32_t)operand;
            to->kept = (int32_t)ik_max(to->kept, operand + 1);
            continue;
        }
        int32_t takes = ik_operands[code], place = IK_STACK + height - takes;
        if (height < takes || height - takes >= IK_PROGRAM_DEPTH)
            return "a body that takes more from its stack than there is, or puts more there than fits";
        ik_step *step = &to->step[to->count];
        *step = (ik_step){ .code = (int32_t)code, .to = place };
        height -= takes;
        if (code == IK_CODE_INPUT) {
            place = (int32_t)operand;
        } else if (code == IK_CODE_AGAIN) {
            place = IK_KEEP + (int32_t)operand;
        } else if (code == IK_CODE_CONST) {
            double value;
            memcpy(&value, &program->v[++at], sizeof value);
            ik_number number = ik_number_of(compute, value);
            if (to->constants < IK_CONSTANTS) {
                place = IK_PROGRAM_INPUTS + to->constants;
                to->constant[to->constants++] = number;
            } else {
                step->value = number;
                to->count++;
            }
        } else {
            if (!ik_run_tile(compute, code, 0, nothing, NULL))
                return "a body with a function that its compute type has not";
            for (int32_t i = 0; i < takes; i++)
                step->from[i] = stack[height + i];
            to->count++;
        }
        stack[height++] = place;
        if (place >= IK_STACK && place < IK_KEEP)
            to->depth = (int32_t)ik_max(to->depth, place - IK_STACK + 1);
    }
    to->result = stack[0];
    return height == 1 ? NULL : "a body that leaves more than one value";
}

static inline int64_t ik_width(int32_t compute) { return compute == IK_F32 ? 4 : 8; }

/* Fill a run with n copies of the value. */
static inline void ik_spread(int64_t width, const void *value, int64_t n, void *to)
{
    uint32_t narrow, *to32 = to;
    uint64_t wide, *to64 = to;
    if (width == 4) {
        memcpy(&narrow, value, sizeof narrow);
        for (int64_t i = 0; i < n; i++)
            to32[i] = narrow;
    } else {
        memcpy(&wide, value, sizeof wide);
        for (int64_t i = 0; i < n; i++)
            to64[i] = wide;
    }
}

/* Run the steps over n elements; the last one writes to `out`. Returns where the results are: `out`, or the place of an
 * input or constant. */
static inline const void *ik_evaluate(const ik_steps *s, int64_t n, void *const *place, void *out)
{
    for (const ik_step *step = s->step, *end = step + s->count; step < end; step++) {
        const void *in[3] = { place[step->from[0]], place[step->from[1]], place[step->from[2]] };
        if (step->code == IK_CODE_CONST)
            ik_spread(ik_width(s->compute), &step->value, n, place[step->to]);
        else
            ik_run_tile(s->compute, step->code, n, in, step + 1 == end ? out : place[step->to]);
    }
    return s->count > 0 ? out : place[s->result];
}

#endif
