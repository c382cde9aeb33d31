/* Attributes as the machine's values, and in the packed form that kernels read. */
#ifndef ISOKERN_ATTRIBUTES_H
#define ISOKERN_ATTRIBUTES_H
#include "isokern_inference.h"
#include "isokern_native.h"

#pragma GCC visibility push(hidden)

ik_value ik_text_value(const char *text);

/* What a host gave, as a mapping; also fills in `blob`, of op->attr_bytes, as kernels read it. */
ik_status ik_take_attributes(
    ik_machine *machine, const ik_operator *op, const ik_attributes *given, char *blob, ik_value *result);

/* Pack the values that a decomposition gives, and the defaults of the others, into `blob`; all of them as a mapping. */
ik_status ik_pack_attributes(
    ik_machine *machine, const ik_operator *op, const ik_map *given, char *blob, ik_value *result);

/* The type variable of an output. */
const char *ik_output_type(const ik_operator *op, uint32_t output);

/* Compile a loop body; false where the text is none. */
bool ik_compile_expression(ik_machine *machine, const char *text, size_t length, ik_program *program);

/* The opcode of a function of loop bodies, -1 where there is none; how many operands an opcode takes. */
int ik_find_function(const char *name, size_t length);
int ik_count_operands(int code);

#pragma GCC visibility pop
#endif
