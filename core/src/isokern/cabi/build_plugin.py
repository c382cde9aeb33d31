"""The build backend of all distributions here (PEP 517 and 660): setuptools, after deriving files from core.

In a checkout core's sources lie next to the plug-in, and the derived files are written to the plug-in's `generated`
folder. An sdist carries that folder, with this file in it, so that sdist → wheel does not need `isokern`. A plug-in's
setup.py imports `variant_table` from here. The file stands alone: it imports nothing from the package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
# None in a plug-in's sdist, whose files are generated already
_CORE = _HERE.parents[2] if _HERE.name == "cabi" else None
_GENERATED = Path("generated")  # in the plug-in: hooks run in the folder of its pyproject.toml


def _setuptools(hook: str, *arguments: Any) -> str:
    """Return the result of a hook of setuptools' own backend.

    It is imported late, since `variant_table` is also used where setuptools is not installed.
    """
    made: str = getattr(import_module("setuptools.build_meta"), hook)(*arguments)
    return made


def _making() -> bool:
    """Return whether the hook has to derive files: it runs for a plug-in in a checkout.

    Core derives nothing, and an sdist has all derived files.
    """
    return _CORE is not None and Path.cwd() != _CORE


def _core_says(pattern: str) -> str:
    """Return what core's pyproject.toml has at `pattern`."""
    assert _CORE is not None
    match = re.search(pattern, (_CORE / "pyproject.toml").read_text(encoding="utf-8"), re.S | re.M)
    if match is None:
        raise RuntimeError(f"{_CORE / 'pyproject.toml'} has no {pattern}")
    return match.group(1)


