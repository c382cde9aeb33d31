/* The virtual machine that runs what the declarations compute in Python: inference of outputs, checks, normal forms.
 * isokern/cabi/inference compiles its code.
 *
 * Values are Python's: integers (of 128 bits, so that a product of two dims is exact), floats, texts, tuples, lists,
 * mappings, and descriptions of tensors. All of them are in the machine's own memory, which ik_machine_destroy
 * frees. */
#ifndef ISOKERN_INFERENCE_H
#define ISOKERN_INFERENCE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "isokern_abi.h"

#pragma GCC visibility push(hidden) /* the machine's symbols are internal to the library */

__extension__ typedef __int128 ik_wide;

typedef enum ik_tag {
    IK_V_UNSET,
    IK_V_NONE,
    IK_V_BOOL,
    IK_V_INT,
    IK_V_FLOAT,
    IK_V_TEXT,
    IK_V_TUPLE,
    IK_V_LIST,
    IK_V_MAP,
    IK_V_RECORD, /* a constant with fields: an operator, a signature, an operand */
    IK_V_DTYPE,
    IK_V_DESC,
    IK_V_SLICE,
    IK_V_ITERATOR,
    IK_V_FUNCTION,
    IK_V_PROGRAM /* the body of a loop nest */
} ik_tag;

typedef struct ik_sequence ik_sequence;
typedef struct ik_map ik_map;
typedef struct ik_desc ik_desc;
typedef struct ik_frame ik_frame;
typedef struct ik_iterator ik_iterator;

typedef struct ik_value {
    ik_tag tag;
    uint32_t length; /* length of a text, in bytes */
    union {
        ik_wide integer; /* also a truth value, or a dtype's code */
        double number;
        const char *text;
        ik_sequence *sequence;
        ik_map *map;
        ik_desc *desc;
        ik_iterator *iterator;
        const ik_program *program;
        struct {
            int32_t function;
            ik_frame *frame; /* frame of the enclosing function, null where there is none */
        } closure;
    } as;
} ik_value;

struct ik_sequence {
    ik_value *items;
    uint32_t count, capacity;
};

struct ik_map {
    ik_value *pairs; /* key, value, key, value, … in insertion order */
    uint32_t count, capacity;
};

struct ik_desc {
    ik_value dtype, shape, strides, offset, numel;
};

typedef struct ik_machine ik_machine;

ik_machine *ik_machine_create(void);
void ik_machine_destroy(ik_machine *machine);

/* Allocate memory that lasts until the machine is destroyed; null where there is none left. */
void *ik_machine_memory(ik_machine *machine, size_t bytes);

/* Describe a tensor; a typed error (ik_last_error) where it is not a valid one. */
ik_status ik_machine_describe(ik_machine *machine, const ik_tensor *tensor, ik_value *result);

/* Make a mapping of `count` names to values, which are read from `pairs`; make a tuple or list of items. */
ik_status ik_machine_map(ik_machine *machine, const ik_value *pairs, uint32_t count, ik_value *result);
ik_status ik_machine_sequence(ik_machine *machine, ik_tag tag, const ik_value *items, uint32_t count, ik_value *result);

/* Format a value as Python's repr does. */
ik_status ik_machine_text(ik_machine *machine, ik_value value, const char **text);

/* Operator.settle and Operator.inferred of the operator with that index in the table. `result` is a tuple. */
ik_status ik_machine_settle(
    ik_machine *machine, uint32_t operator_, ik_value inputs, ik_value outputs, ik_value attributes, ik_value *result);
ik_status ik_machine_infer(
    ik_machine *machine, uint32_t operator_, ik_value inputs, ik_value attributes, ik_value dtypes, ik_value *result);

/* Emit the operator of a name for a decomposition. Inputs are values of ik_machine_value, or none; attributes are a
 * mapping, and dtypes are one, or none. `result` is the list of its outputs. */
typedef ik_status ik_emit(
    void *emitter, ik_value name, ik_value inputs, ik_value attributes, ik_value dtypes, ik_value *result);

/* Whether an output of the operator may be stored in the memory of an input. */
bool ik_machine_shares(uint32_t operator_);

/* Whether an operator's decomposition is compiled; run it, with what emits its parts. `result` has the values that
 * stand for the outputs. */
bool ik_machine_decomposes(uint32_t operator_);
ik_status ik_machine_decompose(ik_machine *machine, uint32_t operator_, ik_emit *emit, void *emitter, ik_value inputs,
    ik_value attributes, ik_value outputs, ik_value *result);

/* A value of a decomposition: its description as `spec`, and a number of the emitter's as `number`. */
ik_status ik_machine_value(ik_machine *machine, ik_value spec, uint32_t number, ik_value *result);
ik_value ik_machine_field(ik_value record, const char *name);

/* Write a description as the record that kernels read. */
void ik_machine_pack(const ik_value *desc, ik_tensor *tensor);

#pragma GCC visibility pop
#endif
