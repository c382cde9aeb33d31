/* Decompose a call into parts that the library has kernels for, and place the values between them in one workspace. */
#include "isokern_lowering.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isokern_attributes.h"
#include "isokern_dtypes.h"

#define NESTING_LIMIT 16
#define IN_WORKSPACE (-1)
#define ABSENT (-1)

/* Something that a part reads or writes: a tensor of the call, or a value between the parts. */
typedef struct value {
    ik_value spec;
    uint32_t root; /* the value in whose memory this one is: itself, or what it is another shape of */
    int32_t handle; /* the tensor of the call that it is stored in, or IN_WORKSPACE: then it is in the workspace */
    uint64_t bytes, offset;
    uint32_t first, last; /* of a root: the parts that write it first and read it last */
    bool input, used;
} value;

typedef struct part {
    ik_plan plan;
    int32_t *values; /* of the plan's tensors, outputs first; ABSENT for none */
    uint32_t outputs;
    uint64_t space; /* where the part's own workspace is */
    bool used;
} part;

typedef struct lowering {
    ik_machine *machine;
    value *values;
    part *parts;
    uint32_t value_count, value_capacity, part_count, part_capacity;
    const ik_operator *within[NESTING_LIMIT];
    uint32_t nested;
} lowering;

/* Where a tensor of a part is: a tensor of the call, or bytes of the workspace. */
typedef struct place {
    int32_t handle;
    bool absent;
    uint64_t offset;
} place;

typedef struct step {
    ik_plan plan;
    place *places;
    uint64_t space;
} step;

struct ik_lowered {
    uint32_t count;
    step steps[];
};

static ik_status no_memory(void) { return ik_fail(IK_OUT_OF_MEMORY, "no memory to describe an operator"); }

/* Room for one more item in an array of the machine's memory; null where there is none. */
static void *grow(ik_machine *machine, void *items, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    const uint32_t wanted = *capacity == 0 ? 32 : 2 * *capacity;
    void *grown = ik_machine_memory(machine, wanted * size);
    if (grown != NULL && count > 0)
        memcpy(grown, items, count * size);
    *capacity = grown != NULL ? wanted : *capacity;
    return grown;
}

static uint64_t bytes_of(const ik_tensor *t)
{
    int64_t elements = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        elements *= t->shape[i];
    return (uint64_t)ik_bytes(t->dtype, elements);
}

static ik_status add_value(lowering *l, ik_value spec, int32_t handle, bool input, ik_value *result)
{
    value *values = grow(l->machine, l->values, l->value_count, &l->value_capacity, sizeof *values);
    if (values == NULL)
        return no_memory();
    ik_tensor described;
    ik_machine_pack(&spec, &described);
    l->values = values;
    values[l->value_count] = (value){
        .spec = spec, .root = l->value_count, .handle = handle, .bytes = bytes_of(&described), .input = input
    };
    return ik_machine_value(l->machine, spec, l->value_count++, result);
}

static uint32_t number_of(ik_value v) { return (uint32_t)ik_machine_field(v, "number").as.integer; }

static bool is_same_layout(const ik_tensor *a, const ik_tensor *b)
{
    bool same = a->dtype == b->dtype && a->ndim == b->ndim && a->offset == b->offset;
    for (int32_t i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i] && a->strides[i] == b->strides[i];
    return same;
}

/* A description whose kernels the library is asked for. */
typedef struct described {
    const ik_operator *op;
    ik_value inputs, specs, outputs, attributes; /* `inputs` are values, `specs` their descriptions */
    char *blob;
    ik_tensor *tensors;
    ik_plan plan;
} described;

