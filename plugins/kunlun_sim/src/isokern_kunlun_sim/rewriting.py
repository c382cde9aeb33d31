"""Kernel sources made into C++ that g++ understands: `kernel<<<clusters, cores, stream>>>(arguments)` becomes a call, every line stays where it is.

Stands alone: the build of the plug-in uses it before `isokern` is there.
"""

from __future__ import annotations

import re

_CALLEE = re.compile(r"[A-Za-z_]\w*$")


def rewrite(text: str, name: str) -> str:
    """The source `text` of file `name` with its launches rewritten. ValueError names the line of a launch that is not one."""
    out: list[str] = []
    at = 0
    code = _blank(text)
    while (found := code.find("<<<", at)) >= 0:
        start = _callee(code, found)
        end = code.find(">>>", found)
        if start is None or end < 0 or not code[end + 3 :].lstrip().startswith("("):
            line = text.count("\n", 0, found) + 1
            raise ValueError(f"{name}:{line}: <<< is not part of a launch: kernel<<<clusters, cores[, stream]>>>(…)")
        callee = text[start:found].rstrip()
        spelled = " ".join(callee.split()).replace('"', r"\"")
        out.append(f'{text[at:start]}::xpusim::kernel({callee}, "{spelled}").on({text[found + 3 : end]})')
        at = end + 3
    return f'#include "xpusim/launch.h"\n#line 1 "{name}"\n{"".join(out)}{text[at:]}'


def _blank(text: str) -> str:
    """The text with comments and literals blanked out, length and lines kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def _callee(code: str, end: int) -> int | None:
    """Where the name (with template arguments) begins that ends before `end`."""
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
