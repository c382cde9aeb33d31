"""The C generated from the declarations: isokern.h, its parts for kernels, and the tables of native plug-ins."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from .. import dtypes
from ..declare.attributes import LIST_LENGTH, TEXT_LENGTH
from ..declare.epilogue import ACTIVATIONS
from ..declare.operator import Operator
from ..expr import stack_code
from ..expr.tree import BINARY_FUNCTIONS, INTEGER_FUNCTIONS, UNARY_FUNCTIONS, Expr, find_repeated, to_c
from ..layout import MAX_RANK
from ..ops import all_operators, find
from ..status import Status
from .inference.words import c_text, c_words
from .plan import ABI_VERSION, CallRecord, PlanRecord, TensorRecord

_TYPES: dict[type, str] = {
    ctypes.c_int32: "int32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_uint64: "uint64_t",
}
_POINTERS = {
    "tensors": "const ik_tensor *",
    "plan": "const ik_plan *",
    "data": "void *const *",
    "attrs": "const void *",
}
_STRUCTS = ((TensorRecord, "ik_tensor"), (PlanRecord, "ik_plan"), (CallRecord, "ik_call"))

VERBS = """
/* The verbs of a native backend. A host describes a call (ik_op_create), asks for its workspace (ik_op_workspace), and
 * makes it as often as it likes (ik_op_call), from any thread. Every verb that returns a status says in ik_last_error
 * what was given, what is allowed, and what to do.
 *
 * What is checked: everything that Python checks at create; at a call that the plan is one of ik_op_create, that no
 * pointer is null that may not be, the alignment of each, and the workspace. What stays the caller's duty: that memory
 * is as large as the tensors are, lives until the call is done, and that an output shares no element with another
 * tensor, but those that the operator's page lets it lie on exactly. */

/* An operator's attributes: IK_SCHEMA_SOFTMAX, sizeof(ik_softmax_attrs), and where they are. Null, or 0 and no bytes:
 * the defaults. */
typedef struct ik_attributes {
    uint64_t schema_id;
    uint64_t bytes;
    const void *data;
} ik_attributes;

/* Describe a call of the operator `kind` (IK_OP_SOFTMAX): n tensors, its outputs and then its inputs, as the operator's
 * signature names them, any strides; an optional input that is absent has dtype IK_NONE, and those at the end may be
 * left out. *plan is what ik_op_call takes; it keeps nothing of what is given here. Null where the call is refused.
 *
 * If the library has no kernel for the operator, the plan is that of the operators that it consists of. */
ik_status ik_op_create(uint32_t kind, const ik_tensor *tensors, uint32_t n, const ik_attributes *attributes,
                       ik_plan **plan);

/* Fill in the outputs, tensors[0] and on, for the inputs behind them: contiguous, as the operator makes them. The dtype
 * of an output that no input fixes (cast's) is read from it; otherwise it may be IK_NONE. */
ik_status ik_op_infer(uint32_t kind, ik_tensor *tensors, uint32_t n, const ik_attributes *attributes);

/* The scratch memory that a call needs, exactly: bytes, aligned to IK_ALIGNMENT, and the kind of memory it is:
 * "default", or another that the device has. */
ik_status ik_op_workspace(const ik_plan *plan, uint64_t *bytes, const char **kind);

/* Make the call on a stream. data[i] is the start of the buffer of tensors[i], as many as were given to ik_op_create;
 * null for one that is absent.
 *
 * Whatever the floating-point environment of the calling thread is, numbers are rounded to nearest, subnormal ones are
 * kept, and nothing traps. The thread has its own again when the verb returns; exception flags may have been raised
 * meanwhile. */
ik_status ik_op_call(const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *stream);

/* Make n calls in order; stops at the first that fails and stores its index in *failed (which may be null). */
ik_status ik_op_run(const ik_call *calls, uint64_t n, int64_t *failed);