/* Make the plan of a part; NOT_IMPLEMENTED where no kernel takes it. */
static ik_status describe(lowering *l, described *d)
{
    ik_value settled;
    ik_status status =
        ik_machine_settle(l->machine, ik_operator_index(d->op), d->specs, d->outputs, d->attributes, &settled);
    if (status != IK_SUCCESS)
        return status;
    const ik_sequence *table = settled.as.sequence->items[1].as.sequence;
    d->tensors = ik_machine_memory(l->machine, (table->count + 1) * sizeof *d->tensors);
    if (d->tensors == NULL)
        return no_memory();
    for (uint32_t i = 0; i < table->count; i++)
        ik_machine_pack(&table->items[i], &d->tensors[i]);
    d->plan = (ik_plan){
        .abi_version = IK_ABI_VERSION,
        .kind = d->op->kind,
        .tensor_count = table->count,
        .tensors = d->tensors,
        .schema_id = d->op->schema_id,
        .attr_bytes = d->op->attr_bytes,
        .attrs = d->op->attr_bytes != 0 ? d->blob : NULL,
    };
    return ik_plan_select(&d->plan);
}

/* Append a part that has a kernel. `made` are its outputs' values. A part that moves no element needs no call: its
 * output is its input. */
static ik_status add_part(lowering *l, const described *d, const ik_value *made)
{
    part *parts = grow(l->machine, l->parts, l->part_count, &l->part_capacity, sizeof *parts);
    int32_t *values = ik_machine_memory(l->machine, (d->plan.tensor_count + 1) * sizeof *values);
    if (parts == NULL || values == NULL)
        return no_memory();
    l->parts = parts;
    const ik_sequence *inputs = d->inputs.as.sequence;
    for (uint32_t i = 0; i < d->plan.tensor_count; i++) {
        const uint32_t at = i - d->op->outputs;
        if (i < d->op->outputs)
            values[i] = (int32_t)number_of(made[i]);
        else
            values[i] = at < inputs->count && inputs->items[at].tag != IK_V_NONE ? (int32_t)number_of(inputs->items[at])
                                                                                 : ABSENT;
    }
    if (strcmp(d->op->stem, "rearrange") == 0 && d->plan.tensor_count == 2 && values[1] >= 0
        && l->values[values[0]].handle == IN_WORKSPACE && is_same_layout(&d->tensors[0], &d->tensors[1])) {
        l->values[values[0]].root = l->values[values[1]].root;
        return IK_SUCCESS;
    }
    parts[l->part_count++] = (part){ .plan = d->plan, .values = values, .outputs = d->op->outputs };
    return IK_SUCCESS;
}

static ik_status emit(
    void *emitter, ik_value name, ik_value inputs, ik_value attributes, ik_value dtypes, ik_value *result);

/* The parts of a call: `result` has the values that stand for its outputs. */
static ik_status decompose(lowering *l, const described *d, ik_value *result)
{
    for (uint32_t i = 0; i < l->nested; i++)
        if (l->within[i] == d->op)
            return ik_fail(IK_INTERNAL_ERROR, "%s: it decomposes into itself", d->op->name);
    if (l->nested == NESTING_LIMIT)
        return ik_fail(IK_INTERNAL_ERROR, "%s: it decomposes in more than %d levels", d->op->name, NESTING_LIMIT);
    l->within[l->nested++] = d->op;
    ik_status status = ik_machine_decompose(
        l->machine, ik_operator_index(d->op), emit, l, d->inputs, d->attributes, d->outputs, result);
    l->nested--;
    return status;
}

static const ik_operator *find_operator(ik_value name)
{
    uint32_t count;
    const ik_operator *operators = ik_operator_list(&count);
    for (uint32_t i = 0; i < count; i++)
        if (strlen(operators[i].name) == name.length && memcmp(operators[i].name, name.as.text, name.length) == 0)
            return &operators[i];
    return NULL;
}

