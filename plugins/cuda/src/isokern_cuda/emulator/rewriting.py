"""Rewriting preprocessed CUDA to C++ that g++ compiles, with every line where it was.

The source is read behind the preprocessor, so kernels and launches in macros are seen as what they are. `<<<…>>>`
becomes a call of the emulator, inline PTX a call of a function of `cuda_ptx.h`, and `extern __shared__` arrays become
pointers to the dynamic shared memory. For the checks, local variables that begin uninitialised are announced to the
emulator, and a gap follows each `__shared__` variable.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from .assembly import translate

_MARK = re.compile(r'^# (\d+) "((?:[^"\\\n]|\\.)*)"([ \d]*)$', re.M)
_NOISE = re.compile(
    r'R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[^\n]*',
    re.S | re.M,
)
_DIMS = r"(?:\s*\[[^\[\];]*\])+"
_VARIABLES = re.compile(
    rf"\s*([A-Za-z_][\w:\s]*(?:<[^;{{}}]*>)?[\w:\s]*?[\s>])(\w+(?:{_DIMS})?(?:\s*,\s*\w+(?:{_DIMS})?)*)\s*$"
)
_ALIGNED = re.compile(r"\b(?:alignas|__align__|__attribute__|__attribute)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_OTHER_WORDS = {
    *("return", "delete", "throw", "goto", "case", "else", "using", "typedef", "extern", "static"),
    *("constexpr", "const", "new", "struct", "class", "union", "enum", "typename", "template", "friend", "auto"),
}
_ENTRY = re.compile(r"__global__\s+[^;{}()]*?(\w+)\s*\(")
_MAIN = re.compile(r"(?<![\w.>:])main(?=\s*\()")
# A literal converts to a pointer, which a variable of its type does not
_LITERAL = re.compile(r"\s*(?:0|__null|nullptr|\{.*\})\s*", re.S)
_DECLARATION = re.compile(
    r"\s*(?!(?:using|typedef|static_assert|template|struct|class)\b)"
    r"[\w:]+[\w:<>,\s*&]*[\s*&>]\w+\s*\([^={}]*\)\s*$"
)
_PER_THREAD = re.compile(r"\b(?:thread_local|__thread|_Thread_local)\b")
_OPEN, _CLOSE = "([{", ")]}"
# What the emulator's headers leave to this module, so that kernels and shared variables are seen here
_KEYWORDS = {"__shared__": "static thread_local", "__global__": "__attribute__((noinline))"}
_KEYWORDS |= {"__device__": "", "__host__": ""}
_OF_THE_GPU = re.compile(r"\b(?:__global__|__device__|constexpr)\b")
_GAP = "static thread_local __attribute__((used)) ::cuda_emulator::gap"
_UNWATCHED = '__attribute__((no_sanitize("thread")))'  # what the emulator itself loads here is not the kernel's


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


@dataclass
class Source:
    """Preprocessed text, with the positions of its files' lines."""

    text: str
    missing: tuple[str, ...] = ()  # headers that were not found
    _marks: list[tuple[int, int, str]] = field(default_factory=list)  # begin of the line behind it, number, file

    @cached_property
    def code(self) -> str:
        """The author's own text: what headers of the system have, literals and directives are blank in it."""
        out, at, own = [], 0, False
        authors: dict[str, bool] = {}  # whether a file is the author's; macros of headers are marked as the headers'
        for mark in _MARK.finditer(self.text):
            part = self.text[at : mark.start()]
            out += [blank(part) if own else " " * len(part), " " * (mark.end() - mark.start())]
            at = mark.end()
            own = authors.setdefault(mark[2], "3" not in mark[3].split() and not mark[2].startswith("<"))
            self._marks.append((at + 1, int(mark[1]), mark[2]))
        part = self.text[at:]
        return "".join([*out, blank(part) if own else " " * len(part)])

    def where(self, position: int) -> str:
        """Return the file and line of a position."""
        name, number = self._line(position)
        return f"{name}:{number}"

    def mark(self, begin: int, end: int) -> str:
        """Return a line by which the compiler counts on from `end`, if a text with ends of lines is replaced."""
        if "\n" not in self.text[begin:end]:
            return ""
        name, number = self._line(end)
        return f'\n# {number} "{name}"\n'

    def cut(self, begin: int, end: int) -> str:
        """Return a piece of the text on one line."""
        return " ".join(_MARK.sub("", self.text[begin:end]).split())

    def _line(self, position: int) -> tuple[str, int]:
        found = bisect_right(self._marks, position, key=lambda m: m[0]) - 1
        if found < 0:
            return "source", self.text.count("\n", 0, position) + 1
        begin, number, name = self._marks[found]
        return name, number + self.text.count("\n", begin, position)

    @cached_property
    def kernels(self) -> list[KernelEntry]:
        """The kernels, in order."""
        code = _ALIGNED.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), self.code)
        namespaces = {s.end: s.kinds for s in _statements(code)}
        found: dict[str, KernelEntry] = {}
        for match in _ENTRY.finditer(code):
            kinds = next((kinds for end, kinds in namespaces.items() if end >= match.start()), ())
            path = [k.removeprefix("namespace").strip() for k in kinds if k.startswith("namespace")]
            name = "::".join([*(p for p in path if p), match[1]])
            found.setdefault(name, KernelEntry(name, tuple(_parameters(code, match.end()))))
        return list(found.values())

    @property
    def has_main(self) -> bool:
        """Whether the source is a whole program."""
        return re.search(r"(?<![\w.>:])main\s*\([^()]*\)\s*\{", self.code) is not None


