"""The operators: every module of this package declares some, when one of them is asked for.

`index.tsv` lists which module declares which operator. Operators that it lacks are found by loading all modules; so
adding an operator edits nothing else, and `python tools/regenerate.py index` adds the lines.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from ..declare.operator import ErrorCase, Operator, Sample, Tolerance
from ..declare.registry import Offer, all_operators, by_kind, find, offer
from ..process.garbage import hold_collections

__all__ = ["ErrorCase", "Operator", "Sample", "Tolerance", "all_operators", "by_kind", "find"]

INDEX = Path(__file__).with_name("index.tsv")
_whole = False  # whether all modules are loaded


def _load(module: str) -> None:
    """Load a module that declares operators, or with "" all."""
    global _whole
    if module:
        try:
            importlib.import_module(f"{__name__}.{module}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{module}":
                raise
            _load("")  # the index is out of date
    elif not _whole:
        with hold_collections(staying=True):
            for name in sorted(m.name for m in pkgutil.iter_modules(__path__)):
                importlib.import_module(f"{__name__}.{name}")
        _whole = True


def read_index() -> dict[str, Offer]:
    """Return what `index.tsv` says of operators, by name."""
    rows = (line.split("\t") for line in INDEX.read_text(encoding="utf-8").splitlines()[1:])
    return {name: Offer(kind, module, int(fingerprint, 16)) for name, kind, module, fingerprint in rows}


offer(__name__, read_index() if INDEX.exists() else {}, _load)