/* Describe what a decomposition emits, with inferred outputs. */
static ik_status infer(lowering *l, described *d, ik_value attributes, ik_value dtypes)
{
    const ik_sequence *inputs = d->inputs.as.sequence;
    ik_value *specs = ik_machine_memory(l->machine, (inputs->count + 1) * sizeof *specs), made;
    d->blob = ik_machine_memory(l->machine, d->op->attr_bytes + 1);
    if (specs == NULL || d->blob == NULL)
        return no_memory();
    for (uint32_t i = 0; i < inputs->count; i++)
        specs[i] = inputs->items[i].tag == IK_V_NONE ? inputs->items[i] : ik_machine_field(inputs->items[i], "spec");
    ik_status status = ik_machine_sequence(l->machine, IK_V_LIST, specs, inputs->count, &d->specs);
    if (status == IK_SUCCESS && dtypes.tag == IK_V_NONE)
        status = ik_machine_map(l->machine, NULL, 0, &dtypes);
    if (status == IK_SUCCESS)
        status = ik_pack_attributes(l->machine, d->op, attributes.as.map, d->blob, &d->attributes);
    if (status == IK_SUCCESS)
        status = ik_machine_infer(l->machine, ik_operator_index(d->op), d->specs, d->attributes, dtypes, &made);
    if (status == IK_SUCCESS)
        status =
            ik_machine_sequence(l->machine, IK_V_LIST, made.as.sequence->items, made.as.sequence->count, &d->outputs);
    return status;
}

static ik_status emit(
    void *emitter, ik_value name, ik_value inputs, ik_value attributes, ik_value dtypes, ik_value *result)
{
    lowering *l = emitter;
    described d = { .op = find_operator(name), .inputs = inputs };
    if (d.op == NULL)
        return ik_fail(IK_INTERNAL_ERROR, "a decomposition names an operator that there is not");
    ik_status status = infer(l, &d, attributes, dtypes);
    if (status == IK_SUCCESS)
        status = describe(l, &d);
    if (status == IK_NOT_IMPLEMENTED && ik_machine_decomposes(ik_operator_index(d.op)))
        return decompose(l, &d, result);
    if (status != IK_SUCCESS)
        return status;
    ik_value *made = ik_machine_memory(l->machine, (d.op->outputs + 1) * sizeof *made);
    if (made == NULL)
        return no_memory();
    for (uint32_t i = 0; i < d.op->outputs && status == IK_SUCCESS; i++)
        status = add_value(l, d.outputs.as.sequence->items[i], IN_WORKSPACE, false, &made[i]);
    if (status == IK_SUCCESS)
        status = add_part(l, &d, made);
    if (status == IK_SUCCESS)
        status = ik_machine_sequence(l->machine, IK_V_LIST, made, d.op->outputs, result);
    return status;
}

/* Store a value in an output of the call: in its memory from the beginning where nothing else is read there meanwhile,
 * or by a copy at the end. */
static ik_status store(lowering *l, ik_value made, ik_value spec, uint32_t output, bool shares)
{
    ik_tensor wanted, given;
    ik_machine_pack(&spec, &wanted);
    value *v = &l->values[number_of(made)], *root = &l->values[v->root];
    ik_machine_pack(&v->spec, &given);
    if (!shares && !root->input && root->handle == IN_WORKSPACE && root->bytes == v->bytes
        && is_same_layout(&wanted, &given)) {
        root->handle = (int32_t)output;
        return IK_SUCCESS;
    }
    described d = { .op = find_operator(ik_text_value("rearrange")) };
    ik_value nothing;
    ik_status status = ik_machine_map(l->machine, NULL, 0, &nothing);
    if (status == IK_SUCCESS)
        status = ik_machine_sequence(l->machine, IK_V_LIST, &made, 1, &d.inputs);
    if (status == IK_SUCCESS)
        status = infer(l, &d, nothing, nothing);
    if (status == IK_SUCCESS)
        status = ik_machine_sequence(l->machine, IK_V_LIST, &spec, 1, &d.outputs);
    if (status == IK_SUCCESS)
        status = describe(l, &d);
    ik_value copied;
    if (status == IK_SUCCESS)
        status = add_value(l, spec, (int32_t)output, false, &copied);
    return status == IK_SUCCESS ? add_part(l, &d, &copied) : status;
}

/* Whether a part writes an element. */
static bool has_elements(const lowering *l, const part *p)
{
    bool any = false;
    for (uint32_t i = 0; i < p->outputs; i++)
        any = any || l->values[p->values[i]].bytes > 0;
    return any;
}

