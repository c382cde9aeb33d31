"""The C that is made from the declarations: isokern.h for hosts, the same in parts for kernels, and the tables a native plug-in compiles."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from .. import dtypes
from ..expr import BINARY_FUNCTIONS, INTEGER_FUNCTIONS, UNARY_FUNCTIONS, Expr, to_c
from ..layout import MAX_RANK
from ..ops import Operator, all_operators, find
from ..ops.epilogue import ACTIVATIONS
from ..status import Status
from . import program
from .plan import ABI_VERSION, CallRecord, PlanRecord, TensorRecord
from .records import LIST_LENGTH, TEXT_LENGTH

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
/* The verbs of a native backend. `stream` is never null: 0 is resolved by the host before the call. */

/* Run a plan. data[i] is the start of the buffer of plan->tensors[i] (outputs first); null for an absent tensor.
 *
 * The tensors are in the normal form that the operator's kernels read (its `view` in isokern/ops): broadcasting, transposition and axes
 * are strides and the order of dims by then, and an attribute such as `axis` or `trans_a` moves nothing any more. Row operators
 * (softmax, the norms) have rank 2 or more and go along the last dim.
 *
 * `workspace` has at least plan->workspace_bytes, aligned to IK_ALIGNMENT. Thread-safe: the plan is only read. */
ik_status ik_op_call(const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *stream);

/* Run n calls in order; stops at the first that fails and stores its index in *failed (which may be null). */
ik_status ik_op_run(const ik_call *calls, uint64_t n, int64_t *failed);

/* Whether `variant` takes the plan, and the workspace it then needs. On NOT_IMPLEMENTED *reason says why not. */
ik_status ik_op_supported(const ik_plan *plan, uint32_t variant, uint64_t *workspace_bytes, const char **reason);

/* Choose the best variant for this machine: fills plan->variant and plan->workspace_bytes. */
ik_status ik_op_select(ik_plan *plan);

/* Ask for the form in which the plan's variant would rather have tensor i, a constant such as a weight. Where it has one, *form is its name (one
 * name is one layout of a tensor, whatever the rest of the plan), *bytes its size, bit i of plan->prepared is set, and plan->workspace_bytes is
 * what is needed now; from then on data[i] is what ik_op_pack made. Otherwise *form is null, and the tensor stays as it is. */
ik_status ik_op_prepare(ik_plan *plan, uint32_t tensor, uint64_t *bytes, const char **form);

/* Bring tensor i, `from` being the start of its buffer, into that form at `to`, aligned to IK_ALIGNMENT. */
ik_status ik_op_pack(const ik_plan *plan, uint32_t tensor, const void *from, void *to, void *stream);

/* The kind of memory that the workspace of a variant is: "default", or another that the device has. Null where there is no such variant. */
const char *ik_workspace_kind(uint32_t variant);

/* Make a stream (null where there is no memory for one), and end it. Calls of one stream run in order. */
void *ik_stream_create(void);
void ik_stream_destroy(void *stream);

/* Wait for the work that is enqueued on a stream; the status is that of what failed in it. Nothing is pending where calls run in the
 * caller's thread. Until then the plans, the data and the workspaces of the calls stay where they are. */
ik_status ik_stream_synchronize(void *stream);

/* What the last failed call of this thread complained of; never null. */
const char *ik_last_error(void);
"""


def header() -> str:
    """isokern.h: dtypes, statuses, the plan and call records, the verbs, and one attribute struct an operator."""
    operators = [line for operator in all_operators() for line in _operator(operator)]
    head = "/* The C interface of Isokern. Generated from the operator declarations; do not edit. */"
    return "\n".join([head, "#ifndef ISOKERN_H", "#define ISOKERN_H", *_interface(operators), "#endif", ""])


def abi_header() -> str:
    """isokern_abi.h: isokern.h without the operators, so that what includes it is not compiled again for a new one."""
    head = "/* isokern.h without the operators, each of which has a file in operators/; include isokern.h before this, or not at all. */"
    return "\n".join([head, "#ifndef IK_ABI_VERSION", *_interface([]), "#endif", ""])


def operator_headers() -> dict[str, str]:
    """Name → what isokern.h has of that operator alone: what its kernels include."""
    return {
        o.name: "\n".join([f"#ifndef IK_OP_{o.name.upper()}", '#include "isokern_abi.h"', *_operator(o), "#endif", ""])
        for o in all_operators()
    }


