/* The loops over tiles, one for each opcode of the scalar language and compute type, as any kernel calls them; the
 * parts of generic.c define them (tiles.h). */
#ifndef IK_OPCODES_H
#define IK_OPCODES_H
#include "kernel.h"

/* out[i] = the opcode's function of in[0][i] …; returns false where the type has none. */
typedef bool ik_run_opcode(int64_t code, int64_t n, const void *const *in, void *out);

/* What a compute type provides: functions of tiles and, for floats, matrix products. */
typedef struct ik_nest_loops {
    ik_run_opcode *run;
    ik_task *contract;
} ik_nest_loops;

extern const ik_nest_loops IK_SHARED(generic_f32), IK_SHARED(generic_f64), IK_SHARED(generic_i64),
    IK_SHARED(generic_u64);

/* The same for any compute type. */
static inline bool ik_run_tile(int32_t compute, int64_t code, int64_t n, const void *const *in, void *out)
{
    switch (compute) {
    case IK_F32: return IK_PART_NAME(generic_f32).run(code, n, in, out);
    case IK_F64: return IK_PART_NAME(generic_f64).run(code, n, in, out);
    case IK_I64: return IK_PART_NAME(generic_i64).run(code, n, in, out);
    default: return IK_PART_NAME(generic_u64).run(code, n, in, out);
    }
}

#endif