/* Find the parts whose results are used, from the last to the first, and how long each value lives. */
static void find_lives(lowering *l)
{
    for (uint32_t i = l->part_count; i-- > 0;) {
        part *p = &l->parts[i];
        for (uint32_t k = 0; k < p->outputs; k++) {
            const value *root = &l->values[l->values[p->values[k]].root];
            p->used = p->used || root->used || root->handle != IN_WORKSPACE;
        }
        p->used = p->used && has_elements(l, p);
        for (uint32_t k = 0; p->used && k < p->plan.tensor_count; k++) {
            value *root = p->values[k] == ABSENT ? NULL : &l->values[l->values[p->values[k]].root];
            if (root == NULL)
                continue;
            root->last = root->used ? root->last : i;
            root->used = true;
            root->first = i;
        }
    }
}

static uint64_t align(uint64_t bytes) { return (bytes + IK_ALIGNMENT - 1) / IK_ALIGNMENT * IK_ALIGNMENT; }

/* A run of bytes of the workspace while some parts run. */
typedef struct span {
    uint64_t bytes, *offset;
    uint32_t first, last;
    bool placed;
} span;

/* Place a span at the lowest byte at which nothing is stored while it lives; the end of it. */
static uint64_t put(span *spans, uint32_t count, span *s)
{
    uint64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < count; i++) {
            const span *o = &spans[i];
            if (o->placed && o->first <= s->last && s->first <= o->last && *o->offset < at + s->bytes
                && at < *o->offset + o->bytes) {
                at = *o->offset + o->bytes;
                moved = true;
            }
        }
    }
    *s->offset = at;
    s->placed = true;
    return at + s->bytes;
}

static int by_size(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Place the values between the parts and the parts' workspaces, the largest first. */
static ik_status place_all(lowering *l, uint64_t *bytes)
{
    span *spans = ik_machine_memory(l->machine, (l->value_count + l->part_count + 1) * sizeof *spans);
    uint32_t count = 0;
    if (spans == NULL)
        return no_memory();
    for (uint32_t i = 0; i < l->value_count; i++) {
        value *v = &l->values[i];
        if (v->root == i && v->used && v->handle == IN_WORKSPACE && v->bytes > 0)
            spans[count++] = (span){ align(v->bytes), &v->offset, v->first, v->last, false };
    }
    for (uint32_t i = 0; i < l->part_count; i++)
        if (l->parts[i].used && l->parts[i].plan.workspace_bytes > 0)
            spans[count++] = (span){ align(l->parts[i].plan.workspace_bytes), &l->parts[i].space, i, i, false };
    qsort(spans, count, sizeof *spans, by_size);
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t end = put(spans, count, &spans[i]);
        *bytes = end > *bytes ? end : *bytes;
    }
    return IK_SUCCESS;
}

/* Copy a used part out of the machine's memory. */
static bool keep(const lowering *l, const part *p, step *s)
{
    const size_t tensors = p->plan.tensor_count * sizeof(ik_tensor), places = p->plan.tensor_count * sizeof(place);
    char *memory = malloc(tensors + places + p->plan.attr_bytes + 1);
    if (memory == NULL)
        return false;
    *s = (step){ .plan = p->plan, .places = (place *)(void *)(memory + tensors), .space = p->space };
    s->plan.tensors = memcpy(memory, p->plan.tensors, tensors);
    if (p->plan.attr_bytes != 0)
        s->plan.attrs = memcpy(memory + tensors + places, p->plan.attrs, p->plan.attr_bytes);
    for (uint32_t i = 0; i < p->plan.tensor_count; i++) {
        const value *root = p->values[i] == ABSENT ? NULL : &l->values[l->values[p->values[i]].root];
        s->places[i] = root == NULL ? (place){ .absent = true } : (place){ root->handle, false, root->offset };
    }
    return true;
}