def blank(text: str) -> str:
    """Return the text with literals and directives blanked out; its length and lines stay the same."""
    return _NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def rewrite(source: Source, check: bool, program: bool) -> str:
    """Return the source as C++; raises ValueError, which names the line. `program` keeps its `main`.

    If headers are missing, the functions of the host are left out: those of a binding to Python, for example.
    """
    code = source.code
    if own := _PER_THREAD.search(code):
        where, given = source.where(own.start()), own.group()
        raise ValueError(f"{where}: {given}: the emulator keeps shared memory in such variables; allowed: static")
    edits: list[tuple[int, int, str]] = []  # begin, end, the new text
    for statement in _statements(code):
        part = code[statement.begin : statement.end]
        if "__shared__" in part:
            edits += _shared_edits(source, statement, part, check)
        elif check and "code" in statement.kinds and statement.kinds[-1] == "code":
            names = "".join(f' ::cuda_emulator::watch({n}, "{n}");' for n in _find_uninitialised(part))
            edits.append((statement.end + 1, statement.end + 1, names))
    for found in re.finditer(r"<<<", code):
        edits += _launch_edits(source, found.start())
    edits += _assembly_edits(source)
    if not program:
        # A main of the file's own is kept out of the way
        edits += [(m.start(), m.end(), "cuda_file_main") for m in _MAIN.finditer(code)]
    if source.missing:
        left_out = [*_find_host_functions(code)]
        edits = [e for e in edits if not any(begin <= e[0] < end for begin, end in left_out)]
        edits += [(begin, end, source.mark(begin, end)) for begin, end in left_out]
    out, at = [], 0
    for begin, end, new in sorted(edits):
        out += [source.text[at:begin], new]
        at = end
    text = "".join([*out, source.text[at:]])
    return re.sub("|".join(rf"\b{word}\b" for word in _KEYWORDS), lambda m: _KEYWORDS[m.group()], text)


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


