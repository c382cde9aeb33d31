"""The layouts of block types in C, generated from their declarations: isokern_layouts.h."""

from __future__ import annotations

import numpy as np

from ..blocks.layouts import FP4, FUNCTIONS, LAYOUTS, UNEVEN, BlockLayout
from ..dtypes import STORED_BLOCKS


def layout_header() -> str:
    """Return isokern_layouts.h: the layouts in the common subset of C, OpenCL C and CUDA C++.

    isokern_blocks.h includes it, behind isokern_half.h.
    """
    low, high = (sum((v + 128) << 8 * i for i, v in enumerate(half)) for half in (UNEVEN[:8], UNEVEN[8:]))
    floats = sum(v << 8 * i for i, v in enumerate(FP4))
    lines = [
        "/* The layouts of blocks that are only decoded. Generated from isokern/blocks/layouts.py; do not edit. */",
        "#ifndef ISOKERN_LAYOUTS_H",
        "#define ISOKERN_LAYOUTS_H",
        "#ifndef IK_GLOBAL",
        "#define IK_GLOBAL",
        "#endif",
        "#ifdef IK_SIMT",
        "typedef int32_t ik_run_index;",
        "#else /* wide enough for an address, so that loops over it vectorise where integers wrap */",
        "typedef int64_t ik_run_index;",
        "#endif",
        "typedef IK_GLOBAL const uint8_t *ik_block_bytes;",
        "enum { IK_LAYOUT_RUN = 16 }; /* elements that share a scale */",
        "/* Of a type: ik_code_, ik_scale_ and ik_minimum_ are its integers, ik_worth_ a code's quant, ik_quant_",
        " * an element's quant, ik_d_ and ik_m_ what multiplies scales and minima, ik_of_ is the value of element i",
        " * of a block, ik_load_ that of element i of a row of blocks. ik_table_ are the quants of all codes, less the",
        " * lowest, of a type that has them in a table. */",
        "/* For each type: its name, the elements and the bytes of a block, and its lowest quant. */",
        "#define IK_LAYOUTS(X) "
        + " ".join(f"X({d}, {d.block}, {d.itemsize}, {LAYOUTS[d.name].lowest})" for d in STORED_BLOCKS),
        "/* For each type: its name, the elements of a block, the bits of a code, the elements that share a scale,",
        " * the lowest quant; whether quants are from a table, and d is a power of two in a byte; the bits of scales,",
        " * 0, 4, or 8 for all others; whether there are minima; the bytes of d and m, -1 where there is no m. */",
        "#define IK_LAYOUT_FORMS(X) " + " ".join(_form(d.name, d.block, LAYOUTS[d.name]) for d in STORED_BLOCKS),
        "static IK_INLINE int32_t ik_layout_signed(int32_t x) { return (x ^ 128) - 128; }",
        "static IK_INLINE int32_t ik_layout_uneven(int32_t n)",
        f"{{ return (int32_t)(((n & 8) != 0 ? UINT64_C({high:#x}) : UINT64_C({low:#x})) >> ((n & 7) << 3)"
        " & 255) - 128; }",
        "static IK_INLINE int32_t ik_layout_twice_fp4(int32_t n)",
        "{",
        f"    const int32_t size = (int32_t)(UINT64_C({floats:#x}) >> ((n & 7) << 3) & 255);",
        "    return (n & 8) != 0 ? -size : size;",
        "}",
        "static IK_INLINE float ik_layout_half(ik_block_bytes at)",
        "{ return ik_f16_to_f32((uint16_t)(at[0] | at[1] << 8)); }",
        "static IK_INLINE float ik_layout_power(ik_block_bytes at)",
        "{ return ik_float(at[0] < 2 ? 0x00200000u << at[0] : (uint32_t)(at[0] - 1) << 23); }",
    ]
    for dtype in STORED_BLOCKS:
        lines += _functions(dtype.name, LAYOUTS[dtype.name])
        block = f"(x) + (int64_t)((i) / {dtype.block}) * {dtype.itemsize}"
        lines.append(f"#define ik_load_{dtype}(x, i) ik_of_{dtype}({block}, (int32_t)((i) & {dtype.block - 1}))")
    return "\n".join([*lines, "#endif", ""])


def _form(name: str, block: int, layout: BlockLayout) -> str:
    """Return an entry of IK_LAYOUT_FORMS."""
    scales = 0 if layout.scale == "1" else layout.scale_bits
    stored = [layout.table is not None, layout.power, scales, "B[" in layout.minimum]
    m = -1 if layout.m is None else layout.m
    numbers = [block, layout.bits, layout.run, layout.lowest, *map(int, stored), layout.d, m]
    return f"X({name}, {', '.join(map(str, numbers))})"


def _functions(name: str, layout: BlockLayout) -> list[str]:
    """Return the functions of one type: its integers, its scales, and the value of an element."""

    def spell(expression: str) -> str:
        for function in FUNCTIONS:
            expression = expression.replace(f"{function}(", f"ik_layout_{function}(")
        return expression

    own = "static IK_INLINE {} ik_{}_" + name + "(ik_block_bytes B{})\n{{ {}return {}; }}"
    unused, half = "(void)B, (void)s; ", "ik_layout_power" if layout.power else "ik_layout_half"
    m = "0.0f" if layout.m is None else f"ik_layout_half(B + {layout.m})"
    value = f"ik_d_{name}(B) * (float)ik_scale_{name}(B, s) * (float)ik_quant_{name}(B, s, i & 15)"
    if layout.m is not None:
        value += f" - ik_m_{name}(B) * (float)ik_minimum_{name}(B, s)"
    code = f"ik_code_{name}(B, s, l)"
    worth = f"code + ({layout.lowest})" if layout.table is None else f"ik_layout_{layout.table}(code)"
    quants = [0] if layout.table is None else FUNCTIONS[layout.table](np.arange(1 << layout.bits)) - layout.lowest
    return [
        f"#define ik_table_{name} {', '.join(map(str, quants))}",
        own.format("int32_t", "code", ", ik_run_index s, ik_run_index l", "(void)s; ", spell(layout.code)),
        f"static IK_INLINE int32_t ik_worth_{name}(int32_t code)\n{{ return {worth}; }}",
        own.format("int32_t", "quant", ", ik_run_index s, ik_run_index l", "", f"ik_worth_{name}({code})"),
        own.format("int32_t", "scale", ", ik_run_index s", unused, spell(layout.scale)),
        own.format("int32_t", "minimum", ", ik_run_index s", unused, spell(layout.minimum)),
        own.format("float", "d", "", "", f"{half}(B + {layout.d})"),
        own.format("float", "m", "", "(void)B; ", m),
        own.format("float", "of", ", int32_t i", "const int32_t s = i / IK_LAYOUT_RUN; ", value),
    ]
