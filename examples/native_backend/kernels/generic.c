/* Loop nests: y[k] = body(x[k]…), or init[k] combined with the body over all r. The dims k of y come first; the reduced
 * dims r, along which y has stride 0, follow. */
#include "tensors.h"

#include "operators/generic.h"

/* Of the generated functions only those of F32, without a hint that the compiler should vectorise them. */
#define IK_NO_F64
#define IK_NO_I64
#define IK_NO_U64
#define IK_VECTORISE
#include "isokern_int.h"
#include "isokern_math.h"
#include "loop_nests.h"
#include "tile_functions.h"

/* One instruction of the body, on tiles of one element. */
static float run_instruction(int64_t code, const float *operands)
{
    float result = 0;
    switch (code) {
#define CASE(value, function) \
    case value: function(1, operands, operands + 1, operands + 2, &result); break;
        IK_TILES_F32(CASE)
    }
    return result;
}

/* The body in stack code: an instruction takes its operands from the stack, and puts its result there. */
static float run_body(const ik_program *body, const float *inputs)
{
    static const unsigned char operands[] = IK_OPERANDS;
    float stack[IK_PROGRAM_DEPTH + 2], kept[IK_PROGRAM_KEPT];
    int depth = 0;
    for (int64_t at = 0; at < body->count; at++) {
        const int64_t code = body->v[at] & 255, number = body->v[at] >> 8;
        double constant;
        switch (code) {
        case IK_CODE_CONST:
            memcpy(&constant, &body->v[++at], sizeof constant);
            stack[depth++] = (float)constant;
            break;
        case IK_CODE_INPUT: stack[depth++] = inputs[number]; break;
        case IK_CODE_KEEP: kept[number] = stack[depth - 1]; break;
        case IK_CODE_AGAIN: stack[depth++] = kept[number]; break;
        default:
            depth -= operands[code];
            stack[depth] = run_instruction(code, stack + depth);
            depth++;
        }
    }
    return stack[0];
}

IK_SUPPORTED(generic) { return only_f32(plan); }

IK_KERNEL(generic)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    const ik_generic_attrs *attrs = plan->attrs;
    const ik_program *body = plan->kind == IK_OP_GENERIC ? &attrs->body : NULL;
    int64_t combine = plan->kind == IK_OP_GENERIC ? attrs->combine : IK_GENERIC_NONE;
    for (size_t i = 0; i < sizeof ik_nests / sizeof *ik_nests;
        i++) /* batch_matmul and the like have bodies of their own */
        if (ik_nests[i].kind == plan->kind)
            body = &ik_nests[i].body, combine = ik_nests[i].combine;
    const int32_t ndim = t[IK_GENERIC_Y].ndim;
    int32_t kept = 0;
    while (kept < ndim && t[IK_GENERIC_Y].strides[kept] != 0)
        kept++;
    float *y = (float *)first_of(plan, data, IK_GENERIC_Y);
    const int64_t outputs = count_elements(t, 0, kept), terms = count_elements(t, kept, ndim);
    for (int64_t out = 0; out < outputs; out++) {
        const float *init = combine == IK_GENERIC_NONE ? NULL : (const float *)first_of(plan, data, IK_GENERIC_INIT);
        double result = init == NULL ? 0 : init[offset_of(&t[IK_GENERIC_INIT], 0, kept, out)];
        for (int64_t term = 0; term < terms; term++) {
            float inputs[IK_PROGRAM_INPUTS];
            for (uint32_t i = IK_GENERIC_X; i < plan->tensor_count; i++)
                inputs[i - IK_GENERIC_X] = ((const float *)first_of(
                    plan, data, i))[offset_of(&t[i], 0, kept, out) + offset_of(&t[i], kept, ndim, term)];
            const float value = run_body(body, inputs);
            switch (combine) {
            case IK_GENERIC_SUM: result += value; break;
            case IK_GENERIC_MAXIMUM: result = ik_maximum_f32((float)result, value); break;
            case IK_GENERIC_MINIMUM: result = ik_minimum_f32((float)result, value); break;
            default: result = value;
            }
        }
        y[offset_of(t, 0, kept, out)] = (float)result;
    }
    return IK_SUCCESS;
}
