"""Rewriting kernel sources to C++ that g++ compiles, with every line where it was.

`kernel<<<clusters, cores, stream>>>(arguments)` becomes a call; a `__group_shared__` object becomes one object for each
group of four cores; a reinterpret_cast between vectors, which are classes here, becomes a function call.

This module does not import `isokern`, because the build of the plug-in uses it before `isokern` is installed.
"""

from __future__ import annotations

import re

_CALLEE = re.compile(r"[A-Za-z_]\w*$")
_DIMS = r"(?:\s*\[[^\]]*\])*"
_GROUP_SHARED = re.compile(rf"\b__group_shared__\s+([\w:<>\s]+?[\s>])(\w+{_DIMS}(?:\s*,\s*\w+{_DIMS})*)\s*;")
_VECTOR_CAST = re.compile(r"\breinterpret_cast\s*<\s*((?:u?int|b?float)\d+x\d+_t)\s*>")
_ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b")


def rewrite(text: str, name: str) -> str:
    """Return the source `text` of file `name`, rewritten.

    Raises ValueError, which names the line, for a malformed launch or declaration and for what is not modelled.
    """
    text = _VECTOR_CAST.sub(r"::xpusim::vector_cast<\1>", _group_shared(text, name))
    out: list[str] = []
    at = 0
    code = blank(text)
    assembly = _ASSEMBLY.search(code)
    if assembly:
        raise ValueError(
            f"{name}:{_line(text, assembly.start())}: not modelled: inline assembly: "
            "the XPU's instructions are not public"
        )
    while (found := code.find("<<<", at)) >= 0:
        start = _callee(code, found)
        end = code.find(">>>", found)
        if start is None or end < 0 or not code[end + 3 :].lstrip().startswith("("):
            raise ValueError(
                f"{name}:{_line(text, found)}: <<< is not part of a launch: kernel<<<clusters, cores[, stream]>>>(…)"
            )
        callee = text[start:found].rstrip()
        spelled = " ".join(callee.split()).replace('"', r"\"")
        out.append(f'{text[at:start]}::xpusim::kernel({callee}, "{spelled}").on({text[found + 3 : end]})')
        at = end + 3
    return f'#include "xpusim/launch.h"\n#line 1 "{name}"\n{"".join(out)}{text[at:]}'


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _group_shared(text: str, name: str) -> str:
    """Rewrite declarations of group-shared memory as 16 objects, and a reference to the group's own."""
    out: list[str] = []
    at = 0
    code = blank(text)
    while (found := code.find("__group_shared__", at)) >= 0:
        declared = _GROUP_SHARED.match(code, found)
        if declared is None:
            allowed = "__group_shared__ type name[size], …; with no initialiser"
            raise ValueError(f"{name}:{_line(text, found)}: __group_shared__ is not part of a declaration: {allowed}")
        kind = " ".join(declared[1].replace("__simd__", "").split())  # all of these objects are aligned as vectors
        out.append(text[at:found])
        for one in re.finditer(rf"(\w+)({_DIMS})", declared[2]):
            groups, whole = f"xpusim_groups_{one[1]}", kind + "".join(one[2].split())
            out.append(f"static thread_local xpusim_padded<{whole}> {groups}[16]; ")
            out.append(f"auto &{one[1]} = xpusim_of_group({groups}); ")
        at = declared.end()
        out.append("\n" * text.count("\n", found, at))
    return "".join(out) + text[at:]


def blank(text: str) -> str:
    """Return the text with comments and literals blanked out; its length and lines stay the same."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def _callee(code: str, end: int) -> int | None:
    """Return where the name (with template arguments) that ends before `end` begins; None without a name."""
    at = len(code[:end].rstrip())
    if at and code[at - 1] == ">":
        depth = 0
        while at:
            at -= 1
            depth += {">": 1, "<": -1}.get(code[at], 0)
            if depth == 0:
                break
        at = len(code[:at].rstrip())
    named = _CALLEE.search(code, 0, at)
    if named is None:
        return None
    start = named.start()
    while start >= 2 and code[start - 2 : start] == "::":
        named = _CALLEE.search(code, 0, start - 2)
        start = named.start() if named else start - 2
    return start
