"""Rewriting kernel sources to C++ that g++ compiles, with every line where it was.

`kernel<<<clusters, cores, stream>>>(arguments)` becomes a call; a `__group_shared__` object becomes one object for each
group of four cores; a reinterpret_cast between vectors, which are classes here, becomes a function call; an instruction
of inline assembly becomes the function that means the same, or a call that is a compile error if the code is used.
After the declaration of a local array comes a call, by which the checked mode knows that the array begins anew; for a
checked kernel, local and shared arrays of constant size lie between zones that no access may touch.

The text is a source file, or what the preprocessor made of it: then its line markers (`# 12 "file.h" 1 3`) say where
each line comes from, and what comes from system headers is left alone.

This module does not import `isokern`, because the build of the plug-in uses it before `isokern` is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from . import announcing
from .lifetimes import close_brace

_CALLEE = re.compile(r"[A-Za-z_]\w*$")
_DIMS = r"(?:\s*\[[^\]]*\])*"
_ALIGNED = r"__simd__|__attribute__\(\(aligned\(64\)\)\)"
_GROUP_SHARED = re.compile(
    rf"\b__group_shared__\s+((?:{_ALIGNED}|[\w:<>\s])+?[\s>])(\w+{_DIMS}(?:\s*,\s*\w+{_DIMS})*)\s*;"
)
_VECTOR_CAST = re.compile(r"\breinterpret_cast\s*<\s*((?:u?int|b?float)\d+x\d+_t)\s*>")
_ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b(?:\s*\b(?:volatile|__volatile__|inline|goto)\b)*\s*(?=\()")
_MARKER = re.compile(r'^# (\d+) "((?:\\.|[^"\\\n])*)"([^\n]*)$', flags=re.M)
_LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', flags=re.S)
_WORDS = r"(?:\s*(?:\b(?:static|inline|void)\b|\b__attribute__\(\([^()]*\)\)))*"
_SCOPE = re.compile(
    r"(?P<space>\bnamespace\b\s*(?P<name>[\w:]*)[^;{}=]*)?\{|\}|"
    rf"(?:\b__global__|\b__attribute__\(\(xpusim_kernel\)\)){_WORDS}\s*(?P<kernel>\w+)\s*\("
)
# A template, or an explicit instantiation of one
_TEMPLATE = re.compile(r"\btemplate\s*(?:<[^;{}]+>\s*)?(?:(?:static|inline)\s+)*$")
_NARROW = re.compile(r"\b(?:long|size_t|ssize_t|ptrdiff_t|intptr_t|uintptr_t)\b")
# Instructions, without commas, and what they mean: `{0}` is the operand or the register that the first group names, and
# what is behind `->` becomes the register's value from then on. The fences by their names; a load that links a word of
# shared memory and a store that gives 0 if it happened, by the atomic additions in FastDeploy (update_repeat_times.xpu:
# atomic_add); four float vectors to one of bytes, a quarter from each, and its store with the mask of all lanes, by
# quant2d_per_channel.xpu there (v4float2fix8_rn, cast_to_int8_lm_rn); a barrier over groups of cores by Paddle's
# primitives (compute_primitives_xpu2.h: sync_all)
_OPERAND = r"(%\d|vr\d+)"
_INSTRUCTIONS = {
    r"mfence\{lm\}": "::mfence_lm()",
    r"mfence\{sm\}": "::mfence_sm()",
    r"mfence\{gm\}": "::mfence_gm()",
    rf"loada\.w {_OPERAND} {_OPERAND}": "({0}) = ::SM2REG_atomic({1})",
    rf"storea\.w {_OPERAND} {_OPERAND} {_OPERAND}": "({0}) = ::REG2SM_atomic({2}, {1})",
    r"sync_local": "::sync_local()",
    rf"csr_set csr3 {_OPERAND};sync_group csr3": "::sync_group({0})",
    rf"vstore\.mz {_OPERAND}\{{mr1\}} 0\({_OPERAND}\)": "::vstore_lm_int8x64({1}, {0})",
    **{
        rf"vfloat2fix8_{part}\.rn {_OPERAND} {_OPERAND}": f"-> ::xpusim::narrow_quarter_to_bytes({{1}}, {{0}}, {i})"
        for i, part in enumerate(("ll", "lh", "hl", "hh"))
    },
}
_NOTHING = "::xpusim::zero<int8x64_t>()"  # in a vector register before an instruction writes there


@dataclass(frozen=True)
class KernelName:
    """A kernel that a text declares: its name with namespaces, and whether it is a template."""

    name: str
    template: bool


_ARRAYS = re.compile(
    r"\s*(?:(?!(?:return|else|do|goto|case|delete|throw|using|typedef|static|extern|__shared__)\b)"
    r"(?:__attribute__\(\([^()]*(?:\([^()]*\))?\)\)|[A-Za-z_]\w*(?:::\w+)*(?:<[^<>;{}()]*>)?)[\s*]+)+"
    rf"(\w+{_DIMS}(?:\s*,[\s*]*\w+{_DIMS})*)\s*;"
)
_SHARED_ARRAYS = re.compile(
    rf"\s*static\s+thread_local\s+((?:{_ALIGNED}|[A-Za-z_]\w*(?:::\w+)*(?:<[^<>;{{}}()]*>)?|[\s*])+?[\s*])"
    rf"(\w+{_DIMS}(?:\s*,[\s*]*\w+{_DIMS})*)\s*;"
)
_TEMPLATE_HEAD = re.compile(r"\btemplate\s*<[^;{}()]*>")
_INTEGER = r"\b(?:int|unsigned|size_t|long|short|char|bool|auto|u?int\d+_t)\s+(\w+)"
_CONSTEXPR = re.compile(r"\bconstexpr\b[^;(){}=]*?(\w+)\s*=")
_NO_FUNCTION = re.compile(r"\b(?:struct|class|union|enum|namespace|extern)\b|=\s*$")


def rewrite(text: str, name: str, checked: bool = False) -> str:
    """Return the source `text` of file `name`, rewritten.

    With `checked`, what `announcing` adds is in it; then `text` is what the preprocessor made of the file. Raises
    ValueError, which names the line, for a malformed launch or declaration and for what is not modelled.
    """
    if checked:
        text = announcing.announce(text, blank(text))
    _check_structures(text, name)
    text = announcing.without_marks(text)
    text = _assembly(_VECTOR_CAST.sub(r"::xpusim::vector_cast<\1>", _arrays(_group_shared(text, name), checked)))
    _check_parameters(text, name)
    out: list[str] = []
    at = 0
    code = blank(text)
    while (found := code.find("<<<", at)) >= 0:
        start = _callee(code, found)
        end = code.find(">>>", found)
        if start is None or end < 0 or not code[end + 3 :].lstrip().startswith("("):
            raise ValueError(
                f"{place(text, found, name)}: <<< is not part of a launch: kernel<<<clusters, cores[, stream]>>>(…)"
            )
        callee = " ".join(code[start:found].split())
        out.append(f'{text[at:start]}::xpusim::kernel({callee}, "{callee}"){_lines(text[start:found])}')
        out.append(f".on({text[found + 3 : end]})")
        at = end + 3
    return "".join(out) + text[at:]


def kernels(text: str) -> list[KernelName]:
    """Return the kernels that a text declares, each once, in order."""
    return list(dict.fromkeys(kernel for kernel, _, _ in _declarations(blank(text))))


def _declarations(code: str) -> Iterator[tuple[KernelName, int, int]]:
    """Yield each declaration of a kernel, and where its parameters start and end."""
    scopes: list[str] = []
    for found in _SCOPE.finditer(code):
        if found["kernel"]:
            template = _TEMPLATE.search(code, max(0, found.start() - 1000), found.start())
            kernel = KernelName("::".join([s for s in scopes if s] + [found["kernel"]]), template is not None)
            yield kernel, found.end(), _close(code, found.end() - 1) - 1
        elif found[0] != "}":
            scopes.append(found["name"] or "")
        elif scopes:
            scopes.pop()


def _check_parameters(text: str, name: str) -> None:
    """Refuse kernel parameters whose type has another size on the device."""
    code = blank(text)
    for kernel, start, end in _declarations(code):
        for parameter in code[start:end].split(","):
            narrow = _NARROW.search(re.sub(r"\blong\s+(?:long|double)\b", "", parameter))
            if narrow and not re.search(r"[*&]", parameter):
                raise ValueError(
                    f"{place(text, start, name)}: {kernel.name}: a kernel parameter of type {narrow[0]} "
                    "has 32 bits on the device and 64 on the host: use int, long long or int64_t"
                )


_GLOBAL_POINTER = re.compile(rf"(?:\b_?_global_ptr__?\b|{re.escape(announcing.GLOBAL_MARK)})")
_FUNCTION_POINTER = re.compile(
    r"(?<![\w.>])(?!(?:return|else|case|throw|sizeof|new|delete)\b)[A-Za-z_]\w*[\s*&>]+"
    r"\(\s*\*\s*(?:const\s+)?\w*\s*(?:\[[^\]]*\]\s*)?\)\s*\("
)


def _check_structures(text: str, name: str) -> None:
    """Refuse what the language has not: structures with pointers to global memory, and kernels with function pointers.

    Its manual names both.
    """
    code = blank(text)
    for found in announcing.STRUCTURE.finditer(code):
        for member in announcing.members(code, found):
            # a member function has its own pointers
            if _GLOBAL_POINTER.search(member) and "*" in member and "(" not in announcing.without_marks(member):
                declared = " ".join(_GLOBAL_POINTER.sub("", announcing.without_marks(member)).split())
                at = max(code.find(member.strip(), found.end()), found.start())
                raise ValueError(
                    f"{place(text, at, name)}: {declared}: a structure must not have a pointer to global memory: "
                    "pass it as a parameter of its own"
                )
    for kernel, start, end in _declarations(code):
        body = re.compile(r"\)[^;{}]*\{").match(code, end)
        stop = end if body is None else close_brace(code, body.end() - 1)
        if pointer := _FUNCTION_POINTER.search(code, start, stop):
            raise ValueError(
                f"{place(text, pointer.start(), name)}: {kernel.name}: a kernel must not use pointers to functions: "
                "make the function a template's parameter, or choose by a switch"
            )


def place(text: str, at: int, name: str) -> str:
    """Return `file:line` of an offset; the file is `name` unless line markers name another one."""
    marker = None
    for marker in _MARKER.finditer(text, 0, at):  # noqa: B007, the last one is wanted
        pass
    if marker is None:
        return f"{name}:{text.count(chr(10), 0, at) + 1}"
    return f"{marker[2]}:{int(marker[1]) + text.count(chr(10), marker.end(), at) - 1}"


def _lines(text: str) -> str:
    """Return a text's line ends and line markers, which keep the following lines where they are."""
    return "".join(re.findall(r"\n(?:# \d[^\n]*(?=\n))?", text))


