/* The virtual machine behind ik_op_create: see isokern_inference.h, and isokern/cabi/inference for the meaning of each
 * word. */
#include "isokern_inference.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isokern_attributes.h"
#include "isokern_native.h"

typedef struct ik_function {
    int32_t start, parameters, slots;
} ik_function;

typedef struct ik_property {
    const char *name;
    int32_t function;
} ik_property;

typedef struct ik_dtype {
    int32_t code;
    const char *name, *kind;
    int32_t block, itemsize, compute, storage;
} ik_dtype;

#include "inference_tables.h"

#define STACK 2048
#define DEPTH 256 /* nested calls: a decomposition emits operators that are decomposed in turn */
#define LONGEST_OVERLAP (INT64_C(1) << 20)
#define WIDEST (((ik_wide)INT64_MAX << 63) * 2) /* about 2^127: products saturate here */

struct ik_frame {
    ik_value *slots;
    ik_frame *outer;
};

struct ik_iterator {
    ik_sequence *sequence;
    uint32_t at;
};

typedef struct chunk {
    struct chunk *next;
    size_t used, capacity;
    _Alignas(16) char bytes[];
} chunk;

struct ik_machine {
    chunk *chunks;
    jmp_buf out;
    ik_status status;
    int depth;
    uint32_t height;
    ik_emit *emit; /* what a decomposition emits with, and its first argument */
    void *emitter;
    ik_value stack[STACK];
};

/* The machine's state at an entry: a decomposition enters the machine again for each operator that it emits. */
typedef struct entry {
    jmp_buf out;
    int depth;
    uint32_t height;
} entry;

static entry save(const ik_machine *m)
{
    entry before = { .depth = m->depth, .height = m->height };
    memcpy(&before.out, &m->out, sizeof before.out);
    return before;
}

static void restore(ik_machine *m, const entry *before)
{
    memcpy(&m->out, &before->out, sizeof before->out);
    m->depth = before->depth;
    m->height = before->height;
}

/* Leave the function with the status of an error that is met from here on. */
#define IK_ENTER(m, before) \
    entry before = save(m); \
    if (setjmp((m)->out) != 0) { \
        restore(m, &before); \
        return (m)->status; \
    }

static const ik_value NONE = { .tag = IK_V_NONE };

/* Memory and errors */

ik_machine *ik_machine_create(void)
{
    ik_machine *machine = malloc(sizeof *machine);
    if (machine == NULL)
        return NULL;
    machine->chunks = NULL;
    machine->depth = 0;
    machine->height = 0;
    machine->emit = NULL;
    return machine;
}

void ik_machine_destroy(ik_machine *machine)
{
    if (machine == NULL)
        return;
    for (chunk *c = machine->chunks; c != NULL;) {
        chunk *next = c->next;
        free(c);
        c = next;
    }
    free(machine);
}

void *ik_machine_memory(ik_machine *machine, size_t bytes)
{
    size_t size = (bytes + 15) & ~(size_t)15;
    chunk *c = machine->chunks;
    if (c == NULL || c->capacity - c->used < size) {
        size_t capacity = size > 16384 ? size : 16384;
        c = malloc(sizeof *c + capacity);
        if (c == NULL)
            return NULL;
        *c = (chunk){ .next = machine->chunks, .capacity = capacity };
        machine->chunks = c;
    }
    void *found = c->bytes + c->used;
    c->used += size;
    return found;
}

static _Noreturn void stop(ik_machine *m, ik_status status)
{
    m->status = status;
    longjmp(m->out, 1);
}

static _Noreturn void fail(ik_machine *m, const char *what)
{ stop(m, ik_fail(IK_INTERNAL_ERROR, "inference: %s", what)); }

static void *memory(ik_machine *m, size_t bytes)
{
    void *found = ik_machine_memory(m, bytes);
    if (found == NULL)
        stop(m, ik_fail(IK_OUT_OF_MEMORY, "no memory to describe an operator"));
    return found;
}

/* Values */

static void push(ik_machine *m, ik_value v)
{
    if (m->height >= STACK - 8)
        fail(m, "the stack is full");
    m->stack[m->height++] = v;
}

static ik_value integer(ik_wide value) { return (ik_value){ .tag = IK_V_INT, .as.integer = value }; }
static ik_value truth(bool value) { return (ik_value){ .tag = IK_V_BOOL, .as.integer = value }; }
static ik_value floating(double value) { return (ik_value){ .tag = IK_V_FLOAT, .as.number = value }; }

static ik_value text_of(const char *data, size_t length)
{ return (ik_value){ .tag = IK_V_TEXT, .length = (uint32_t)length, .as.text = data }; }

static ik_value new_sequence(ik_machine *m, ik_tag tag, uint32_t capacity)
{
    ik_sequence *s = memory(m, sizeof *s);
    *s = (ik_sequence){ .items = memory(m, (capacity ? capacity : 1) * sizeof(ik_value)),
        .capacity = capacity ? capacity : 1 };
    return (ik_value){ .tag = tag, .as.sequence = s };
}

static void append(ik_machine *m, ik_value list, ik_value item)
{
    ik_sequence *s = list.as.sequence;
    if (s->count == s->capacity) {
        ik_value *grown = memory(m, 2 * (size_t)s->capacity * sizeof *grown);
        memcpy(grown, s->items, s->count * sizeof *grown);
        s->items = grown;
        s->capacity *= 2;
    }
    s->items[s->count++] = item;
}

static bool is_sequence(ik_value v) { return v.tag == IK_V_TUPLE || v.tag == IK_V_LIST; }
static bool is_integer(ik_value v) { return v.tag == IK_V_INT || v.tag == IK_V_BOOL; }

static ik_wide integer_of(ik_machine *m, ik_value v)
{
    if (!is_integer(v))
        fail(m, "an integer is needed");
    return v.as.integer;
}

/* The sequence that a `for` iterates over: the items of a sequence, the keys of a mapping, the characters of a text. */
static ik_value sequence_of(ik_machine *m, ik_value v)
{
    if (is_sequence(v))
        return v;
    if (v.tag == IK_V_MAP) {
        ik_value keys = new_sequence(m, IK_V_LIST, v.as.map->count);
        for (uint32_t i = 0; i < v.as.map->count; i++)
            append(m, keys, v.as.map->pairs[2 * i]);
        return keys;
    }
    if (v.tag == IK_V_TEXT) {
        ik_value characters = new_sequence(m, IK_V_LIST, v.length);
        for (uint32_t i = 0; i < v.length; i++)
            append(m, characters, text_of(v.as.text + i, 1));
        return characters;
    }
    if (v.tag == IK_V_ITERATOR) {
        ik_value rest = new_sequence(m, IK_V_LIST, v.as.iterator->sequence->count);
        for (; v.as.iterator->at < v.as.iterator->sequence->count; v.as.iterator->at++)
            append(m, rest, v.as.iterator->sequence->items[v.as.iterator->at]);
        return rest;
    }
    fail(m, "this cannot be iterated over");
}

static ik_value copy_as(ik_machine *m, ik_value v, ik_tag tag)
{
    ik_value from = sequence_of(m, v), copy = new_sequence(m, tag, from.as.sequence->count);
    memcpy(copy.as.sequence->items, from.as.sequence->items, from.as.sequence->count * sizeof(ik_value));
    copy.as.sequence->count = from.as.sequence->count;
    return copy;
}

static bool truth_of(ik_value v)
{
    switch (v.tag) {
    case IK_V_NONE: return false;
    case IK_V_BOOL:
    case IK_V_INT: return v.as.integer != 0;
    case IK_V_FLOAT: return v.as.number != 0;
    case IK_V_TEXT: return v.length != 0;
    case IK_V_TUPLE:
    case IK_V_LIST: return v.as.sequence->count != 0;
    case IK_V_MAP: return v.as.map->count != 0;
    default: return true;
    }
}

static bool equal(ik_value a, ik_value b)
{
    if (is_integer(a) && is_integer(b))
        return a.as.integer == b.as.integer;
    if (a.tag == IK_V_FLOAT && is_integer(b))
        return a.as.number == (double)b.as.integer;
    if (is_integer(a) && b.tag == IK_V_FLOAT)
        return (double)a.as.integer == b.as.number;
    if (a.tag != b.tag)
        return false;
    switch (a.tag) {
    case IK_V_NONE: return true;
    case IK_V_FLOAT: return a.as.number == b.as.number;
    case IK_V_TEXT: return a.length == b.length && memcmp(a.as.text, b.as.text, a.length) == 0;
    case IK_V_DTYPE: return a.as.integer == b.as.integer;
    case IK_V_TUPLE:
    case IK_V_LIST:
        if (a.as.sequence->count != b.as.sequence->count)
            return false;
        for (uint32_t i = 0; i < a.as.sequence->count; i++)
            if (!equal(a.as.sequence->items[i], b.as.sequence->items[i]))
                return false;
        return true;
    case IK_V_DESC: return a.as.desc == b.as.desc;
    default: return a.as.map == b.as.map;
    }
}