def _find_host_functions(code: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the functions outside of classes that only the host has, declared or defined."""
    kinds: list[str] = []
    begin = depth = 0
    for mark in re.finditer(r"[{};()]", code):
        at, character = mark.start(), mark.group()
        depth += {"(": 1, ")": -1}.get(character, 0)
        outside = all(k.startswith("namespace") for k in kinds)
        if character == "{":
            kinds.append(_kind(code[begin:at]))
            if kinds[-1] == "code" and outside and not _OF_THE_GPU.search(code, begin, at):
                end = _find_close(code, at + 1, "}")
                yield begin, end + 1 if end >= 0 else len(code)
        elif character == "}" and kinds:
            if kinds.pop() == "value":
                continue
        elif character == ";" and depth <= 0 and outside:
            if _DECLARATION.match(code[begin:at]) and not _OF_THE_GPU.search(code, begin, at):
                yield begin, at + 1
        elif character in "()" or depth > 0:
            continue
        if not kinds or kinds[-1] != "value":
            begin = at + 1


def _kind(head: str) -> str:
    """Return what a brace opens, from the text before it: a type, a namespace, a value, or code."""
    if named := re.search(r"\bnamespace\b\s*([\w:]*)\s*$", head):
        return f"namespace {named[1]}"
    if re.search(r"\b(?:struct|class|union|enum)\b[^()=]*$", _ALIGNED.sub("", head)):
        return "type"
    if not head.strip() or re.search(
        r"\)\s*(?:const|noexcept|mutable|->[\w:<>\s*&]+)?\s*$|\b(?:else|do|try)\s*$", head
    ):
        return "code"
    return "namespace" if re.fullmatch(r"\s*extern\s*", head) else "value"


def _shared_edits(source: Source, statement: _Statement, part: str, check: bool) -> Iterator[tuple[int, int, str]]:
    """Yield what to change at a declaration with `__shared__`."""
    if "extern" not in part.split("__shared__")[0]:
        for word in re.finditer(r"\bstatic\b", part):
            yield statement.begin + word.start(), statement.begin + word.end(), ""
        if check:
            gap = f" {_GAP} cuda_emulator_gap_{statement.end};"
            yield statement.end + 1, statement.end + 1, gap
        return
    declared = re.search(
        r"\bextern\s+__shared__\s+(.*?)(\w+)\s*\[\s*\]((?:\s*\[[^\]]*\])*)\s*$", _ALIGNED.sub("", part), re.S
    )
    if declared is None:
        raise ValueError(
            f"{source.where(statement.end)}: `extern __shared__` declares one array without a size: T name[];"
        )
    kind, name, rows = " ".join(declared[1].split()), declared[2], " ".join(declared[3].split())
    begin = statement.begin + part.index("extern")
    pointer = f"{kind} (*const {name}){rows}" if rows else f"{kind} *const {name}"
    value = f"({kind} (*){rows})cuda_emulator_dynamic" if rows else f"({kind} *)cuda_emulator_dynamic"
    if "code" not in statement.kinds:  # its place is known only when a kernel is launched
        pointer = f"static {kind} (*const &{name}){rows}" if rows else f"static {kind} *const &{name}"
        value = f"({kind} (*const &){rows})cuda_emulator_dynamic" if rows else f"({kind} *const &)cuda_emulator_dynamic"
    yield begin, statement.end, f"{pointer} = {value}{source.mark(begin, statement.end)}"


def _find_uninitialised(part: str) -> list[str]:
    """Return the variables that a statement declares without a value, if that is what it does."""
    declared = _VARIABLES.match(_ALIGNED.sub("", part))
    if declared is None or _OTHER_WORDS & {*re.findall(r"\w+", declared[1])}:
        return []
    return re.findall(r"(\w+)", re.sub(_DIMS, "", declared[2]))


def _launch_edits(source: Source, begin: int) -> Iterator[tuple[int, int, str]]:
    """Yield what to change at `kernel<<<grid, block, …>>>(arguments)`: a call with a function that calls the kernel.

    The host computes each argument once, as in CUDA; what stands for the kernel may be any expression.
    """
    code, place = source.code, source.where(begin)
    name_at = _begin_of_callee(code, begin)
    name = source.cut(name_at, begin)
    close = _find_close(code, begin + 3, ">>>")
    opened = re.compile(r"\s*\(").match(code, close + 3) if close >= 0 else None
    if not name or opened is None:
        raise ValueError(f"{place}: <<< is not part of a launch; allowed: kernel<<<grid, block, shared, stream>>>(…)")
    end = _find_close(code, opened.end(), ")")
    if end < 0:
        raise ValueError(f"{place}: the launch's arguments do not end")
    pieces = _split(code, opened.end(), end)
    names, parameters, values = [], [], []
    for number, (first, last) in enumerate(pieces):
        if _LITERAL.fullmatch(code, first, last):
            names.append(source.cut(first, last))
            continue
        pack = code[first:last].rstrip().endswith("...")
        parameters.append(f"auto{'...' * pack} cuda_a{number}")
        names.append(f"cuda_a{number}{'...' * pack}")
        values.append((first, last))
    function = f"[&]({', '.join(parameters)}) {_UNWATCHED} {{ {name}({', '.join(names)}); }}"
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    call = f'::cuda_emulator::launch("{quoted}", ::cuda_emulator::Configuration('
    yield name_at, begin + 3, call + source.mark(name_at, begin + 3)
    yield close, opened.end(), f"), {function}{source.mark(close, opened.end())}"
    at = opened.end()
    for first, last in values:
        yield at, first, f", {source.mark(at, first)}"
        at = last
    yield at, end, source.mark(at, end)


def _begin_of_callee(code: str, end: int) -> int:
    """Return where the expression begins that ends before `<<<`: a name with template arguments, or any other one."""
    at = end
    while True:
        while at > 0 and code[at - 1].isspace():
            at -= 1
        if at == 0:
            return end
        last = code[at - 1]
        if last == ">" and code[at - 2] != "-":
            depth = 0
            while at > 0:
                at -= 1
                if code[at] in _CLOSE:
                    at = _find_open(code, at)
                elif code[at] == ">":
                    depth += 1
                elif code[at] == "<":
                    depth -= 1
                    if depth == 0:
                        break
            continue
        if last in ")]":
            at = _find_open(code, at - 1)
            if re.search(r"[\w\])>]\s*$", code[:at][-80:]) and not re.search(
                r"\b(?:return|else|do)\s*$", code[:at][-80:]
            ):
                continue
            return at
        word = re.search(r"(?:::)?\s*\w+\s*$", code[max(0, at - 200) : at])
        if word is None:
            return end
        at = at - len(word.group()) + (len(word.group()) - len(word.group().lstrip()))
        if word.group().strip().startswith("::") or re.search(r"(?:\.|->|::)\s*$", code[max(0, at - 20) : at]):
            before = code[:at].rstrip()
            at = len(before) - (2 if before.endswith(("->", "::")) else 1 if before.endswith(".") else 0)
            if word.group().strip().startswith("::") and not re.search(r"[\w>]\s*$", code[max(0, at - 20) : at]):
                return at
            continue
        return at


def _find_open(code: str, at: int) -> int:
    """Return where the bracket was opened that closes at a position."""
    depth = 0
    while at >= 0:
        depth += (code[at] in _CLOSE) - (code[at] in _OPEN)
        if depth == 0:
            return at
        at -= 1
    return 0


def _find_close(code: str, at: int, mark: str) -> int:
    """Return where `mark` is next, outside of brackets; -1 if nowhere."""
    depth = 0
    for found in re.compile(rf"[(\[{{)\]}}]|{re.escape(mark)}").finditer(code, at):
        if depth == 0 and found.group() == mark:
            return found.start()
        depth += 1 if found.group() in _OPEN else -1 if found.group() in _CLOSE else 0
        if depth < 0:
            return -1
    return -1


def _split(code: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the begin and end of the arguments between commas; those of templates are within one argument."""
    parts, depth, angles, first = [], 0, 0, begin
    for at in range(begin, end):
        character = code[at]
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "<" and depth == 0 and re.match(r"<[\w\s:,*&]+(?:<[\w\s:,*&]+>)?\s*>\s*[({:]", code[at:end]):
            angles += 1
        elif character == ">" and depth == 0 and angles:
            angles -= 1
        elif character == "," and depth == 0 and not angles:
            parts.append((first, at))
            first = at + 1
    if code[begin:end].strip():
        parts.append((first, end))
    return parts


def _assembly_edits(source: Source) -> Iterator[tuple[int, int, str]]:
    """Yield what to change at inline PTX."""
    for found in re.finditer(
        r"\b(?:asm|__asm|__asm__)\b(?:\s*(?:volatile|__volatile__|__volatile))*\s*\(", source.code
    ):
        end = _find_close(source.code, found.end(), ")")
        try:
            statements = translate(_MARK.sub("", source.text[found.end() : end]))
        except ValueError as error:
            raise ValueError(f"{source.where(found.start())}: {error}") from None
        yield found.start(), end + 1, statements + source.mark(found.start(), end + 1)


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