/* Ask for the layout in which the kernel would rather have tensor i, a constant such as a weight. Where it has one,
 * *layout is its name, valid until the thread's next call of this verb, *bytes its size, and the workspace may be
 * another; from then on data[i] is what ik_op_pack made. One name and size are one layout of a tensor as the host has
 * it, whatever the rest of the plan, so that plans may share what was packed. Otherwise *layout is null, and the tensor
 * stays as it is. Before the plan's first call, in one thread. */
ik_status ik_op_packed_layout(ik_plan *plan, uint32_t tensor, uint64_t *bytes, const char **layout);

/* Bring tensor i, `from` being the start of its buffer, into that layout at `to`, aligned to IK_ALIGNMENT. */
ik_status ik_op_pack(const ik_plan *plan, uint32_t tensor, const void *from, void *to, void *stream);

/* The plan's end. No call of it is under way or in a list that is run again; null is nothing. */
void ik_op_destroy(ik_plan *plan);

/* The kind of memory that the workspace of a variant is. Null where there is no such variant. */
const char *ik_workspace_kind(uint32_t variant);

/* How many devices the library has, and the one at which this thread makes streams and memory from now on: device 0 at
 * first. */
uint32_t ik_device_count(void);
ik_status ik_device_select(uint32_t device);

/* Memory of that device, zeroed and aligned to IK_ALIGNMENT; `kind` is "default", or what ik_op_workspace named. Null
 * is nothing to be freed. */
ik_status ik_memory_alloc(uint64_t bytes, const char *kind, void **memory);
void ik_memory_free(void *memory);

/* Copy between the caller's memory and the device's, behind the work that is on the stream; done when they return, with
 * that work's status. */
ik_status ik_memory_write(void *to, const void *from, uint64_t bytes, void *stream);
ik_status ik_memory_read(void *to, const void *from, uint64_t bytes, void *stream);

/* Make a stream (null where there is no memory for one), and end it. Calls of one stream run in order. */
void *ik_stream_create(void);
void ik_stream_destroy(void *stream);

/* Wait for the work that is enqueued on a stream; the status is that of what failed in it. Nothing is pending where
 * calls run in the caller's thread. Until then the plans, the data and the workspaces of the calls stay where they are.
 * */
ik_status ik_stream_synchronize(void *stream);

/* While a thread captures a stream, its calls are appended to its list instead of run, and return IK_CAPTURED; other
 * threads' calls run, and they may capture the stream into lists of their own. ik_stream_end_capture gives the list,
 * null where there is none. ik_calls_replay runs a list on another stream, or with null on its own, which lives as
 * long; the plans, the data and the workspaces are those of the captured calls. */
enum { IK_CAPTURED = 64 };
ik_status ik_stream_begin_capture(void *stream);
const ik_call *ik_stream_end_capture(void *stream, uint64_t *count);
ik_status ik_calls_replay(const ik_call *calls, uint64_t n, void *stream, int64_t *failed);
void ik_calls_free(const ik_call *calls, uint64_t count);

/* What the last failed call of this thread complained of; never null. */
const char *ik_last_error(void);
"""


def header() -> str:
    """Return isokern.h: dtypes, statuses, the plan and call records, the verbs, and operators' attribute structs."""
    operators = [line for operator in all_operators() for line in _operator(operator)]
    head = "/* The C interface of Isokern. Generated from the operator declarations; do not edit. */"
    return "\n".join([head, "#ifndef ISOKERN_H", "#define ISOKERN_H", *_interface(operators), "#endif", ""])


def abi_header() -> str:
    """Return isokern_abi.h: isokern.h without the operators.

    A new operator does not cause files that include it to be compiled again.
    """
    head = (
        "/* isokern.h without the operators, each of which has a file in operators/; include isokern.h before this, or"
        " not at all. */"
    )
    return "\n".join([head, "#ifndef IK_ABI_VERSION", *_interface([]), "#endif", ""])


def operator_headers() -> dict[str, str]:
    """Return name → the part of isokern.h that is that operator's alone, which its kernels include."""
    return {
        o.name: "\n".join([f"#ifndef IK_OP_{o.name.upper()}", '#include "isokern_abi.h"', *_operator(o), "#endif", ""])
        for o in all_operators()
    }


