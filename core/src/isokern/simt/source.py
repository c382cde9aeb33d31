"""The complete source of one launch.

It consists of the prelude, what the plan fixes, and the kernel file with its includes and without its other entries.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from ..blocks.layouts import LAYOUTS
from ..cabi.block_layouts import layout_header
from ..cabi.element_types import portable_types
from ..cabi.plan import Plan
from ..declare.attributes import Attr
from ..declare.conversion import convert
from ..declare.registry import find, has
from ..dtypes import F32, STORED_BLOCKS, DType
from ..expr.tree import parse, to_c
from ..layout import MAX_RANK
from ..ops.generic import find_widest
from .launch import PIECE, LaunchRequest, launch_file

KERNELS = Path(__file__).parent / "kernels"
ABI = Path(__file__).parents[1] / "cabi" / "include"
EMULATION = Path(__file__).parents[1] / "emulation"
NARROW = 1 << 31  # from here on indices take 64 bits
FAR = 1 << 20  # and also in a plan with an integer attribute from here on, by which they may be multiplied or shifted


def list_include_folders() -> list[Path]:
    """Return the folders of the C++ headers for a backend that runs work-groups on the host: pass each as `-I`.

    They have `work_groups.h`, whose `WorkGroups` runs the items of a group as fibers, and the headers that it includes.
    Kernel sources need neither folder: `Launch.source` has their includes in place.
    """
    return [EMULATION, ABI]


def is_wide(plan: Plan, request: LaunchRequest, told: Sequence[Attr]) -> bool:
    """Return whether index arithmetic may leave 32 bits."""
    descs = [*(d for d in plan.table if d is not None), *(d for _, _, d in request.tensors)]
    extents = [d.extent for d in descs]
    values = [plan.attrs[attr.name] for attr in told]
    numbers = [n for v in values for n in (v if isinstance(v, tuple) else (v,)) if isinstance(n, int)]
    reach = max((max(d.numel, *map(abs, d.strides), *d.shape, 0, 0) for d in descs), default=0)
    most = max(reach, max((high for _, high in extents), default=0))
    # Windows may begin and end in padding, and launches are rounded up
    return most + 2 * FAR >= NARROW or any(abs(n) >= FAR for n in numbers)


def find_type(plan: Plan, request: LaunchRequest) -> DType:
    """Return the type of a launch: of the last tensor of the signature's first type variable, or else of the last."""
    signature = plan.operator.signature
    principal = next(iter(signature.types))
    operands = (*signature.outputs, *signature.inputs)
    of_type = [d for _, at, d in request.tensors if operands[min(at, len(operands) - 1)].type == principal]
    return (of_type or [d for _, _, d in request.tensors])[-1].dtype


def computes(plan: Plan, request: LaunchRequest) -> DType:
    """Return the compute type of a launch, that of its type; of inputs with a dtype each, the widest."""
    if plan.operator.signature.mixed:
        y, _, *ins = plan.table
        assert y is not None
        return find_widest([d for d in ins if d is not None], y).compute
    return find_type(plan, request).compute


def _mentioned_attributes(plan: Plan, text: str) -> list[Attr]:
    """Return the attributes that a kernel mentions: calls that differ only in others share a program."""
    every = plan.operator.attrs.attrs
    return [a for a in every if plan.operator.scalar_expr is not None or f"attr_{a.name}" in text]


