/* Host: a body's stack code as instructions on slots of local memory, for generic.xpu.
 *
 * A slot holds a tile of values. Each input that the body names has a slot of its own; an intermediate value gets one
 * that no value on the stack and no kept value occupies. An instruction is (code, slot of the result, slots of the
 * operands), one byte each from the lowest on; the bits of a constant follow its instruction. */
#ifndef IK_XPU_NEST_PROGRAM_H
#define IK_XPU_NEST_PROGRAM_H
#include "nest.h"

/* The bits of a constant in the compute type; a value beyond the integers is clamped. */
static inline long long ik_constant(int compute, long long bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    if (compute == IK_F32) {
        const float f = static_cast<float>(value);
        unsigned low;
        memcpy(&low, &f, sizeof low);
        return low;
    }
    if (compute == IK_U64 && value >= 0x1p63)
        return static_cast<long long>(value >= 0x1p64 ? ~0ull : static_cast<unsigned long long>(value));
    return value >= 0x1p63 ? INT64_MAX
        : value <= -0x1p63 ? INT64_MIN
        : value == value   ? static_cast<long long>(value)
                           : 0;
}

/* Set the job's inputs, slots and result, write the instructions to `code`, and set `input`: for each input of the job,
 * the plan's. */
static inline void ik_set_program(ik_job &j, int compute, const ik_program &body, int *input, long long *code)
{
    enum { SLOTS = IK_PROGRAM_INPUTS + IK_PROGRAM_DEPTH + IK_PROGRAM_KEPT };
    static const unsigned char operands[] = IK_OPERANDS;
    int slot_of[IK_PROGRAM_INPUTS], stack[IK_PROGRAM_DEPTH], kept[IK_PROGRAM_KEPT], depth = 0;
    int uses[SLOTS] = {}; /* by the stack and by kept values */
    bool named[IK_PROGRAM_INPUTS] = {};
    for (int &slot : kept)
        slot = -1;
    for (long long at = 0; at < body.count; at++)
        if ((body.v[at] & 255) == IK_CODE_CONST)
            at++;
        else if ((body.v[at] & 255) == IK_CODE_INPUT)
            named[body.v[at] >> 8] = true;
    for (int i = 0; i < IK_PROGRAM_INPUTS; i++)
        if (named[i]) {
            input[j.inputs] = i;
            slot_of[i] = j.inputs++;
        }
    j.slots = j.inputs + 1;
    for (long long at = 0; at < body.count; at++) {
        const int op = static_cast<int>(body.v[at] & 255), number = static_cast<int>(body.v[at] >> 8);
        if (op == IK_CODE_INPUT || op == IK_CODE_AGAIN) {
            stack[depth] = op == IK_CODE_INPUT ? slot_of[number] : kept[number];
            uses[stack[depth++]]++;
            continue;
        }
        if (op == IK_CODE_KEEP) {
            if (kept[number] >= 0)
                uses[kept[number]]--;
            kept[number] = stack[depth - 1];
            uses[kept[number]]++;
            continue;
        }
        const int count = op == IK_CODE_CONST ? 0 : operands[op];
        long long word = op;
        depth -= count;
        for (int i = 0; i < count; i++) {
            word |= static_cast<long long>(stack[depth + i]) << (16 + 8 * i);
            uses[stack[depth + i]]--;
        }
        int free = j.inputs;
        while (uses[free])
            free++;
        uses[free]++;
        j.slots = static_cast<unsigned char>(ik_max(j.slots, free + 1));
        stack[depth++] = free;
        code[j.words++] = word | static_cast<long long>(free) << 8;
        if (op == IK_CODE_CONST)
            code[j.words++] = ik_constant(compute, body.v[++at]);
    }
    j.result = static_cast<unsigned char>(stack[0]);
}
#endif