def _interface(operators: list[str]) -> list[str]:
    """Return the lines of isokern.h inside its guard."""
    return [
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        f"#define IK_ABI_VERSION {ABI_VERSION}",
        f"#define IK_MAX_RANK {MAX_RANK}",
        "#define IK_ALIGNMENT 64",
        "#define IK_FOURCC(a, b, c, d)"
        " ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)",
        "typedef int32_t ik_status;",
        f"enum {{ {', '.join(f'IK_{s.name} = {s.value}' for s in Status)} }};",
        f"enum {{ IK_NONE = 0, {', '.join(f'IK_{d.name} = {d.code}' for d in dtypes.ALL)} }};",
        f"typedef struct ik_ints {{ int64_t count; int64_t v[{LIST_LENGTH}]; }} ik_ints;",
        f"typedef struct ik_text {{ char v[{TEXT_LENGTH}]; }} ik_text;",
        "/* A scalar expression in postfix order: opcodes in the low byte, an input's number above it, a constant's"
        " float64 in the word behind. */",
        f"typedef struct ik_program {{ int64_t count; int64_t v[{stack_code.LENGTH}]; }} ik_program;",
        f"enum {{ {', '.join(f'IK_CODE_{name.upper()} = {i}' for name, i in stack_code.OPCODES.items())} }};",
        f"#define IK_OPERANDS {{ {', '.join(str(stack_code.TAKES.get(name, 2)) for name in stack_code.OPCODES)} }}"
        " /* how many an opcode takes */",
        f"enum {{ IK_PROGRAM_DEPTH = {stack_code.DEPTH}, IK_PROGRAM_INPUTS = {stack_code.INPUTS},"
        f" IK_PROGRAM_KEPT = {stack_code.KEPT} }};",
        *records(),
        VERBS,
        *operators,
        "#ifdef __cplusplus",
        "}",
        "#endif",
    ]


def records() -> list[str]:
    """Return the structs of a tensor, a plan and a call."""
    made = []
    for record, name in _STRUCTS:
        fields = "".join(f"    {_field(f[0], f[1])};\n" for f in record._fields_)
        made.append(f"typedef struct {name} {{\n{fields}}} {name};")
    return made


def _field(name: str, type_: type) -> str:
    if issubclass(type_, ctypes.Array):
        element: type = type_._type_  # type: ignore[assignment]  # ctypes types itself as an overload
        return f"{_TYPES[element]} {name}[{type_._length_}]"
    if type_ in _TYPES:
        return f"{_TYPES[type_]} {name}"
    return f"{_POINTERS.get(name, 'void *')}{name}"


def _operator(operator: Operator) -> list[str]:
    name = operator.name.upper()
    operands = [o.name for o in (*operator.signature.outputs, *operator.signature.inputs)]
    index = ", ".join(f"IK_{name}_{o.upper()} = {i}" for i, o in enumerate(operands))
    code = ", ".join(f"'{c}'" for c in operator.kind)
    lines = [
        f"\n/* {operator.name}: {operator.signature} */",
        f"#define IK_OP_{name} IK_FOURCC({code})",
        f"enum {{ {index} }};",
    ]
    if operator.attrs.attrs:
        types = {"float": "double", "ints": "ik_ints", "text": "ik_text", "body": "ik_program"}
        fields = "".join(f" {types.get(a.kind, 'int64_t')} {a.name};" for a in operator.attrs.attrs)
        schema = ", ".join(f"'{c}'" for c in operator.attrs.schema)
        lines.append(f"#define IK_SCHEMA_{name} IK_FOURCC({schema})")
        lines.append(f"typedef struct ik_{operator.name}_attrs {{{fields} }} ik_{operator.name}_attrs;")
        for a in operator.attrs.attrs:
            if a.kind == "choice":
                names = ", ".join(f"IK_{name}_{c.upper()} = {i}" for i, c in enumerate(a.choices))
                lines.append(f"enum {{ {names} }};")
    return lines


