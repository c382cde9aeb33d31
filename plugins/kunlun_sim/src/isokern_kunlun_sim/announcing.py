"""What the source of a checked kernel announces besides its loads and stores, which the compiler announces.

On the device a pointer without `__global_ptr__` and the like is one of local memory, except for a kernel's parameters,
and `long`, `size_t` and their relatives have 32 bits. Here addresses are those of the host, and so are types. So calls
are added, each of which is silent in code of the host: at the begin of a function for its parameters that are such
pointers, around a dereferenced member of a structure that is one, and around what a variable of such a type is given.
An element of an array that a statement moves unchanged is also announced: it may be unwritten. So is a variable that
such an element was moved to, when it is moved on. After such a statement comes a call that may change memory, so that
the compiler loads the element again when it is used, and announces the load.

The text is what the preprocessor made of a source with `-DXPUSIM_MARKED`, in which qualified pointers are marked. All
lines stay where they are. What cannot be understood without a parser of C++ is left as it is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from .lifetimes import ATTRIBUTES, Added, announce_ends, close_brace, statement_end

MARK, GLOBAL_MARK = "__attribute__((xpusim_pointer))", "__attribute__((xpusim_global))"

_LANGUAGE = re.compile(r'^# \d+ "[^"\n]*/(?:xpusim|xpu/kernel)/[^"\n]*"[^\n]*\n(?:(?!# \d).*\n?)*', flags=re.M)
_TEMPLATE_TYPE = re.compile(r"\b(?:typename|class)\s*(?:\.\.\.)?\s*(\w+)\s*[,=>]")
_PARAMETERS_END = re.compile(r"\)(?=\s*(?:(?:const|noexcept|mutable|override|final)\b\s*|->[^(){};]*)*$)")
_NO_FUNCTION = {"if", "for", "while", "switch", "catch", "decltype", "__attribute__"}
_NO_NAME = {"const", "volatile", "restrict", "__restrict", "__restrict__"}
_POINTER = re.compile(r"(?:\*[\s\w]*?\b|\w\s+)(\w+)\s*((?:\[[^\]]*\]\s*)*)(?:=.*)?$", flags=re.S)
STRUCTURE = re.compile(rf"\b(?:struct|class|union)\b{ATTRIBUTES}[^;{{}}()=]*\{{")
_MEMBER = re.compile(r"\*\s*(?:(?:const|volatile)\b\s*)*(\w+)\s*(?:\[[^\]]*\]\s*)?(?=,|=|$)")
_LONG = (
    r"(?:(?:unsigned|signed)\s+)?(?:int\s+)?long(?!\s+(?:long|double)\b)(?:\s+(?:int|unsigned|signed)\b)*"
    r"|(?:std::|::)?\b(?:size_t|ssize_t|ptrdiff_t)"
)
_ALIAS = re.compile(rf"\btypedef\s+(?:{_LONG})\s+(\w+)\s*;|\busing\s+(\w+)\s*=\s*(?:{_LONG})\s*;")
_FLAGS = r"(?:(?:const|volatile|static|register|constexpr)\s+)*"
_EARLIER = re.compile(r"\blong\s*$")  # before `long` or `unsigned`, that is `long long`
_NO_TYPE = r"(?!(?:return|else|do|goto|case|delete|throw|using|typedef|static|constexpr|auto)\b)"
_MOVED_TO = (
    rf"(?:(?<=[;{{}},)])|(?<=\belse)(?=\s))\s*{_NO_TYPE}(?P<target>(?P<type>(?:[A-Za-z_][\w:]*[\s*]+)*)"
    r"(?P<name>[A-Za-z_]\w*)(?P<part>(?:(?:\.|->)\w+|\s*\[[^\[\]=;]*\])*))\s*=\s*"
)
_ELEMENT = r"[A-Za-z_]\w*(?:(?:\.|->)\w+)*\s*(?:\[[^\[\]=;,{}()]*\])+"
_CONST = re.compile(r"\bconst\b[^*]*$")  # the variable itself, and not what it points to
_STORAGE = re.compile(r"\b(?:static|extern|register|mutable|thread_local|__thread|inline|constexpr)\b")
_DECLARATION = re.compile(rf"\s*{_NO_TYPE}((?:[A-Za-z_][\w:]*(?:<[^;{{}}()]*>)?[\s*&]+)+)[A-Za-z_]\w*\s*[\[=,]")
_STRUCTURE_HEAD = re.compile(rf"\b(?:struct|class|union|enum)\b{ATTRIBUTES}[^;{{}}()=]*$")
_BLOCK_HEAD = re.compile(r"(?:[)\]:]|\b(?:else|do|try|const|noexcept|mutable|override|final)|->[^(){};]*)\s*$|^\s*$")


def announce(text: str, code: str) -> str:
    """Return the text with the calls; `code` is the text with only the author's code, at the same offsets."""
    for found in _LANGUAGE.finditer(text):
        code = code[: found.start()] + re.sub(r"[^\n]", " ", found.group()) + code[found.end() :]
    types = set(_TEMPLATE_TYPE.findall(code))
    out: list[str] = []
    at = 0
    for offset, added in sorted(_all(code, types), key=_offset):
        out += [text[at:offset], added]
        at = offset
    return "".join(out) + text[at:]


