"""The facts of element types in C, generated from their rows: isokern_dtypes.h, and the head of portable kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ..dtypes import ALL, BLOCKS, BOOL, COMPLEX, F64, INTEGERS, PLAIN, STORED_BLOCKS, DType

FLOATS = tuple(d for d in PLAIN if d.kind == "f")  # those that are only stored, too

_DEFAULTS = """#ifndef IK_INLINE
#define IK_INLINE inline __attribute__((always_inline))
#endif
#ifndef IK_VECTORISE /* before a loop whose turns do not depend on each other */
#if defined(__clang__)
#define IK_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define IK_VECTORISE _Pragma("GCC ivdep")
#endif
#endif"""


def dtype_header() -> str:
    """Return isokern_dtypes.h: what C code asks of an element type, and lists of them as X-macros."""
    every, narrow = (*BLOCKS, *STORED_BLOCKS), [d for d in INTEGERS if d.itemsize < 8]
    return "\n".join(
        [
            "/* The facts of element types. Generated from core's rows; do not edit. */",
            "#ifndef ISOKERN_DTYPES_H",
            "#define ISOKERN_DTYPES_H",
            '#include "isokern_abi.h"',
            _DEFAULTS,
            "/* Bytes of an element; of a block for block types. */",
            _switch("int32_t", "itemsize", lambda d: str(d.itemsize), "1"),
            "/* Elements of a block; 1 for types that are not quantised. */",
            _switch("int32_t", "block_elements", lambda d: str(d.block), "1"),
            "/* The alignment of an element; 0 for a code that is none. */",
            _switch("uint32_t", "alignment_of", lambda d: str(d.alignment), "0"),
            "/* The type in which kernels compute. */",
            _switch("int32_t", "compute_of", lambda d: f"IK_{d.compute}", "IK_I64"),
            "/* The name; null for a code that is none. */",
            _switch("const char *", "name_of", lambda d: f'"{d}"', "0"),
            "/* Bytes of `elements`, or the byte offset of that element: a whole number of blocks for block types. */",
            "static IK_INLINE int64_t ik_bytes(int32_t dtype, int64_t elements)",
            "{",
            "    switch (dtype) {",
            *(f"    case IK_{d}: return elements / {d.block} * {d.itemsize};" for d in every),
            "    default: return elements * ik_itemsize(dtype);",
            "    }",
            "}",
            *map(_predicate, ("float", "integer", "blocks"), (FLOATS, INTEGERS, every)),
            "/* Whether isokern_layouts.h has the type: blocks that are only decoded. */",
            _predicate("layout", STORED_BLOCKS),
            f"#define IK_INTEGER_TYPES(X) {' '.join(f'X(IK_{d}, {d.in_memory})' for d in INTEGERS)}",
            f"#define IK_NARROW_INTEGER_TYPES(X) {' '.join(f'X(IK_{d}, {d.in_memory})' for d in narrow)}",
            "#endif",
            "",
        ]
    )


@cache
def portable_types() -> str:
    """Return what stands before every portable kernel: each element type in memory, and what follows from its kind.

    `ik_element_X` names the type in memory, `ik_load_X` and `ik_store_X` convert integers, and `make_X` casts to a
    small float; simt.h has `ik_load_X` and `ik_store_X` for floats. A prelude has defined the types of stdint.h.
    """
    known = [d for d in ALL if d not in COMPLEX]  # no kernel takes complex numbers
    lines = [f"typedef {d.in_memory} ik_{d.name.lower()};" for d in known if d is not F64]
    lines += [f"#define ik_element_{d} ik_{d.name.lower()}" for d in known]
    for d in (*INTEGERS, BOOL):
        widened, value = ("", "(v)") if d.compute is d else ("(ik_i64)", "(v)" if d is not BOOL else "((v) != 0)")
        lines.append(f"#define ik_load_{d}(p, i) {widened}(p)[i]")
        lines.append(f"#define ik_store_{d}(p, i, v) (p)[i] = (ik_{d.name.lower()}){value}")
    lines += [f"#define make_{d}(to, i, v) ik_store_{d}(to, i, ODD(v))" for d in FLOATS if d.compute is not d]
    return "\n".join(lines)


def _switch(type_: str, name: str, fact: Callable[[DType], str], other: str) -> str:
    """Return a C function from a type's code to a fact; codes of the same fact share a line."""
    facts: dict[str, list[str]] = {}
    for d in ALL:
        facts.setdefault(fact(d), []).append(f"case IK_{d}:")
    cases = [f"    {' '.join(codes)} return {value};" for value, codes in facts.items() if value != other]
    head = f"static IK_INLINE {type_} ik_{name}(int32_t dtype)"
    return "\n".join([head, "{", "    switch (dtype) {", *cases, f"    default: return {other};", "    }", "}"])


def _predicate(name: str, types: tuple[DType, ...]) -> str:
    test = " || ".join(f"dtype == IK_{d}" for d in types)
    return f"static IK_INLINE int ik_is_{name}(int32_t dtype) {{ return {test}; }}"
