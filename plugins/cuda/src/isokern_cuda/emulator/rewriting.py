"""Rewriting CUDA sources to C++ that g++ compiles, with every line where it was.

`extern __shared__` arrays become pointers to the dynamic shared memory. For the checks, local variables that begin
uninitialised are announced to the emulator, and a gap follows each `__shared__` variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.S | re.M
)
_DIMS = r"(?:\s*\[[^\[\];]*\])+"
_VARIABLES = re.compile(
    rf"\s*([A-Za-z_][\w:\s]*(?:<[^;{{}}]*>)?[\w:\s]*?[\s>])(\w+(?:{_DIMS})?(?:\s*,\s*\w+(?:{_DIMS})?)*)\s*$"
)
_ALIGNED = re.compile(r"\b(?:alignas|__align__|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)")
_OTHER_WORDS = {
    *("return", "delete", "throw", "goto", "case", "else", "using", "typedef", "extern", "static"),
    *("constexpr", "const", "new", "struct", "class", "union", "enum"),
}
_BOUNDS = re.compile(r"\b(?:__launch_bounds__|__cluster_dims__|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)")
_ENTRY = re.compile(r"__global__\s+[^;{}()]*?(\w+)\s*\(")


@dataclass(frozen=True)
class KernelEntry:
    """A kernel of a source: its name with its namespaces, and the names of its parameters."""

    name: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class _Statement:
    begin: int
    end: int  # of its semicolon
    kinds: tuple[str, ...]  # of the braces around it


def blank(text: str) -> str:
    """Return the text with comments, literals and directives blanked out; its length and lines stay the same."""
    return _NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def rewrite(text: str, name: str, check: bool) -> str:
    """Return the source `text` of file `name`, rewritten; raises ValueError, which names the line."""
    code = blank(text)
    if found := re.search(r"<<<", code):
        why = "<<< starts a kernel from the host; keep kernels in a file of their own"
        raise ValueError(f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {why}")
    edits: list[tuple[int, int, str]] = []  # begin, end, the new text
    for statement in _statements(code):
        part = code[statement.begin : statement.end]
        if "__shared__" in part:
            edits += _shared_edits(statement, part, name, text, check)
        elif check and "code" in statement.kinds and statement.kinds[-1] == "code":
            names = "".join(f' ::cuda_emulator::watch({n}, "{n}");' for n in _find_uninitialised(part))
            edits.append((statement.end + 1, statement.end + 1, names))
    out, at = [], 0
    for begin, end, new in edits:
        out += [text[at:begin], new]
        at = end
    return f'#include "cuda_entry.h"\n#line 1 "{name.replace(chr(34), "?")}"\n' + "".join([*out, text[at:]])


def _statements(code: str) -> Iterator[_Statement]:
    """Yield the statements that end with a semicolon, with what the braces around them are."""
    kinds: list[str] = []
    begin = depth = 0
    for mark in re.finditer(r"[{};()]", code):
        at, character = mark.start(), mark.group()
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == ";" and depth <= 0:
            yield _Statement(begin, at, tuple(kinds))
        elif character == "{":
            kinds.append(_kind(code[begin:at]))
        elif character == "}" and kinds:
            if kinds.pop() == "value":
                continue
        elif character in "()" or depth > 0:
            continue
        if not kinds or kinds[-1] != "value":
            begin = at + 1


def _kind(head: str) -> str:
    """Return what a brace opens, from the text before it: a type, a namespace, a value, or code."""
    if named := re.search(r"\bnamespace\b\s*([\w:]*)\s*$", head):
        return f"namespace {named[1]}"
    if re.search(r"\b(?:struct|class|union|enum)\b[^()=]*$", head):
        return "type"
    if not head.strip() or re.search(
        r"\)\s*(?:const|noexcept|mutable|->[\w:<>\s*&]+)?\s*$|\b(?:else|do|try)\s*$", head
    ):
        return "code"
    return "namespace" if re.fullmatch(r"\s*extern\s*", head) else "value"


def _shared_edits(
    statement: _Statement, part: str, name: str, text: str, check: bool
) -> Iterator[tuple[int, int, str]]:
    """Yield what to change at a declaration with `__shared__`."""
    if "extern" not in part.split("__shared__")[0]:
        for word in re.finditer(r"\bstatic\b", part):
            yield statement.begin + word.start(), statement.begin + word.end(), ""
        if check:
            yield statement.end + 1, statement.end + 1, " CUDA_EMULATOR_GAP;"
        return
    declared = re.search(r"\bextern\s+__shared__\s+(.*?)(\w+)\s*\[\s*\]\s*$", _ALIGNED.sub("", part), re.S)
    if declared is None:
        line = text.count("\n", 0, statement.end) + 1
        raise ValueError(f"{name}:{line}: `extern __shared__` declares one array without a size: T name[];")
    kind = " ".join(declared[1].split())
    lines = "\n" * part.count("\n", part.index("extern"))
    begin = statement.begin + part.index("extern")
    yield begin, statement.end, f"{kind} *const {declared[2]} = ({kind} *)cuda_emulator_dynamic{lines}"


def _find_uninitialised(part: str) -> list[str]:
    """Return the variables that a statement declares without a value, if that is what it does."""
    declared = _VARIABLES.match(_ALIGNED.sub("", part))
    if declared is None or _OTHER_WORDS & {*re.findall(r"\w+", declared[1])}:
        return []
    return re.findall(r"(\w+)", re.sub(_DIMS, "", declared[2]))


def kernels(text: str) -> list[KernelEntry]:
    """Return the kernels of a source, in order."""
    code = _BOUNDS.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), blank(text))
    namespaces = {s.end: s.kinds for s in _statements(code)}
    found: dict[str, KernelEntry] = {}
    for match in _ENTRY.finditer(code):
        kinds = next((kinds for end, kinds in namespaces.items() if end >= match.start()), ())
        path = [k.removeprefix("namespace").strip() for k in kinds if k.startswith("namespace")]
        name = "::".join([*(p for p in path if p), match[1]])
        found.setdefault(name, KernelEntry(name, tuple(_parameters(code, match.end()))))
    return list(found.values())


def _parameters(code: str, begin: int) -> Iterator[str]:
    """Yield the names of the parameters in the parentheses that open before `begin`."""
    depth, start = 0, begin
    for mark in re.finditer(r"[(){}\[\]<>,]", code[begin:]):
        at = begin + mark.start()
        if depth == 0 and mark.group() in "),":
            named = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)?(?:=.*)?$", code[start:at], re.S)
            if named and named[1] != "void":
                yield named[1]
            start = at + 1
            if mark.group() == ")":
                return
        depth += {"(": 1, "<": 1, "[": 1, "{": 1, ")": -1, ">": -1, "]": -1, "}": -1}.get(mark.group(), 0)