static ik_status keep_all(const lowering *l, ik_lowered **lowered)
{
    ik_lowered *made = malloc(sizeof *made + l->part_count * sizeof(step));
    if (made == NULL)
        return no_memory();
    made->count = 0;
    for (uint32_t i = 0; i < l->part_count; i++)
        if (l->parts[i].used && !keep(l, &l->parts[i], &made->steps[made->count++])) {
            made->count--;
            ik_lowered_destroy(made);
            return no_memory();
        }
    *lowered = made;
    return IK_SUCCESS;
}

ik_status ik_lower(ik_machine *machine, const ik_operator *op, ik_value inputs, ik_value outputs, ik_value attributes,
    ik_lowered **lowered, uint64_t *workspace_bytes)
{
    lowering l = { .machine = machine };
    described d = { .op = op, .specs = inputs, .outputs = outputs, .attributes = attributes };
    const ik_sequence *specs = inputs.as.sequence;
    ik_value *values = ik_machine_memory(machine, (specs->count + 1) * sizeof *values), made;
    ik_status status = values == NULL ? no_memory() : IK_SUCCESS;
    for (uint32_t i = 0; i < specs->count && status == IK_SUCCESS; i++) {
        values[i] = specs->items[i];
        if (specs->items[i].tag != IK_V_NONE)
            status = add_value(&l, specs->items[i], (int32_t)(op->outputs + i), true, &values[i]);
    }
    if (status == IK_SUCCESS)
        status = ik_machine_sequence(machine, IK_V_LIST, values, specs->count, &d.inputs);
    if (status == IK_SUCCESS)
        status = decompose(&l, &d, &made);
    if (status != IK_SUCCESS) {
        char why[1024];
        snprintf(why, sizeof why, "%s", ik_last_error());
        return ik_fail(
            status, "%s: this library has no kernel for it, and not for all of its parts: %s", op->name, why);
    }
    if (made.as.sequence->count != op->outputs)
        return ik_fail(IK_INTERNAL_ERROR, "%s: its decomposition makes %u values", op->name, made.as.sequence->count);
    const bool shares = ik_machine_shares(ik_operator_index(op));
    for (uint32_t i = 0; i < op->outputs && status == IK_SUCCESS; i++)
        status = store(&l, made.as.sequence->items[i], outputs.as.sequence->items[i], i, shares);
    if (status != IK_SUCCESS)
        return status;
    find_lives(&l);
    status = place_all(&l, workspace_bytes);
    return status == IK_SUCCESS ? keep_all(&l, lowered) : status;
}

ik_status ik_lowered_call(const ik_lowered *lowered, void *const *data, void *workspace, void *stream)
{
    ik_status recorded = IK_SUCCESS;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < lowered->count; i++)
        longest = lowered->steps[i].plan.tensor_count > longest ? lowered->steps[i].plan.tensor_count : longest;
    void *few[16], **at = longest > sizeof few / sizeof *few ? malloc(longest * sizeof *at) : few;
    if (at == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory for a call");
    for (uint32_t i = 0; i < lowered->count; i++) {
        const step *s = &lowered->steps[i];
        for (uint32_t k = 0; k < s->plan.tensor_count; k++) {
            const place *p = &s->places[k];
            at[k] = p->absent ? NULL : p->handle >= 0 ? data[p->handle] : (char *)workspace + p->offset;
        }
        void *space = s->plan.workspace_bytes != 0 ? (char *)workspace + s->space : NULL;
        ik_status status =
            ik_call_packed(&s->plan, (const char *)(const void *)at, space, s->plan.workspace_bytes, stream);
        recorded = status == IK_CAPTURED ? IK_CAPTURED : recorded;
        if (status != IK_SUCCESS && status != IK_CAPTURED) {
            recorded = status;
            break;
        }
    }
    if (at != few)
        free(at);
    return recorded;
}

void ik_lowered_destroy(ik_lowered *lowered)
{
    for (uint32_t i = 0; lowered != NULL && i < lowered->count; i++)
        free((void *)(uintptr_t)lowered->steps[i].plan.tensors);
    free(lowered);
}
