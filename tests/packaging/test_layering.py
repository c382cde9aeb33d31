"""Test the imports of every module: core names no backend, no backend names another, and layers import downwards."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "src" / "isokern"
PLUGINS = {p.name: p / "src" / f"isokern_{p.name}" for p in sorted((ROOT / "plugins").iterdir()) if p.is_dir()}
SCAFFOLD = CORE / "scaffold"
PACKAGES = {"core": CORE, **PLUGINS}
BACKENDS = {folder.name for folder in PLUGINS.values()}


@cache
def nodes(source: str) -> list[ast.AST]:
    """Return all nodes of a module, which several tests go over."""
    return list(ast.walk(ast.parse(source)))


def imported(source: str) -> set[str]:
    """Return the top-level packages that a module imports anywhere, by statement or by a name in a string."""
    found = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Constant) and str(node.value).split(".")[0] in BACKENDS:
            found.add(node.value.split(".")[0])  # an argument of import_module or find_spec
    return found


# Packages of distributions with other names, which need not be installed for the tests
PROVIDES = {
    "cuda_pathfinder": {"cuda"},
    "cupy_cuda12x": {"cupy", "cupy_backends"},
    "cupy_cuda13x": {"cupy", "cupy_backends"},
}


def backends(package: str) -> set[str]:
    """Return the plug-in packages that `package` must not import."""
    return BACKENDS - {PACKAGES[package].name}


def test_every_plugin_has_a_package():
    assert PLUGINS
    assert [name for name, folder in PLUGINS.items() if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_no_other_backend(package):
    modules = list(PACKAGES[package].rglob("*.py"))
    assert modules
    guilty = {
        str(path.relative_to(ROOT)): sorted(named)
        for path in modules
        if (named := imported(path.read_text(encoding="utf-8")) & backends(package))
    }
    assert guilty == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_declared_dependencies_only(package):
    """Allowed are the standard library, the package itself, isokern, and what the installed distribution requires."""
    name = PACKAGES[package].name
    try:
        required = requires(name.replace("_", "-"))
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed, and what it requires is known from its installation alone")
    declared = {re.match(r"[\w-]+", r).group().replace("-", "_") for r in required}
    declared = set().union(*(PROVIDES.get(d, {d}) for d in declared))
    own = {"isokern", name, "setuptools"}  # setuptools: build.py and cabi/build_plugin.py run inside a build
    modules = list(PACKAGES[package].rglob("*.py"))
    used = set().union(*(imported(p.read_text(encoding="utf-8")) for p in modules))
    assert sorted(used - declared - own - set(sys.stdlib_module_names)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import isokern_cpu",
        "from isokern_cpu._native import lib",
        "def f():\n    import isokern_cpu as c",
        "m('isokern_cpu._native')",
    ],
)
def test_the_reader_sees_every_kind_of_import(source):
    assert imported(source) & backends("core") == {"isokern_cpu"}


# What a backend may import of core: the templates, which outsiders start from, import nothing else
PUBLIC = {
    "isokern",
    "isokern.backend",
    "isokern.backend.native",
    "isokern.build",
    "isokern.conformance.test_conformance",
    "isokern.dtypes",
    "isokern.expr.evaluate",
    "isokern.ops",
    "isokern.settings",
    "isokern.simt",
    "isokern.status",
}


def private(source: str) -> list[str]:
    """Return the imports from core that are not public: of another module, or of a name that its __all__ lacks."""
    found = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.startswith("isokern.") and a.name not in PUBLIC]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).split(".")[0] == "isokern":
            if node.module not in PUBLIC:
                found.append(str(node.module))
                continue
            module = importlib.import_module(node.module)
            known = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
            found += [f"{node.module}.{a.name}" for a in node.names if a.name not in known]
    return found


def test_templates_import_what_is_public():
    modules = [p for p in SCAFFOLD.rglob("*.py") if p.parent != SCAFFOLD]
    assert len(modules) > 8
    found = {str(p.relative_to(SCAFFOLD)): private(p.read_text(encoding="utf-8")) for p in modules}
    assert {name: imports for name, imports in found.items() if imports} == {}


@pytest.mark.parametrize(
    "source", ["from isokern.cabi.plan import Plan", "import isokern.cabi", "from isokern.backend import Backend"]
)
def test_a_private_import_is_seen(source):
    assert len(private(source)) == 1


def test_no_file_of_core_tells_backends_apart_by_name():
    """No comparison uses a backend's or device's name; prose in docstrings and help may name examples."""
    guilty = []
    for path in CORE.rglob("*.py"):
        for node in nodes(path.read_text(encoding="utf-8")):
            if isinstance(node, ast.Compare):
                words = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
                if words & {*PLUGINS, *(f"{name}:0" for name in PLUGINS)}:
                    guilty.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert guilty == []


# The packages of core, one layer per line: an import, at run time or for types alone, goes down or stays on its layer
FLOORS = """
status process
dtypes arguments settings
layout blocks debug disk_cache
expr
declare
ops
cabi
backend
tensors
call oracle
graph
rewriting importing
passes measure
runtime
eager simt
array_api
bench demo view llm onnx scaffold torch
serve
conformance
cli build
__main__
"""
RANK = {room: floor for floor, rooms in enumerate(FLOORS.split("\n")) for room in rooms.split()}
Arrows = dict[str, dict[str, int]]  # module → module that it imports → line


def modules(folder: Path) -> dict[str, Path]:
    """Return dotted name below the package → file, for every module; the package itself has the empty name."""
    found = {}
    for path in folder.rglob("*.py"):
        if folder == CORE and path.is_relative_to(SCAFFOLD) and path.parent != SCAFFOLD:
            continue  # of a template, which is a package of its own
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def targets(package: str, module: str, is_package: bool, names: set[str], source: str) -> dict[str, int]:
    """Return what a module of `package` imports from it, by any kind of statement → line."""
    found: dict[str, int] = {}
    for node in nodes(source):
        if isinstance(node, ast.Import):
            wanted = [a.name.partition(".")[2] for a in node.names if a.name.partition(".")[0] == package]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                here = module.split(".") if module else []
                up = node.level - 1 + (not is_package)
                base = [*here[: len(here) - up], *(node.module.split(".") if node.module else [])]
            elif str(node.module).partition(".")[0] == package:
                base = str(node.module).split(".")[1:]
            else:
                continue
            each = [".".join([*base, a.name]) for a in node.names]
            wanted = [name if name in names else ".".join(base) for name in each]
        else:
            continue
        found |= {name: node.lineno for name in wanted if name != module}
    return found


def arrows(folder: Path) -> Arrows:
    """Return the imports among the modules of a package."""
    every = modules(folder)
    return {
        name: targets(folder.name, name, path.name == "__init__.py", set(every), path.read_text(encoding="utf-8"))
        for name, path in every.items()
    }


def circles(found: Arrows) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or not."""
    reach = {module: set(others) for module, others in found.items()}
    for middle in found:
        for others in reach.values():
            if middle in others:
                others |= reach[middle]
    rounds = {frozenset(o for o in reach[m] if m in reach.get(o, ())) for m in found if m in reach[m]}
    return sorted(sorted(r) for r in rounds)


