"""The build backend of all distributions here (PEP 517 and 660): setuptools, and what a plug-in derives from core made first.

In a checkout core's sources lie beside the plug-in, and the files are made in the plug-in's `generated` folder; an sdist carries that
folder, with this file in it, so that sdist → wheel needs no `isokern` at all. A plug-in's setup.py takes `variant_table` from here. Stands
alone: it imports nothing of the package.
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
_CORE = (
    _HERE.parents[1] if _HERE.name == "isokern" else None
)  # None in a plug-in's sdist, where all is generated already
_GENERATED = Path("generated")  # of the plug-in: hooks run in the folder of its pyproject.toml


def _setuptools(hook: str, *arguments: Any) -> str:
    """What setuptools' own backend makes; it is loaded late, as `variant_table` is also for who has no setuptools."""
    made: str = getattr(import_module("setuptools.build_meta"), hook)(*arguments)
    return made


def _making() -> bool:
    """Whether the hook runs for a plug-in in a checkout: core itself derives nothing, and an sdist has all that is derived."""
    return _CORE is not None and Path.cwd() != _CORE


def _core_says(pattern: str) -> str:
    """What core's pyproject.toml has at `pattern`."""
    assert _CORE is not None
    match = re.search(pattern, (_CORE / "pyproject.toml").read_text(encoding="utf-8"), re.S | re.M)
    if match is None:
        raise RuntimeError(f"{_CORE / 'pyproject.toml'} has no {pattern}")
    return match.group(1)


def _generate() -> None:
    """Bring the licence from the root of a checkout, and make the plug-in's derived files."""
    if _CORE is not None and (_CORE.parent / "LICENSE").exists():
        shutil.copyfile(_CORE.parent / "LICENSE", "LICENSE")
    if not _making():
        return
    # Not by PYTHONPATH: where core is installed editable, pip's isolation takes its folder out of sys.path when Python starts
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
    """An editable install of what `kernel_build` builds runs ninja again when it is imported."""
    if _making() and Path("kernel_build.py").exists():
        with open(_GENERATED / "requirements.txt", "a", encoding="utf-8") as file:
            file.write("ninja>=1.11\n")


def _check_machine() -> None:
    """Let a plug-in's own `kernel_build` end the build with one line that says what this machine lacks for it."""
    if Path("kernel_build.py").exists():
        import_module("kernel_build").check()


def variant_table(built: Iterable[tuple[str, int, Path]]) -> str:
    """C that lists every kernel of `built`, (level, priority, file), with the functions its file defines (see isokern_native.h)."""
    externs, rows = [], []
    for level, priority, path in built:
        text, stem = path.read_text(encoding="utf-8"), path.stem
        names = {}
        for role in ("KERNEL", "SUPPORTED", "WORKSPACE", "PACKED_LAYOUT", "PACK"):
            defined = _role(path, text, role, "")
            suffix = "" if role == "KERNEL" else f"_{role.lower()}"
            names[role] = f"{stem}{suffix}__{level}" if defined else "0"
            if defined:
                externs.append(f"extern ik_{role.lower()} {names[role]};")
        if names["KERNEL"] == "0":
            raise SystemExit(f"{path} defines no IK_KERNEL({stem})")
        if (names["PACKED_LAYOUT"] == "0") != (names["PACK"] == "0"):
            raise SystemExit(f"{path} defines one of IK_PACKED_LAYOUT({stem}) and IK_PACK({stem}) without the other")
        kind = _role(path, text, "WORKSPACE_KIND", r', "(\w+)"')
        rows.append(
            f'    {{ "{stem}", "{level}", {priority}, {", ".join(names.values())}, "{kind[2] if kind else "default"}" }},'
        )
    lines = ['#include "isokern_native.h"', *externs, "const ik_variant ik_variants[] = {", *rows, "};"]
    return "\n".join([*lines, f"const uint32_t ik_variant_count = {len(rows)};", ""])


def _role(path: Path, text: str, role: str, rest: str) -> re.Match[str] | None:
    """The line of a kernel file that defines a role, which is its own stem's."""
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
    """What a C or C++ host builds by, in the package that holds `libraries`: headers, and the files of pkg-config and CMake."""
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
    """Build outside the tree: setuptools reuses what it finds in `build`, so a file that was deleted would still be in the wheel."""
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
    """What has to be there beside `build-system.requires`: core's dependencies where files are still to be made."""
    return re.findall(r'"([^"]+)"', _core_says(r"^dependencies = \[(.*?)\]")) if _making() else []


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """As for an sdist. Isolated builds ask this first, and so end here before anything is downloaded in vain."""
    _check_machine()
    return get_requires_for_build_sdist(config_settings)


get_requires_for_build_editable = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(directory: str, config_settings: Any = None) -> str:
    """setuptools', which runs setup.py and so needs the generated files."""
    _generate()
    return _setuptools("prepare_metadata_for_build_wheel", directory, config_settings)


def prepare_metadata_for_build_editable(directory: str, config_settings: Any = None) -> str:
    """As for a wheel."""
    _generate()
    _require_for_editable()
    return _setuptools("prepare_metadata_for_build_editable", directory, config_settings)


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Generate, then build from nothing."""
    _check_machine()
    _generate()
    with _fresh_build_folder():
        return _setuptools("build_wheel", directory, config_settings, metadata_directory)


def build_editable(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Generate, then build in place."""
    _check_machine()
    _generate()
    _require_for_editable()
    return _setuptools("build_editable", directory, config_settings, metadata_directory)


def build_sdist(directory: str, config_settings: Any = None) -> str:
    """Generate, then pack with the generated files."""
    _generate()
    return _setuptools("build_sdist", directory, config_settings)
