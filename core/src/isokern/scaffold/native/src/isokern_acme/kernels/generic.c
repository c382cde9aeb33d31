/* Loop nests: y[k] = body(x[k]…), or init[k] combined with the body over all r. The dims k of y come first; the
 * reduced dims r, along which y has stride 0, follow. Without a reduction init is one more input, after the others.
 * Tensors may have a dtype each; the body is computed in the widest compute type. */
#include "elements.h"
#include "isokern_cast.h"
#include "loop_nests.h"
#include "operators/generic.h"
#include "tile_functions.h"

typedef struct nest {
    const ik_program *body;
    int64_t combine;
    int32_t compute, kept; /* the number of dims k */
    uint32_t inputs;
} nest;

/* Run one instruction on the operands at `s`, where its result goes, too; false where the compute type lacks it. */
static int run_instruction(int32_t compute, int64_t code, int64_t n, tile *s)
{
#define F32(number, function) \
    case number: function(n, s[0].f32, s[1].f32, s[2].f32, s[0].f32); return 1;
#define F64(number, function) \
    case number: function(n, s[0].f64, s[1].f64, s[2].f64, s[0].f64); return 1;
#define I64(number, function) \
    case number: function(n, s[0].i64, s[1].i64, s[2].i64, s[0].i64); return 1;
#define U64(number, function) \
    case number: function(n, s[0].u64, s[1].u64, s[2].u64, s[0].u64); return 1;
    switch (compute) {
    case IK_F32:
        switch (code) {
            IK_TILES_F32(F32)
        }
        return 0;
    case IK_F64:
        switch (code) {
            IK_TILES_F64(F64)
        }
        return 0;
    case IK_I64:
        switch (code) {
            IK_TILES_I64(I64)
        }
        return 0;
    default:
        switch (code) {
            IK_TILES_U64(U64)
        }
        return 0;
    }
}

static void spread(int32_t compute, double value, tile *to)
{
    for (int64_t i = 0; i < TILE; i++)
        switch (compute) {
        case IK_F32: to->f32[i] = (float)value; break;
        case IK_F64: to->f64[i] = value; break;
        case IK_I64: to->i64[i] = ik_f64_to_i64(value); break;
        default: to->u64[i] = value >= 0x1p63 ? ik_f64_to_u64(value) : (uint64_t)ik_f64_to_i64(value);
        }
}

/* Run the body on n values of each input: an instruction takes its operands from the stack, and puts its result there.
 * False where the body is none that this kernel can run. */
static int run_body(const nest *j, int64_t n, const tile *inputs, tile *result)
{
    static const unsigned char operands[] = IK_OPERANDS;
    tile stack[IK_PROGRAM_DEPTH + 2], kept[IK_PROGRAM_KEPT];
    const ik_program *body = j->body;
    int depth = 0;
    for (int64_t at = 0; at < body->count; at++) {
        const int64_t code = body->v[at] & 255, number = body->v[at] >> 8;
        if (code >= (int64_t)sizeof operands || depth < operands[code] || depth > IK_PROGRAM_DEPTH)
            return 0;
        double constant;
        switch (code) {
        case IK_CODE_CONST:
            memcpy(&constant, &body->v[++at], sizeof constant);
            spread(j->compute, constant, &stack[depth++]);
            break;
        case IK_CODE_INPUT: stack[depth++] = inputs[number]; break;
        case IK_CODE_KEEP: kept[number] = stack[depth - 1]; break;
        case IK_CODE_AGAIN: stack[depth++] = kept[number]; break;
        default:
            depth -= operands[code];
            if (!run_instruction(j->compute, code, n, &stack[depth++]))
                return 0;
        }
    }
    *result = stack[0];
    return depth == 1;
}

/* What a reduction has come to: an integer, or a float as the sum of two numbers, of which `low` has the rounding
 * errors of `high` (Knuth's TwoSum). */
typedef struct total {
    double high, low;
    int64_t i64;
} total;

static void combine_value(const nest *j, const tile *values, int64_t i, total *t)
{
    if (j->compute == IK_I64 || j->compute == IK_U64) {
        const int64_t x = values->i64[i], y = t->i64;
        const int above = j->compute == IK_I64 ? x > y : (uint64_t)x > (uint64_t)y;
        if (j->combine == IK_GENERIC_SUM)
            t->i64 = (int64_t)((uint64_t)y + (uint64_t)x);
        else if (j->combine == IK_GENERIC_PRODUCT)
            t->i64 = (int64_t)((uint64_t)y * (uint64_t)x);
        else
            t->i64 = above == (j->combine == IK_GENERIC_MAXIMUM) ? x : y;
        return;
    }
    const double x = j->compute == IK_F32 ? (double)values->f32[i] : values->f64[i], y = t->high;
    if (j->combine == IK_GENERIC_SUM) {
        const double sum = y + x, part = sum - y;
        t->low += (y - (sum - part)) + (x - part);
        t->high = sum;
    } else if (j->combine == IK_GENERIC_PRODUCT) {
        t->high = y * x;
    } else {
        t->high = j->combine == IK_GENERIC_MAXIMUM ? ik_maximum_f64(y, x) : ik_minimum_f64(y, x);
    }
}