def rising(found: Arrows) -> list[str]:
    """Return the imports of core that go up a layer, or to the package itself."""
    wrong = []
    for module, others in found.items():
        for other, line in others.items():
            if module and (not other or RANK[other.partition(".")[0]] > RANK[module.partition(".")[0]]):
                wrong.append(f"isokern.{module}, line {line}: imports isokern{'.' * bool(other)}{other}")
    return sorted(wrong)


def test_imports_of_core_go_down():
    assert rising(arrows(CORE)) == []


def test_every_room_of_core_has_a_floor_and_few_files_lie_outside_rooms():
    rooms = {name.partition(".")[0] for name in modules(CORE)} - {""}
    assert rooms == set(RANK)
    assert len([p for p in CORE.iterdir() if p.is_file()]) <= 12


@pytest.mark.parametrize("package", PACKAGES)
def test_no_files_import_each_other_in_a_circle(package):
    assert circles(arrows(PACKAGES[package])) == []


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("ops.relu", "from ..graph import ir", "graph"),
        ("ops.relu", "from ..graph.ir import Op", "graph.ir"),
        (
            "ops.relu",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from isokern.graph.ir import Op",
            "graph.ir",
        ),
        ("ops.relu", "def f():\n    import isokern.graph.ir", "graph.ir"),
        ("ops.relu", "from .. import graph", "graph"),
        ("ops.relu", "import isokern", ""),
    ],
)
def test_an_arrow_up_is_seen(module, source, found):
    seen = targets("isokern", module, False, {"graph", "graph.ir", module}, source)
    assert found in seen or f"{found}.ir" in seen
    assert len(rising({module: seen})) == 1


def test_a_circle_is_seen():
    assert circles({"a": {"b": 1}, "b": {"c": 1}, "c": {"a": 1}, "d": {"a": 1}}) == [["a", "b", "c"]]
