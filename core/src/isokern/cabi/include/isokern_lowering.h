/* Calls of operators that the library has no kernel for: their parts' kernels in order, by the declarations'
 * decompositions. */
#ifndef ISOKERN_LOWERING_H
#define ISOKERN_LOWERING_H
#include "isokern_inference.h"
#include "isokern_native.h"

#pragma GCC visibility push(hidden)

typedef struct ik_lowered ik_lowered;

/* Decompose a call until the library has a kernel for each part; NOT_IMPLEMENTED names the part that it has none for.
 * `inputs` and `outputs` are lists of descriptions, `workspace_bytes` the scratch memory of a call: the values between
 * the parts, and the parts' own. */
ik_status ik_lower(ik_machine *machine, const ik_operator *op, ik_value inputs, ik_value outputs, ik_value attributes,
    ik_lowered **lowered, uint64_t *workspace_bytes);

/* Call the parts in order, or capture them; `data` are the call's outputs and inputs. */
ik_status ik_lowered_call(const ik_lowered *lowered, void *const *data, void *workspace, void *stream);

void ik_lowered_destroy(ik_lowered *lowered);

#pragma GCC visibility pop
#endif