def _all(code: str, types: set[str]) -> Iterator[Added]:
    moves = _moves(code)
    yield from (added for move in moves for added in move.before)
    yield from _longs(code)
    # Behind what `_longs` puts around the same assignment
    yield from (added for move in moves for added in move.behind)
    yield from _parameters(code, types)
    yield from _members(code, types)
    yield from announce_ends(code)


def without_marks(text: str) -> str:
    """Return the text without the marks of qualified pointers."""
    return text.replace(MARK, "").replace(GLOBAL_MARK, "")


def members(code: str, found: re.Match[str]) -> list[str]:
    """Return the declarations of a structure, a match of STRUCTURE."""
    return _outermost(code[found.end() : close_brace(code, found.end() - 1)]).split(";")


def _offset(added: Added) -> int:
    return added[0]


@dataclass
class _Move:
    """An assignment that moves an element of an array, or a variable that one was moved to."""

    found: re.Match[str]
    before: list[Added]
    behind: list[Added]


def _moves(code: str) -> list[_Move]:
    """Find the moves after which the element can be followed; what others move is used."""
    around, constants = _Brackets(code), _find_constant_arrays(code)
    names: set[str] = set()
    moves: dict[int, _Move] = {}
    sources = _ELEMENT
    while True:
        for found in re.finditer(rf"{_MOVED_TO}(?P<source>{sources})\s*(?=[;,])", code):
            twice = re.search(r"\+\+|--", found["source"])  # it is evaluated twice
            if found.start() not in moves and not twice and (move := _follow(code, found, around, constants)):
                moves[found.start()] = move
        more = {move.found["name"] for move in moves.values() if not move.found["part"]} - names
        if not more:
            return list(moves.values())
        names |= more
        sources = rf"{_ELEMENT}|\b(?:{'|'.join(sorted(names))})\b"


def _follow(code: str, found: re.Match[str], around: _Brackets, constants: set[str]) -> _Move | None:
    """Return what is added to an assignment, so that the element is loaded, and so announced, when it is used."""
    start, name, source = found.start("target"), found["name"], found["source"]
    element = "[" in source
    call = f"(::xpusim::moved{'' if element else '_on'}({' '.join(source.split())}), "
    move = _Move(found, [(found.start("source"), call)], [(found.end("source"), ")")])
    bracket = around.of(start)
    if bracket < 0:
        return move  # a variable of no function
    if not _begins_block(code, bracket):
        return None
    listed = _DECLARATION.match(_statement(code, start)) if code[_find_last(code, start)] == "," else None
    if listed or found["type"]:
        end = statement_end(code, found.end(), len(code))
        if found["part"] or end is None:
            return None
        behind = f" ::xpusim::moved_to({name});"
        if _CONST.search(listed[1] if listed else found["type"]):
            # The compiler announces no loads of a constant
            if listed or code[found.end()] != ";" or not element or _STORAGE.search(found["type"]):
                return None
            if re.findall(r"\w+", source)[0] in constants:
                return None  # all of it is written, and the variable may be a constant expression
            move.before += [(start, "::std::remove_const_t<"), (found.start("name"), "> xpusim_moved_to_")]
            behind = f" ::xpusim::moved_to(xpusim_moved_to_{name});"
            behind += f" {' '.join(found['type'].split())} &{name} = xpusim_moved_to_{name};"
        move.behind.append((end, behind))
    elif _begins_expression(code, start):
        move.before.insert(0, (start, "("))
        move.behind.append((found.end(), f", ::xpusim::moved_to({'' if found['part'] else name}))"))
    else:
        return None
    return move


