/* The verbs for a host without Python: describe, size, call. They make the checks that Python makes, from the same
 * declarations. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isokern_dtypes.h"
#include "isokern_inference.h"
#include "isokern_native.h"

/* One attribute of an operator (attribute_tables.h, generated). */
typedef struct ik_attribute {
    const char *name;
    char kind; /* i(nteger), f(loat), b(ool), l(ist of integers), c(hoice), t(ext), p(rogram) */
    uint32_t offset;
    double minimum, maximum;
    const char *allowed;
    const char *const *choices;
    uint32_t choice_count;
    bool required;
} ik_attribute;

#include "attribute_tables.h"

#define MAX_TENSORS 65536u
#define SEAL UINT64_C(0x6e72656b6f736921)

/* What ik_op_create makes: the plan, and what a call of it is checked against. */
typedef struct described {
    ik_plan plan;
    uint32_t given; /* tensors that the host described: a call's data has as many pointers */
    bool empty;     /* no output has an element: there is nothing to run */
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

/* Attributes */

static ik_value text_value(const char *text)
{ return (ik_value){ .tag = IK_V_TEXT, .length = (uint32_t)strlen(text), .as.text = text }; }

static ik_status wrong(const ik_operator *op, const ik_attribute *a, const char *given)
{ return ik_fail(IK_INVALID_ARGUMENT, "%s: attribute %s=%s; allowed: %s", op->name, a->name, given, a->allowed); }

static bool in_range(const ik_attribute *a, double value)
{
    bool bounded = a->minimum > -HUGE_VAL || a->maximum < HUGE_VAL;
    return !bounded || (a->minimum <= value && value <= a->maximum);
}

/* Whether stack code is valid: known instructions, their operands present and in range, one result, at most
 * IK_PROGRAM_DEPTH values at a time. */
static bool is_program(const ik_program *p)
{
    static const int takes[] = IK_OPERANDS;
    int number[IK_PROGRAM_DEPTH], height = 0; /* the number under which each value on the stack is kept, or -1 */
    unsigned kept = 0;
    if (p->count < 1 || p->count > (int64_t)(sizeof p->v / sizeof *p->v))
        return false;
    for (int64_t at = 0; at < p->count; at++) {
        int64_t code = p->v[at] & 255, operand = p->v[at] >> 8;
        int64_t limit = code == IK_CODE_INPUT               ? IK_PROGRAM_INPUTS
            : code == IK_CODE_KEEP || code == IK_CODE_AGAIN ? IK_PROGRAM_KEPT
                                                            : 1;
        if (code >= (int64_t)(sizeof takes / sizeof *takes) || operand < 0 || operand >= limit)
            return false;
        int result = -1;
        if (code == IK_CODE_KEEP) {
            for (int i = 0; i < height; i++)
                if (number[i] == (int)operand)
                    return false;
            if (height == 0)
                return false;
            kept |= 1u << operand;
            number[height - 1] = (int)operand;
            continue;
        }
        if (code == IK_CODE_CONST && ++at >= p->count)
            return false;
        if (code == IK_CODE_AGAIN) {
            if ((kept >> operand & 1) == 0)
                return false;
            result = (int)operand;
        }
        if (height < takes[code] || height - takes[code] >= IK_PROGRAM_DEPTH)
            return false;
        height -= takes[code];
        number[height++] = result;
    }
    return height == 1;
}

/* One attribute of a blob as a value, normalised in the blob as kernels expect: a truth value is 0 or 1, the tail of a
 * list is 0. */
static ik_status take_attribute(
    ik_machine *machine, const ik_operator *op, const ik_attribute *a, char *blob, ik_value *value)
{
    bool right = true;
    int64_t whole;
    memcpy(&whole, blob + a->offset, sizeof whole);
    switch (a->kind) {
    case 'i':
        *value = (ik_value){ .tag = IK_V_INT, .as.integer = whole };
        right = in_range(a, (double)whole);
        break;
    case 'b':
        whole = whole != 0;
        memcpy(blob + a->offset, &whole, sizeof whole);
        *value = (ik_value){ .tag = IK_V_BOOL, .as.integer = whole };
        break;
    case 'f': {
        double number;
        memcpy(&number, blob + a->offset, sizeof number);
        *value = (ik_value){ .tag = IK_V_FLOAT, .as.number = number };
        right = in_range(a, number);
        break;
    }
    case 'c':
        *value = (ik_value){ .tag = IK_V_INT, .as.integer = whole };
        right = whole >= 0 && whole < a->choice_count;
        if (right)
            *value = text_value(a->choices[whole]);
        break;
    case 'l': {
        ik_ints list;
        memcpy(&list, blob + a->offset, sizeof list);
        const int64_t capacity = (int64_t)(sizeof list.v / sizeof *list.v);
        if (list.count < 0 || list.count > capacity)
            return ik_fail(IK_INVALID_ARGUMENT, "%s: attribute %s has %lld items; allowed: 0 to %lld", op->name,
                a->name, (long long)list.count, (long long)capacity);
        ik_value items[sizeof list.v / sizeof *list.v];
        for (int64_t i = 0; i < capacity; i++) {
            list.v[i] = i < list.count ? list.v[i] : 0;
            items[i] = (ik_value){ .tag = IK_V_INT, .as.integer = list.v[i] };
            right = right && (i >= list.count || in_range(a, (double)list.v[i]));
        }
        memcpy(blob + a->offset, &list, sizeof list);
        ik_status status = ik_machine_sequence(machine, IK_V_TUPLE, items, (uint32_t)list.count, value);
        if (status != IK_SUCCESS)
            return status;
        break;
    }
    case 't': {
        size_t length = sizeof(ik_text);
        while (length > 0 && blob[a->offset + length - 1] == '\0')
            length--;
        for (size_t i = 0; i < length; i++)
            if (blob[a->offset + i] < 32 || blob[a->offset + i] > 126)
                return wrong(op, a, "a text with other characters");
        *value = (ik_value){ .tag = IK_V_TEXT, .length = (uint32_t)length, .as.text = blob + a->offset };
        break;
    }
    default: {
        const ik_program *p = (const ik_program *)(const void *)(blob + a->offset);
        *value = (ik_value){ .tag = IK_V_PROGRAM, .as.program = p };
        return is_program(p) ? IK_SUCCESS : wrong(op, a, "words that are no program");
    }
    }
    if (right)
        return IK_SUCCESS;
    const char *given = "";
    ik_status status = ik_machine_text(machine, *value, &given);
    return status != IK_SUCCESS ? status : wrong(op, a, given);
}

/* The attributes as a mapping; also fills in `blob`, of op->attr_bytes, as kernels read it. */
static ik_status take_attributes(
    ik_machine *machine, const ik_operator *op, const ik_attributes *given, char *blob, ik_value *result)
{
    const uint32_t index = ik_operator_index(op);
    const ik_attribute *attributes = ik_attribute_tables[index].attributes;
    const uint32_t count = ik_attribute_tables[index].count;
    const bool defaults = given == NULL || (given->schema_id == 0 && given->bytes == 0);
    if (!defaults && given->schema_id != op->schema_id)
        return ik_fail(IK_BAD_ATTR_SCHEMA, "%s: attribute schema %#llx; allowed: %#x, or 0 without bytes for defaults",
            op->name, (unsigned long long)given->schema_id, op->schema_id);
    if (!defaults && (given->bytes != op->attr_bytes || given->data == NULL))
        return ik_fail(IK_BAD_ATTR_SIZE, "%s: %llu bytes of attributes at %p; allowed: %u", op->name,
            (unsigned long long)given->bytes, given->data, op->attr_bytes);
    for (uint32_t i = 0; defaults && i < count; i++)
        if (attributes[i].required)
            return ik_fail(IK_INVALID_ARGUMENT, "%s: attribute %s is missing; allowed: %s", op->name,
                attributes[i].name, attributes[i].allowed);
    if (op->attr_bytes != 0)
        memcpy(blob, defaults ? op->defaults : given->data, op->attr_bytes);
    ik_value *pairs = ik_machine_memory(machine, (2 * (size_t)count + 1) * sizeof *pairs);
    if (pairs == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory to describe an operator");
    for (uint32_t i = 0; i < count; i++) {
        pairs[2 * i] = text_value(attributes[i].name);
        ik_status status = take_attribute(machine, op, &attributes[i], blob, &pairs[2 * i + 1]);
        if (status != IK_SUCCESS)
            return status;
    }
    return ik_machine_map(machine, pairs, count, result);
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

/* Make the plan from what settle returned: (inputs, table). */
static ik_status make_plan(
    const ik_operator *op, ik_value settled, const char *blob, const ik_tensor *tensors, uint32_t n, ik_plan **plan)
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
    ik_status status = ik_plan_select(&d->plan);
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
        status = take_attributes(machine, op, attributes, blob, &values);
    if (status == IK_SUCCESS)
        status = take_inputs(machine, op, tensors, n, &inputs);
    for (uint32_t i = 0; i < op->outputs && status == IK_SUCCESS; i++)
        status = take_tensor(machine, op, &tensors[i], i, &outs[i]);
    if (status == IK_SUCCESS)
        status = ik_machine_sequence(machine, IK_V_LIST, outs, op->outputs, &outputs);
    if (status == IK_SUCCESS)
        status = ik_machine_settle(machine, ik_operator_index(op), inputs, outputs, values, &settled);
    if (status == IK_SUCCESS)
        status = make_plan(op, settled, blob, tensors, n, plan);
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
        status = take_attributes(machine, op, attributes, blob, &values);
    if (status == IK_SUCCESS)
        status = take_inputs(machine, op, tensors, n, &inputs);
    uint32_t count = 0;
    for (uint32_t i = 0; i < op->outputs && status == IK_SUCCESS; i++) {
        if (tensors[i].dtype == IK_NONE)
            continue;
        if (ik_alignment_of(tensors[i].dtype) == 0)
            status = ik_fail(
                IK_BAD_TENSOR_DTYPE, "%s: tensor %u has dtype %d, which is none", op->name, i, tensors[i].dtype);
        pairs[2 * count] = text_value(ik_attribute_tables[ik_operator_index(op)].output_types[i]);
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
    *kind = ik_workspace_kind(plan->variant);
    return IK_SUCCESS;
}

void ik_op_destroy(ik_plan *plan)
{
    if (plan == NULL || check_sealed(plan) != IK_SUCCESS)
        return;
    plan->seal = 0;
    free((described *)(void *)plan);
}

ik_status ik_op_packed_layout(ik_plan *plan, uint32_t tensor, uint64_t *bytes, const char **layout)
{
    ik_status status = check_sealed(plan);
    if (status != IK_SUCCESS)
        return status;
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
