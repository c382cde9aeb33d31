"""What the host's functions of a checked source announce: that a local array or variable of theirs ends.

A copy that is in flight then reads or writes bytes of something else. Functions of the host are those that call the
runtime or launch a kernel, and those that call such a function. A function that the compiler inlines needs this, too,
because its arrays have no frame of their own. Variables are announced whose address is taken, or whose bytes may be
their own (`name.data()`).

This module does not import `isokern`, because the build of the plug-in uses it before `isokern` is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Added = tuple[int, str]  # an offset, and what is inserted there

_COPIES = re.compile(r"\bxpu_memcpy_async\s*\(")
_OF_THE_HOST = re.compile(r"\bxpu_\w+\s*\(|<<<")
_FUNCTION = re.compile(r"\b([A-Za-z_]\w*)\s*\(((?:[^(){};]|\([^()]*\))*)\)\s*(?:const\s*|noexcept\s*|->[^(){};]*)*\{")
# Between `struct` and its name: what aligns it, in whose parentheses there may be others
ATTRIBUTES = r"(?:\s*(?:alignas|__attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*"
_STRUCTURE = re.compile(rf"\b(?:struct|class|union|enum)\b{ATTRIBUTES}[^;{{}}()=]*\{{")
_NO_FUNCTION = ("if", "for", "while", "switch", "catch")
_DECLARED = re.compile(
    r"(?<=[;{}])\s*(?!(?:return|else|do|goto|case|delete|throw|using|typedef|static|extern|struct|new)\b)"
    r"(?:[A-Za-z_]\w*(?:::\w+)*(?:<[^;{}()]*?>)?[\s*]+)+?([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)(?=[;={(,])"
)


def announce_ends(code: str) -> Iterator[Added]:
    """Yield what is added behind declarations; `code` is the text with only the author's code."""
    if not _COPIES.search(code):
        return
    structures = [(found.start(), close_brace(code, found.end() - 1)) for found in _STRUCTURE.finditer(code)]
    for begin, end in _bodies_of_the_host(code):
        body = code[begin:end]
        if re.search(r"\bgoto\b|\bswitch\s*\(", body):
            continue  # a jump must not pass the construction of what is added
        for found in _DECLARED.finditer(code, begin, end):
            if any(first < found.start(1) < last for first, last in structures):
                continue
            name, behind = found[1], statement_end(code, found.end(), end)
            own_bytes = rf"&\s*{name}\b(?!\s*(?:\[|\(|\.|->))|(?<![\w.>]){name}\s*\.\s*(?:data|c_str|begin)\s*\("
            if behind is not None and (found[2] or re.search(own_bytes, body)):
                yield behind, f" const ::xpusim::lifetime xpusim_lifetime_{name}({name});"


def _bodies_of_the_host(code: str) -> list[tuple[int, int]]:
    """Return where the bodies of the host's functions begin and end."""
    bodies: dict[str, list[tuple[int, int]]] = {}
    for found in _FUNCTION.finditer(code):
        before = code[max(0, found.start() - 300) : found.start()]
        if found[1] not in _NO_FUNCTION and not re.search(r"\b(?:__global__|xpusim_kernel)\b[^;{}]*$", before):
            bodies.setdefault(found[1], []).append((found.end(), close_brace(code, found.end() - 1)))
    ours: set[str] = set()
    calls = _OF_THE_HOST
    while True:
        more = {name for name, all_of in bodies.items() for b, e in all_of if calls.search(code, b, e)} - ours
        if not more:
            return [span for name in ours for span in bodies[name]]
        ours |= more
        calls = re.compile(rf"\b(?:{'|'.join(sorted(more))})\s*\(")


def close_brace(code: str, start: int) -> int:
    """Return where the brace ends that begins at `start`, or the end of the text."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.start()
    return len(code)


def statement_end(code: str, start: int, end: int) -> int | None:
    """Return the offset after the semicolon that ends the statement; None if there is none before `end`."""
    depth = 0
    for found in re.compile(r"[()\[\]{};]").finditer(code, start, end):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(found[0], 0)
        if depth < 0:
            return None
        if depth == 0 and found[0] == ";":
            return found.end()
    return None