def _begins_expression(code: str, at: int) -> bool:
    """Return whether an assignment that begins there in a block, without a type, is not a declaration."""
    last = _find_last(code, at)
    if code[last] == ",":
        return not _statement(code, at).lstrip().startswith(",")
    if code[last] == "}":
        return _STRUCTURE_HEAD.search(_statement(code, _open(code, last))) is None
    if code[last] == ")":
        begin = _open(code, last)
        return re.search(r"\b(?:if|constexpr|for|while)\s*$", code[max(0, begin - 100) : begin]) is not None
    return True


def _find_constant_arrays(code: str) -> set[str]:
    """Return the names that arrays of constants may have."""
    names = {word for found in re.findall(r"\bconstexpr\b([^;{}()]*)", code) for word in re.findall(r"\w+", found)}
    return names | set(re.findall(r"\bconst\b[^;{}()=]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)+=?\s*\{", code))


def _find_last(code: str, at: int) -> int:
    """Return the offset of the last character before `at` that is not white space; there must be one."""
    while code[at - 1].isspace():
        at -= 1
    return at - 1


def _statement(code: str, at: int) -> str:
    """Return what stands before `at` in its statement."""
    return code[max(code.rfind(c, 0, at) for c in ";{}") + 1 : at]


def _begins_block(code: str, bracket: int) -> bool:
    """Tell whether a bracket is the brace of a function's block."""
    before = _statement(code, bracket)
    return code[bracket] == "{" and bool(_BLOCK_HEAD.search(before)) and not _STRUCTURE_HEAD.search(before)


class _Brackets:
    """Where the innermost bracket around an offset begins."""

    def __init__(self, code: str) -> None:
        self._offsets, self._around = [-1], [-1]
        open_ones: list[int] = []
        for found in re.finditer(r"[()\[\]{}]", code):
            if found[0] in "([{":
                open_ones.append(found.start())
            elif open_ones:
                open_ones.pop()
            self._offsets.append(found.start())
            self._around.append(open_ones[-1] if open_ones else -1)

    def of(self, at: int) -> int:
        """Return the offset, or -1."""
        return self._around[bisect_left(self._offsets, at) - 1]


def _parameters(code: str, types: set[str]) -> Iterator[Added]:
    """Announce a function's parameters that are pointers of local memory."""
    head = 0
    for found in re.finditer(r"[;{}]", code):
        start, head = head, found.end()
        end = _PARAMETERS_END.search(code, start, found.start()) if found[0] == "{" else None
        begin = _open(code, end.start()) if end else -1
        if end is None or begin < start:
            continue
        before = code[start:begin]
        word = re.search(r"(\w+)\s*$", before)
        if (word and word[1] in _NO_FUNCTION) or re.search(r"\b(?:__global__|xpusim_kernel|constexpr)\b", before):
            continue
        names = [name for p in _parts(code[begin + 1 : end.start()]) if (name := _local_pointer(p, types))]
        if names:
            yield found.end(), f" const ::xpusim::local_pointers xpusim_parameters({', '.join(names)});"


def _local_pointer(parameter: str, types: set[str]) -> str | None:
    """Return the name of a parameter that is a pointer of local memory.

    A template's type may have the qualifier of a pointer to it, so a pointer to such a type may be one to any memory.
    """
    if MARK in parameter or re.search(r"[(&]|\.\.\.", parameter) or types & set(re.findall(r"\w+", parameter)):
        return None
    found = _POINTER.search(parameter)
    if found is None or found[1] in _NO_NAME or not ("*" in parameter or found[2]):
        return None
    return found[1]


