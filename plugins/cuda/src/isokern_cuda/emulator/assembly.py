"""Inline PTX as C++: each instruction becomes a call of the function of its name in `cuda_ptx.h`."""

from __future__ import annotations

import re

_STRING = re.compile(r'R"([^()\\ ]{0,16})\((.*?)\)\1"|"((?:\\.|[^"\\\n])*)"', re.S)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_REGISTERS = {"b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t", "b32": "uint32_t", "u32": "uint32_t"}
_REGISTERS |= {"s32": "int32_t", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t", "f32": "float"}
_REGISTERS |= {"f64": "double", "pred": "bool"}
ALLOWED = "PTX instructions with a function in cuda_ptx.h; or use the intrinsic, or plain C++"


def translate(text: str) -> str:
    """Return C++ for the parentheses of an `asm` statement; raises ValueError for what PTX does not have."""
    at = 0
    template = ""
    while found := re.compile(r"\s*").match(text, at):
        at = found.end()
        piece = _STRING.match(text, at)
        if piece is None:
            break
        template += piece[2] if piece[2] is not None else _unescape(piece[3])
        at = piece.end()
    operands = [_operand(o) for part in _sections(text[at:])[:2] for o in _split_commas(part) if o.strip()]
    body = _STATEMENT_NOISE.sub("", template)
    statements = [_statement(s.strip(), operands) for s in _pieces(body) if s.strip()]
    return f"do {{ {' '.join(statements)} }} while (0)" if statements else "do {} while (0)"


_STATEMENT_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text)


def _sections(text: str) -> list[str]:
    """Return what is between the colons: outputs, inputs, clobbers. Names with colons are in parentheses."""
    parts, depth, first = [], 0, len(text)
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == ":" and depth == 0:
            parts.append(text[first:at])
            first = at + 1
    return [*parts[1:], text[first:]]


def _split_commas(text: str) -> list[str]:
    parts, depth, first = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[first:at])
            first = at + 1
    return [*parts, text[first:]]


def _operand(text: str) -> str:
    """Return the expression of `"=r"(expression)`."""
    found = re.fullmatch(r'\s*(?:\[\w+\]\s*)?"[^"]*"\s*\((.*)\)\s*', text, re.S)
    if found is None:
        raise ValueError(f'the operand {" ".join(text.split())} of inline PTX; allowed: "constraint"(expression)')
    return "(" + " ".join(found[1].split()) + ")"


def _pieces(text: str) -> list[str]:
    """Return the instructions; braces of a block stand alone, those of operands do not."""
    out, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        if character == "{" and depth == 0 and not text[begin:at].strip():
            out.append("{")
            begin = at + 1
        elif character == "}" and depth == 0 and not text[begin:at].strip():
            out.append("}")
            begin = at + 1
        elif character in "{}":
            depth += 1 if character == "{" else -1
        elif character == ";":
            out.append(text[begin:at])
            begin = at + 1
    return [*out, text[begin:]]


def _statement(text: str, operands: list[str]) -> str:
    if text in "{}":
        return text
    if declared := re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text, re.S):
        kind = _REGISTERS.get(declared[1])
        if kind is None:
            raise ValueError(f"the PTX register type .{declared[1]} is not emulated; allowed: {ALLOWED}")
        return f"{kind} {', '.join(_name(n.strip()) + ' = {}' for n in declared[2].split(','))};"
    guard = ""
    if guarded := re.match(r"@(!?)(%?\w+)\s+", text):
        guard = f"if ({guarded[1]}{_value(guarded[2], operands)}) "
        text = text[guarded.end() :]
    instruction = re.match(r"([a-z]\w*(?:(?:\.|::)\w+)*)\s*", text)
    if instruction is None:
        raise ValueError(f"the PTX {' '.join(text.split())} is not emulated; allowed: {ALLOWED}")
    name = re.sub(r"\W+", "_", instruction[1])
    given = [v for part in _split_commas(text[instruction.end() :]) for v in _values(part.strip(), operands)]
    return f"{guard}::cuda_emulator::ptx::{name}({', '.join(given)});"


def _values(text: str, operands: list[str]) -> list[str]:
    """Return the C++ values of one operand: several of `{…}`, an address of `[…]`."""
    if not text:
        return []
    if text.startswith("{"):
        return [v for part in _split_commas(text[1:-1]) for v in _values(part.strip(), operands)]
    if text.startswith("["):
        base, _, offset = text[1:-1].partition("+")
        value = f"::cuda_emulator::ptx::address({_value(base.strip(), operands)}, {offset.strip() or 0})"
        return [value]
    if "|" in text:
        return [v for part in text.split("|") for v in _values(part.strip(), operands)]
    return [_value(text, operands)]


def _value(text: str, operands: list[str]) -> str:
    if number := re.fullmatch(r"%(\d+)", text):
        if int(number[1]) >= len(operands):
            raise ValueError(f"inline PTX uses %{number[1]} and has {len(operands)} operands")
        return operands[int(number[1])]
    if special := re.fullmatch(r"%%?([a-z_]\w*(?:\.[xyz])?)", text):
        return f"::cuda_emulator::ptx::special_{special[1].replace('.', '_')}()"
    if float_bits := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
        return f"__uint_as_float(0x{float_bits[1]}u)"
    if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?", text):
        return text
    if re.fullmatch(r"[A-Za-z_$%][\w$]*", text):
        return _name(text)
    raise ValueError(f"the PTX operand {text} is not emulated; allowed: %0, {{%0, %1}}, [%0], [%0 + 16], numbers")


def _name(text: str) -> str:
    return "ptx_" + re.sub(r"\W", "_", text)
