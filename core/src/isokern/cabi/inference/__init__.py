"""Code for a small machine in C, compiled from the declarations' Python: inference, checks, decompositions.

`Operator.settle` binds a signature, runs an operator's `check` and `shapes`, and brings its tensors to normal form by
its `normal_form`. A C host needs the same results and the same messages. So these functions are not written again in C:
their syntax trees are compiled to words for the machine of `include/isokern_inference.c`, and constants and signatures
to its tables.

A decomposition is compiled in the same way. Its emitter is `isokern_lowering.c`, which describes each part that is
emitted, asks the library for a kernel, and decomposes it in turn where there is none. A decomposition that uses
something the machine does not have is left out: Python runs it, and a C host gets NOT_IMPLEMENTED (`find_refused`).

A function may use what `functions.py` and `expressions.py` implement: integers, texts, tuples, lists, mappings,
descriptions of tensors; loops, conditions, comprehensions, inner functions; typed errors. Anything else raises
`Unsupported`, which names the function and the line, when the tables are generated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import layout
from ...declare.attributes import REQUIRED
from ...declare.operator import Operator
from ...layout import TensorDesc
from ...ops import all_operators
from .compiler import Compiler
from .words import Unsupported, c_text, c_words, machine_numbers

__all__ = ["Unsupported", "attribute_tables", "find_refused", "inference_tables"]


def find_refused() -> dict[str, str]:
    """Return operator → why a C host cannot have its decomposition, which Python can."""
    compiler = Compiler()
    for operator in all_operators():
        compiler.decomposition(operator)
    return compiler.refused


def inference_tables() -> str:
    """Return the tables that a native plug-in has besides its operators (inference_tables.h)."""
    operators = sorted(all_operators(), key=lambda o: o.kind_id)
    entries: dict[str, Callable[..., Any]] = {
        "settle": Operator.settle,
        "infer": Operator.infer_checked,
        "layout": layout.check_layout,
        "extent": layout.check_extent,
        "describe": TensorDesc.__repr__,
    }
    return machine_numbers() + Compiler().tables(entries, operators)


# What is packed in the place of a required attribute, before it is set
_NEUTRAL: dict[str, Any] = {"int": 0, "float": 0.0, "bool": False, "ints": (), "text": "", "body": "x0", "choice": ""}
_LETTERS = {"int": "i", "float": "f", "bool": "b", "ints": "l", "choice": "c", "text": "t", "body": "p"}


def attribute_tables() -> str:
    """Return the tables by which ik_op_create checks attributes, in the operator table's order (attribute_tables.h)."""
    lines: list[str] = []
    rows: list[str] = []
    for o in sorted(all_operators(), key=lambda o: o.kind_id):
        listed = []
        for a, (_, _, offset) in zip(o.attrs.attrs, o.attrs.layout, strict=True):
            choices = "0"
            if a.choices:
                choices = f"ik_choices_{o.name}_{a.name}"
                words = ", ".join(c_text(c.encode()) for c in a.choices)
                lines.append(f"static const char *const {choices}[] = {{ {words} }};")
            low = "-HUGE_VAL" if a.minimum is None else repr(float(a.minimum))
            high = "HUGE_VAL" if a.maximum is None else repr(float(a.maximum))
            texts = f"{c_text(a.allowed.encode())}, {choices}, {len(a.choices)}, {int(a.default is REQUIRED)}"
            listed.append(f"    {{ \"{a.name}\", '{_LETTERS[a.kind]}', {offset}, {low}, {high}, {texts} }},")
        name = f"ik_attributes_{o.name}" if listed else "0"
        optional = "0"
        if o.attrs.attrs and o.attrs.default_blob() is None and any(a.default is not REQUIRED for a in o.attrs.attrs):
            optional = f"ik_optional_{o.name}"
            neutral = {a.name: a.choices[0] if a.choices else _NEUTRAL[a.kind] for a in o.attrs.attrs}
            given = {a.name: neutral[a.name] if a.default is REQUIRED else a.default for a in o.attrs.attrs}
            blob = o.attrs.pack(given)
            lines.append(f"static const uint64_t {optional}[] = {{ {c_words(blob)} }};")
        if listed:
            lines += [f"static const ik_attribute {name}[] = {{", *listed, "};"]
        types = ", ".join(f'"{t.type}"' for t in o.signature.outputs)
        rows.append(f"    {{ {name}, {len(listed)}, {{ {types} }}, {optional} }},")
    most = max(len(o.signature.outputs) for o in all_operators())
    head = f"const ik_attribute *attributes; uint32_t count; const char *output_types[{most}]; const void *optional;"
    return "\n".join([*lines, f"static const struct {{ {head} }} ik_attribute_tables[] = {{", *rows, "};", ""])