def _interface(operators: list[str]) -> list[str]:
    """What isokern.h has inside its guard."""
    return [
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        f"#define IK_ABI_VERSION {ABI_VERSION}",
        f"#define IK_MAX_RANK {MAX_RANK}",
        "#define IK_ALIGNMENT 64",
        "#define IK_FOURCC(a, b, c, d) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)",
        "typedef int32_t ik_status;",
        f"enum {{ {', '.join(f'IK_{s.name} = {s.value}' for s in Status)} }};",
        f"enum {{ IK_NONE = 0, {', '.join(f'IK_{d.name} = {d.code}' for d in dtypes.ALL)} }};",
        f"typedef struct ik_ints {{ int64_t count; int64_t v[{LIST_LENGTH}]; }} ik_ints;",
        f"typedef struct ik_text {{ char v[{TEXT_LENGTH}]; }} ik_text;",
        "/* A scalar expression in postfix order: opcodes in the low byte, an input's number above it, a constant's float64 in the word behind. */",
        f"typedef struct ik_program {{ int64_t count; int64_t v[{program.LENGTH}]; }} ik_program;",
        f"enum {{ {', '.join(f'IK_CODE_{name.upper()} = {i}' for name, i in program.OPCODES.items())} }};",
        f"#define IK_OPERANDS {{ {', '.join(str(program.TAKES.get(name, 2)) for name in program.OPCODES)} }} /* how many an opcode takes */",
        f"enum {{ IK_PROGRAM_DEPTH = {program.DEPTH}, IK_PROGRAM_INPUTS = {program.INPUTS}, IK_PROGRAM_KEPT = {program.KEPT} }};",
        *records(),
        VERBS,
        *operators,
        "#ifdef __cplusplus",
        "}",
        "#endif",
    ]


def records() -> list[str]:
    """The structs of a tensor, a plan and a call."""
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
    """Rows of `ik_operator`, which a native plug-in carries: by ascending kind, as its search wants them."""
    rows, blobs = [], []
    for o in sorted(all_operators(), key=lambda o: o.kind_id):
        blob = o.attrs.default_blob() if o.attrs.attrs else None
        text = "0"
        if blob is not None:
            text = f"ik_defaults_{o.name}"
            words = ", ".join(
                f"UINT64_C({int.from_bytes(blob[i : i + 8], 'little'):#x})" for i in range(0, len(blob), 8)
            )
            blobs.append(f"static const uint64_t {text}[] = {{ {words} }};")
        inputs = len(o.signature.inputs)
        variadic = any(i.variadic for i in o.signature.inputs)
        fewest = len(o.signature.outputs) + inputs
        optional = sum(1 << i for i, t in enumerate((*o.signature.outputs, *o.signature.inputs)) if t.optional)
        rows.append(
            f'    {{ "{o.name}", {o.kind_id:#010x}u, "{o.stem}", {o.attrs.schema_id:#x}u, {o.attrs.nbytes}, {text},'
            f" INT64_C({o.attrs.fingerprint}), {fewest}, {optional:#x}, {int(variadic)} }},"
        )
    return "\n".join([*blobs, "static const ik_operator ik_operators[] = {", *rows, "};", ""])


def elementwise_rows() -> str:
    """One C function a row and compute type, and a list `IK_ROWS_<type>(X)` of X(kind, operator) a compute type."""
    rows = [o for o in all_operators() if o.row is not None]
    lists: dict[str, list[str]] = {c.name: [] for c in _COMPUTES}
    for o in rows:
        for compute in _computes(o):
            lists[compute.name].append(f"X({o.kind_id:#010x}u, {o.name})")
    names = [f"#define IK_ROWS_{compute}(X) {' '.join(listed)}" for compute, listed in lists.items()]
    return "\n".join([*_ROW_HEAD, *_rows(rows), *names, ""])


def elementwise_activations() -> str:
    """The rows that are an epilogue's activations, for the kernels that have one: no other row compiles those again."""
    return "\n".join([*_ROW_HEAD, *_rows([find(name) for name in ACTIVATIONS if name != "none"]), ""])


_ROW_HEAD = ("#ifndef IK_ROW /* what a function of this file is */", "#define IK_ROW static", "#endif")


def _rows(operators: Iterable[Operator]) -> list[str]:
    """The functions of these operators."""
    rows = [(compute, _row(o, compute)) for o in operators for compute in _computes(o)]
    return [_unless_left_out(compute, row) for compute, row in rows]


def _unless_left_out(compute: dtypes.DType, function: str) -> str:
    """A function that is not compiled where `IK_NO_<type>` is defined: the device has no such type, or another object has its functions."""
    return f"#ifndef IK_NO_{compute.name}\n{function}\n#endif"