static void begin_total(const nest *j, const tile *init, total *t)
{ *t = (total){ .i64 = init->i64[0], .high = j->compute == IK_F32 ? (double)init->f32[0] : init->f64[0] }; }

static void end_total(const nest *j, const total *t, tile *result)
{
    const double sum = t->low == t->low ? t->high + t->low : t->high; /* where it is not finite, `low` is NaN */
    switch (j->compute) {
    case IK_F32: result->f32[0] = (float)sum; break;
    case IK_F64: result->f64[0] = sum; break;
    default: result->i64[0] = t->i64;
    }
}

/* Read what the plan says; false where it is no nest that this kernel runs. */
static int read_nest(const ik_plan *plan, nest *j)
{
    const ik_tensor *y = &plan->tensors[IK_GENERIC_Y];
    const ik_generic_attrs *attrs = plan->attrs;
    *j = (nest){ .inputs = plan->tensor_count - IK_GENERIC_X, .compute = ik_nest_compute(plan) };
    if (plan->kind == IK_OP_GENERIC)
        j->body = &attrs->body, j->combine = attrs->combine;
    for (size_t i = 0; i < sizeof ik_nests / sizeof *ik_nests; i++)
        if (ik_nests[i].kind == plan->kind) /* batch_matmul and the like have bodies of their own */
            j->body = &ik_nests[i].body, j->combine = ik_nests[i].combine;
    j->inputs += j->combine == IK_GENERIC_NONE && plan->tensors[IK_GENERIC_INIT].dtype != IK_NONE;
    if (j->body == NULL || j->inputs < 1 || j->inputs > IK_PROGRAM_INPUTS)
        return 0;
    while (j->kept < y->ndim && y->strides[j->kept] != 0)
        j->kept++;
    return 1;
}

IK_SUPPORTED(generic)
{
    static const tile inputs[IK_PROGRAM_INPUTS];
    nest j;
    tile result;
    if (!read_nest(plan, &j) || !run_body(&j, 0, inputs, &result))
        return "a loop nest with a body that is not known, or that its compute type has no functions for";
    return NULL;
}

/* Load `count` terms from number `term` on of output `out`, and run the body on them. */
static void run_terms(
    const ik_plan *plan, void *const *data, const nest *j, int64_t out, int64_t term, int64_t count, tile *result)
{
    tile inputs[IK_PROGRAM_INPUTS];
    for (uint32_t i = 0; i < j->inputs; i++) {
        const uint32_t at = IK_GENERIC_X + i < plan->tensor_count ? IK_GENERIC_X + i : IK_GENERIC_INIT;
        const ik_tensor *x = &plan->tensors[at];
        const char *first = first_of(plan, data, at);
        first += offset_of(x, 0, j->kept, out) * ik_itemsize(x->dtype);
        load_elements(j->compute, x, j->kept, x->ndim, first, term, count, &inputs[i]);
    }
    run_body(j, count, inputs, result);
}

IK_KERNEL(generic)
{
    IK_UNUSED;
    nest j;
    if (!read_nest(plan, &j))
        return ik_fail(IK_NOT_IMPLEMENTED, "a loop nest that is not known");
    const ik_tensor *y = &plan->tensors[IK_GENERIC_Y], *init = &plan->tensors[IK_GENERIC_INIT];
    char *to = first_of(plan, data, IK_GENERIC_Y);
    tile values;
    if (j.combine == IK_GENERIC_NONE) { /* no dim is reduced: the outputs are the terms */
        const int64_t count = count_elements(y, 0, y->ndim);
        j.kept = 0;
        for (int64_t at = 0; at < count; at += TILE) {
            const int64_t n = min_of(TILE, count - at);
            run_terms(plan, data, &j, 0, at, n, &values);
            store_elements(j.compute, y, 0, y->ndim, to, at, n, &values);
        }
        return IK_SUCCESS;
    }
    const int64_t outputs = count_elements(y, 0, j.kept), terms = count_elements(y, j.kept, y->ndim);
    for (int64_t out = 0; out < outputs; out++) {
        total t;
        load_elements(j.compute, init, 0, j.kept, first_of(plan, data, IK_GENERIC_INIT), out, 1, &values);
        begin_total(&j, &values, &t);
        for (int64_t term = 0; term < terms; term += TILE) {
            const int64_t n = min_of(TILE, terms - term);
            run_terms(plan, data, &j, out, term, n, &values);
            for (int64_t i = 0; i < n; i++)
                combine_value(&j, &values, i, &t);
        }
        end_total(&j, &t, &values);
        store_elements(j.compute, y, 0, j.kept, to, out, 1, &values);
    }
    return IK_SUCCESS;
}
