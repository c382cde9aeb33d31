/* Attributes of a call: those that a host packed, and those that a decomposition gives to its parts. */
#include "isokern_attributes.h"

#include <math.h>
#include <string.h>

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

ik_value ik_text_value(const char *text)
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
            *value = ik_text_value(a->choices[whole]);
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

/* The attributes of a blob as a mapping. */
static ik_status read_attributes(ik_machine *machine, const ik_operator *op, char *blob, ik_value *result)
{
    const ik_attribute *attributes = ik_attribute_tables[ik_operator_index(op)].attributes;
    const uint32_t count = ik_attribute_tables[ik_operator_index(op)].count;
    ik_value *pairs = ik_machine_memory(machine, (2 * (size_t)count + 1) * sizeof *pairs);
    if (pairs == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory to describe an operator");
    for (uint32_t i = 0; i < count; i++) {
        pairs[2 * i] = ik_text_value(attributes[i].name);
        ik_status status = take_attribute(machine, op, &attributes[i], blob, &pairs[2 * i + 1]);
        if (status != IK_SUCCESS)
            return status;
    }
    return ik_machine_map(machine, pairs, count, result);
}

ik_status ik_take_attributes(
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
    return read_attributes(machine, op, blob, result);
}

const char *ik_output_type(const ik_operator *op, uint32_t output)
{ return ik_attribute_tables[ik_operator_index(op)].output_types[output]; }

/* Pack one value that a decomposition gives into a blob; false where it is none for the attribute. */
static bool pack(ik_machine *machine, const ik_attribute *a, ik_value value, char *to)
{
    const bool whole = value.tag == IK_V_INT || value.tag == IK_V_BOOL;
    switch (a->kind) {
    case 'i':
    case 'b': {
        const int64_t packed = (int64_t)value.as.integer;
        memcpy(to, &packed, sizeof packed);
        return whole && packed == value.as.integer;
    }
    case 'f': {
        const double packed = whole ? (double)value.as.integer : value.as.number;
        memcpy(to, &packed, sizeof packed);
        return whole || value.tag == IK_V_FLOAT;
    }
    case 'l': {
        ik_ints packed = { 0 };
        const bool list = value.tag == IK_V_TUPLE || value.tag == IK_V_LIST;
        const ik_value *items = list ? value.as.sequence->items : &value;
        packed.count = list ? value.as.sequence->count : 1;
        if ((!list && !whole) || packed.count > (int64_t)(sizeof packed.v / sizeof *packed.v))
            return false;
        for (int64_t i = 0; i < packed.count; i++) {
            packed.v[i] = (int64_t)items[i].as.integer;
            if ((items[i].tag != IK_V_INT && items[i].tag != IK_V_BOOL) || packed.v[i] != items[i].as.integer)
                return false;
        }
        memcpy(to, &packed, sizeof packed);
        return true;
    }
    case 'p':
        if (value.tag == IK_V_PROGRAM) {
            memcpy(to, value.as.program, sizeof(ik_program));
            return true;
        }
        return value.tag == IK_V_TEXT
            && ik_compile_expression(machine, value.as.text, value.length, (ik_program *)(void *)to);
    default: break;
    }
    if (value.tag != IK_V_TEXT)
        return false;
    if (a->kind == 't') {
        memset(to, 0, sizeof(ik_text));
        if (value.length <= sizeof(ik_text))
            memcpy(to, value.as.text, value.length);
        return value.length <= sizeof(ik_text);
    }
    for (int64_t i = 0; i < a->choice_count; i++)
        if (strlen(a->choices[i]) == value.length && memcmp(a->choices[i], value.as.text, value.length) == 0) {
            memcpy(to, &i, sizeof i);
            return true;
        }
    return false;
}

ik_status ik_pack_attributes(
    ik_machine *machine, const ik_operator *op, const ik_map *given, char *blob, ik_value *result)
{
    const ik_attribute *attributes = ik_attribute_tables[ik_operator_index(op)].attributes;
    const uint32_t count = ik_attribute_tables[ik_operator_index(op)].count;
    const void *defaults = op->defaults != NULL ? op->defaults : ik_attribute_tables[ik_operator_index(op)].optional;
    memset(blob, 0, op->attr_bytes);
    if (defaults != NULL)
        memcpy(blob, defaults, op->attr_bytes);
    uint32_t packed = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool found = false;
        for (uint32_t k = 0; k < given->count && !found; k++) {
            const ik_value *pair = &given->pairs[2 * k];
            found = strlen(attributes[i].name) == pair->length
                && memcmp(attributes[i].name, pair->as.text, pair->length) == 0;
            if (found && !pack(machine, &attributes[i], pair[1], blob + attributes[i].offset)) {
                const char *text = "something else";
                ik_machine_text(machine, pair[1], &text);
                return wrong(op, &attributes[i], text);
            }
        }
        packed += found;
        if (!found && attributes[i].required)
            return ik_fail(IK_INTERNAL_ERROR, "%s: attribute %s is missing", op->name, attributes[i].name);
    }
    if (packed != given->count)
        return ik_fail(IK_INTERNAL_ERROR, "%s: an attribute that it does not have", op->name);
    return read_attributes(machine, op, blob, result);
}
