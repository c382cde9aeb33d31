"""Generation of a plug-in's derived files from core: `python -m isokern.cabi.generate DEST`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from . import header, inference
from .block_layouts import layout_header
from .cdef import cdef
from .element_types import dtype_header

STATIC = Path(__file__).parent / "include"
EMULATION = Path(__file__).parents[1] / "emulation"


def generate(destination: Path) -> list[Path]:
    """Write the derived files into a folder; files that are up to date are not touched.

    These are isokern.h, the tables, the declarations for cffi, the files of `include`, and the headers for emulated
    hardware.
    """
    destination.mkdir(parents=True, exist_ok=True)
    texts = {
        "isokern.h": header.header(),
        "isokern_abi.h": header.abi_header(),
        "isokern_dtypes.h": dtype_header(),
        "isokern_layouts.h": layout_header(),
        "operators.h": header.operator_table(),
        "elementwise_rows.h": header.elementwise_rows(),
        "elementwise_activations.h": header.elementwise_activations(),
        "tile_functions.h": header.tile_functions(),
        "loop_nests.h": header.loop_nests(),
        "inference_tables.h": inference.inference_tables(),
        "attribute_tables.h": inference.attribute_tables(),
        "isokern_native.cdef": cdef(),
    }
    texts |= {p.name: p.read_text() for p in (*STATIC.glob("*_*.[ch]"), STATIC / "isokern.hpp")}
    texts |= {f"emulation/{p.name}": p.read_text() for p in EMULATION.glob("*.h")}
    texts |= {f"operators/{name}.h": text for name, text in header.operator_headers().items()}
    for folder in ("emulation", "operators"):
        (destination / folder).mkdir(exist_ok=True)
    for stale in {*(destination / "operators").iterdir()} - {destination / name for name in texts}:
        stale.unlink()  # of an operator that no longer exists
    for name, text in texts.items():
        _write(destination / name, text)
    return [destination / name for name in sorted(texts)]


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def sources() -> list[Path]:
    """Return what the files derive from.

    These are the modules that this process has loaded, the folders in which others would be found, and the copied
    files.
    """
    package = Path(__file__).parents[1]
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    own = {Path(file) for file in files if file and package in Path(file).parents}
    return sorted({*own, *(path.parent for path in own), *STATIC.glob("*.[ch]*"), *EMULATION.glob("*.h")})


def write_depfile(depfile: Path, made: str, others: Iterable[Path] = ()) -> None:
    """Write a depfile for make and ninja: `made`, one of the files, and what it derives from; `others` count, too."""
    target, *escaped = [str(path).replace(" ", "\\ ") for path in (made, *sources(), *others)]
    depfile.write_text(f"{target}: {' '.join(escaped)}\n")


def main(destination: str) -> None:
    """Write the files, and print their names."""
    print(*generate(Path(destination)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
