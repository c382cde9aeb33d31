"""Build backend of native plug-ins (PEP 517 and 660): setuptools, after generating what the plug-in derives from core.

In a checkout, core's sources lie beside the plug-in and the files are generated into the plug-in's `generated` folder; an
sdist carries that folder, this file in it, so that sdist → wheel needs no `isokern` at all. Stands alone: it imports
nothing of the package.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # re-exported hooks
    get_requires_for_build_editable as _editable_requires,
)

_HERE = Path(__file__).resolve().parent
_IN_CHECKOUT = _HERE.name == "isokern"
_CORE = _HERE.parents[1] if _IN_CHECKOUT else None
_GENERATED = Path("generated")


def _core_requirements() -> list[str]:
    """What importing core's declarations needs: its own dependencies, read where they are declared."""
    if _CORE is None:
        return []
    text = (_CORE / "pyproject.toml").read_text()
    match = re.search(r"^dependencies = \[(.*?)\]", text, re.S | re.M)
    return re.findall(r'"([^"]+)"', match.group(1)) if match else []


def _generate() -> None:
    if _CORE is None:
        return
    code = f"import sys; sys.path.insert(0, {str(_CORE / 'src')!r}); from isokern.abi.generate import generate; "
    code += f"import pathlib; generate(pathlib.Path({str(_GENERATED)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    shutil.copyfile(__file__, _GENERATED / "build_plugin.py")


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """setuptools' own, and core's where the files are still to be generated."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_core_requirements()]


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """As for a wheel."""
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_core_requirements()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """As for a wheel."""
    return [*_editable_requires(config_settings), *_core_requirements()]


def prepare_metadata_for_build_wheel(directory: str, config_settings: Any = None) -> str:
    """setuptools'."""
    _generate()
    return str(build_meta.prepare_metadata_for_build_wheel(directory, config_settings))


def prepare_metadata_for_build_editable(directory: str, config_settings: Any = None) -> str:
    """setuptools'."""
    _generate()
    return str(build_meta.prepare_metadata_for_build_editable(directory, config_settings))


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Generate, then build."""
    _generate()
    return str(build_meta.build_wheel(directory, config_settings, metadata_directory))


def build_editable(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Generate, then build in place."""
    _generate()
    return str(build_meta.build_editable(directory, config_settings, metadata_directory))


def build_sdist(directory: str, config_settings: Any = None) -> str:
    """Generate, then pack with the generated files."""
    _generate()
    return str(build_meta.build_sdist(directory, config_settings))
