"""The words of the machine in `include/isokern_inference.c`: instructions, operations, functions and methods."""

from __future__ import annotations

import ast
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import layout
from ...declare import registry, signature as signatures
from ...dtypes import ALL
from ...expr.stack_code import CODE_NAMES
from ...expr.tree import Expr, parse, substitute, to_text
from ...ops.generic import body_parts

INSTRUCTIONS = [
    "CONST",
    "LOAD",
    "LOAD_OUTER",
    "STORE",
    "POP",
    "LIST",
    "APPEND",
    "APPEND_TO",
    "EXTEND",
    "TUPLE",
    "UNPACK",
    "UNPACK_STAR",
    "SPREAD",
    "BINARY",
    "NEGATE",
    "NOT",
    "COMPARE",
    "JUMP",
    "JUMP_FALSE",
    "JUMP_TRUE_KEEP",
    "JUMP_FALSE_KEEP",
    "INDEX",
    "SLICE",
    "STORE_INDEX",
    "FIELD",
    "METHOD",
    "CALL",
    "CALL_VALUE",
    "BUILTIN",
    "CLOSURE",
    "RETURN",
    "RAISE",
    "FORMAT",
    "JOIN",
    "ITERATE",
    "NEXT",
    "MAP",
    "MAP_SET",
    "MAP_UPDATE",
]


def emit(kind: str, inputs: Any, attrs: Any, dtypes: Any) -> Any:
    """Stand for what an emitter does: emit an operator and return its outputs."""
    raise NotImplementedError


BINARY: dict[type[ast.operator], str] = {
    ast.Add: "ADD",
    ast.Sub: "SUB",
    ast.Mult: "MUL",
    ast.FloorDiv: "QUOTIENT",
    ast.Mod: "REMAINDER",
    ast.Div: "DIV",
    ast.Pow: "POW",
    ast.LShift: "SHIFT_LEFT",
    ast.RShift: "SHIFT_RIGHT",
    ast.BitAnd: "AND",
    ast.BitOr: "OR",
}
COMPARE = {
    ast.Eq: "EQ",
    ast.NotEq: "NE",
    ast.Lt: "LT",
    ast.LtE: "LE",
    ast.Gt: "GT",
    ast.GtE: "GE",
    ast.In: "IN",
    ast.NotIn: "NOT_IN",
    ast.Is: "IS",
    ast.IsNot: "IS_NOT",
}
BUILTINS: dict[Any, str] = {
    len: "LEN",
    range: "RANGE",
    sum: "SUM",
    max: "MAX",
    min: "MIN",
    abs: "ABS",
    any: "ANY",
    all: "ALL",
    reversed: "REVERSED",
    sorted: "SORTED",
    zip: "ZIP",
    enumerate: "ENUMERATE",
    iter: "ITER",
    next: "NEXT",
    list: "LIST",
    tuple: "TUPLE",
    set: "SET",
    dict: "DICT",
    dict.fromkeys: "FROMKEYS",
    slice: "SLICE",
    math.prod: "PROD",
    itertools.accumulate: "ACCUMULATE",
    layout.make_desc: "DESC",
    layout.repeats_itself: "REPEATS",
    registry.find: "FIND",
    signatures.names_in: "NAMES_IN",
    signatures.evaluate: "EVALUATE",
    body_parts: "BODY_PARTS",
    (max, "key"): "MAX_BY",
    (min, "key"): "MIN_BY",
    (sorted, "key"): "SORTED_BY",
    (zip, "*"): "UNZIP",
    itertools.product: "PRODUCT",
    isinstance: "IS_SEQUENCE",
    math.gcd: "GCD",
    math.floor: "FLOOR",
    math.ceil: "CEIL",
    round: "ROUND",
    math.isfinite: "ISFINITE",
    pow: "POW_MODULO",
    parse: "PARSE",
    (isinstance, float): "IS_FLOAT",
    emit: "EMIT",
    "record": "RECORD",
    np.float32: "FLOAT32",
    int: "INT",
    float: "FLOAT",
    bool: "BOOL",
    str: "STR",
    repr: "REPR",
    math.isnan: "ISNAN",
    math.isinf: "ISINF",
    math.sqrt: "SQRT",
    Expr: "EXPR",
    substitute: "SUBSTITUTE",
    to_text: "TO_TEXT",
}
METHODS = [
    "append",
    "add",
    "items",
    "keys",
    "get",
    "setdefault",
    "sort",
    "index",
    "isidentifier",
    "isalpha",
    "startswith",
    "replace",
    "partition",
    "split",
    "join",
    "format",
    "values",
    "extend",
    "insert",
    "pop",
    "count",
    "bit_length",
]


class Unsupported(Exception):
    """A declaration uses something that the machine does not have."""


@dataclass
class Function:
    """One compiled function: its code, and how many parameters and slots it has."""

    name: str
    parameters: int
    code: list[int] = field(default_factory=list)
    slots: int = 0


def c_text(data: bytes) -> str:
    """Return a C string literal."""
    parts = []
    for byte in data:
        char = chr(byte)
        parts.append(char if 32 <= byte < 127 and char not in '"\\?' else f"\\{byte:03o}")
    return '"' + "".join(parts) + '"'


def c_words(blob: bytes) -> str:
    """Return packed attributes as C words."""
    return ", ".join(f"UINT64_C({int.from_bytes(blob[i : i + 8], 'little'):#x})" for i in range(0, len(blob), 8))


def machine_numbers() -> str:
    """Return the enumerations that the machine in C shares with the compiler."""
    groups = {
        "DO": INSTRUCTIONS,
        "BINARY": BINARY.values(),
        "COMPARE": COMPARE.values(),
        "BUILTIN": BUILTINS.values(),
        "METHOD": [m.upper() for m in METHODS],
    }
    lines = [f"enum {{ {', '.join(f'IK_{group}_{n}' for n in names)} }};" for group, names in groups.items()]
    kinds = ", ".join(
        f'{{ {d.code}, "{d.name}", "{d.kind}", {d.block}, {d.itemsize}, {d.compute.code}, {int(d.storage)} }}'
        for d in ALL
    )
    lines.append(f"static const ik_dtype ik_dtypes[] = {{ {kinds} }};")
    lines.append(
        f"static const char *const ik_code_names[] = {{ {', '.join(c_text(n.encode()) for n in CODE_NAMES)} }};"
    )
    return "\n".join([*lines, ""])


class Tables(ABC):
    """What code refers to by number: functions, constants, and names of fields."""

    def __init__(self) -> None:
        self.functions: list[Function] = []

    @abstractmethod
    def constant(self, given: Any) -> int:
        """Return the number of a constant."""

    @abstractmethod
    def function(self, given: Callable[..., Any]) -> int:
        """Return the number of a function, which is compiled on first use."""

    @abstractmethod
    def field(self, name: str) -> int:
        """Return the number of a field's name."""