def _close(code: str, start: int) -> int:
    """Return the offset after the parenthesis that closes the one at `start`, or the end of the text."""
    depth = 0
    for found in re.compile(r"[()]").finditer(code, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.end()
    return len(code)


def _assembly(text: str) -> str:
    """Rewrite inline assembly: instructions of a public meaning as C++, others as a call that must not be reached."""
    out: list[str] = []
    at = 0
    code = blank(text)
    for found in _ASSEMBLY.finditer(code):
        end = _close(code, found.end())
        inside = slice(found.end() + 1, end - 1)
        meant = _instructions(text[inside], code[inside]) or "::xpusim::assembly()"
        out.append(f"{text[at : found.start()]}{meant}{_lines(text[found.start() : end])}")
        at = end
    return "".join(out) + text[at:]


def _instructions(text: str, code: str) -> str | None:
    """Return the C++ for what is in the parentheses of one `asm`, if all of it is in `_INSTRUCTIONS`."""
    parts, depth = [0], 0
    for found in re.finditer(r"[():]", code):
        depth += {"(": 1, ")": -1, ":": 0}[found[0]]
        if found[0] == ":" and depth == 0:
            parts.append(found.end())
    template = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', text[: parts[1] if len(parts) > 1 else len(text)]))
    lines = re.sub(r"\\n", ";", re.sub(r"\\t", " ", template)).replace(",", " ").split(";")
    left = ";".join(" ".join(line.split()) for line in lines if line.split())
    operands: dict[str, str] = {}
    start = parts[1] if len(parts) > 1 else len(code)
    for found in re.finditer(r"\(", code[: parts[3] - 1 if len(parts) > 3 else len(code)]):
        if found.start() >= start:
            start = _close(code, found.start())
            operands[f"%{len(operands)}"] = " ".join(text[found.end() : start - 1].split())
    given = set(operands)
    meant: list[str] = []
    while left:
        matched, meaning = next(
            ((m, meaning) for p, meaning in _INSTRUCTIONS.items() if (m := re.match(rf"{p}(?:;|$)", left))), (None, "")
        )
        if matched is None or not {name for name in matched.groups() if name[0] == "%"} <= given:
            return None
        done = meaning.removeprefix("-> ").format(*(operands.get(name, _NOTHING) for name in matched.groups()))
        target = matched[1] if meaning.startswith("-> ") else ""
        if target.startswith("%"):
            meant.append(f"({operands[target]}) = {done}")
        elif target:
            operands[target] = done
        else:
            meant.append(done)
        left = left[matched.end() :]
    return f"({', '.join(meant)})" if len(meant) > 1 else "".join(meant) or None


def _group_shared(text: str, name: str) -> str:
    """Rewrite declarations of group-shared memory as 16 objects, and a reference to the group's own."""
    out: list[str] = []
    at = 0
    code = blank(text)
    while (found := code.find("__group_shared__", at)) >= 0:
        declared = _GROUP_SHARED.match(code, found)
        if declared is None:
            allowed = "__group_shared__ type name[size], …; with no initialiser"
            raise ValueError(f"{place(text, found, name)}: __group_shared__ is not part of a declaration: {allowed}")
        # all of these objects are aligned as vectors
        kind = " ".join(re.sub(_ALIGNED, "", declared[1]).split())
        out.append(text[at:found])
        for one in re.finditer(rf"(\w+)({_DIMS})", declared[2]):
            groups, whole = f"xpusim_groups_{one[1]}", kind + "".join(one[2].split())
            out.append(f"static thread_local xpusim_padded<{whole}> {groups}[16]; ")
            out.append(f"auto &{one[1]} = xpusim_of_group({groups}); ")
        at = declared.end()
        out.append(_lines(text[found:at]))
    return "".join(out) + text[at:]


def _arrays(text: str, checked: bool) -> str:
    """Add to each declaration of local arrays without an initialiser that they begin anew, and zones if `checked`."""
    code = blank(text)
    constants = _constants(code)
    # A jump must not pass what initialises a reference, and decltype of one is another type
    zoned = checked and not re.search(r"\bgoto\b|\bdecltype\s*\(\s*\w+\s*\)", code)
    in_function, in_switch = [False], [False]  # of the blocks around
    head, at = 0, 0
    out: list[str] = []
    for found in re.finditer(r"[;{}]", code):
        start, end = head, found.end()
        before, head = code[start : found.start()], end
        if found[0] == "{":
            begins = ")" in before or in_function[-1]
            in_function.append(begins and not (_NO_FUNCTION.search(before) and not before.rstrip().endswith(")")))
            in_switch.append(re.search(r"\bswitch\s*\(", before) is not None)
        elif found[0] == "}" and len(in_function) > 1:
            in_function.pop()
            in_switch.pop()
        elif in_function[-1]:
            local, shared = _ARRAYS.fullmatch(code, start, end), _SHARED_ARRAYS.fullmatch(code, start, end)
            first = start + len(before) - len(before.lstrip())
            made = None
            if zoned and not in_switch[-1] and local:
                made = _with_zones(code[first : local.start(1)], local[1], constants, _LOCAL_ZONES)
            elif zoned and not in_switch[-1] and shared:
                made = _with_zones(re.sub(_ALIGNED, "", shared[1]), shared[2], constants, _SHARED_ZONE)
            if made is not None:
                out += [text[at:first], made, _lines(text[first:end])]
                at = end
            if local:
                fresh = "".join(
                    f" ::xpusim::fresh(&{one[1]}, sizeof {one[1]}, {one[1]}{'[0]' * one[2].count('[')});"
                    for one in re.finditer(rf"(\w+)({_DIMS})", local[1])
                    if one[2] or checked
                )
                out.append(text[at:end] + fresh)
                at = end
    return "".join(out) + text[at:]


# `one` is the declaration of an array called `name`, as that of the member `xpusim_array`
_LOCAL_ZONES = (
    "struct {{ char xpusim_before[64]; {one}; char xpusim_after[64]; }} xpusim_zoned_{name};"
    " auto &{name} = xpusim_zoned_{name}.xpusim_array;"
    " const ::xpusim::zones xpusim_zones_{name}(xpusim_zoned_{name}, {name});"
)
_SHARED_ZONE = (
    "static thread_local __attribute__((aligned(64))) struct {{ {one}; char xpusim_after[64]; }} xpusim_zoned_{name};"
    " auto &{name} = xpusim_zoned_{name}.xpusim_array;"
)


def _with_zones(kind: str, declared: str, constants: set[str], zones: str) -> str | None:
    """Return declarations of which each array is between zones; None if that is not understood or changes nothing."""
    parts = declared.split(",")
    words = {word for dims in re.findall(r"\[([^\]]*)\]", declared) for word in re.findall(r"\b[A-Za-z_]\w*", dims)}
    strange = re.search(r"[^\w\s\[\]+*/%,-]", declared)
    if "[" not in declared or strange or not words <= constants or ("*" in kind and len(parts) > 1):
        return None
    kind = " ".join(kind.split())
    made = []
    for part in parts:
        name = re.search(r"\w+", part)
        if name is None or re.search(r"\[\s*\]", part) or re.search(r"\bregister\b", kind):
            return None
        if "[" in part:
            one = f"{kind} {part.replace(name[0], 'xpusim_array', 1).strip()}"
            made.append(zones.format(one=one, name=name[0]))
        else:
            storage = "" if zones == _LOCAL_ZONES else "static thread_local __attribute__((aligned(64))) "
            made.append(f"{storage}{kind} {part.strip()};")
    return " ".join(made)


def _constants(code: str) -> set[str]:
    """Return names that stand for constants wherever they stand for integers."""
    heads = _TEMPLATE_HEAD.findall(code)
    found = {name for head in heads for name in re.findall(rf"{_INTEGER}\s*[=,>]", head)} | set(
        _CONSTEXPR.findall(code)
    )
    return found - set(re.findall(_INTEGER, _CONSTEXPR.sub("", _TEMPLATE_HEAD.sub("", code))))


def blank(text: str) -> str:
    """Return the text with only the author's code, at the same offsets.

    Comments, literals, line markers and what comes from system headers are spaces; line ends stay. What a system
    header's macro became in the author's file is the author's: without it, `va_start(list, last);` would be the
    declaration `list last;`.
    """

    def spaces(code: str) -> str:
        return re.sub(r"[^\n]", " ", code)

    out: list[str] = []
    end, file = len(text), None  # the file of the next marker that is none of a system header
    for marker in reversed(list(_MARKER.finditer(text))):
        system = re.search(r"\b3\b", marker[3]) is not None
        code = text[marker.end() : end]
        out.append(spaces(code) if system and marker[2] != file else code)
        out.append(spaces(marker[0]))
        end, file = marker.start(), file if system else marker[2]
    out.append(text[:end])
    return _LITERAL.sub(lambda found: spaces(found[0]), "".join(reversed(out)))


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
