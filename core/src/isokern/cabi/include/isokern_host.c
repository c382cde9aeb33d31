/* The verbs for a host without Python: describe, size, call. They make the checks that Python makes, from the same
 * declarations. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isokern_attributes.h"
#include "isokern_dtypes.h"
#include "isokern_inference.h"
#include "isokern_lowering.h"
#include "isokern_native.h"

#define MAX_TENSORS 65536u
#define LOWERED UINT32_MAX /* the variant of a plan that is several kernels */
#define SEAL UINT64_C(0x6e72656b6f736921)

/* What ik_op_create makes: the plan, and what a call of it is checked against. */
typedef struct described {
    ik_plan plan;
    uint32_t given; /* tensors that the host described: a call's data has as many pointers */
    bool empty;     /* no output has an element: there is nothing to run */
    ik_lowered *lowered; /* the parts of the call where no kernel takes it whole, else null */
    uint32_t *alignments; /* required alignment of each tensor's memory; 0 where the tensor needs no memory */
} described;

static uint64_t seal_of(const ik_plan *plan) { return SEAL ^ (uint64_t)(uintptr_t)plan; }

static ik_status check_sealed(const ik_plan *plan)
{
    if (plan == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "the plan is null");
    if (plan->seal != seal_of(plan))
        return ik_fail(IK_INVALID_ARGUMENT,
            "the plan at %p is none that ik_op_create made, or a copy of one, or destroyed", (const void *)plan);
    return IK_SUCCESS;
}

/* Tensors */

static ik_status take_tensor(
    ik_machine *machine, const ik_operator *op, const ik_tensor *t, uint32_t i, ik_value *value)
{
    if (t->dtype == IK_NONE && i >= op->outputs) {
        *value = (ik_value){ .tag = IK_V_NONE };
        return IK_SUCCESS;
    }
    if (ik_alignment_of(t->dtype) == 0)
        return ik_fail(IK_BAD_TENSOR_DTYPE, "%s: tensor %u has dtype %d, which is none", op->name, i, t->dtype);
    if (t->ndim < 0 || t->ndim > IK_MAX_RANK)
        return ik_fail(
            IK_BAD_TENSOR_SHAPE, "%s: tensor %u has rank %d; allowed: 0 to %d", op->name, i, t->ndim, IK_MAX_RANK);
    return ik_machine_describe(machine, t, value);
}