def operator_table() -> str:
    """Return the rows of `ik_operator` for a native plug-in, by ascending kind, as its search requires."""
    rows, blobs = [], []
    for o in sorted(all_operators(), key=lambda o: o.kind_id):
        blob = o.attrs.default_blob() if o.attrs.attrs else None
        text = "0"
        if blob is not None:
            text = f"ik_defaults_{o.name}"
            blobs.append(f"static const uint64_t {text}[] = {{ {c_words(blob)} }};")
        inputs = len(o.signature.inputs)
        variadic = any(i.variadic for i in o.signature.inputs)
        outputs = len(o.signature.outputs)
        error = c_text(o.device_error.encode()) if o.device_error else "0"
        optional = sum(1 << i for i, t in enumerate((*o.signature.outputs, *o.signature.inputs)) if t.optional)
        rows.append(
            f'    {{ "{o.name}", {o.kind_id:#010x}u, "{o.stem}", {o.attrs.schema_id:#x}u, {o.attrs.nbytes}, {text},'
            f" INT64_C({o.attrs.fingerprint}), {outputs}, {outputs + inputs}, {optional:#x}, {int(variadic)},"
            f" {error} }},"
        )
    return "\n".join([*blobs, "static const ik_operator ik_operators[] = {", *rows, "};", ""])


_FUNCTIONS = [f'#include "isokern_{name}.h"' for name in ("dtypes", "int", "math")]  # what expressions are made of


def elementwise_rows() -> str:
    """Return a C function for each row and compute type, and the lists `IK_ROWS_<type>(X)` of X(kind, operator)."""
    rows = [o for o in all_operators() if o.scalar_expr is not None]
    lists: dict[str, list[str]] = {c.name: [] for c in _COMPUTES}
    for o in rows:
        for compute in _computes(o):
            lists[compute.name].append(f"X({o.kind_id:#010x}u, {o.name})")
    names = [f"#define IK_ROWS_{compute}(X) {' '.join(listed)}" for compute, listed in lists.items()]
    return "\n".join([*_row_head("static"), *_rows(rows), *names, ""])


def elementwise_activations() -> str:
    """Return the rows that are activations of an epilogue, and `activate_<type>`, which applies one in place."""
    rows = [find(name) for name in ACTIVATIONS[1:]]
    for o in rows:
        if o.scalar_expr is None or len(o.signature.inputs) != 1 or o.attrs.attrs:
            raise ValueError(f"activation {o.name}: allowed are elementwise operators of one input and no attributes")
    switches = [_unless_left_out(compute, _activate(compute)) for compute in (dtypes.F32, dtypes.F64)]
    guard = ["#ifndef IK_ACTIVATIONS", "#define IK_ACTIVATIONS"]
    return "\n".join([*guard, *_row_head("static inline"), *_rows(rows), *switches, "#endif", ""])


def _activate(compute: dtypes.DType) -> str:
    """Return `activate_<type>`; what is left of whole vectors is computed as one: in scalars it takes longer than they.

    The first activation, relu, takes nearly no time.
    """
    suffix, c = compute.name.lower(), C_TYPES[compute.name]
    return "\n".join(
        [
            f"static void activate_whole_{suffix}(int64_t activation, int64_t n, {c} *x)",
            "{",
            "    const void *const in[] = { x };",
            "    switch (activation) {",
            *(f"    case {i}: row_{a}_{suffix}(n, in, x, 0); return;" for i, a in enumerate(ACTIVATIONS) if i > 0),
            "    }",
            "}",
            f"IK_ROW void activate_{suffix}(int64_t activation, int64_t n, {c} *x)",
            "{",
            "    enum { VECTOR = 16 };",
            "    const int64_t whole = activation > 1 ? n - n % VECTOR : n;",
            f"    {c} rest[VECTOR] = {{ 0 }};",
            "    if (whole > 0)",
            f"        activate_whole_{suffix}(activation, whole, x);",
            "    if (whole == n || activation == 0)",
            "        return;",
            "    for (int64_t i = whole; i < n; i++)",
            "        rest[i - whole] = x[i];",
            f"    activate_whole_{suffix}(activation, VECTOR, rest);",
            "    for (int64_t i = whole; i < n; i++)",
            "        x[i] = rest[i - whole];",
            "}",
        ]
    )


