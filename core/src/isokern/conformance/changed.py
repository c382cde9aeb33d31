"""The operators of a device that a change touched: those whose declaration or kernels differ from a commit.

Where machinery that all operators share differs, all are touched. There is no list of files: what counts for a device
follows from its plug-in's folder in the checkout, the modules of core that the suite and the plug-in import, and the C
in those packages. Of these, `ops` is compared declaration by declaration (see definitions.py), a kernel file touches
the operators of the stem that names it, a header touches the files that include it, what makes a call of other
operators touches those that the device has no kernel for, and anything else is machinery that every operator runs
through.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from pathlib import PurePosixPath

from ..backend import Device
from ..backend.discovery import GROUP, backends
from ..declare.samples import assignments
from ..ops import all_operators
from ..runtime.lowered import can_lower
from .checkout import CORE, Checkout
from .definitions import Definitions, imports

PACKAGE = "isokern"
OPS = f"{PACKAGE}.ops"
JUDGING = ("derive", "run", "worker")  # modules of conformance; the others choose cases and report
KERNELS = "kernels"  # the folder of a package, with folders in it for variants, whose files are named after stems
LAUNCH = "_launch.py"  # how the files end that say what kernel files launch
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<](?:\.\./)*([^">]+)[">]', re.M)


def find_touched(device: Device, checkout: Checkout) -> dict[str, str]:
    """Return operator → the file that requires all its cases to run; every operator where machinery differs."""
    return Changes(device, checkout).find_touched()


class Changes:
    """The differences that matter for one device."""

    def __init__(self, device: Device, checkout: Checkout) -> None:
        self.device, self.checkout = device, checkout
        self.operators = {o.name: o.stem for o in all_operators()}
        self.stems = frozenset(self.operators.values())

    def find_touched(self) -> dict[str, str]:
        """Return operator → the file that touched it."""
        found: dict[str, str] = {}
        declared = self._declarations()
        if None in declared:
            return dict.fromkeys(self.operators, declared[None])
        found.update({name: why for name, why in declared.items() if name is not None})
        again = {self.operators[name] for name in found if name in self._known_before}
        for header, stem in self._generated:
            if stem in again:
                found = (
                    self._of_stems(self._stems_of(header), f"{header}, which is made from the rows of {stem}") | found
                )
        for path in sorted(self.checkout.changed):
            if path.endswith(".py") and not path.endswith(LAUNCH):
                if not path.startswith(f"{CORE}ops/") and path in self._modules:
                    return dict.fromkeys(self.operators, path)
                if not path.startswith(f"{CORE}ops/") and path in self._lowering:
                    found = dict.fromkeys(self._lowered, path) | found
            elif self._counts(path):
                stems = self._stems_of(path)
                if stems is None:
                    return dict.fromkeys(self.operators, path)
                found = self._of_stems(stems, path) | found
        return found

    def _of_stems(self, stems: frozenset[str] | None, why: str) -> dict[str, str]:
        return {name: why for name, stem in self.operators.items() if stems is None or stem in stems}

    # The device's files

    @cached_property
    def plugin(self) -> str:
        """The folder, with a slash, of the distribution that provides the device; empty where the checkout lacks it."""
        name = self.device.name.partition(":")[0]
        plugins = [b.plugin for b in backends() if b.name == name]
        loaded = [e.value for e in entry_points(group=GROUP) if e.name in plugins]
        package = (loaded[0] if loaded else type(self.device).__module__).partition(":")[0].partition(".")[0]
        homes = self.checkout.below("", lambda p: p.endswith((f"/{package}/__init__.py", f"/{package}.py")))
        for home in homes if package != PACKAGE else ():
            for folder in PurePosixPath(home).parents:
                if f"{folder}/pyproject.toml" in self.checkout.files:
                    return f"{folder}/"
        return ""

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Path → dotted name of each Python file that the device's cases run through.

        These are the modules that judge, the plug-in, and what they import. A plug-in imports most things when a device
        is requested. Of imports in core, only those made when a module is loaded count: the others lead up the layers,
        to what users call.
        """
        where = {self._dotted_name(p): p for p in self.checkout.below(CORE, lambda p: p.endswith(".py"))}
        plugin = self.checkout.below(self.plugin, lambda p: p.endswith(".py")) if self.plugin else []
        where |= {self._dotted_name(p): p for p in plugin}
        roots = [f"{PACKAGE}.conformance.{name}" for name in JUDGING]
        roots += [n for n in map(self._dotted_name, plugin) if "." not in n]  # its package, and its build modules
        return self._reach(roots, where)

    @cached_property
    def _lowering(self) -> dict[str, str]:
        """Path → dotted name of each Python file of core that calls made of other operators run through."""
        where = {self._dotted_name(p): p for p in self.checkout.below(CORE, lambda p: p.endswith(".py"))}
        passes = [name for name in where if name.startswith(f"{PACKAGE}.passes.")]  # they are found by name
        return self._reach([f"{PACKAGE}.runtime.lowered", *passes], where)

    @cached_property
    def _lowered(self) -> set[str]:
        """The operators that the device makes of others in some choice of dtypes."""
        return {
            op.name
            for op in all_operators()
            for types in assignments(op)
            if not self.device.supports(op, **types) and can_lower(self.device, op, types)
        }

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
        yield from _list_names(self.checkout.now(path), self._package_of(path), not path.startswith(CORE))

    # Declarations

    @cached_property
    def _versions(self) -> tuple[Definitions, Definitions]:
        """The definitions in core's `ops`, at the commit and now."""
        folder = f"{CORE}ops/"
        changed = {p for p in self.checkout.changed if p.startswith(folder) and p.endswith(".py")}
        paths = {*self.checkout.below(folder, lambda p: p.endswith(".py")), *changed}
        now = {p: self.checkout.now(p) for p in paths}
        before = {p: self.checkout.before(p) if p in changed else now[p] for p in paths}
        return tuple(  # type: ignore[return-value]  # there are two
            Definitions(OPS, {self._dotted_name(p): t for p, t in v.items() if t}) for v in (before, now)
        )

    @property
    def _known_before(self) -> set[str]:
        return {name for name in self.operators if self._versions[0].of_operator(name) is not None}

    def _declarations(self) -> Mapping[str | None, str]:
        """Return operator → the changed file of its declaration.

        The key None stands for what the suite and the device import from `ops`.
        """
        folder = f"{CORE}ops/"
        changed = sorted(p for p in self.checkout.changed if p.startswith(folder) and p.endswith(".py"))
        if not changed:
            return {}
        before, now = self._versions
        why = changed[0] if len(changed) == 1 else f"{len(changed)} files of {folder}"
        taken = set()
        for path in self._modules:
            if path.startswith(folder):
                continue
            for module, name in _list_imports(self.checkout.now(path), self._package_of(path), functions=True):
                if module == OPS or module.startswith(f"{OPS}."):
                    taken.add((f"{module}.{name}", "*") if f"{module}.{name}" in now.statements else (module, name))
        if before.of_names(taken) != now.of_names(taken):
            return {None: why}
        return {name: why for name in self.operators if before.of_operator(name) != now.of_operator(name)}

    # Kernels and headers

    @cached_property
    def _packages(self) -> frozenset[str]:
        """The folders of core's packages with a module in `_modules`, except the top one, which all devices share."""
        folders = {p.rpartition("/")[0] + "/" for p in self._modules if p.startswith(CORE)}
        return frozenset(folders - {CORE})

    def _counts(self, path: str) -> bool:
        """Whether a file that is no module is one of the device's."""
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
        files = self.checkout.below("", lambda p: p.startswith((*inside, CORE)) and not p.endswith((".py", ".md")))
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
            for include in _INCLUDE.findall(self.checkout.now(path)):
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
        """Return the stems whose kernels a file is in or is included by; None where all stems run through it."""
        stems, seen, waiting = set(), set[str](), [path]
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            *folders, name = at.split("/")
            stem = name.removesuffix(LAUNCH).partition(".")[0]
            above = self._includers.get(at, frozenset()) - {at}
            if KERNELS in folders and stem in self.stems and not name.endswith(".h"):
                stems.add(stem)
            elif above:
                waiting += above
            elif KERNELS not in folders or not name.endswith(".h"):
                return None  # a header among the kernels that nothing includes belongs to none
        return frozenset(stems)


@lru_cache(maxsize=1024)  # versions of a checkout have most of their modules in common
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