def specialisation(plan: Plan, request: LaunchRequest, text: str, reports: bool, workspace: bool) -> str:
    """Return what the plan fixes for the kernel `text`.

    That is the types of the tensors, the record of the parameters, macros, and the operator's scalar expression.
    """
    compute, told = computes(plan, request), _mentioned_attributes(plan, text)
    index = "ik_i64" if is_wide(plan, request, told) else "ik_i32"
    lines = [
        f"#define IK_GROUP {request.local}",
        *(["#define IK_SINGLE"] if request.single else []),
        "",  # the prelude sees what stands before this line
        f"#define IK_COMPUTE_{compute.name}",
        f"typedef ik_{compute.name.lower()} ik_c;",
        f"typedef {index} ik_index;",
    ]
    if "IK_PIECE" in text:
        lines.append(f"#define IK_PIECE {PIECE}")
    if "IK_OP_" in text:
        lines += [f"#define IK_OP_KIND {plan.operator.kind_id}", f"#define IK_OP_{plan.operator.name} 1"]
    params = []
    for name, at, desc in request.tensors:
        lines += [
            f"#define IK_HAS_{name}",
            f"#define IK_TYPE_{name} {desc.dtype.name}",
            f"#define IK_SIZE_{name} {desc.dtype.itemsize}",
        ]
        layout = LAYOUTS.get(desc.dtype.name)
        if layout is not None and layout.codebook is not None and f"#define IK_CODEBOOK_{layout.codebook}" not in lines:
            lines.append(f"#define IK_CODEBOOK_{layout.codebook}")
        const = "" if at < len(plan.operator.signature.outputs) else "const "
        params.append(f"IK_GLOBAL {const}ik_{desc.dtype.name.lower()} *{name}")
    if workspace:
        params.append("IK_GLOBAL ik_u8 *workspace")
    if reports:
        params.append("IK_GLOBAL ik_i64 *error")
    lines += [f"#define {name} {value}" for name, value in request.defines]
    lines += [
        f"typedef struct {{ ik_index ndim, offset, shape[{MAX_RANK}], strides[{MAX_RANK}]; }} ik_tensor;",
        *([f"typedef struct {{ ik_index offset, strides[{MAX_RANK}]; }} ik_slim;"] if request.slim else []),
        f"typedef struct {{ ik_i64 count, v[{MAX_RANK}]; }} ik_ints;",
        "typedef struct {",
        *_fields(told, request, compute),
        "} ik_args;",
        f"#define IK_KERNEL_PARAMS {', '.join(params)}, IK_CONSTANT ik_args p",
        f"#define IK_KERNEL_PASSED {', '.join(params)}, IK_RECORD(ik_args) p",
        f"#define IK_KERNEL_ARGUMENTS {', '.join(param.partition('*')[2] for param in params)}, p",
        "#ifndef IK_PARAMS",
        "#define IK_PARAMS IK_KERNEL_PARAMS",
        "#define IK_PASSED IK_KERNEL_PASSED",
        "#define IK_ARGUMENTS IK_KERNEL_ARGUMENTS",
        "#endif",
    ]
    expression = plan.operator.scalar_expr
    if expression is not None:
        inputs = {o.name: chr(ord("a") + i) for i, o in enumerate(plan.operator.signature.inputs)}
        near, bounded = expression.near(inputs)
        given = ", ".join(inputs.values())

        def spell(n: str) -> str:
            return inputs.get(n, f"p.attr_{n}")

        lines.append(f"#define IK_ROW({given}) {to_c(expression, compute.name, spell)}")
        if compute is F32 and bounded:
            far = " | ".join(f"!(ik_abs_f32({inputs[n]}) < IK_NEAR_F32)" for n in bounded)
            lines.append(f"#define IK_ROW_NEAR({given}) {to_c(near, compute.name, spell)}")
            lines.append(f"#define IK_ROW_FAR({given}) ({far})")
    for attr in plan.operator.attrs.attrs:
        if attr.kind == "choice" and f"IK_ROW_{attr.name}" in text:
            lines.append(f"#define IK_ROW_{attr.name}(v) {_row(plan.attrs[attr.name], compute)}")
    lines += _loop_nest(plan, text, compute)
    # A result that is an input as it is, or has its sign, has the bits of its NaN
    chooses = (
        expression is not None and expression.kind == "select" and all(a.kind == "name" for a in expression.args[1:])
    )
    if chooses or any("ik_copysign_" in line for line in lines):
        lines.append("#define IK_NANS 1")
    return "\n".join([*lines, ""])