def _row_head(kind: str) -> list[str]:
    """Return what rows need; one that asks whether numbers are negative is compiled for unsigned ones, too."""
    return [
        *_FUNCTIONS,
        "#ifdef __GNUC__",
        '#pragma GCC diagnostic ignored "-Wtype-limits"',
        "#endif",
        "#ifndef IK_ROW /* what a function of this file is */",
        f"#define IK_ROW {kind}",
        "#endif",
    ]


def _rows(operators: Iterable[Operator]) -> list[str]:
    """Return the functions of these operators."""
    rows = [(compute, _row(o, compute)) for o in operators for compute in _computes(o)]
    return [_unless_left_out(compute, row) for compute, row in rows]


def _unless_left_out(compute: dtypes.DType, function: str) -> str:
    """Guard a function by `IK_NO_<type>`.

    That is defined where the device lacks the type, or where another object has its functions.
    """
    return f"#ifndef IK_NO_{compute.name}\n{function}\n#endif"


def tile_functions() -> str:
    """Return a C function for each opcode and compute type, and the lists `IK_TILES_<type>(X)` of X(CODE, function).

    `out` may be one of the operands; operands that an opcode does not have are not read.
    """
    functions: list[str] = []
    names: list[str] = []
    for compute in _COMPUTES:
        suffix, listed = compute.name.lower(), []
        for name in stack_code.OPCODES:
            if not _has(compute, name):
                continue
            function = _tile(name, compute)
            functions.append(_unless_left_out(compute, function))
            listed.append(f"X(IK_CODE_{name.upper()}, ik_tile_{name}_{suffix})")
        names.append(f"#define IK_TILES_{compute.name}(X) {' '.join(listed)}")
    operands = ", ".join(str(stack_code.TAKES.get(name, 2)) for name in stack_code.OPCODES)
    head = ["#ifndef IK_TILE /* what a function of this file is */", "#define IK_TILE static inline", "#endif"]
    return "\n".join(
        [
            *_FUNCTIONS,
            *head,
            *functions,
            *names,
            f"#define IK_OPERANDS {{ {operands} }} /* how many an opcode takes */",
            "",
        ]
    )


def _has(compute: dtypes.DType, name: str) -> bool:
    """Return whether an opcode is a function on values of the compute type."""
    if name in ("const", "input", "keep", "again"):
        return False
    integer = compute in (dtypes.I64, dtypes.U64)
    if not name.startswith("fn_"):
        return not (integer and name == "div")
    return name[3:] in (INTEGER_FUNCTIONS if integer else (*UNARY_FUNCTIONS, *BINARY_FUNCTIONS))


def _tile(name: str, compute: dtypes.DType) -> str:
    c, operands = C_TYPES[compute.name], "abc"
    taken = operands[: stack_code.TAKES.get(name, 2)]
    result = to_c(stack_code.node(name, tuple(Expr("name", o) for o in taken)), compute.name, lambda o: f"{o}_i")
    given = ", ".join(f"const {c} *{o}" for o in operands)
    return "\n".join(
        [
            f"IK_TILE void ik_tile_{name}_{compute.name.lower()}(int64_t n, {given}, {c} *out)",
            "{",
            *(f"    (void){o};" for o in operands if o not in taken),
            "    IK_VECTORISE",
            "    for (int64_t i = 0; i < n; i++) {",
            *(f"        const {c} {o}_i = {o}[i];" for o in taken),
            f"        out[i] = {result};",
            "    }",
            "}",
        ]
    )


def loop_nests() -> str:
    """Return loop_nests.h: the compute type of a loop nest, and the operators of stem `generic` with a fixed body.

    These have an `ik_nest` each: kind, combine, stack code.
    """
    numbers = {c: i for i, c in enumerate(next(a for a in find("generic").attrs.attrs if a.name == "combine").choices)}
    rows = []
    for o in sorted(all_operators(), key=lambda o: o.kind_id):
        if o.combine and o.expression is not None:
            code = stack_code.words(o.expression)
            words = ", ".join(f"INT64_C({w})" for w in code)
            rows.append(f"    {{ {o.kind_id:#010x}u, {numbers[o.combine]}, {{ {len(code)}, {{ {words} }} }} }},")
    head = "typedef struct ik_nest { uint32_t kind; int32_t combine; ik_program body; } ik_nest;"
    return "\n".join([head, "static const ik_nest ik_nests[] = {", *rows, "};", _NEST_COMPUTE])


