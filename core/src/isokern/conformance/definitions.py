"""Comparison of declarations statement by statement, between two versions of core's `ops`.

A module of operators is a list of top-level statements. Each binds names and uses names, of its own module or of
imported ones; so an operator depends on the statements that name it, and on all those that they lead to. Two versions
of an operator differ when the text of these differs; other rows in the same file may change freely.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

Name = tuple[str, str]  # a module, and a name that it binds; "*" for all of them


@dataclass(frozen=True, eq=False)
class Statement:
    """One top-level statement of a module: its text without comments and layout, and the names that it uses."""

    module: str
    text: str
    uses: frozenset[str]
    binds: frozenset[str]
    strings: frozenset[str]  # the literals in it, unless it is a function or a class


class Definitions:
    """The statements of the modules of `package`, given as dotted name → source."""

    def __init__(self, package: str, sources: Mapping[str, str]) -> None:
        self.bound: dict[Name, list[Statement]] = {}  # name → the statements that bind it
        self.imported: dict[str, dict[str, Name]] = {}  # module → its name for a name of another module
        self.statements: dict[str, list[Statement]] = {}
        self.naming: dict[str, list[Statement]] = {}  # string → statements with it, except functions and classes
        self._led_to: dict[Statement, list[Statement]] = {}
        for module, source in sources.items():
            self._add(module, source, package, sources)

    def _add(self, module: str, source: str, package: str, modules: Mapping[str, str]) -> None:
        self.imported[module] = names = {}
        found, own = read_module(module, source, package)
        for alias, home, name in found:
            whole = f"{home}.{name}" in modules
            names[alias] = (f"{home}.{name}", "*") if whole else (home, name)
        self.statements[module] = list(own)
        for statement in own:
            for name in statement.binds:
                self.bound.setdefault((module, name), []).append(statement)
            for string in statement.strings:
                self.naming.setdefault(string, []).append(statement)

    def of_operator(self, operator: str) -> frozenset[str] | None:
        """Return the statements that define an operator; None if no statement names it."""
        found = self.naming.get(operator)
        return None if found is None else self._closure(found)

    def of_names(self, names: Iterable[Name]) -> frozenset[str]:
        """Return the statements that these names lead to."""
        return self._closure(s for name in names for s in self._bound_names(name))

    def _bound_names(self, name: Name) -> list[Statement]:
        return self.statements.get(name[0], []) if name[1] == "*" else self.bound.get(name, [])

    def _closure(self, start: Iterable[Statement]) -> frozenset[str]:
        seen: set[Statement] = set()
        waiting = list(start)
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                if at not in self._led_to:
                    self._led_to[at] = [s for used in at.uses for s in self._bound_names(self._home(at.module, used))]
                waiting += self._led_to[at]
        return frozenset(statement.text for statement in seen)

    def _home(self, module: str, name: str) -> Name:
        """Return the module and name that bind what `module` calls `name`, through modules that only re-export it."""
        passed: set[Name] = set()
        while name in (known := self.imported.get(module, {})) and (module, name) not in passed:
            passed.add((module, name))
            module, name = known[name]
        return module, name


@lru_cache(maxsize=512)  # two versions of a package share most of their modules
def read_module(
    module: str, source: str, package: str
) -> tuple[tuple[tuple[str, str, str], ...], tuple[Statement, ...]]:
    """Return what a module of `package` imports at its top, as `imports` has it, and its other statements."""
    found: list[tuple[str, str, str]] = []
    own = []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found += imports(node, package)
            continue
        inner = list(ast.walk(node))
        used = frozenset(n.id for n in inner if isinstance(n, ast.Name))
        strings = {n.value for n in inner if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            binds, strings = {node.name}, set()
        else:
            binds = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        own.append(Statement(module, _write(node), used, frozenset(binds), frozenset(strings)))
    return tuple(found), tuple(own)


def _write(value: object) -> str:
    """Return the text of a syntax tree, which is the same in every Python: that of `ast.dump` differs."""
    if isinstance(value, ast.AST):
        fields = ", ".join(f"{n}={_write(v)}" for n, v in ast.iter_fields(value) if v is not None and v != [])
        return f"{type(value).__name__}({fields})"
    return f"[{', '.join(map(_write, value))}]" if isinstance(value, list) else repr(value)


def imports(node: ast.AST, package: str) -> list[tuple[str, str, str]]:
    """Return what an import statement of a module of `package` binds.

    Each item is (its name here, the module, its name there or "*").
    """
    if isinstance(node, ast.Import):
        return [(alias.asname or alias.name, alias.name, "*") for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    module = ".".join([*above, *filter(None, [node.module])])
    return [(alias.asname or alias.name, module, alias.name) for alias in node.names]