/* The inputs of a call as a list. */
static ik_status take_inputs(
    ik_machine *machine, const ik_operator *op, const ik_tensor *tensors, uint32_t n, ik_value *list)
{
    ik_value *values = ik_machine_memory(machine, ((size_t)n + 1) * sizeof *values);
    if (values == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory to describe an operator");
    for (uint32_t i = op->outputs; i < n; i++) {
        ik_status status = take_tensor(machine, op, &tensors[i], i, &values[i - op->outputs]);
        if (status != IK_SUCCESS)
            return status;
    }
    return ik_machine_sequence(machine, IK_V_LIST, values, n - op->outputs, list);
}

static ik_status find(uint32_t kind, const ik_tensor *tensors, uint32_t n, const ik_operator **op)
{
    *op = ik_find_operator(kind);
    if (*op == NULL)
        return ik_fail(IK_NOT_IMPLEMENTED, "no operator has kind %#x", kind);
    if (tensors == NULL || n < (*op)->outputs || n > MAX_TENSORS)
        return ik_fail(IK_INVALID_ARGUMENT, "%s: %u tensors at %p; allowed: %u outputs, then the inputs", (*op)->name,
            n, (const void *)tensors, (*op)->outputs);
    return IK_SUCCESS;
}

/* Whether operators without a kernel are made of the operators that they consist of, as in Python. */
static bool is_lowering(void)
{
    const char *policy = getenv("ISOKERN_ON_MISSING");
    return policy == NULL || strcmp(policy, "error") != 0;
}

/* Choose the kernel of a plan, or those of its parts. */
static ik_status select_kernels(
    described *d, ik_machine *machine, const ik_operator *op, ik_value settled, ik_value outputs, ik_value values)
{
    ik_status status = ik_plan_select(&d->plan);
    if (status != IK_NOT_IMPLEMENTED || !ik_machine_decomposes(ik_operator_index(op)) || !is_lowering())
        return status;
    ik_value inputs = settled.as.sequence->items[0];
    status = ik_machine_sequence(machine, IK_V_LIST, inputs.as.sequence->items, inputs.as.sequence->count, &inputs);
    if (status == IK_SUCCESS)
        status = ik_lower(machine, op, inputs, outputs, values, &d->lowered, &d->plan.workspace_bytes);
    d->plan.variant = LOWERED;
    return status;
}

/* Make the plan from what settle returned: (inputs, table). */
static ik_status make_plan(ik_machine *machine, const ik_operator *op, ik_value settled, ik_value outputs,
    ik_value values, const char *blob, const ik_tensor *tensors, uint32_t n, ik_plan **plan)
{
    const ik_sequence *table = settled.as.sequence->items[1].as.sequence;
    uint32_t count = table->count > n ? table->count : n; /* a table may end before absent inputs */
    size_t blob_at = sizeof(described) + count * sizeof(ik_tensor), ends = blob_at + op->attr_bytes;
    described *d = calloc(1, ends + count * sizeof(uint32_t));
    if (d == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory for a plan");
    ik_tensor *packed = (ik_tensor *)(void *)(d + 1);
    char *attributes = (char *)d + blob_at;
    if (op->attr_bytes != 0)
        memcpy(attributes, blob, op->attr_bytes);
    d->alignments = (uint32_t *)(void *)((char *)d + ends);
    d->given = n;
    d->empty = true;
    for (uint32_t i = 0; i < table->count; i++)
        ik_machine_pack(&table->items[i], &packed[i]);
    for (uint32_t i = 0; i < n; i++) {
        bool present = tensors[i].dtype != IK_NONE, elements = true;
        for (int32_t k = 0; k < tensors[i].ndim; k++)
            elements = elements && tensors[i].shape[k] != 0;
        d->alignments[i] = present && elements ? ik_alignment_of(tensors[i].dtype) : 0;
        d->empty = d->empty && (i >= op->outputs || !elements);
    }
    d->plan = (ik_plan){
        .abi_version = IK_ABI_VERSION,
        .kind = op->kind,
        .tensor_count = table->count,
        .tensors = packed,
        .schema_id = op->schema_id,
        .attr_bytes = op->attr_bytes,
        .attrs = op->attr_bytes != 0 ? attributes : NULL,
    };
    ik_status status = select_kernels(d, machine, op, settled, outputs, values);
    if (status != IK_SUCCESS) {
        free(d);
        return status;
    }
    if (d->empty)
        d->plan.workspace_bytes = 0;
    d->plan.seal = seal_of(&d->plan);
    *plan = &d->plan;
    return IK_SUCCESS;
}

ik_status ik_op_create(
    uint32_t kind, const ik_tensor *tensors, uint32_t n, const ik_attributes *attributes, ik_plan **plan)
{
    const ik_operator *op;
    if (plan == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "the place for the plan is null");
    *plan = NULL;
    ik_status status = find(kind, tensors, n, &op);
    if (status != IK_SUCCESS)
        return status;
    ik_machine *machine = ik_machine_create();
    char *blob = machine == NULL ? NULL : ik_machine_memory(machine, op->attr_bytes + 1);
    ik_value *outs = blob == NULL ? NULL : ik_machine_memory(machine, (op->outputs + 1) * sizeof *outs);
    ik_value values, inputs, outputs, settled;
    if (outs == NULL)
        status = ik_fail(IK_OUT_OF_MEMORY, "no memory to describe an operator");
    if (status == IK_SUCCESS)
        status = ik_take_attributes(machine, op, attributes, blob, &values);
    if (status == IK_SUCCESS)
        status = take_inputs(machine, op, tensors, n, &inputs);
    for (uint32_t i = 0; i < op->outputs && status == IK_SUCCESS; i++)
        status = take_tensor(machine, op, &tensors[i], i, &outs[i]);
    if (status == IK_SUCCESS)
        status = ik_machine_sequence(machine, IK_V_LIST, outs, op->outputs, &outputs);
    if (status == IK_SUCCESS)
        status = ik_machine_settle(machine, ik_operator_index(op), inputs, outputs, values, &settled);
    if (status == IK_SUCCESS)
        status = make_plan(machine, op, settled, outputs, values, blob, tensors, n, plan);
    ik_machine_destroy(machine);
    return status;
}

ik_status ik_op_infer(uint32_t kind, ik_tensor *tensors, uint32_t n, const ik_attributes *attributes)
{
    const ik_operator *op;
    ik_status status = find(kind, tensors, n, &op);
    if (status != IK_SUCCESS)
        return status;
    ik_machine *machine = ik_machine_create();
    char *blob = machine == NULL ? NULL : ik_machine_memory(machine, op->attr_bytes + 1);
    ik_value *pairs = blob == NULL ? NULL : ik_machine_memory(machine, 2 * ((size_t)op->outputs + 1) * sizeof *pairs);
    ik_value values, inputs, named, inferred;
    if (pairs == NULL)
        status = ik_fail(IK_OUT_OF_MEMORY, "no memory to describe an operator");
    if (status == IK_SUCCESS)
        status = ik_take_attributes(machine, op, attributes, blob, &values);
    if (status == IK_SUCCESS)
        status = take_inputs(machine, op, tensors, n, &inputs);
    uint32_t count = 0;
    for (uint32_t i = 0; i < op->outputs && status == IK_SUCCESS; i++) {
        if (tensors[i].dtype == IK_NONE)
            continue;
        if (ik_alignment_of(tensors[i].dtype) == 0)
            status = ik_fail(
                IK_BAD_TENSOR_DTYPE, "%s: tensor %u has dtype %d, which is none", op->name, i, tensors[i].dtype);
        pairs[2 * count] = ik_text_value(ik_output_type(op, i));
        pairs[2 * count++ + 1] = (ik_value){ .tag = IK_V_DTYPE, .as.integer = tensors[i].dtype };
    }
    if (status == IK_SUCCESS)
        status = ik_machine_map(machine, pairs, count, &named);
    if (status == IK_SUCCESS)
        status = ik_machine_infer(machine, ik_operator_index(op), inputs, values, named, &inferred);
    for (uint32_t i = 0; i < op->outputs && status == IK_SUCCESS; i++)
        ik_machine_pack(&inferred.as.sequence->items[i], &tensors[i]);
    ik_machine_destroy(machine);
    return status;
}

ik_status ik_op_workspace(const ik_plan *plan, uint64_t *bytes, const char **kind)
{
    ik_status status = check_sealed(plan);
    if (status != IK_SUCCESS)
        return status;
    if (bytes == NULL || kind == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "the place for the %s is null", bytes == NULL ? "size" : "kind");
    *bytes = plan->workspace_bytes;
    *kind = plan->variant == LOWERED ? "default" : ik_workspace_kind(plan->variant);
    return IK_SUCCESS;
}

void ik_op_destroy(ik_plan *plan)
{
    if (plan == NULL || check_sealed(plan) != IK_SUCCESS)
        return;
    *(volatile uint64_t *)&plan->seal = 0; /* a plain store before free is removed by compilers */
    ik_lowered_destroy(((described *)(void *)plan)->lowered);
    free((described *)(void *)plan);
}

ik_status ik_op_packed_layout(ik_plan *plan, uint32_t tensor, uint64_t *bytes, const char **layout)
{
    ik_status status = check_sealed(plan);
    if (status != IK_SUCCESS)
        return status;
    if (plan->variant == LOWERED && bytes != NULL && layout != NULL && tensor < plan->tensor_count) {
        *bytes = 0;
        *layout = NULL; /* its parts read constants as they are */
        return IK_SUCCESS;
    }
    status = ik_plan_packed_layout(plan, tensor, bytes, layout);
    described *d = (described *)(void *)plan;
    if (status == IK_SUCCESS && *layout != NULL && tensor < d->given && d->alignments[tensor] != 0)
        d->alignments[tensor] = IK_ALIGNMENT;
    return status;
}

ik_status ik_op_pack(const ik_plan *plan, uint32_t tensor, const void *from, void *to, void *stream)
{
    ik_status status = check_sealed(plan);
    if (status != IK_SUCCESS)
        return status;
    if (from == NULL || to == NULL || stream == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "%s is null",
            from == NULL     ? "what is to be packed"
                : to == NULL ? "the place for it"
                             : "the stream");
    if ((uintptr_t)to % IK_ALIGNMENT != 0)
        return ik_fail(IK_INVALID_ARGUMENT,
            "the place for the packed tensor is at %p; allowed: an address divisible by %d", to, IK_ALIGNMENT);
    return ik_plan_pack(plan, tensor, from, to, stream);
}

/* Check whether a call of a plan may be made; ik_call_packed checks the workspace. */
static ik_status check_call(const ik_plan *plan, void *const *data, const void *stream)
{
    ik_status status = check_sealed(plan);
    if (status != IK_SUCCESS)
        return status;
    if (data == NULL || stream == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "%s is null", data == NULL ? "the data" : "the stream");
    const described *d = (const described *)(const void *)plan;
    for (uint32_t i = 0; i < d->given; i++) {
        if (d->alignments[i] == 0)
            continue;
        if (data[i] == NULL)
            return ik_fail(IK_INVALID_ARGUMENT, "the data of tensor %u is null", i);
        if ((uintptr_t)data[i] % d->alignments[i] != 0)
            return ik_fail(IK_INVALID_ARGUMENT, "the data of tensor %u is at %p; allowed: an address divisible by %u",
                i, data[i], d->alignments[i]);
    }
    return IK_SUCCESS;
}

/* Run a checked call; tensors of the table beyond the host's are absent. */
static ik_status call(const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *stream)
{
    ik_status status = check_call(plan, data, stream);
    const described *d = (const described *)(const void *)plan;
    if (status != IK_SUCCESS || d->empty)
        return status;
    if (d->lowered != NULL) {
        status = ik_check_workspace(plan, workspace, workspace_bytes);
        return status == IK_SUCCESS ? ik_lowered_call(d->lowered, data, workspace, stream) : status;
    }
    if (plan->tensor_count <= d->given)
        return ik_call_packed(plan, (const char *)(const void *)data, workspace, workspace_bytes, stream);
    void **all = calloc(plan->tensor_count, sizeof *all);
    if (all == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory for a call");
    memcpy(all, data, d->given * sizeof *all);
    status = ik_call_packed(plan, (const char *)(const void *)all, workspace, workspace_bytes, stream);
    free(all);
    return status;
}

ik_status ik_op_call(const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *stream)
{ return call(plan, data, workspace, workspace_bytes, stream); }

ik_status ik_op_run(const ik_call *calls, uint64_t n, int64_t *failed)
{
    if (calls == NULL && n > 0)
        return ik_fail(IK_INVALID_ARGUMENT, "the list of calls is null");
    ik_status recorded = IK_SUCCESS;
    for (uint64_t i = 0; i < n; i++) {
        ik_status status =
            call(calls[i].plan, calls[i].data, calls[i].workspace, calls[i].workspace_bytes, calls[i].stream);
        if (status == IK_CAPTURED) {
            recorded = IK_CAPTURED;
        } else if (status != IK_SUCCESS) {
            if (failed != NULL)
                *failed = (int64_t)i;
            return status;
        }
    }
    return recorded;
}