static int compare(ik_machine *m, ik_value a, ik_value b)
{
    if (is_integer(a) && is_integer(b))
        return (a.as.integer > b.as.integer) - (a.as.integer < b.as.integer);
    if ((is_integer(a) || a.tag == IK_V_FLOAT) && (is_integer(b) || b.tag == IK_V_FLOAT)) {
        double x = a.tag == IK_V_FLOAT ? a.as.number : (double)a.as.integer,
               y = b.tag == IK_V_FLOAT ? b.as.number : (double)b.as.integer;
        return (x > y) - (x < y);
    }
    if (a.tag == IK_V_TEXT && b.tag == IK_V_TEXT) {
        uint32_t n = a.length < b.length ? a.length : b.length;
        int order = memcmp(a.as.text, b.as.text, n);
        return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
    }
    if (is_sequence(a) && a.tag == b.tag) {
        uint32_t n = a.as.sequence->count < b.as.sequence->count ? a.as.sequence->count : b.as.sequence->count;
        for (uint32_t i = 0; i < n; i++) {
            int order = compare(m, a.as.sequence->items[i], b.as.sequence->items[i]);
            if (order != 0)
                return order;
        }
        return (a.as.sequence->count > b.as.sequence->count) - (a.as.sequence->count < b.as.sequence->count);
    }
    fail(m, "these have no order");
}

/* Where one text occurs in another; null where it does not. */
static const char *find_text(ik_value in, ik_value what)
{
    for (uint32_t i = 0; what.length <= in.length && i <= in.length - what.length; i++)
        if (memcmp(in.as.text + i, what.as.text, what.length) == 0)
            return in.as.text + i;
    return NULL;
}

/* Mappings */

static ik_value new_map(ik_machine *m, uint32_t capacity)
{
    ik_map *map = memory(m, sizeof *map);
    *map = (ik_map){ .pairs = memory(m, 2 * (size_t)(capacity ? capacity : 4) * sizeof(ik_value)),
        .capacity = capacity ? capacity : 4 };
    return (ik_value){ .tag = IK_V_MAP, .as.map = map };
}

static ik_value *find_key(const ik_map *map, ik_value key)
{
    for (uint32_t i = 0; i < map->count; i++)
        if (equal(map->pairs[2 * i], key))
            return &map->pairs[2 * i + 1];
    return NULL;
}

static void set_key(ik_machine *m, ik_value map_, ik_value key, ik_value value)
{
    ik_map *map = map_.as.map;
    ik_value *found = find_key(map, key);
    if (found != NULL) {
        *found = value;
        return;
    }
    if (map->count == map->capacity) {
        ik_value *grown = memory(m, 4 * (size_t)map->capacity * sizeof *grown);
        memcpy(grown, map->pairs, 2 * (size_t)map->count * sizeof *grown);
        map->pairs = grown;
        map->capacity *= 2;
    }
    map->pairs[2 * map->count] = key;
    map->pairs[2 * map->count++ + 1] = value;
}

static ik_value field_of(ik_machine *m, ik_value record, const char *name)
{
    const ik_value *found = find_key(record.as.map, text_of(name, strlen(name)));
    if (found == NULL)
        fail(m, "a record has no such field");
    return *found;
}

static const ik_dtype *dtype_of(ik_machine *m, ik_value v)
{
    for (size_t i = 0; v.tag == IK_V_DTYPE && i < sizeof ik_dtypes / sizeof *ik_dtypes; i++)
        if (ik_dtypes[i].code == (int32_t)v.as.integer)
            return &ik_dtypes[i];
    fail(m, "a dtype is needed");
}

/* Text: a growing buffer for f-strings */

typedef struct writer {
    ik_machine *machine;
    char *data;
    size_t length, capacity;
} writer;

static void put(writer *w, const char *data, size_t length)
{
    if (w->capacity - w->length < length) {
        size_t capacity = 2 * w->capacity > w->length + length ? 2 * w->capacity : w->length + length + 64;
        char *grown = memory(w->machine, capacity);
        if (w->length)
            memcpy(grown, w->data, w->length);
        w->data = grown;
        w->capacity = capacity;
    }
    if (length)
        memcpy(w->data + w->length, data, length);
    w->length += length;
}

/* What was written so far; the empty text where nothing was. */
static ik_value writer_text(const writer *w) { return text_of(w->data != NULL ? w->data : "", w->length); }

static void put_text(writer *w, const char *text) { put(w, text, strlen(text)); }

static void put_integer(writer *w, ik_wide value)
{
    char digits[48];
    size_t at = sizeof digits;
    bool negative = value < 0;
    do {
        int digit = (int)(value % 10);
        digits[--at] = (char)('0' + (digit < 0 ? -digit : digit));
        value /= 10;
    } while (value != 0);
    if (negative)
        digits[--at] = '-';
    put(w, digits + at, sizeof digits - at);
}