def tile_functions() -> str:
    """One C function an opcode and compute type, and a list `IK_TILES_<type>(X)` of X(CODE, function) a compute type.

    `out` may be one of the operands; those that an opcode does not take are not read.
    """
    functions: list[str] = []
    names: list[str] = []
    for compute in _COMPUTES:
        suffix, listed = compute.name.lower(), []
        for name in program.OPCODES:
            if not _has(compute, name):
                continue
            function = _tile(name, compute)
            functions.append(_unless_left_out(compute, function))
            listed.append(f"X(IK_CODE_{name.upper()}, ik_tile_{name}_{suffix})")
        names.append(f"#define IK_TILES_{compute.name}(X) {' '.join(listed)}")
    operands = ", ".join(str(program.TAKES.get(name, 2)) for name in program.OPCODES)
    head = ["#ifndef IK_TILE /* what a function of this file is */", "#define IK_TILE static inline", "#endif"]
    return "\n".join(
        [*head, *functions, *names, f"#define IK_OPERANDS {{ {operands} }} /* how many an opcode takes */", ""]
    )


def _has(compute: dtypes.DType, name: str) -> bool:
    """Whether an opcode is a function of values of the compute type."""
    if name in ("const", "input", "keep", "again"):
        return False
    integer = compute in (dtypes.I64, dtypes.U64)
    if not name.startswith("fn_"):
        return not (integer and name == "div")
    return name[3:] in (INTEGER_FUNCTIONS if integer else (*UNARY_FUNCTIONS, *BINARY_FUNCTIONS))


def _tile(name: str, compute: dtypes.DType) -> str:
    c, operands = C_TYPES[compute.name], "abc"
    taken = operands[: program.TAKES.get(name, 2)]
    result = to_c(program.node(name, tuple(Expr("name", o) for o in taken)), compute.name, lambda o: f"{o}_i")
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
    """One `ik_nest` an operator of the stem `generic` with a fixed body: its kind, how terms combine, and its program."""
    numbers = {c: i for i, c in enumerate(next(a for a in find("generic").attrs.attrs if a.name == "combine").choices)}
    rows = []
    for o in sorted(all_operators(), key=lambda o: o.kind_id):
        if o.combine and o.expression is not None:
            code = program.words(o.expression)
            words = ", ".join(f"INT64_C({w})" for w in code)
            rows.append(f"    {{ {o.kind_id:#010x}u, {numbers[o.combine]}, {{ {len(code)}, {{ {words} }} }} }},")
    head = "typedef struct ik_nest { uint32_t kind; int32_t combine; ik_program body; } ik_nest;"
    return "\n".join([head, "static const ik_nest ik_nests[] = {", *rows, "};", ""])


_COMPUTES = (dtypes.F32, dtypes.F64, dtypes.I64, dtypes.U64)


def _computes(operator: Operator) -> Iterable[dtypes.DType]:
    found = {d.compute for d in operator.signature.types["T"]}
    return [d for d in _COMPUTES if d in found]


C_TYPES = {"F32": "float", "F64": "double", "I64": "int64_t", "U64": "uint64_t"}


def _row(operator: Operator, compute: dtypes.DType) -> str:
    assert operator.row is not None
    c = C_TYPES[compute.name]
    inputs = [i.name for i in operator.signature.inputs]
    attrs = {name: offset // 8 for name, kind, offset in operator.attrs.layout if kind == "float"}
    used = {n.value for n in operator.row.walk() if n.kind == "name"}
    lines = [
        f"IK_ROW void row_{operator.name}_{compute.name.lower()}(int64_t n, const void *const *in, void *out_, const void *attrs_)",
        "{",
    ]
    lines += [f"    const {c} *{name}_ = (const {c} *)in[{i}];" for i, name in enumerate(inputs)]
    lines += [f"    const {c} {name} = ((const {c} *)attrs_)[{i}];" for name, i in attrs.items() if name in used]
    lines += [f"    {c} *out = ({c} *)out_;"] + ([] if any(a in used for a in attrs) else ["    (void)attrs_;"])
    # Every input is read before the expression: a read on one side of a select would need a masked load, which SSE2 has not
    before = [f"        const {c} {name}_i = {name}_[i];" for name in inputs]

    def loop(expression: Expr) -> list[str]:
        body = to_c(expression, compute.name, lambda name: f"{name}_i" if name in inputs else name)
        return [
            "    IK_VECTORISE",
            "    for (int64_t i = 0; i < n; i++) {",
            *before,
            f"        out[i] = {body};",
            "    }",
        ]

    near, bounded = operator.row.near(inputs)
    if compute is dtypes.F32 and bounded:
        lines += ["    int far = 0;", "    IK_VECTORISE", "    for (int64_t i = 0; i < n; i++) {"]
        lines += [f"        far |= !(ik_abs_f32({name}_[i]) < IK_NEAR_F32);" for name in bounded]
        lines += ["    }", "    if (!far) {", *loop(near), "        return;", "    }"]
    return "\n".join([*lines, *loop(operator.row), "}"])
