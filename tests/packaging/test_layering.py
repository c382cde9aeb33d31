"""Core names no backend, and no backend names another: read from the imports, strings and entry points of every module."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "src" / "isokern"
PLUGINS = {p.name: p / "src" / f"isokern_{p.name}" for p in sorted((ROOT / "plugins").iterdir()) if p.is_dir()}
PACKAGES = {"core": CORE, **PLUGINS}
BACKENDS = {folder.name for folder in PLUGINS.values()}


def imported(source: str, filename: str = "<text>") -> set[str]:
    """The top-level packages that a module imports anywhere in it, by statement or by name."""
    found = set()
    for node in ast.walk(ast.parse(source, filename)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Constant) and str(node.value).split(".")[0] in BACKENDS:
            found.add(node.value.split(".")[0])  # what import_module or find_spec would be given
    return found


# What a distribution has under other names than its own, where it need not be installed for the tests
PROVIDES = {
    "cuda_pathfinder": {"cuda"},
    "cupy_cuda12x": {"cupy", "cupy_backends"},
    "cupy_cuda13x": {"cupy", "cupy_backends"},
}


def backends(package: str) -> set[str]:
    """The plug-in packages that `package` must not import."""
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
        if (named := imported(path.read_text(encoding="utf-8"), str(path)) & backends(package))
    }
    assert guilty == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_declared_dependencies_only(package):
    """Beside the standard library, itself and isokern: what the installed distribution says it requires."""
    name = PACKAGES[package].name
    declared = {re.match(r"[\w-]+", r).group().replace("-", "_") for r in requires(name.replace("_", "-"))}
    declared = set().union(*(PROVIDES.get(d, {d}) for d in declared))
    own = {"isokern", name, "setuptools"}  # setuptools: build_plugin.py runs inside a build
    modules = list(PACKAGES[package].rglob("*.py"))
    used = set().union(*(imported(p.read_text(encoding="utf-8"), str(p)) for p in modules))
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


def test_no_file_of_core_tells_backends_apart_by_name():
    """A backend's device name as a string that is compared or looked up; prose in docstrings and help may name examples."""
    guilty = []
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                words = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
                if words & {*PLUGINS, *(f"{name}:0" for name in PLUGINS)}:
                    guilty.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert guilty == []