def _members(code: str, types: set[str]) -> Iterator[Added]:
    """Announce that a structure's member that is a pointer of local memory is dereferenced."""
    names: set[str] = set()
    others: set[str] = set()
    bodies = []
    for found in STRUCTURE.finditer(code):
        bodies.append((found.end(), close_brace(code, found.end() - 1)))
        for member in members(code, found):
            if "*" in member and not re.search(r"[(]|\b(?:typedef|using|friend)\b", without_marks(member)):
                marked = MARK in member or types & set(re.findall(r"\w+", member))
                (others if marked else names).update(_MEMBER.findall(member.strip()))
    names -= others
    if not names or "packed" in code:
        return
    choice = "|".join(sorted(names))
    for found in re.finditer(rf"(?:\.|->)\s*(?:{choice})\b(?=\s*(\[|->|))", code):
        first = _postfix(code, found.start())
        before = code[max(0, (first or 0) - 100) : first].rstrip() if first is not None else "&"
        if before.endswith("&") and not before.endswith("&&"):
            continue  # an address is computed
        if found[1] or before.endswith("*"):
            yield first or 0, "::xpusim::local_pointer("
            yield found.end(), ")"
    for begin, end in bodies:
        for found in re.finditer(rf"(?<![\w.>])(?:{choice})\b(?=\s*(?:\[|->))", code[begin:end]):
            first = begin + found.start()
            before = code[max(0, first - 100) : first].rstrip()
            if re.search(r"[=(\[{;+\-/%<|^!~?:]$|\breturn$", before):
                yield first, "::xpusim::local_pointer("
                yield begin + found.end(), ")"


def _longs(code: str) -> Iterator[Added]:
    """Announce what a variable is given whose type has 32 bits on the device."""
    aliases = [a or b for a, b in _ALIAS.findall(code)]
    kind = "|".join([_LONG, *(rf"\b{alias}" for alias in aliases)])
    names = set()
    for found in re.finditer(rf"\b{_FLAGS}({kind})\s+{_FLAGS}(\w+)(?=\s*([=;,)\[]))", code):
        before = code[max(0, found.start() - 100) : found.start()].rstrip()
        if _EARLIER.search(before) or found[2] in ("long", "int", "unsigned", "double"):
            continue
        names.add(found[2])
        if found[3] == "=" and re.search(r"(?:[;{}():]|\b(?:const|static)|^|\n# [^\n]*)$", before):
            begin = code.index("=", found.end()) + 1
            yield from _around(code, begin, f"::xpusim::fits<{' '.join(found[1].split())}>(")
    names -= set(re.findall(r"\bu?int64_t\s+(\w+)", code))
    if not names:
        return
    choice = "|".join(sorted(names))
    for found in re.finditer(rf"(?<=[;{{}})])(\s*)(?:{choice})\s*(?:[-+*/|^&]|<<|>>)?=(?!=)", code):
        yield from _around(code, found.end(1), "::xpusim::fitted(")


def _around(code: str, begin: int, call: str) -> Iterator[Added]:
    """Put a call around the expression that begins there."""
    depth, end = 0, begin
    for found in re.compile(r"[()\[\]{},;]").finditer(code, begin):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(found[0], 0)
        if depth < 0 or (depth == 0 and found[0] in ",;"):
            end = found.start()
            # A comma may be one between the arguments of a template
            if not (found[0] == "," and "<" in code[begin:end]) and not code[begin:end].lstrip().startswith("{"):
                yield begin, call
                yield end, ")"
            return


def _parts(text: str) -> list[str]:
    """Return what commas separate."""
    parts, depth = [""], 0
    for c in text:
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _outermost(body: str) -> str:
    """Return a text in which what is in braces is a semicolon."""
    before = None
    while before != body:
        before, body = body, re.sub(r"\{[^{}]*\}", ";", body)
    return body


def _open(code: str, end: int) -> int:
    """Return where the bracket begins that ends at `end`, or -1."""
    depth = 0
    for at in range(end, -1, -1):
        depth += {")": 1, "]": 1, "}": 1, "(": -1, "[": -1, "{": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return -1


def _postfix(code: str, end: int) -> int | None:
    """Return the beginning of the postfix expression that ends at `end`; None if it is unknown."""
    at = end
    while True:
        while at > 0 and code[at - 1].isspace():
            at -= 1
        if at > 0 and code[at - 1] in ")]":
            called = code[at - 1] == "]"
            at = _open(code, at - 1)
            before = code[max(0, at - 100) : at].rstrip()
            if before.endswith(">"):
                return None  # perhaps a template's arguments
            word = re.search(r"(\w+)$", before)
            if called or (word and word[1] not in ("return", "if", "while", "for", "switch")) or before[-1:] in ")]":
                continue
            return at
        word = re.compile(r"\w+$").search(code, max(0, at - 100), at)
        if word is None:
            return None
        at = word.start()
        link = re.compile(r"(?:\.|->|::)\s*$").search(code, max(0, at - 100), at)
        if link is None:
            return at
        at = link.start()