def _generate() -> None:
    """Copy the licence from the root of a checkout, and write the plug-in's derived files."""
    if _CORE is not None and (_CORE.parent / "LICENSE").exists():
        shutil.copyfile(_CORE.parent / "LICENSE", "LICENSE")
    if not _making():
        return
    # Not by PYTHONPATH: where core is installed editable, pip's isolation removes its folder from sys.path at start
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from isokern.cabi.generate import main; main(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, f"{_CORE}/src", str(_GENERATED)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    version = _core_says(r'^version = "(.*?)"')  # core and plug-ins are released together
    (_GENERATED / "version.txt").write_text(f"{version}\n")
    (_GENERATED / "requirements.txt").write_text(f"isokern=={version}\n")
    shutil.copyfile(__file__, _GENERATED / "build_plugin.py")


def _require_for_editable() -> None:
    """Add ninja to the requirements: an editable install of `kernel_build`'s output runs it again on import."""
    if _making() and Path("kernel_build.py").exists():
        with open(_GENERATED / "requirements.txt", "a", encoding="utf-8") as file:
            file.write("ninja>=1.11\n")


def _check_machine() -> None:
    """End the build with one line, by the plug-in's own `kernel_build`, where this machine lacks something for it."""
    if Path("kernel_build.py").exists():
        import_module("kernel_build").check()


def list_symbols(kernel: Path, level: str) -> dict[str, str]:
    """Return role → symbol of each function that a kernel file defines for a level: `kernel` and the like.

    SystemExit where it has no kernel, or is wrong in another way.
    """
    text, stem = _read(kernel), kernel.stem
    roles = [role for role in _ROLES if _role(kernel, text, role, "")]
    if "KERNEL" not in roles:
        raise SystemExit(
            f"{kernel} defines no IK_KERNEL({stem}): a kernel begins with this at the start of a line, which is its"
            " prototype"
        )
    if ("PACKED_LAYOUT" in roles) != ("PACK" in roles):
        raise SystemExit(f"{kernel} defines one of IK_PACKED_LAYOUT({stem}) and IK_PACK({stem}) without the other")
    return {role.lower(): f"{stem}{'' if role == 'KERNEL' else f'_{role.lower()}'}__{level}" for role in roles}


def variant_table(built: Iterable[tuple[str, int, Path]]) -> str:
    """Return C that lists every kernel of `built`, each a (level, priority, file), with the functions that it defines.

    See isokern_native.h.
    """
    externs, rows = [], []
    for level, priority, path in built:
        symbols = list_symbols(path, level)
        externs += [f"extern ik_{role} {symbol};" for role, symbol in symbols.items()]
        text = _read(path)
        kind, moves = _role(path, text, "WORKSPACE_KIND", r', "(\w+)"'), _role(path, text, "MOVES", "") is not None
        functions = ", ".join(symbols.get(role.lower(), "0") for role in _ROLES)
        memory = kind[2] if kind else "default"
        rows.append(f'    {{ "{path.stem}", "{level}", {priority}, {functions}, "{memory}", {int(moves)} }},')
    lines = ['#include "isokern_native.h"', *externs, "const ik_variant ik_variants[] = {", *rows, "};"]
    return "\n".join([*lines, f"const uint32_t ik_variant_count = {len(rows)};", ""])


_ROLES = ("KERNEL", "SUPPORTED", "WORKSPACE", "PACKED_LAYOUT", "PACK")  # in the order of ik_variant


def _read(kernel: Path) -> str:
    """Return the text of a kernel file without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", kernel.read_text(encoding="utf-8"), flags=re.S)


def _role(path: Path, text: str, role: str, rest: str) -> re.Match[str] | None:
    """Return the match of the line that defines a role in a kernel file; it must name the file's own stem."""
    found = re.search(rf"^IK_{role}\((\w+){rest}\)", text, re.M)
    if found and found[1] != path.stem:
        raise SystemExit(f"{path}: IK_{role}({found[1]}) in a file called {path.stem}")
    return found


_PKG_CONFIG = """prefix=${{pcfiledir}}/../..
Name: {name}
Description: Isokern's operators for C and C++ hosts, by the library of {name}
Version: {version}
Cflags: -I${{prefix}}/include
Libs: {libraries} -Wl,-rpath,${{prefix}}
"""
_CMAKE = """# Isokern's operators for C and C++ hosts: target_link_libraries(host PRIVATE {name}::{name})
get_filename_component(_isokern_prefix "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
if(NOT TARGET {name}::{name})
  add_library({name}::{name} INTERFACE IMPORTED)
  set_target_properties({name}::{name} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${{_isokern_prefix}}/include"
    INTERFACE_LINK_LIBRARIES "{libraries};-Wl,-rpath,${{_isokern_prefix}}")
endif()
"""
_CMAKE_VERSION = """set(PACKAGE_VERSION "{version}")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
"""


def write_host_files(package: Path, name: str, libraries: Sequence[str]) -> None:
    """Write the files by which a C or C++ host builds, into the package that holds `libraries`.

    These are the headers, and the files for pkg-config and CMake.
    """
    told = {"name": name, "version": (_GENERATED / "version.txt").read_text(encoding="utf-8").strip()}
    cmake = package / "share" / "cmake" / name
    texts = {
        package / "include" / "isokern.h": (_GENERATED / "isokern.h").read_text(encoding="utf-8"),
        package / "include" / "isokern.hpp": (_GENERATED / "isokern.hpp").read_text(encoding="utf-8"),
        package / "share" / "pkgconfig" / f"{name}.pc": _PKG_CONFIG.format(
            **told, libraries=" ".join(f"${{prefix}}/{library}" for library in libraries)
        ),
        cmake / f"{name}-config.cmake": _CMAKE.format(
            **told, libraries=";".join(f"${{_isokern_prefix}}/{library}" for library in libraries)
        ),
        cmake / f"{name}-config-version.cmake": _CMAKE_VERSION.format(**told),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@contextmanager
def _fresh_build_folder() -> Iterator[None]:
    """Build outside the tree.

    setuptools reuses what it finds in `build`, so a deleted file would still be in the wheel.
    """
    with tempfile.TemporaryDirectory() as folder:
        extra = Path(folder, "extra.cfg")
        extra.write_text(f"[build]\nbuild_base = {folder}\n")
        before = os.environ.get("DIST_EXTRA_CONFIG")
        os.environ["DIST_EXTRA_CONFIG"] = str(extra)
        try:
            yield
        finally:
            del os.environ["DIST_EXTRA_CONFIG"]
            if before is not None:
                os.environ["DIST_EXTRA_CONFIG"] = before


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """Return the requirements besides `build-system.requires`: core's dependencies, where files are to be derived."""
    return re.findall(r'"([^"]+)"', _core_says(r"^dependencies = \[(.*?)\]")) if _making() else []


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return the same as for an sdist, after checking the machine.

    Isolated builds call this first, so they fail here before anything is downloaded.
    """
    _check_machine()
    return get_requires_for_build_sdist(config_settings)


get_requires_for_build_editable = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(directory: str, config_settings: Any = None) -> str:
    """Run the hook of setuptools; it runs setup.py, which needs the generated files."""
    _generate()
    return _setuptools("prepare_metadata_for_build_wheel", directory, config_settings)


def prepare_metadata_for_build_editable(directory: str, config_settings: Any = None) -> str:
    """Run the hook of setuptools, as for a wheel."""
    _generate()
    _require_for_editable()
    return _setuptools("prepare_metadata_for_build_editable", directory, config_settings)


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Generate the files, then build in an empty folder."""
    _check_machine()
    _generate()
    with _fresh_build_folder():
        return _setuptools("build_wheel", directory, config_settings, metadata_directory)


def build_editable(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Generate the files, then build in place."""
    _check_machine()
    _generate()
    _require_for_editable()
    return _setuptools("build_editable", directory, config_settings, metadata_directory)


def build_sdist(directory: str, config_settings: Any = None) -> str:
    """Generate the files, then pack them with the sources."""
    _generate()
    return _setuptools("build_sdist", directory, config_settings)