/* Write a float as Python does: the fewest digits that identify it, with an exponent below 1e-4 and from 1e16. */
static void put_float(writer *w, double value)
{
    if (isnan(value) || isinf(value)) {
        put_text(w, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    char shortest[40];
    int digits = 1;
    do
        snprintf(shortest, sizeof shortest, "%.*e", digits - 1, value);
    while (strtod(shortest, NULL) != value && ++digits <= 17);
    int exponent = atoi(strchr(shortest, 'e') + 1);
    char out[64];
    if (exponent < -4 || exponent >= 16) {
        char *e = strchr(shortest, 'e');
        snprintf(
            out, sizeof out, "%.*se%c%02d", (int)(e - shortest), shortest, exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        int decimals = digits - 1 - exponent;
        snprintf(out, sizeof out, "%.*f", decimals > 1 ? decimals : 1, value);
    }
    put_text(w, out);
}

static ik_value run(ik_machine *m, int32_t function, uint32_t given, ik_frame *outer);
static ik_value binary(ik_machine *m, int32_t op, ik_value a, ik_value b);
static ik_value call1(ik_machine *m, int32_t function, ik_value argument);

static void put_value(writer *w, ik_value v, bool quoted)
{
    switch (v.tag) {
    case IK_V_NONE: put_text(w, "None"); return;
    case IK_V_BOOL: put_text(w, v.as.integer ? "True" : "False"); return;
    case IK_V_INT: put_integer(w, v.as.integer); return;
    case IK_V_FLOAT: put_float(w, v.as.number); return;
    case IK_V_DTYPE: put_text(w, dtype_of(w->machine, v)->name); return;
    case IK_V_DESC: put_value(w, call1(w->machine, IK_ENTRY_DESCRIBE, v), false); return;
    case IK_V_RECORD: put_value(w, field_of(w->machine, v, ""), false); return;
    case IK_V_TEXT: {
        if (!quoted) {
            put(w, v.as.text, v.length);
            return;
        }
        bool single = memchr(v.as.text, '\'', v.length) != NULL && memchr(v.as.text, '"', v.length) == NULL;
        const char *quote = single ? "\"" : "'";
        put_text(w, quote);
        for (uint32_t i = 0; i < v.length; i++) {
            char c = v.as.text[i];
            if (c == '\\' || c == *quote)
                put_text(w, "\\");
            put(w, &c, 1);
        }
        put_text(w, quote);
        return;
    }
    case IK_V_TUPLE:
    case IK_V_LIST:
        put_text(w, v.tag == IK_V_TUPLE ? "(" : "[");
        for (uint32_t i = 0; i < v.as.sequence->count; i++) {
            if (i > 0)
                put_text(w, ", ");
            put_value(w, v.as.sequence->items[i], true);
        }
        put_text(w, v.tag == IK_V_LIST ? "]" : v.as.sequence->count == 1 ? ",)" : ")");
        return;
    default: fail(w->machine, "this has no text");
    }
}

static ik_value format(ik_machine *m, ik_value v, int32_t style)
{
    if (style == 0 && v.tag == IK_V_TEXT)
        return v;
    writer w = { .machine = m };
    if (style == 2) { /* as {x:g} */
        char out[40];
        snprintf(out, sizeof out, "%g", v.tag == IK_V_FLOAT ? v.as.number : (double)integer_of(m, v));
        put_text(&w, out);
    } else {
        put_value(&w, v, style == 1);
    }
    return writer_text(&w);
}

/* Arithmetic */

static double number_of(ik_machine *m, ik_value v)
{ return v.tag == IK_V_FLOAT ? v.as.number : (double)integer_of(m, v); }

/* The largest integer that is not above a number. */
static ik_value floor_of(ik_machine *m, double x)
{
    if (!(x > -0x1p126 && x < 0x1p126))
        fail(m, "an integer is needed");
    ik_wide whole = (ik_wide)x;
    return integer((double)whole > x ? whole - 1 : whole);
}

/* Powers of integers, and of 2: they need no function whose last bit libraries differ in. */
static ik_value power(ik_machine *m, ik_value a, ik_value b)
{
    const bool whole = is_integer(a) && is_integer(b) && b.as.integer >= 0;
    if (!is_integer(b) || (!whole && number_of(m, a) != 2))
        fail(m, "a power of other numbers than integers and 2");
    ik_value integral = integer(1);
    double exact = 1;
    for (ik_wide n = b.as.integer < 0 ? -b.as.integer : b.as.integer; n > 0; n--) {
        integral = whole ? binary(m, IK_BINARY_MUL, integral, a) : integral;
        exact = b.as.integer < 0 ? exact / 2 : exact * 2;
    }
    return whole ? integral : floating(exact);
}

static ik_value float_binary(ik_machine *m, int32_t op, ik_value a, ik_value b)
{
    if (op == IK_BINARY_POW)
        return power(m, a, b);
    const double x = number_of(m, a), y = number_of(m, b);
    if (y == 0 && (op == IK_BINARY_DIV || op == IK_BINARY_QUOTIENT))
        fail(m, "division by zero");
    switch (op) {
    case IK_BINARY_ADD: return floating(x + y);
    case IK_BINARY_SUB: return floating(x - y);
    case IK_BINARY_MUL: return floating(x * y);
    case IK_BINARY_DIV: return floating(x / y);
    default: fail(m, "these cannot be computed with");
    }
}

static ik_value binary(ik_machine *m, int32_t op, ik_value a, ik_value b)
{
    if (is_integer(a) && is_integer(b)) {
        ik_wide x = a.as.integer, y = b.as.integer, z = 0;
        bool over = false;
        switch (op) {
        case IK_BINARY_ADD: over = __builtin_add_overflow(x, y, &z); break;
        case IK_BINARY_SUB: over = __builtin_sub_overflow(x, y, &z); break;
        case IK_BINARY_MUL: over = __builtin_mul_overflow(x, y, &z); break;
        case IK_BINARY_AND: z = x & y; break;
        case IK_BINARY_OR: z = x | y; break;
        case IK_BINARY_SHIFT_LEFT:
            over = y < 0 || y > 126 || __builtin_mul_overflow(x, (ik_wide)1 << (y & 127), &z);
            break;
        case IK_BINARY_SHIFT_RIGHT: z = x >> (y < 0 || y > 126 ? 126 : y); break;
        case IK_BINARY_DIV:
        case IK_BINARY_POW: return float_binary(m, op, a, b);
        default:
            if (y == 0)
                fail(m, "division by zero");
            z = x / y;
            if (x % y != 0 && (x < 0) != (y < 0)) /* Python rounds down */
                z -= 1;
            if (op == IK_BINARY_REMAINDER)
                z = x - z * y;
        }
        if (over)
            stop(m, ik_fail(IK_INVALID_ARGUMENT, "a number of the description leaves 128 bits"));
        return integer(z);
    }
    /* The fraction; the library does not link libm. */
    if (op == IK_BINARY_REMAINDER && a.tag == IK_V_FLOAT && is_integer(b) && b.as.integer == 1) {
        double x = a.as.number;
        if (!(x > -9007199254740992.0 && x < 9007199254740992.0))
            return floating(isinf(x) ? NAN : x - x); /* not a number, or a number without a fraction */
        double part = x - (double)(int64_t)x;
        return floating(part < 0 ? part + 1 : part);
    }
    if ((a.tag == IK_V_FLOAT && (is_integer(b) || b.tag == IK_V_FLOAT)) || (is_integer(a) && b.tag == IK_V_FLOAT))
        return float_binary(m, op, a, b);
    if (op == IK_BINARY_OR && a.tag == IK_V_MAP && b.tag == IK_V_MAP) {
        ik_value both = new_map(m, a.as.map->count + b.as.map->count);
        for (uint32_t i = 0; i < a.as.map->count + b.as.map->count; i++) {
            const bool first = i < a.as.map->count;
            const ik_value *pair = (first ? a : b).as.map->pairs + 2 * (first ? i : i - a.as.map->count);
            set_key(m, both, pair[0], pair[1]);
        }
        return both;
    }
    if (op == IK_BINARY_MUL && a.tag == IK_V_TEXT && is_integer(b)) {
        writer w = { .machine = m };
        for (ik_wide n = 0; n < b.as.integer; n++)
            put(&w, a.as.text, a.length);
        return writer_text(&w);
    }
    if (op == IK_BINARY_MUL && is_integer(a) && is_sequence(b))
        return binary(m, op, b, a);
    if (op == IK_BINARY_ADD && is_sequence(a) && is_sequence(b)) {
        ik_value both = copy_as(m, a, a.tag);
        for (uint32_t i = 0; i < b.as.sequence->count; i++)
            append(m, both, b.as.sequence->items[i]);
        return both;
    }
    if (op == IK_BINARY_ADD && a.tag == IK_V_TEXT && b.tag == IK_V_TEXT) {
        writer w = { .machine = m };
        put(&w, a.as.text, a.length);
        put(&w, b.as.text, b.length);
        return writer_text(&w);
    }
    if (op == IK_BINARY_MUL && is_sequence(a) && is_integer(b)) {
        ik_value many = new_sequence(m, a.tag, a.as.sequence->count);
        for (ik_wide n = 0; n < b.as.integer; n++)
            for (uint32_t i = 0; i < a.as.sequence->count; i++)
                append(m, many, a.as.sequence->items[i]);
        return many;
    }
    fail(m, "these cannot be computed with");
}

static bool contains(ik_machine *m, ik_value container, ik_value item)
{
    if (container.tag == IK_V_MAP)
        return find_key(container.as.map, item) != NULL;
    if (container.tag == IK_V_TEXT)
        return item.tag == IK_V_TEXT && find_text(container, item) != NULL;
    ik_value s = sequence_of(m, container);
    for (uint32_t i = 0; i < s.as.sequence->count; i++)
        if (equal(s.as.sequence->items[i], item))
            return true;
    return false;
}

static bool compare_by(ik_machine *m, int32_t op, ik_value a, ik_value b)
{
    switch (op) {
    case IK_COMPARE_EQ: return equal(a, b);
    case IK_COMPARE_NE: return !equal(a, b);
    case IK_COMPARE_IS: return a.tag == b.tag && equal(a, b);
    case IK_COMPARE_IS_NOT: return !(a.tag == b.tag && equal(a, b));
    case IK_COMPARE_IN: return contains(m, b, a);
    case IK_COMPARE_NOT_IN: return !contains(m, b, a);
    case IK_COMPARE_LT: return compare(m, a, b) < 0;
    case IK_COMPARE_LE: return compare(m, a, b) <= 0;
    case IK_COMPARE_GT: return compare(m, a, b) > 0;
    default: return compare(m, a, b) >= 0;
    }
}

/* Indexing */

static ik_value slice(ik_machine *m, ik_value v, ik_value low, ik_value high, ik_value step_)
{
    ik_wide n = v.tag == IK_V_TEXT ? v.length : sequence_of(m, v).as.sequence->count;
    ik_wide step = step_.tag == IK_V_NONE ? 1 : integer_of(m, step_);
    if (step == 0)
        fail(m, "a slice by steps of 0");
    ik_wide min = step > 0 ? 0 : -1, max = step > 0 ? n : n - 1;
    ik_wide bounds[2] = { step > 0 ? min : max, step > 0 ? max : min };
    const ik_value given[2] = { low, high };
    for (int i = 0; i < 2; i++) {
        if (given[i].tag == IK_V_NONE)
            continue;
        ik_wide b = integer_of(m, given[i]);
        b = b < 0 ? b + n : b;
        bounds[i] = b < min ? min : b > max ? max : b;
    }
    if (v.tag == IK_V_TEXT) {
        if (step != 1)
            fail(m, "a text is sliced in steps of 1");
        return text_of(v.as.text + bounds[0], (size_t)(bounds[1] > bounds[0] ? bounds[1] - bounds[0] : 0));
    }
    ik_value part = new_sequence(m, v.tag == IK_V_TUPLE ? IK_V_TUPLE : IK_V_LIST, 4);
    for (ik_wide i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1]; i += step)
        append(m, part, v.as.sequence->items[i]);
    return part;
}

static ik_value *item_at(ik_machine *m, ik_value v, ik_value at)
{
    if (v.tag == IK_V_MAP) {
        ik_value *found = find_key(v.as.map, at);
        if (found == NULL)
            fail(m, "a key is not there");
        return found;
    }
    ik_wide i = integer_of(m, at);
    if (!is_sequence(v))
        fail(m, "this has no items");
    i = i < 0 ? i + v.as.sequence->count : i;
    if (i < 0 || i >= v.as.sequence->count)
        fail(m, "an index is out of range");
    return &v.as.sequence->items[i];
}

static ik_value subscript(ik_machine *m, ik_value v, ik_value at)
{
    if (at.tag == IK_V_SLICE) {
        const ik_value *bounds = at.as.sequence->items;
        return slice(m, v, bounds[0], bounds[1], bounds[2]);
    }
    if (v.tag == IK_V_TEXT) {
        ik_wide i = integer_of(m, at);
        i = i < 0 ? i + v.length : i;
        if (i < 0 || i >= v.length)
            fail(m, "an index is out of range");
        return text_of(v.as.text + i, 1);
    }
    return *item_at(m, v, at);
}

/* Descriptions */

static ik_value product(ik_machine *m, ik_value v)
{
    ik_value s = sequence_of(m, v);
    ik_wide total = 1;
    bool over = false;
    for (uint32_t i = 0; i < s.as.sequence->count; i++) {
        ik_wide factor = integer_of(m, s.as.sequence->items[i]);
        if (factor == 0)
            return integer(0);
        over = over || __builtin_mul_overflow(total, factor, &total);
    }
    return integer(over ? WIDEST : total); /* callers compare it with what 64 bits can hold */
}

static ik_value new_desc(ik_machine *m, ik_value dtype, ik_value shape_, ik_value strides_, ik_value offset)
{
    dtype_of(m, dtype);
    ik_value shape = copy_as(m, shape_, IK_V_TUPLE);
    push(m, shape);
    push(m, strides_.tag == IK_V_NONE ? NONE : copy_as(m, strides_, IK_V_TUPLE));
    push(m, offset);
    ik_value strides = run(m, IK_ENTRY_LAYOUT, 3, NULL);
    ik_desc *d = memory(m, sizeof *d);
    *d = (ik_desc){ dtype, shape, strides, offset, product(m, shape) };
    ik_value made = { .tag = IK_V_DESC, .as.desc = d };
    call1(m, IK_ENTRY_EXTENT, made);
    return made;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Whether two indices address one element: counts the distinct offsets. */
static bool repeats_itself(ik_machine *m, ik_value v)
{
    const ik_desc *d = v.as.desc;
    if (d->numel.as.integer > LONGEST_OVERLAP)
        return true;
    size_t n = (size_t)d->numel.as.integer, count = 1;
    int64_t *offsets = malloc((n ? n : 1) * sizeof *offsets);
    if (offsets == NULL)
        stop(m, ik_fail(IK_OUT_OF_MEMORY, "no memory to see whether a tensor overlaps itself"));
    offsets[0] = 0;
    for (uint32_t i = 0; i < d->shape.as.sequence->count; i++) {
        size_t dim = (size_t)d->shape.as.sequence->items[i].as.integer;
        int64_t step = (int64_t)d->strides.as.sequence->items[i].as.integer;
        for (size_t k = dim; k-- > 0;)
            for (size_t j = 0; j < count; j++)
                offsets[k * count + j] = offsets[j] + (int64_t)k * step;
        count *= dim;
    }
    qsort(offsets, count, sizeof *offsets, by_value);
    bool repeated = false;
    for (size_t i = 1; i < count && !repeated; i++)
        repeated = offsets[i] == offsets[i - 1];
    free(offsets);
    return repeated;
}

static ik_value field(ik_machine *m, ik_value v, const char *name)
{
    if (v.tag == IK_V_DESC) {
        const ik_desc *d = v.as.desc;
        const struct {
            const char *name;
            ik_value value;
        } fields[] = { { "dtype", d->dtype }, { "shape", d->shape }, { "strides", d->strides }, { "offset", d->offset },
            { "numel", d->numel } };
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            if (strcmp(name, fields[i].name) == 0)
                return fields[i].value;
        for (size_t i = 0; i < sizeof ik_properties / sizeof *ik_properties; i++)
            if (strcmp(name, ik_properties[i].name) == 0)
                return call1(m, ik_properties[i].function, v);
    } else if (v.tag == IK_V_DTYPE) {
        const ik_dtype *d = dtype_of(m, v);
        if (strcmp(name, "name") == 0)
            return text_of(d->name, strlen(d->name));
        if (strcmp(name, "kind") == 0)
            return text_of(d->kind, strlen(d->kind));
        if (strcmp(name, "block") == 0)
            return integer(d->block);
        if (strcmp(name, "itemsize") == 0)
            return integer(d->itemsize);
        if (strcmp(name, "storage") == 0)
            return truth(d->storage != 0);
        if (strcmp(name, "compute") == 0)
            return (ik_value){ .tag = IK_V_DTYPE, .as.integer = d->compute };
    } else if (v.tag == IK_V_RECORD) {
        return field_of(m, v, name);
    } else if (v.tag == IK_V_SLICE) {
        return v.as.sequence->items[strcmp(name, "stop") == 0 ? 1 : 0];
    }
    fail(m, name);
}

/* Dim expressions of signatures: names, integers, sums and products */

typedef struct reader {
    ik_machine *machine;
    const char *at, *end;
    ik_value scope; /* unset where only the names are wanted */
    ik_value names;
} reader;

static ik_wide sum_of(reader *r);

static ik_wide factor_of(reader *r)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
    if (r->at < r->end && *r->at == '(') {
        r->at++;
        ik_wide inner = sum_of(r);
        r->at++;
        return inner;
    }
    const char *start = r->at;
    ik_wide number = 0;
    while (r->at < r->end
        && ((*r->at >= '0' && *r->at <= '9') || (*r->at >= 'a' && *r->at <= 'z') || (*r->at >= 'A' && *r->at <= 'Z')
            || *r->at == '_')) {
        number = number * 10 + (*r->at - '0');
        r->at++;
    }
    ik_value name = text_of(start, (size_t)(r->at - start));
    while (r->at < r->end && *r->at == ' ')
        r->at++;
    if (*start >= '0' && *start <= '9')
        return number;
    if (r->scope.tag == IK_V_UNSET) {
        append(r->machine, r->names, name);
        return 0;
    }
    return integer_of(r->machine, *item_at(r->machine, r->scope, name));
}

static ik_wide product_of(reader *r)
{
    ik_wide value = factor_of(r);
    while (r->at < r->end && *r->at == '*') {
        r->at++;
        value = integer_of(r->machine, binary(r->machine, IK_BINARY_MUL, integer(value), integer(factor_of(r))));
    }
    return value;
}

static ik_wide sum_of(reader *r)
{
    ik_wide value = product_of(r);
    while (r->at < r->end && *r->at == '+') {
        r->at++;
        value = integer_of(r->machine, binary(r->machine, IK_BINARY_ADD, integer(value), integer(product_of(r))));
    }
    return value;
}

/* Loop bodies: (kind, name, value) of each part, as `body_parts` of generic.py returns them */

int ik_find_function(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof ik_code_names / sizeof *ik_code_names; i++)
        if (strncmp(ik_code_names[i], "fn_", 3) == 0 && strlen(ik_code_names[i] + 3) == length
            && memcmp(ik_code_names[i] + 3, name, length) == 0)
            return (int)i;
    return -1;
}

int ik_count_operands(int code)
{
    static const int takes[] = IK_OPERANDS;
    return takes[code];
}

static ik_value body_parts(ik_machine *m, ik_value v)
{
    if (v.tag != IK_V_PROGRAM)
        fail(m, "a loop body is needed");
    ik_value parts = new_sequence(m, IK_V_LIST, 16);
    const ik_program *p = v.as.program;
    for (int64_t i = 0; i < p->count; i++) {
        const char *name = ik_code_names[p->v[i] & 255];
        ik_value part = new_sequence(m, IK_V_TUPLE, 3), value = integer(0);
        const char *kind = "other", *reported = name;
        if (strcmp(name, "const") == 0) {
            double number;
            memcpy(&number, &p->v[++i], sizeof number);
            value = floating(number);
            kind = name, reported = "";
        } else if (strcmp(name, "input") == 0) {
            value = integer(p->v[i] >> 8);
            kind = name, reported = "";
        } else if (strncmp(name, "fn_", 3) == 0) {
            kind = "call", reported = name + 3;
        }
        append(m, part, text_of(kind, strlen(kind)));
        append(m, part, text_of(reported, strlen(reported)));
        append(m, part, value);
        append(m, parts, part);
    }
    return parts;
}

/* Python's built-in functions */

static ik_value call_value(ik_machine *m, ik_value function, uint32_t given)
{
    if (function.tag != IK_V_FUNCTION)
        fail(m, "a function is needed");
    return run(m, function.as.closure.function, given, function.as.closure.frame);
}

static ik_value call1(ik_machine *m, int32_t function, ik_value argument)
{
    push(m, argument);
    return run(m, function, 1, NULL);
}

/* A stable insertion sort, for a few items; each key is computed once. */
static ik_value sort(ik_machine *m, ik_value given, ik_value key)
{
    ik_value items = copy_as(m, given, IK_V_LIST), keys = new_sequence(m, IK_V_LIST, items.as.sequence->count);
    for (uint32_t i = 0; i < items.as.sequence->count; i++) {
        ik_value item = items.as.sequence->items[i];
        if (key.tag != IK_V_NONE) {
            push(m, item);
            append(m, keys, call_value(m, key, 1));
        } else {
            append(m, keys, item);
        }
    }
    ik_value *x = items.as.sequence->items, *k = keys.as.sequence->items;
    for (uint32_t i = 1; i < items.as.sequence->count; i++)
        for (uint32_t j = i; j > 0 && compare(m, k[j], k[j - 1]) < 0; j--) {
            ik_value item = x[j], order = k[j];
            x[j] = x[j - 1], k[j] = k[j - 1];
            x[j - 1] = item, k[j - 1] = order;
        }
    return items;
}

static ik_value unique(ik_machine *m, ik_value given)
{
    ik_value from = sequence_of(m, given), once = new_sequence(m, IK_V_LIST, from.as.sequence->count);
    for (uint32_t i = 0; i < from.as.sequence->count; i++)
        if (!contains(m, once, from.as.sequence->items[i]))
            append(m, once, from.as.sequence->items[i]);
    return once;
}

static ik_value zip(ik_machine *m, const ik_value *given, uint32_t count)
{
    ik_value result = new_sequence(m, IK_V_LIST, 8);
    ik_value columns = new_sequence(m, IK_V_LIST, count);
    for (uint32_t i = 0; i < count; i++) {
        append(m, columns, sequence_of(m, given[i]));
        if (columns.as.sequence->items[i].as.sequence->count != columns.as.sequence->items[0].as.sequence->count)
            fail(m, "zip of different lengths");
    }
    for (uint32_t r = 0; count > 0 && r < columns.as.sequence->items[0].as.sequence->count; r++) {
        ik_value row = new_sequence(m, IK_V_TUPLE, count);
        for (uint32_t i = 0; i < count; i++)
            append(m, row, columns.as.sequence->items[i].as.sequence->items[r]);
        append(m, result, row);
    }
    return result;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_word(char c) { return is_letter(c) || c == '_' || (c >= '0' && c <= '9'); }

/* An expression with names replaced by other expressions. */
static ik_value substitute(ik_machine *m, ik_value text, const ik_map *values)
{
    writer w = { .machine = m };
    const char *end = text.as.text + text.length;
    for (const char *at = text.as.text; at < end;) {
        const char *start = at;
        const bool number = (*at >= '0' && *at <= '9') || *at == '.';
        while (at < end && (is_word(*at) || (number && (*at == '.' || ((*at == '-' || *at == '+') && at[-1] == 'e')))))
            at++;
        if (at == start) {
            put(&w, at++, 1);
            continue;
        }
        const ik_value word = text_of(start, (size_t)(at - start));
        const ik_value *found = number ? NULL : find_key(values, word);
        put_text(&w, found != NULL ? "(" : "");
        put(&w, found != NULL ? found->as.text : start, found != NULL ? found->length : word.length);
        put_text(&w, found != NULL ? ")" : "");
    }
    return writer_text(&w);
}

static ik_value best_by(ik_machine *m, ik_value given, ik_value key, bool largest)
{
    const ik_sequence *s = sequence_of(m, given).as.sequence;
    ik_value best = NONE, best_key = NONE;
    if (s->count == 0)
        fail(m, "the largest of nothing");
    for (uint32_t i = 0; i < s->count; i++) {
        push(m, s->items[i]);
        ik_value own = call_value(m, key, 1);
        int order = i == 0 ? 0 : compare(m, own, best_key);
        if (i == 0 || (largest ? order > 0 : order < 0))
            best = s->items[i], best_key = own;
    }
    return best;
}

/* The record of the operator of a name. */
static ik_value find_record(ik_machine *m, ik_value name)
{
    for (size_t i = 0; i < sizeof ik_records / sizeof *ik_records; i++)
        if (equal(field_of(m, ik_records[i], "name"), name))
            return ik_records[i];
    fail(m, "no operator has this name");
}

static ik_value builtin(ik_machine *m, int32_t which, const ik_value *x, uint32_t n)
{
    switch (which) {
    case IK_BUILTIN_LEN:
        if (x[0].tag == IK_V_TEXT)
            return integer(x[0].length);
        return integer(x[0].tag == IK_V_MAP ? x[0].as.map->count : sequence_of(m, x[0]).as.sequence->count);
    case IK_BUILTIN_RANGE: {
        ik_wide start = n > 1 ? integer_of(m, x[0]) : 0, end = integer_of(m, x[n > 1]),
                step = n > 2 ? integer_of(m, x[2]) : 1;
        ik_value numbers = new_sequence(m, IK_V_LIST, 8);
        if (step == 0)
            fail(m, "a range in steps of 0");
        for (ik_wide i = start; step > 0 ? i < end : i > end; i += step)
            append(m, numbers, integer(i));
        return numbers;
    }
    case IK_BUILTIN_SUM: {
        ik_value s = sequence_of(m, x[0]), total = integer(0);
        for (uint32_t i = 0; i < s.as.sequence->count; i++)
            total = binary(m, IK_BINARY_ADD, total, s.as.sequence->items[i]);
        return total;
    }
    case IK_BUILTIN_MAX:
    case IK_BUILTIN_MIN: {
        ik_value s = n == 1 ? sequence_of(m, x[0]) : NONE;
        const ik_value *items = n == 1 ? s.as.sequence->items : x;
        uint32_t count = n == 1 ? s.as.sequence->count : n;
        if (count == 0)
            fail(m, "the largest of nothing");
        ik_value best = items[0];
        for (uint32_t i = 1; i < count; i++) {
            int order = compare(m, items[i], best);
            if (which == IK_BUILTIN_MAX ? order > 0 : order < 0)
                best = items[i];
        }
        return best;
    }
    case IK_BUILTIN_ABS: {
        if (x[0].tag == IK_V_FLOAT)
            return floating(x[0].as.number < 0 ? -x[0].as.number : x[0].as.number);
        ik_wide value = integer_of(m, x[0]);
        return integer(value < 0 ? -value : value);
    }
    case IK_BUILTIN_ANY:
    case IK_BUILTIN_ALL: {
        ik_value s = sequence_of(m, x[0]);
        for (uint32_t i = 0; i < s.as.sequence->count; i++)
            if (truth_of(s.as.sequence->items[i]) == (which == IK_BUILTIN_ANY))
                return truth(which == IK_BUILTIN_ANY);
        return truth(which == IK_BUILTIN_ALL);
    }
    case IK_BUILTIN_REVERSED: {
        ik_value s = sequence_of(m, x[0]), back = new_sequence(m, IK_V_LIST, s.as.sequence->count);
        for (uint32_t i = s.as.sequence->count; i-- > 0;)
            append(m, back, s.as.sequence->items[i]);
        return back;
    }
    case IK_BUILTIN_SORTED: return sort(m, x[0], NONE);
    case IK_BUILTIN_ZIP: return zip(m, x, n);
    case IK_BUILTIN_ENUMERATE: {
        ik_value s = sequence_of(m, x[0]), numbers = new_sequence(m, IK_V_LIST, s.as.sequence->count);
        for (uint32_t i = 0; i < s.as.sequence->count; i++)
            append(m, numbers, integer(i + (n > 1 ? integer_of(m, x[1]) : 0)));
        const ik_value both[2] = { numbers, s };
        return zip(m, both, 2);
    }
    case IK_BUILTIN_ITER: {
        ik_iterator *iterator = memory(m, sizeof *iterator);
        *iterator = (ik_iterator){ .sequence = sequence_of(m, x[0]).as.sequence };
        return (ik_value){ .tag = IK_V_ITERATOR, .as.iterator = iterator };
    }
    case IK_BUILTIN_NEXT:
        if (x[0].tag != IK_V_ITERATOR || x[0].as.iterator->at >= x[0].as.iterator->sequence->count)
            fail(m, "there is no next item");
        return x[0].as.iterator->sequence->items[x[0].as.iterator->at++];
    case IK_BUILTIN_LIST: return n ? copy_as(m, x[0], IK_V_LIST) : new_sequence(m, IK_V_LIST, 4);
    case IK_BUILTIN_TUPLE: return n ? copy_as(m, x[0], IK_V_TUPLE) : new_sequence(m, IK_V_TUPLE, 1);
    case IK_BUILTIN_SET: return n ? unique(m, x[0]) : new_sequence(m, IK_V_LIST, 4);
    case IK_BUILTIN_FROMKEYS: {
        ik_value keys = unique(m, x[0]), map = new_map(m, keys.as.sequence->count);
        for (uint32_t i = 0; i < keys.as.sequence->count; i++)
            set_key(m, map, keys.as.sequence->items[i], n > 1 ? x[1] : NONE);
        return n > 1 ? map : keys;
    }
    case IK_BUILTIN_PRODUCT: { /* of iterables: the last one changes first */
        ik_value rows = new_sequence(m, IK_V_LIST, 8), lists = sequence_of(m, x[0]);
        append(m, rows, new_sequence(m, IK_V_TUPLE, 1));
        for (uint32_t i = 0; i < lists.as.sequence->count; i++) {
            ik_value longer = new_sequence(m, IK_V_LIST, 8), items = sequence_of(m, lists.as.sequence->items[i]);
            for (uint32_t r = 0; r < rows.as.sequence->count; r++)
                for (uint32_t k = 0; k < items.as.sequence->count; k++) {
                    ik_value row = copy_as(m, rows.as.sequence->items[r], IK_V_TUPLE);
                    append(m, row, items.as.sequence->items[k]);
                    append(m, longer, row);
                }
            rows = longer;
        }
        return rows;
    }
    case IK_BUILTIN_DICT: {
        ik_value map = new_map(m, 0), s = n ? sequence_of(m, x[0]) : new_sequence(m, IK_V_LIST, 1);
        for (uint32_t i = 0; i < s.as.sequence->count; i++) {
            ik_value pair = sequence_of(m, s.as.sequence->items[i]);
            set_key(m, map, subscript(m, pair, integer(0)), subscript(m, pair, integer(1)));
        }
        return map;
    }
    case IK_BUILTIN_SLICE: {
        ik_value bounds = new_sequence(m, IK_V_SLICE, 3);
        append(m, bounds, n > 1 ? x[0] : NONE);
        append(m, bounds, n > 1 ? x[1] : x[0]);
        append(m, bounds, n > 2 ? x[2] : NONE);
        return bounds;
    }
    case IK_BUILTIN_PROD: return product(m, x[0]);
    case IK_BUILTIN_ACCUMULATE: {
        ik_value s = sequence_of(m, x[0]), sums = new_sequence(m, IK_V_LIST, 8), total = integer(0);
        for (uint32_t i = 0; i < s.as.sequence->count; i++) {
            total = binary(m, IK_BINARY_ADD, total, s.as.sequence->items[i]);
            append(m, sums, total);
        }
        return sums;
    }
    case IK_BUILTIN_DESC: return new_desc(m, x[0], x[1], x[2], x[3]);
    case IK_BUILTIN_REPEATS: return truth(repeats_itself(m, x[0]));
    case IK_BUILTIN_NAMES_IN:
    case IK_BUILTIN_EVALUATE: {
        reader r = { .machine = m, .at = x[0].as.text, .end = x[0].as.text + x[0].length };
        if (which == IK_BUILTIN_EVALUATE) {
            r.scope = x[1];
            return integer(sum_of(&r));
        }
        r.names = new_sequence(m, IK_V_LIST, 4);
        sum_of(&r);
        return r.names;
    }
    case IK_BUILTIN_BODY_PARTS: return body_parts(m, x[0]);
    case IK_BUILTIN_MAX_BY:
    case IK_BUILTIN_MIN_BY: return best_by(m, x[0], x[1], which == IK_BUILTIN_MAX_BY);
    case IK_BUILTIN_SORTED_BY: return sort(m, x[0], x[1]);
    case IK_BUILTIN_UNZIP: {
        ik_value rows = sequence_of(m, x[0]);
        return zip(m, rows.as.sequence->items, rows.as.sequence->count);
    }
    case IK_BUILTIN_IS_SEQUENCE: return truth(is_sequence(x[0]));
    case IK_BUILTIN_IS_FLOAT: return truth(x[0].tag == IK_V_FLOAT);
    case IK_BUILTIN_RECORD: return (ik_value){ .tag = IK_V_RECORD, .as.map = x[0].as.map };
    case IK_BUILTIN_EMIT: {
        ik_value made;
        ik_status status = m->emit(m->emitter, x[0], x[1], x[2], x[3], &made);
        if (status != IK_SUCCESS)
            stop(m, status);
        return made;
    }
    case IK_BUILTIN_FIND: return find_record(m, x[0]);
    case IK_BUILTIN_GCD: {
        ik_wide a = integer_of(m, x[0]), b = integer_of(m, x[1]);
        while (b != 0) {
            ik_wide rest = a % b;
            a = b, b = rest;
        }
        return integer(a < 0 ? -a : a);
    }
    case IK_BUILTIN_POW_MODULO: { /* an inverse is searched for: the numbers are steps of windows */
        ik_wide base = integer_of(m, x[0]), modulus = integer_of(m, x[2]);
        if (integer_of(m, x[1]) != -1 || modulus <= 0)
            fail(m, "an inverse is needed");
        for (ik_wide i = 0; i < modulus; i++)
            if ((base % modulus * i - 1) % modulus == 0)
                return integer(i);
        fail(m, "a number has no inverse");
    }
    case IK_BUILTIN_FLOOR: return floor_of(m, number_of(m, x[0]));
    case IK_BUILTIN_CEIL: return integer(-floor_of(m, -number_of(m, x[0])).as.integer);
    case IK_BUILTIN_ROUND: { /* to the nearest, and of two to the even one */
        const double value = number_of(m, x[0]);
        ik_wide low = floor_of(m, value).as.integer;
        const double over = value - (double)low;
        return integer(low + (over > 0.5 || (over == 0.5 && (low & 1) != 0)));
    }
    case IK_BUILTIN_INT: {
        if (is_integer(x[0]))
            return integer(x[0].as.integer);
        const double value = number_of(m, x[0]);
        return value < 0 ? integer(-floor_of(m, -value).as.integer) : floor_of(m, value);
    }
    case IK_BUILTIN_FLOAT: return floating(number_of(m, x[0]));
    case IK_BUILTIN_FLOAT32: return floating((double)(float)number_of(m, x[0]));
    case IK_BUILTIN_BOOL: return truth(truth_of(x[0]));
    case IK_BUILTIN_STR: return format(m, x[0], 0);
    case IK_BUILTIN_REPR: return format(m, x[0], 1);
    case IK_BUILTIN_ISNAN: return truth(isnan(number_of(m, x[0])));
    case IK_BUILTIN_ISINF: return truth(isinf(number_of(m, x[0])));
    case IK_BUILTIN_ISFINITE: return truth(isfinite(number_of(m, x[0])));
    case IK_BUILTIN_SQRT: return floating(__builtin_sqrt(number_of(m, x[0])));
    /* Expressions are texts here */
    case IK_BUILTIN_EXPR: return format(m, x[1], 0);
    case IK_BUILTIN_PARSE:
    case IK_BUILTIN_TO_TEXT: return x[0];
    case IK_BUILTIN_SUBSTITUTE: return substitute(m, x[0], x[1].as.map);
    default: fail(m, "no such function");
    }
}

static ik_value text_method(ik_machine *m, int32_t which, ik_value self, const ik_value *x, uint32_t n)
{
    const char *data = self.as.text, *end = data + self.length;
    switch (which) {
    case IK_METHOD_ISIDENTIFIER:
    case IK_METHOD_ISALPHA:
        for (const char *c = data; c < end; c++)
            if (!is_letter(*c) && (which == IK_METHOD_ISALPHA || (*c != '_' && (c == data || *c < '0' || *c > '9'))))
                return truth(false);
        return truth(self.length > 0);
    case IK_METHOD_STARTSWITH: return truth(self.length >= x[0].length && memcmp(data, x[0].as.text, x[0].length) == 0);
    case IK_METHOD_REPLACE: {
        writer w = { .machine = m };
        for (const char *c = data; c < end;) {
            if (x[0].length && (size_t)(end - c) >= x[0].length && memcmp(c, x[0].as.text, x[0].length) == 0) {
                put(&w, x[1].as.text, x[1].length);
                c += x[0].length;
            } else {
                put(&w, c++, 1);
            }
        }
        return writer_text(&w);
    }
    case IK_METHOD_PARTITION: {
        const char *at = find_text(self, x[0]);
        ik_value parts = new_sequence(m, IK_V_TUPLE, 3);
        append(m, parts, at == NULL ? self : text_of(data, (size_t)(at - data)));
        append(m, parts, at == NULL ? text_of("", 0) : x[0]);
        append(m, parts, at == NULL ? text_of("", 0) : text_of(at + x[0].length, (size_t)(end - at) - x[0].length));
        return parts;
    }
    case IK_METHOD_SPLIT: {
        ik_value parts = new_sequence(m, IK_V_LIST, 4);
        const char *start = data;
        for (const char *c = data; c < end; c++)
            if (*c == *x[0].as.text) {
                append(m, parts, text_of(start, (size_t)(c - start)));
                start = c + 1;
            }
        append(m, parts, text_of(start, (size_t)(end - start)));
        return parts;
    }
    case IK_METHOD_JOIN: {
        writer w = { .machine = m };
        ik_value s = sequence_of(m, x[0]);
        for (uint32_t i = 0; i < s.as.sequence->count; i++) {
            if (i > 0)
                put(&w, data, self.length);
            put(&w, s.as.sequence->items[i].as.text, s.as.sequence->items[i].length);
        }
        return writer_text(&w);
    }
    case IK_METHOD_INDEX: {
        const char *at = find_text(self, x[0]);
        if (at == NULL)
            fail(m, "a text is not in another");
        return integer(at - data);
    }
    case IK_METHOD_FORMAT: { /* "{name}" becomes the text of the name's value, "{}" that of the next one */
        writer w = { .machine = m };
        uint32_t next = 0;
        for (const char *c = data; c < end; c++) {
            const char *close = *c == '{' ? memchr(c, '}', (size_t)(end - c)) : NULL;
            if (close == NULL) {
                put(&w, c, 1);
                continue;
            }
            if (close == c + 1 && next == n)
                fail(m, "a text has more places than values");
            ik_value given = close == c + 1 ? x[next++] : *item_at(m, x[0], text_of(c + 1, (size_t)(close - c - 1)));
            ik_value shown = format(m, given, 0);
            put(&w, shown.as.text, shown.length);
            c = close;
        }
        return writer_text(&w);
    }
    case IK_METHOD_COUNT: {
        ik_wide count = 0;
        for (const char *c = data; c + x[0].length <= end && x[0].length > 0;) {
            const bool found = memcmp(c, x[0].as.text, x[0].length) == 0;
            count += found;
            c += found ? x[0].length : 1;
        }
        return integer(count);
    }
    default: fail(m, "a text has no such method");
    }
}

static ik_value method(ik_machine *m, int32_t which, ik_value self, const ik_value *x, uint32_t n)
{
    if (self.tag == IK_V_TEXT)
        return text_method(m, which, self, x, n);
    if (self.tag == IK_V_MAP) {
        ik_value *found = n > 0 ? find_key(self.as.map, x[0]) : NULL;
        switch (which) {
        case IK_METHOD_KEYS: return sequence_of(m, self);
        case IK_METHOD_VALUES: {
            ik_value values = new_sequence(m, IK_V_LIST, self.as.map->count);
            for (uint32_t i = 0; i < self.as.map->count; i++)
                append(m, values, self.as.map->pairs[2 * i + 1]);
            return values;
        }
        case IK_METHOD_GET: return found != NULL ? *found : n > 1 ? x[1] : NONE;
        case IK_METHOD_SETDEFAULT:
            if (found != NULL)
                return *found;
            set_key(m, self, x[0], x[1]);
            return x[1];
        case IK_METHOD_ITEMS: {
            ik_value pairs = new_sequence(m, IK_V_LIST, self.as.map->count);
            for (uint32_t i = 0; i < self.as.map->count; i++) {
                ik_value pair = new_sequence(m, IK_V_TUPLE, 2);
                append(m, pair, self.as.map->pairs[2 * i]);
                append(m, pair, self.as.map->pairs[2 * i + 1]);
                append(m, pairs, pair);
            }
            return pairs;
        }
        default: fail(m, "a mapping has no such method");
        }
    }
    if (which == IK_METHOD_BIT_LENGTH) {
        ik_wide rest = integer_of(m, self), bits = 0;
        for (rest = rest < 0 ? -rest : rest; rest > 0; rest >>= 1)
            bits++;
        return integer(bits);
    }
    if (!is_sequence(self))
        fail(m, "this has no methods");
    switch (which) {
    case IK_METHOD_APPEND: append(m, self, x[0]); return NONE;
    case IK_METHOD_EXTEND: {
        const ik_sequence *more = sequence_of(m, x[0]).as.sequence;
        for (uint32_t i = 0; i < more->count; i++)
            append(m, self, more->items[i]);
        return NONE;
    }
    case IK_METHOD_INSERT:
    case IK_METHOD_POP: {
        ik_sequence *s = self.as.sequence;
        if (which == IK_METHOD_INSERT)
            append(m, self, NONE);
        const ik_value last = integer(-1), popped = *item_at(m, self, n == 0 ? last : x[0]);
        const uint32_t at = (uint32_t)(item_at(m, self, n == 0 ? last : x[0]) - s->items);
        if (which == IK_METHOD_POP) {
            memmove(s->items + at, s->items + at + 1, (--s->count - at) * sizeof *s->items);
            return popped;
        }
        memmove(s->items + at + 1, s->items + at, (s->count - 1 - at) * sizeof *s->items);
        s->items[at] = x[1];
        return NONE;
    }
    case IK_METHOD_COUNT: {
        ik_wide count = 0;
        for (uint32_t i = 0; i < self.as.sequence->count; i++)
            count += equal(self.as.sequence->items[i], x[0]);
        return integer(count);
    }
    case IK_METHOD_ADD:
        if (!contains(m, self, x[0]))
            append(m, self, x[0]);
        return NONE;
    case IK_METHOD_SORT: *self.as.sequence = *sort(m, self, n ? x[0] : NONE).as.sequence; return NONE;
    case IK_METHOD_INDEX:
        for (uint32_t i = 0; i < self.as.sequence->count; i++)
            if (equal(self.as.sequence->items[i], x[0]))
                return integer(i);
        fail(m, "an item is not in a sequence");
    default: fail(m, "a sequence has no such method");
    }
}

/* Running code */

static void unpack(ik_machine *m, ik_value v, uint32_t before, uint32_t after, bool starred)
{
    const ik_sequence *s = sequence_of(m, v).as.sequence;
    if (starred ? s->count < before + after : s->count != before)
        fail(m, "a sequence is not as long as what it is assigned to");
    for (uint32_t i = s->count; i-- > s->count - after;)
        push(m, s->items[i]);
    if (starred) {
        ik_value middle = new_sequence(m, IK_V_LIST, s->count - before - after);
        for (uint32_t i = before; i < s->count - after; i++)
            append(m, middle, s->items[i]);
        push(m, middle);
    }
    for (uint32_t i = before; i-- > 0;)
        push(m, s->items[i]);
}

static _Noreturn void raise_error(ik_machine *m, ik_status status, const ik_value *texts)
{
    writer w = { .machine = m };
    const char *const before[4] = { "", ": ", "; allowed: ", "; " };
    for (int i = 0; i < 4; i++) {
        if (i > 1 && texts[i].length == 0)
            continue;
        put_text(&w, before[i]);
        put(&w, texts[i].as.text, texts[i].length);
    }
    put(&w, "", 1);
    stop(m, ik_fail(status, "%s", w.data));
}

/* Run one instruction that takes its operands from the stack and leaves its result there; `run` handles those that
 * jump. */
static void step(ik_machine *m, int32_t op, const int32_t *operands, ik_frame *frame)
{
    ik_value *top = &m->stack[m->height];
    switch (op) {
    case IK_DO_CONST: push(m, ik_constants[operands[0]]); return;
    case IK_DO_LOAD: push(m, frame->slots[operands[0]]); return;
    case IK_DO_LOAD_OUTER: {
        const ik_frame *f = frame;
        for (int32_t level = operands[0]; level > 0; level--)
            f = f->outer;
        push(m, f->slots[operands[1]]);
        return;
    }
    case IK_DO_STORE: frame->slots[operands[0]] = m->stack[--m->height]; return;
    case IK_DO_POP: m->height--; return;
    case IK_DO_LIST: push(m, new_sequence(m, IK_V_LIST, 4)); return;
    case IK_DO_APPEND:
        append(m, top[-2], top[-1]);
        m->height--;
        return;
    case IK_DO_APPEND_TO: append(m, frame->slots[operands[0]], m->stack[--m->height]); return;
    case IK_DO_EXTEND: {
        const ik_sequence *s = sequence_of(m, top[-1]).as.sequence;
        for (uint32_t i = 0; i < s->count; i++)
            append(m, top[-2], s->items[i]);
        m->height--;
        return;
    }
    case IK_DO_TUPLE: top[-1].tag = IK_V_TUPLE; return;
    case IK_DO_UNPACK:
    case IK_DO_UNPACK_STAR:
        m->height--;
        unpack(
            m, top[-1], (uint32_t)operands[0], op == IK_DO_UNPACK ? 0 : (uint32_t)operands[1], op == IK_DO_UNPACK_STAR);
        return;
    case IK_DO_SPREAD: {
        const ik_sequence *s = sequence_of(m, m->stack[--m->height]).as.sequence;
        if (s->count != (uint32_t)operands[0])
            fail(m, "a call does not fit its function");
        for (uint32_t i = 0; i < s->count; i++)
            push(m, s->items[i]);
        return;
    }
    case IK_DO_BINARY:
        top[-2] = binary(m, operands[0], top[-2], top[-1]);
        m->height--;
        return;
    case IK_DO_NEGATE:
        top[-1] = top[-1].tag == IK_V_FLOAT ? floating(-top[-1].as.number) : integer(-integer_of(m, top[-1]));
        return;
    case IK_DO_NOT: top[-1] = truth(!truth_of(top[-1])); return;
    case IK_DO_COMPARE:
        top[-2] = truth(compare_by(m, operands[0], top[-2], top[-1]));
        m->height--;
        return;
    case IK_DO_INDEX:
        top[-2] = subscript(m, top[-2], top[-1]);
        m->height--;
        return;
    case IK_DO_SLICE:
        top[-4] = slice(m, top[-4], top[-3], top[-2], top[-1]);
        m->height -= 3;
        return;
    case IK_DO_STORE_INDEX:
        if (top[-2].tag == IK_V_MAP)
            set_key(m, top[-2], top[-1], top[-3]);
        else
            *item_at(m, top[-2], top[-1]) = top[-3];
        m->height -= 3;
        return;
    case IK_DO_FIELD: {
        ik_value found = field(m, top[-1], ik_names[operands[0]]);
        m->stack[m->height - 1] = found;
        return;
    }
    case IK_DO_METHOD:
    case IK_DO_BUILTIN: {
        uint32_t n = (uint32_t)operands[1], popped = n + (op == IK_DO_METHOD);
        const ik_value *x = top - n;
        ik_value made = op == IK_DO_METHOD ? method(m, operands[0], x[-1], x, n) : builtin(m, operands[0], x, n);
        m->height -= popped;
        push(m, made);
        return;
    }
    case IK_DO_CALL: push(m, run(m, operands[0], (uint32_t)operands[1], NULL)); return;
    case IK_DO_CALL_VALUE: {
        ik_value function = top[-1 - operands[0]], made = call_value(m, function, (uint32_t)operands[0]);
        m->stack[m->height - 1] = made; /* replaces the function on the stack: its arguments are gone */
        return;
    }
    case IK_DO_CLOSURE: push(m, (ik_value){ .tag = IK_V_FUNCTION, .as.closure = { operands[0], frame } }); return;
    case IK_DO_RAISE: raise_error(m, operands[0], top - 4);
    case IK_DO_FORMAT: {
        ik_value made = format(m, top[-1], operands[0]);
        m->stack[m->height - 1] = made;
        return;
    }
    case IK_DO_JOIN: {
        writer w = { .machine = m };
        for (int32_t i = 0; i < operands[0]; i++)
            put(&w, top[i - operands[0]].as.text, top[i - operands[0]].length);
        m->height -= (uint32_t)operands[0];
        push(m, writer_text(&w));
        return;
    }
    case IK_DO_ITERATE: {
        const ik_value given = top[-1];
        m->stack[m->height - 1] = given.tag == IK_V_ITERATOR ? given : builtin(m, IK_BUILTIN_ITER, &given, 1);
        return;
    }
    case IK_DO_MAP: push(m, new_map(m, 0)); return;
    case IK_DO_MAP_SET:
        set_key(m, top[-3], top[-2], top[-1]);
        m->height -= 2;
        return;
    case IK_DO_MAP_UPDATE:
        for (uint32_t i = 0; i < top[-1].as.map->count; i++)
            set_key(m, top[-2], top[-1].as.map->pairs[2 * i], top[-1].as.map->pairs[2 * i + 1]);
        m->height--;
        return;
    default: fail(m, "no such instruction");
    }
}

/* Number of operand words after each instruction */
static int32_t width_of(int32_t op)
{
    switch (op) {
    case IK_DO_CONST:
    case IK_DO_LOAD:
    case IK_DO_STORE:
    case IK_DO_APPEND_TO:
    case IK_DO_UNPACK:
    case IK_DO_SPREAD:
    case IK_DO_BINARY:
    case IK_DO_COMPARE:
    case IK_DO_JUMP:
    case IK_DO_JUMP_FALSE:
    case IK_DO_JUMP_TRUE_KEEP:
    case IK_DO_JUMP_FALSE_KEEP:
    case IK_DO_FIELD:
    case IK_DO_CALL_VALUE:
    case IK_DO_CLOSURE:
    case IK_DO_RAISE:
    case IK_DO_FORMAT:
    case IK_DO_JOIN: return 1;
    case IK_DO_LOAD_OUTER:
    case IK_DO_UNPACK_STAR:
    case IK_DO_METHOD:
    case IK_DO_CALL:
    case IK_DO_BUILTIN:
    case IK_DO_NEXT: return 2;
    default: return 0;
    }
}

/* Run a function whose arguments are on top of the stack, and pop them. */
static ik_value run(ik_machine *m, int32_t function, uint32_t given, ik_frame *outer)
{
    const ik_function *f = &ik_functions[function];
    if ((uint32_t)f->parameters != given || m->height < given || m->depth >= DEPTH)
        fail(m, "a call does not fit its function");
    ik_frame *frame = memory(m, sizeof *frame);
    *frame = (ik_frame){ .slots = memory(m, ((size_t)f->slots + 1) * sizeof(ik_value)), .outer = outer };
    memset(frame->slots, 0, (size_t)f->slots * sizeof(ik_value));
    m->height -= given;
    memcpy(frame->slots, &m->stack[m->height], given * sizeof(ik_value));
    m->depth++;
    const int32_t *code = ik_code + f->start;
    for (int32_t at = 0;;) {
        int32_t op = code[at];
        const int32_t *operands = code + at + 1;
        at += 1 + width_of(op);
        switch (op) {
        case IK_DO_RETURN: m->depth--; return m->stack[--m->height];
        case IK_DO_JUMP: at = operands[0]; break;
        case IK_DO_JUMP_FALSE:
            if (!truth_of(m->stack[--m->height]))
                at = operands[0];
            break;
        case IK_DO_JUMP_TRUE_KEEP:
        case IK_DO_JUMP_FALSE_KEEP:
            if (truth_of(m->stack[m->height - 1]) == (op == IK_DO_JUMP_TRUE_KEEP))
                at = operands[0];
            else
                m->height--;
            break;
        case IK_DO_NEXT: {
            ik_iterator *iterator = frame->slots[operands[0]].as.iterator;
            if (iterator->at < iterator->sequence->count)
                push(m, iterator->sequence->items[iterator->at++]);
            else
                at = operands[1];
            break;
        }
        default: step(m, op, operands, frame);
        }
    }
}

/* The entry points that ik_op_create calls */

static ik_status enter(ik_machine *m, int32_t function, const ik_value *given, uint32_t count, ik_value *result)
{
    IK_ENTER(m, before)
    for (uint32_t i = 0; i < count; i++)
        push(m, given[i]);
    *result = run(m, function, count, NULL);
    restore(m, &before);
    return IK_SUCCESS;
}

ik_status ik_machine_settle(
    ik_machine *machine, uint32_t operator_, ik_value inputs, ik_value outputs, ik_value attributes, ik_value *result)
{
    const ik_value given[4] = { ik_records[operator_], inputs, outputs, attributes };
    return enter(machine, IK_ENTRY_SETTLE, given, 4, result);
}

ik_status ik_machine_infer(
    ik_machine *machine, uint32_t operator_, ik_value inputs, ik_value attributes, ik_value dtypes, ik_value *result)
{
    const ik_value given[4] = { ik_records[operator_], inputs, attributes, dtypes };
    return enter(machine, IK_ENTRY_INFER, given, 4, result);
}

bool ik_machine_shares(uint32_t operator_) { return ik_shares[operator_] != 0; }

bool ik_machine_decomposes(uint32_t operator_) { return ik_decompositions[operator_] >= 0; }

ik_status ik_machine_decompose(ik_machine *machine, uint32_t operator_, ik_emit *emit, void *emitter, ik_value inputs,
    ik_value attributes, ik_value outputs, ik_value *result)
{
    const ik_value given[4] = { NONE, inputs, attributes, outputs };
    machine->emit = emit;
    machine->emitter = emitter;
    ik_status status = enter(machine, ik_decompositions[operator_], given, 4, result);
    if (status == IK_SUCCESS && !is_sequence(*result))
        status = ik_machine_sequence(machine, IK_V_TUPLE, result, 1, result);
    return status;
}

ik_status ik_machine_value(ik_machine *machine, ik_value spec, uint32_t number, ik_value *result)
{
    IK_ENTER(machine, before)
    ik_value value = new_map(machine, 2);
    set_key(machine, value, text_of("spec", 4), spec);
    set_key(machine, value, text_of("number", 6), integer(number));
    value.tag = IK_V_RECORD;
    *result = value;
    restore(machine, &before);
    return IK_SUCCESS;
}

ik_value ik_machine_field(ik_value record, const char *name)
{
    const ik_value *found = find_key(record.as.map, text_of(name, strlen(name)));
    return found != NULL ? *found : NONE;
}

ik_status ik_machine_describe(ik_machine *machine, const ik_tensor *tensor, ik_value *result)
{
    IK_ENTER(machine, before)
    ik_value shape = new_sequence(machine, IK_V_TUPLE, (uint32_t)tensor->ndim),
             strides = new_sequence(machine, IK_V_TUPLE, (uint32_t)tensor->ndim);
    for (int32_t i = 0; i < tensor->ndim; i++) {
        append(machine, shape, integer(tensor->shape[i]));
        append(machine, strides, integer(tensor->strides[i]));
    }
    *result = new_desc(
        machine, (ik_value){ .tag = IK_V_DTYPE, .as.integer = tensor->dtype }, shape, strides, integer(tensor->offset));
    restore(machine, &before);
    return IK_SUCCESS;
}

ik_status ik_machine_map(ik_machine *machine, const ik_value *pairs, uint32_t count, ik_value *result)
{
    IK_ENTER(machine, before)
    ik_value map = new_map(machine, count);
    for (uint32_t i = 0; i < count; i++)
        set_key(machine, map, pairs[2 * i], pairs[2 * i + 1]);
    *result = map;
    restore(machine, &before);
    return IK_SUCCESS;
}

ik_status ik_machine_sequence(ik_machine *machine, ik_tag tag, const ik_value *items, uint32_t count, ik_value *result)
{
    IK_ENTER(machine, before)
    ik_value list = new_sequence(machine, tag, count);
    for (uint32_t i = 0; i < count; i++)
        append(machine, list, items[i]);
    *result = list;
    restore(machine, &before);
    return IK_SUCCESS;
}

ik_status ik_machine_text(ik_machine *machine, ik_value value, const char **text)
{
    IK_ENTER(machine, before)
    writer w = { .machine = machine };
    put_value(&w, value, true);
    put(&w, "", 1);
    *text = w.data;
    restore(machine, &before);
    return IK_SUCCESS;
}

void ik_machine_pack(const ik_value *desc, ik_tensor *tensor)
{
    *tensor = (ik_tensor){ .dtype = IK_NONE };
    if (desc->tag != IK_V_DESC)
        return;
    const ik_desc *d = desc->as.desc;
    tensor->dtype = (int32_t)d->dtype.as.integer;
    tensor->ndim = (int32_t)d->shape.as.sequence->count;
    tensor->offset = (int64_t)d->offset.as.integer;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        tensor->shape[i] = (int64_t)d->shape.as.sequence->items[i].as.integer;
        tensor->strides[i] = (int64_t)d->strides.as.sequence->items[i].as.integer;
    }
}
