"""The layouts of block types in C, generated from their declarations: isokern_layouts.h."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ..blocks.layouts import ARITHMETIC, FP4, FUNCTIONS, LAYOUTS, THREES, UNEVEN, BlockLayout, codebook
from ..dtypes import STORED_BLOCKS


def layout_header() -> str:
    """Return isokern_layouts.h: the layouts in the common subset of C, OpenCL C and CUDA C++.

    isokern_blocks.h includes it, behind isokern_half.h.
    """
    low, high = (sum((v + 128) << 8 * i for i, v in enumerate(half)) for half in (UNEVEN[:8], UNEVEN[8:]))
    floats, threes = (sum(v << 8 * i for i, v in enumerate(values)) for values in (FP4, THREES))
    lines = [
        "/* The layouts of blocks that are only decoded. Generated from isokern/blocks/layouts.py; do not edit. */",
        "#ifndef ISOKERN_LAYOUTS_H",
        "#define ISOKERN_LAYOUTS_H",
        "#ifndef IK_GLOBAL",
        "#define IK_GLOBAL",
        "#endif",
        "#ifndef IK_TABLE",
        "#define IK_TABLE static const",
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
        " * lowest, of a type that has them in a table; of IK_LAYOUT_VALUES, all quants less the lowest. ik_half_ of",
        " * those is d, an F16, before it is multiplied by the unit. */",
        "/* For each type: its name, the elements and the bytes of a block, and its lowest quant. */",
        "#define IK_LAYOUTS(X) "
        + " ".join(f"X({d}, {d.block}, {d.itemsize}, {LAYOUTS[d.name].lowest})" for d in STORED_BLOCKS),
        "/* For each type whose quants are made of codes: its name, the elements of a block, the bits of a code, the",
        " * elements that share a scale, the lowest quant; whether quants are from a table, and d is a power of two in",
        " * a byte; the bits of scales, 0, 4, or 8 for all others; whether there are minima; the bytes of d and m, -1",
        " * where there is no m; the unit of d. Then the same of the others, whose codes are quants, of 0 bits; and of",
        " * those of them that have few quants, as if codes counted these. */",
        *(
            f"#define {name}(X) "
            + " ".join(_form(d.name, d.block, layout) for d in STORED_BLOCKS for layout in chosen(LAYOUTS[d.name]))
            for name, chosen in (
                ("IK_LAYOUT_FORMS", lambda layout: [layout] * (layout.bits > 0)),
                ("IK_LAYOUT_OTHERS", lambda layout: [layout] * (layout.bits == 0)),
                ("IK_LAYOUT_VALUES", _count_quants),
            )
        ),
        "static IK_INLINE int32_t ik_layout_uneven(int32_t n)",
        f"{{ return (int32_t)(((n & 8) != 0 ? UINT64_C({high:#x}) : UINT64_C({low:#x})) >> ((n & 7) << 3)"
        " & 255) - 128; }",
        "static IK_INLINE int32_t ik_layout_twice_fp4(int32_t n)",
        "{",
        f"    const int32_t size = (int32_t)(UINT64_C({floats:#x}) >> ((n & 7) << 3) & 255);",
        "    return (n & 8) != 0 ? -size : size;",
        "}",
        "static IK_INLINE int32_t ik_layout_power_of_three(int32_t n)",
        f"{{ return (int32_t)(UINT64_C({threes:#x}) >> (n << 3) & 255); }}",
        *(
            f"static IK_INLINE int32_t ik_layout_{name}({', '.join(f'int32_t {x}' for x in given)})\n"
            f"{{ return {_spell(text)}; }}"
            for name, (given, text) in ARITHMETIC.items()
        ),
        "static IK_INLINE uint16_t ik_half_bits(ik_block_bytes at)",
        "{ return (uint16_t)(at[0] | at[1] << 8); }",
        "static IK_INLINE uint16_t ik_spread_bits(ik_block_bytes at)",
        "{ return (uint16_t)(at[0] >> 4 | (at[2] & 240) | (at[4] & 240) << 4 | (at[6] & 240) << 8); }",
        "static IK_INLINE float ik_layout_half(ik_block_bytes at)",
        "{ return ik_f16_to_f32(ik_half_bits(at)); }",
        "static IK_INLINE float ik_layout_single(ik_block_bytes at)",
        "{ return ik_float((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24); }",
        "static IK_INLINE float ik_layout_spread(ik_block_bytes at)",
        "{ return ik_f16_to_f32(ik_spread_bits(at)); }",
        "static IK_INLINE float ik_layout_power(ik_block_bytes at)",
        "{ return ik_float(at[0] < 2 ? 0x00200000u << at[0] : (uint32_t)(at[0] - 1) << 23); }",
    ]
    books = dict.fromkeys(layout.codebook for layout in LAYOUTS.values())
    plain = [d for d in STORED_BLOCKS if LAYOUTS[d.name].codebook is None]
    for book in books:
        own = plain if book is None else [d for d in STORED_BLOCKS if LAYOUTS[d.name].codebook == book]
        if book is not None:
            lines += _table(book)
        for dtype in own:
            lines += _functions(dtype.name, LAYOUTS[dtype.name])
            block = f"(x) + (int64_t)((i) / {dtype.block}) * {dtype.itemsize}"
            lines.append(f"#define ik_load_{dtype}(x, i) ik_of_{dtype}({block}, (int32_t)((i) & {dtype.block - 1}))")
        if book is not None:
            lines.append("#endif")
    return "\n".join([*lines, "#endif", ""])


def _table(book: str) -> list[str]:
    """Return the words of a codebook; portable kernels have those that their plan needs."""
    words = codebook(book)
    rows = [", ".join(f"{word:#x}" for word in words[at : at + 14]) for at in range(0, len(words), 14)]
    return [
        f"#if !defined(IK_SIMT) || defined(IK_CODEBOOK_{book})",
        f"IK_TABLE uint16_t ik_codebook_{book}[{len(words)}] = {{",
        *(f"    {row}," for row in rows),
        "};",
        f"static IK_INLINE int32_t ik_word_{book}(int32_t n) {{ return ik_codebook_{book}[n]; }}",
    ]


def _spell(expression: str, book: str | None = None) -> str:
    """Return an expression in C: its functions have prefixes."""
    spelt = re.sub(rf"\b({'|'.join(FUNCTIONS)})\(", r"ik_layout_\1(", expression)
    return spelt if book is None else spelt.replace("word(", f"ik_word_{book}(")


def _count_quants(layout: BlockLayout) -> list[BlockLayout]:
    """Return the layout with codes that are places in a table of its quants, if it has few."""
    return [replace(layout, bits=(len(layout.values) - 1).bit_length(), table="values")] if layout.values else []


def _form(name: str, block: int, layout: BlockLayout) -> str:
    """Return an entry of IK_LAYOUT_FORMS."""
    scales = 0 if layout.scale == "1" else layout.scale_bits
    stored = [layout.table is not None, layout.stored == "power", scales, "B[" in layout.minimum]
    m = -1 if layout.m is None else layout.m
    numbers = [block, layout.bits, layout.run, layout.lowest, *map(int, stored), layout.d, m]
    return f"X({name}, {', '.join(map(str, numbers))}, {float(layout.unit)}f)"


def _functions(name: str, layout: BlockLayout) -> list[str]:
    """Return the functions of one type: its integers, its scales, and the value of an element."""
    own = "static IK_INLINE {} ik_{}_" + name + "(ik_block_bytes B{})\n{{ {}return {}; }}"
    unused = "(void)B, (void)s; "
    m = "0.0f" if layout.m is None else f"ik_layout_half(B + {layout.m})"
    d = f"ik_layout_{layout.stored}(B + {layout.d})" + (f" * {layout.unit}f" if layout.unit != 1 else "")
    value = f"ik_d_{name}(B) * (float)ik_scale_{name}(B, s) * (float)ik_quant_{name}(B, s, i & 15)"
    if layout.m is not None:
        value += f" - ik_m_{name}(B) * (float)ik_minimum_{name}(B, s)"
    code, worth = f"ik_code_{name}(B, s, l)", "code"
    if layout.table is not None:
        worth = f"ik_layout_{layout.table}(code)"
    elif layout.bits:
        worth = f"code + ({layout.lowest})"
    spelt = _spell(layout.code, layout.codebook)
    all_quants = np.array(layout.values or [layout.lowest])
    if layout.table is not None:
        all_quants = FUNCTIONS[layout.table](np.arange(1 << layout.bits))
    quants = all_quants - layout.lowest
    half = own.format("uint16_t", "half", "", "", f"ik_{layout.stored}_bits(B + {layout.d})")
    return [
        f"#define ik_table_{name} {', '.join(map(str, quants))}",
        own.format("int32_t", "code", ", ik_run_index s, ik_run_index l", "(void)s; ", spelt),
        f"static IK_INLINE int32_t ik_worth_{name}(int32_t code)\n{{ return {worth}; }}",
        own.format("int32_t", "quant", ", ik_run_index s, ik_run_index l", "", f"ik_worth_{name}({code})"),
        own.format("int32_t", "scale", ", ik_run_index s", unused, _spell(layout.scale)),
        own.format("int32_t", "minimum", ", ik_run_index s", unused, _spell(layout.minimum)),
        own.format("float", "d", "", "", d),
        own.format("float", "m", "", "(void)B; ", m),
        own.format("float", "of", ", int32_t i", "const int32_t s = i / IK_LAYOUT_RUN; ", value),
        *([half] if layout.values else []),
    ]