def _row(name: str, compute: DType) -> str:
    """Return the scalar expression of the elementwise operator of that name for a value v, or v where there is none."""
    row = find(name) if has(name) else None
    if row is None or row.scalar_expr is None:
        return "(v)"
    return to_c(row.scalar_expr, compute.name, lambda n: "v")


def _loop_nest(plan: Plan, text: str, compute: DType) -> Iterator[str]:
    """Yield macros for how the terms of a loop nest are combined, and for its body.

    The body is for values `value_x0`, … of the inputs that it has. The next name is that of the value before in a scan,
    IK_BEFORE, and that of init, one more input, in a loop nest that combines nothing. Only an entry that has IK_BODY
    depends on it: the others are shared.
    """
    if "IK_COMBINE_" in text:
        yield f"#define IK_COMBINE_{plan.operator.combine or plan.attrs['combine']}"
    if "IK_BODY" in text:
        body = plan.operator.expression or parse(plan.attrs["body"])
        following = f"x{len(plan.table) - 2}"
        called = {following: "init"} if plan.operator.stem == "generic" else {}
        named = {node.value for node in body.walk() if node.kind == "name"} - ({following} - called.keys())
        yield f"#define IK_EACH_INPUT(X) {' '.join(f'X({called.get(name, name)})' for name in sorted(named))}"
        yield f"#define IK_BEFORE value_{following}"
        yield f"#define IK_BODY {to_c(body, compute.name, lambda name: f'value_{called.get(name, name)}')}"


def _fields(told: Sequence[Attr], request: LaunchRequest, compute: DType) -> Iterator[str]:
    for attr in told:
        name = f"attr_{attr.name}"
        if attr.kind == "float":
            c = "ik_" + compute.name.lower()
            yield f"    {c} {name};" + (f" ik_i32 {name}_pad;" if compute.itemsize == 4 else "")
        else:
            yield f"    {'ik_ints' if attr.kind == 'ints' else 'ik_i64'} {name};"
    for name, number in request.scalars:
        yield f"    {'ik_ints' if isinstance(number, tuple) else 'ik_i64'} {name};"
    for name, _, _ in request.tensors:
        yield f"    {'ik_slim' if name in request.slim else 'ik_tensor'} {name};"
    if len(request.slim) % 2:
        yield "    ik_index pad;"  # the size of the record is a multiple of eight bytes


def record(plan: Plan, request: LaunchRequest, text: str) -> bytes:
    """Return the parameters of a launch, laid out in memory as `ik_args`."""
    element, told = find_type(plan, request), _mentioned_attributes(plan, text)
    packed = b""
    for attr in told:
        value = plan.attrs[attr.name]
        if attr.kind == "float":
            packed += _number(value, element)
        elif attr.kind == "ints":
            packed += _list(value)
        else:
            packed += struct.pack("<q", attr.choices.index(value) if attr.kind == "choice" else int(value))
    for _, number in request.scalars:
        packed += _list(number) if isinstance(number, tuple) else struct.pack("<q", number)
    letter = "q" if is_wide(plan, request, told) else "i"
    for name, _, desc in request.tensors:
        whole = (desc.ndim, desc.offset, *_pad(desc.shape), *_pad(desc.strides))
        fields = whole if name not in request.slim else (desc.offset, *_pad(desc.strides))
        packed += struct.pack(f"<{len(fields)}{letter}", *fields)
    return packed + (struct.pack(f"<{letter}", 0) if len(request.slim) % 2 else b"")