_NEST_COMPUTE = f"""
/* The compute type of a loop nest: the widest among those of its inputs, which are the tensors from 2 on, and that of a
 * y that is a float. */
static inline int32_t ik_nest_compute(const ik_plan *plan)
{{
    static const int32_t types[] = {{ {", ".join(f"IK_{d}" for d in dtypes.COMPUTE_TYPES)} }};
    int32_t widest = 0;
    for (uint32_t i = 0; i < plan->tensor_count; i++) {{
        const int32_t dtype = plan->tensors[i].dtype, compute = ik_compute_of(dtype);
        if (i == 1 || (i == 0 && !ik_is_float(dtype)))
            continue;
        for (int32_t at = widest + 1; at < (int32_t)(sizeof types / sizeof *types); at++)
            widest = types[at] == compute ? at : widest;
    }}
    return types[widest];
}}
"""


_COMPUTES = (dtypes.F32, dtypes.F64, dtypes.I64, dtypes.U64)


def _computes(operator: Operator) -> Iterable[dtypes.DType]:
    found = {d.compute for d in operator.signature.types["T"]}
    return [d for d in _COMPUTES if d in found]


C_TYPES = {"F32": "float", "F64": "double", "I64": "int64_t", "U64": "uint64_t"}


def _row(operator: Operator, compute: dtypes.DType) -> str:
    assert operator.scalar_expr is not None
    c = C_TYPES[compute.name]
    inputs = [i.name for i in operator.signature.inputs]
    attrs = {name: offset // 8 for name, kind, offset in operator.attrs.layout if kind == "float"}
    used = {n.value for n in operator.scalar_expr.walk() if n.kind == "name"}
    lines = [
        f"IK_ROW void row_{operator.name}_{compute.name.lower()}"
        "(int64_t n, const void *const *in, void *out_, const void *attrs_)",
        "{",
    ]
    lines += [f"    const {c} *{name}_ = (const {c} *)in[{i}];" for i, name in enumerate(inputs)]
    lines += [f"    const {c} {name} = ((const {c} *)attrs_)[{i}];" for name, i in attrs.items() if name in used]
    lines += [f"    {c} *out = ({c} *)out_;"] + ([] if any(a in used for a in attrs) else ["    (void)attrs_;"])
    # Every input is read before the expression: a read in one branch of a select needs a masked load, which SSE2 lacks
    before = [f"        const {c} {name}_i = {name}_[i];" for name in inputs]

    def loop(expression: Expr) -> list[str]:
        # Functions that are used twice are computed once: a compiler does not see that where one use is in a branch
        known: dict[Expr, str] = {}

        def spell(part: Expr) -> str:
            return to_c(part, compute.name, lambda name: f"{name}_i" if name in inputs else name, known)

        parts = []
        for part in reversed(find_repeated(expression)):
            if part.kind == "call":
                parts.append(f"        const {c} part_{len(known)} = {spell(part)};")
                known[part] = f"part_{len(known)}"
        return [
            "    IK_VECTORISE",
            "    for (int64_t i = 0; i < n; i++) {",
            *before,
            *parts,
            f"        out[i] = {spell(expression)};",
            "    }",
        ]

    near, bounded = operator.scalar_expr.near(inputs)
    if compute is dtypes.F32 and bounded:
        lines += ["    int far = 0;", "    IK_VECTORISE", "    for (int64_t i = 0; i < n; i++) {"]
        lines += [f"        far |= !(ik_abs_f32({name}_[i]) < IK_NEAR_F32);" for name in bounded]
        lines += ["    }", "    if (!far) {", *loop(near), "        return;", "    }"]
    return "\n".join([*lines, *loop(operator.scalar_expr), "}"])
