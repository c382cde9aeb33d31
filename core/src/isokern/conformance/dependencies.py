"""The dependencies of a proof of an operator on a device: the parts, and a digest of them.

There is no list of files: what counts for a device follows from its plug-in's folder in the checkout, the modules of
core that the suite and the plug-in import, and the C in those packages. Of these, `ops` is read declaration by
declaration (see definitions.py), a kernel file counts for the operators of the stem that names it, a header for the
files that include it, what lowers calls counts for the operators that the device lowers, and anything else is machinery
that every operator runs through.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from pathlib import PurePosixPath

from ..backend import Device
from ..backend.discovery import GROUP, backends
from ..declare.error_bound import find_rows
from ..ops import all_operators
from .definitions import Definitions, imports
from .source_tree import CORE, SourceTree

PACKAGE = "isokern"
OPS = f"{PACKAGE}.ops"
JUDGING = ("derive", "run", "worker")  # modules of conformance; the others choose cases and report
KERNELS = "kernels"  # the folder of a package, with folders in it for variants, whose files are named after stems
LAUNCH = "_launch.py"  # how the files end that say what kernel files launch
_CALL = re.compile(r"\b([a-z]\w*)\(")  # a function call, in an expression
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<](?:\.\./)*([^">]+)[">]', re.M)


def digest_of(parts: Iterable[str]) -> str:
    """Return a digest of a set of strings."""
    return hashlib.sha256("\0".join(sorted(set(parts))).encode()).hexdigest()


def package_of(device: Device) -> str:
    """Return the package of the plug-in that provides a device."""
    name = device.name.partition(":")[0]
    plugins = [b.plugin for b in backends() if b.name == name]
    loaded = [e.value for e in entry_points(group=GROUP) if e.name in plugins]
    return (loaded[0] if loaded else type(device).__module__).partition(":")[0].partition(".")[0]


class Dependencies:
    """The dependencies of the proofs of one plug-in's devices, in the checkout `tree`; `package` is the plug-in's."""

    def __init__(self, package: str, tree: SourceTree) -> None:
        self.package, self.tree = package, tree
        self.operators = {o.name: o.stem for o in all_operators()}
        self.stems = frozenset(self.operators.values())

    # Digests

    @cached_property
    def machinery(self) -> str:
        """A digest of what every operator runs through."""
        modules = [p for p in self._modules if not p.startswith(f"{CORE}ops/") and not p.endswith(LAUNCH)]
        shared = [p for p, stems in self.kernel_files.items() if stems is None]
        return digest_of([self.tree.digest(p) for p in (*modules, *shared)] + [digest_of(self._shared_declarations)])

    @cached_property
    def runtime(self) -> str:
        """A digest of what requirements on the runtime depend on: the machinery, and the whole plug-in."""
        folder = f"{CORE}conformance/runtime/"
        files = self.tree.below(folder) + (self.tree.below(self.plugin) if self.plugin else [])
        return digest_of([self.machinery, *map(self.tree.digest, files)])

    def operator(self, name: str, parts: Collection[str] = ()) -> str:
        """Return a digest of all that an operator's results depend on.

        `parts` are the operators that calls of it are lowered to.
        """
        own = [self.kernels_of(n) for n in (name, *parts) if n in self.operators]
        return digest_of([self.machinery, *own, *([self._lowering_digest] if parts else [])])

    def kernels_of(self, name: str) -> str:
        """Return a digest of an operator's declaration and kernels, without the machinery; `*` stands for all."""
        if name == "*":
            return digest_of(map(self.kernels_of, self.operators))
        stem = self.operators.get(name)
        return digest_of([name] if stem is None else [name, self._declarations[name], self._kernels[stem]])

    def declaration_of(self, name: str) -> str:
        """Return a digest of an operator's declaration; one that is missing has another digest."""
        return digest_of([name, *filter(None, [self._declarations.get(name)])])

    @cached_property
    def _operators_of(self) -> Mapping[str, list[str]]:
        found = defaultdict[str, list[str]](list)
        for name, stem in self.operators.items():
            found[stem].append(name)
        return found

    @cached_property
    def _declarations(self) -> Mapping[str, str]:
        """Operator → a digest of its declaration, and of the rows of the functions that its expressions call.

        The allowance in a function's own row is part of the bound of every expression with it.
        """
        texts = {name: self._definitions.of_operator(name) or frozenset() for name in self.operators}
        rows = find_rows()
        called = {n: {rows[f] for text in own for f in _find_called(text) if f in rows} for n, own in texts.items()}
        return {n: digest_of([*own, *(t for row in called[n] for t in texts[row])]) for n, own in texts.items()}

    @cached_property
    def _kernels(self) -> Mapping[str, str]:
        """Stem → a digest of its kernel files, and of the declarations that their headers are generated from."""
        files = defaultdict[str, list[str]](list)
        for path, stems in self.kernel_files.items():
            for stem in stems or ():
                files[stem].append(self.tree.digest(path))
        rows = {stem: digest_of(self._declarations[n] for n in names) for stem, names in self._operators_of.items()}
        return {s: digest_of([*files[s], *(rows[of] for of in self._generated_for[s])]) for s in self.stems}

    @cached_property
    def _generated_for(self) -> Mapping[str, set[str]]:
        """Stem → the stems whose declarations the headers of its kernels are made from."""
        found = defaultdict[str, set[str]](set)
        for header, stem in self._generated:
            users = self._stems_of(header)
            for user in self.stems if users is None else users:
                found[user].add(stem)
        return found

    @cached_property
    def _lowering_digest(self) -> str:
        return digest_of(self.tree.digest(p) for p in self._lowering if not p.startswith(f"{CORE}ops/"))

    @cached_property
    def kernel_files(self) -> dict[str, frozenset[str] | None]:
        """File that is not a module → the stems that it counts for; None for all."""
        files = (p for p in self.tree.files if not p.endswith(".py") or p.endswith(LAUNCH))
        return {p: self._stems_of(p) for p in files if self._counts(p)}

    # The device's files

    @cached_property
    def plugin(self) -> str:
        """The folder, with a slash, of the distribution that provides the device; empty if it is not in the tree."""
        homes = self.tree.below("", lambda p: p.endswith((f"/{self.package}/__init__.py", f"/{self.package}.py")))
        for home in homes if self.package != PACKAGE else ():
            for folder in PurePosixPath(home).parents:
                if f"{folder}/pyproject.toml" in self.tree.files:
                    return f"{folder}/"
        return ""

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Path → dotted name of each Python file that the device's cases run through.

        These are the modules that judge, the plug-in, and what they import. A plug-in imports most things when a device
        is requested. Of imports in core, only those made when a module is loaded count: the others lead up the layers,
        to what users call.
        """
        where = {self._dotted_name(p): p for p in self.tree.below(CORE, lambda p: p.endswith(".py"))}
        plugin = self.tree.below(self.plugin, lambda p: p.endswith(".py")) if self.plugin else []
        where |= {self._dotted_name(p): p for p in plugin}
        roots = [f"{PACKAGE}.conformance.{name}" for name in JUDGING]
        roots += [n for n in map(self._dotted_name, plugin) if "." not in n]  # its package, and its build modules
        return self._reach(roots, where)

    @cached_property
    def _lowering(self) -> dict[str, str]:
        """Path → dotted name of each Python file of core that lowered calls run through."""
        where = {self._dotted_name(p): p for p in self.tree.below(CORE, lambda p: p.endswith(".py"))}
        passes = [name for name in where if name.startswith(f"{PACKAGE}.passes.")]  # they are found by name
        return self._reach([f"{PACKAGE}.runtime.lowered", *passes], where)

    def _reach(self, roots: list[str], where: Mapping[str, str]) -> dict[str, str]:
        """Path → dotted name of the modules and of what they import, of those in `where`."""
        waiting, found = list(roots), dict[str, str]()
        while waiting:
            name = waiting.pop()
            path = where.get(name)
            if path is None or path in found:
                continue
            found[path] = name
            waiting += [n for n in self._find_imported(path) if n in where]
        return found

    def _dotted_name(self, path: str) -> str:
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        return ".".join(parts[parts.index("src") + 1 :] if "src" in parts else parts[-1:])

    def _package_of(self, path: str) -> str:
        name = self._dotted_name(path)
        return name if path.endswith("/__init__.py") else name.rpartition(".")[0]

    def _find_imported(self, path: str) -> Iterator[str]:
        """Yield dotted names that a module imports or runs (`python -m isokern.…`), with all packages above them.

        Names that may be attributes instead of modules are among them.
        """
        if path.endswith("/build_backend.py"):
            yield from _with_packages(f"{PACKAGE}.cabi.build_plugin")
        yield from _list_names(self.tree.text(path), self._package_of(path), not path.startswith(CORE))

    # Declarations

    @cached_property
    def _definitions(self) -> Definitions:
        """The definitions in core's `ops`."""
        paths = self.tree.below(f"{CORE}ops/", lambda p: p.endswith(".py"))
        return Definitions(OPS, {self._dotted_name(p): self.tree.text(p) for p in paths})

    @cached_property
    def _shared_declarations(self) -> frozenset[str]:
        return self.declarations_for(self._modules)

    def declarations_for(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the statements of `ops` that modules outside it import."""
        taken = set()
        for path in paths:
            if path.startswith(f"{CORE}ops/"):
                continue
            for module, name in _list_imports(self.tree.text(path), self._package_of(path), functions=True):
                if module == OPS or module.startswith(f"{OPS}."):
                    whole = f"{module}.{name}" in self._definitions.statements
                    taken.add((f"{module}.{name}", "*") if whole else (module, name))
        return self._definitions.of_names(taken)

    # Kernels and headers

    @cached_property
    def _packages(self) -> frozenset[str]:
        """The folders of core's packages with a module in `_modules`, except the top one, which all devices share."""
        folders = {p.rpartition("/")[0] + "/" for p in self._modules if p.startswith(CORE)}
        return frozenset(folders - {CORE})

    def _counts(self, path: str) -> bool:
        """Whether a file that is not a module is one of the device's."""
        if path.endswith(".md"):
            return False
        if self.plugin and path.startswith(self.plugin):
            return True
        return path.startswith(tuple(self._packages)) or path in self._includers

    @cached_property
    def _includers(self) -> dict[str, frozenset[str]]:
        """File → the files that include it, among the device's C and core's.

        Includes are matched by how paths end, since there is no search path.
        """
        inside = tuple(filter(None, [self.plugin, *self._packages]))
        files = self.tree.below("", lambda p: p.startswith((*inside, CORE)) and not p.endswith((".py", ".md")))
        names: dict[str, list[str]] = {}
        for path in files:
            names.setdefault(path.rpartition("/")[2], []).append(path)
        found: dict[str, set[str]] = {}
        waiting, seen = [p for p in files if p.startswith(inside)] if inside else [], set[str]()
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            for include in _INCLUDE.findall(self.tree.text(path)):
                every = [p for p in names.get(include.rpartition("/")[2], []) if p.endswith(f"/{include}")]
                there = [p for p in every if p.startswith(inside)] or every
                beside = [p for p in there if p.rpartition("/")[0] == path.rpartition("/")[0]]
                for header in beside or there:
                    found.setdefault(header, set()).add(path)
                    waiting.append(header)
                if not there:  # a compiler's header, or one generated from the declarations
                    found.setdefault(include, set()).add(path)
        return {header: frozenset(files) for header, files in found.items()}

    @property
    def _generated(self) -> Iterator[tuple[str, str]]:
        """(header, stem) of the headers that are generated from a stem's declarations, by their names."""
        for header in sorted(h for h in self._includers if "/" not in h):
            yield from ((header, stem) for stem in self.stems if header.startswith(f"{stem}_"))

    def _stems_of(self, path: str) -> frozenset[str] | None:
        """Return the stems whose kernels a file is in or is included by; None if all stems run through it."""
        stems, seen, waiting = set(), set[str](), [path]
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            *folders, name = at.split("/")
            stem = name.removesuffix(LAUNCH).partition(".")[0]
            above = self._includers.get(at, frozenset()) - {at}
            waiting += above
            if KERNELS in folders and stem in self.stems and not name.endswith(".h"):
                stems.add(stem)
            elif not above and (KERNELS not in folders or not name.endswith(".h")):
                return None  # a header among the kernels that nothing includes belongs to none
        return frozenset(stems)


@lru_cache(maxsize=8192)  # most operators have statements in common
def _find_called(text: str) -> frozenset[str]:
    """Return the names of the functions that a statement calls, also in expressions."""
    return frozenset(_CALL.findall(text))


@lru_cache(maxsize=1024)  # the devices of a checkout have most of their modules in common
def _list_names(source: str, package: str, functions: bool) -> frozenset[str]:
    """Return the dotted names that a module of `package` imports or has as strings, with all packages above them."""
    names = [f"{module}.{name}" for module, name in _list_imports(source, package, functions)]
    names += [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return frozenset(whole for name in names for whole in _with_packages(name))


@lru_cache(maxsize=1024)
def _list_imports(source: str, package: str, functions: bool) -> frozenset[tuple[str, str]]:
    """Return (module, its name there or "*") of what a module of `package` imports."""
    nodes = _statements(ast.parse(source), functions)
    return frozenset((module, name) for node in nodes for _, module, name in imports(node, package))


def _with_packages(name: str) -> Iterator[str]:
    """Yield a dotted name, and those of the packages that it is in."""
    parts = name.split(".")
    yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _statements(tree: ast.AST, functions: bool) -> Iterator[ast.AST]:
    """Yield the nodes of a module, except those under TYPE_CHECKING; those of functions only if `functions`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            yield from _statements(node, functions)