def _list(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{MAX_RANK + 1}q", len(values), *_pad(values))


def _pad(dims: Sequence[int]) -> list[int]:
    return [*dims, *[0] * (MAX_RANK - len(dims))]


def _number(value: float, element: DType) -> bytes:
    """Return a float attribute in the compute type of a launch's type; an integer type's is converted to it first."""
    own = element if element.kind in "iu" else element.compute
    number: bytes = convert(np.array(value, np.float64), own.numpy).astype(element.compute.numpy).tobytes()
    return number.ljust(8, b"\0")


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def expand(path: Path, seen: set[Path] | None = None) -> str:
    """Return a file with its quoted includes in place, each once.

    `#line` marks make a compiler's log refer to the lines of the files.
    """
    seen = set() if seen is None else seen
    seen.add(path)
    made = [f'#line 1 "{path.name}"']
    for number, line in enumerate(_text(path).splitlines(), 1):
        found = re.match(r'#include "(.+?)"', line)
        if not found:
            made.append(line)
            continue
        if found[1] == "isokern_layouts.h":
            made += [layout_header(), f'#line {number + 1} "{path.name}"']
            continue
        included = next((f for f in (path.parent / found[1], KERNELS / found[1], ABI / found[1]) if f.is_file()), None)
        if included is None:
            raise FileNotFoundError(f"{path}:{number}: no {found[1]} beside it, in {KERNELS} or in {ABI}")
        if included not in seen:
            made += [expand(included, seen), f'#line {number + 1} "{path.name}"']
        else:
            made.append("")
    return "\n".join(made)


@cache
def _read_conversions() -> frozenset[str]:
    """Return the names of the floats and blocks that the portable kernels convert: those with a function or macro."""
    text = _text(KERNELS / "simt.h") + _text(KERNELS / "blocks.h")
    return frozenset(re.findall(r"\bik_(?:load|dot)_(\w+)\(", text)) | {d.name for d in STORED_BLOCKS}


def find_missing_dtype(plan: Plan) -> str | None:
    """Return why the portable kernels do not take an element type of the plan, or None."""
    given = [d.dtype for d in plan.table if d is not None and d.dtype.kind in "fq"]
    missing = [d.name for d in given if d.name not in _read_conversions()]
    return f"{missing[0]}: the kernels have no conversion for it" if missing else None


@cache
def kernel_text(path: Path, entry: str) -> str:
    """Return the expanded kernel file with `entry` alone.

    The others become empty lines: from the line IK_ENTRY(name) to the line `}`, or to the end of a body on one line.
    """

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[1] == entry else "\n" * found[0].count("\n")

    body = r"[^\n{]*(?:\n?\{[^\n]*\}|.*?^\})\n"
    return re.sub(rf"^IK_ENTRY\((\w+)\){body}", blank, expand(path) + "\n", flags=re.S | re.M)


@cache
def _digest_of_text(prelude: Path, path: Path, entry: str) -> str:
    """Return a digest of an entry's source without the specialisation."""
    parts = [expand(prelude), portable_types(), kernel_text(path, entry)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def fingerprint(prelude: Path, path: Path) -> str:
    """Return a digest of all texts that the programs of a kernel file are built from, this module among them."""
    makers = [_text(Path(__file__).with_name(name)) for name in ("source.py", "launch.py", "launch_shared.py")]
    makers += [_text(file) for file in (launch_file(path),) if file.is_file()]
    parts = [*makers, expand(prelude), portable_types(), expand(path)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def digest(prelude: Path, path: Path, entry: str, head: str) -> str:
    """Return 64 hexadecimal digits that differ where `complete` does."""
    return hashlib.sha256(f"{_digest_of_text(prelude, path, entry)}\0{head}".encode()).hexdigest()


def complete(prelude: Path, path: Path, entry: str, head: str) -> str:
    """Return the complete source of one entry; `head` is what `specialisation` returned for the plan."""
    first = "#define IK_NO_F64" if "ik_f64" not in head else "typedef double ik_f64;"
    form, rest = head.split("\n\n", 1)
    return "\n".join(
        [first, form, expand(prelude), portable_types(), '#line 1 "plan"', rest, kernel_text(path, entry), ""]
    )
