"""Write what a plug-in derives from core into a folder: `python -m isokern.abi.generate DEST`."""

from __future__ import annotations

import sys
from pathlib import Path

from . import header
from .cdef import cdef

STATIC = Path(__file__).parent / "include"
EMULATION = Path(__file__).parents[1] / "emulation"


def generate(destination: Path) -> list[Path]:
    """isokern.h, the tables, what cffi is told, what `include` holds, and the headers for emulated hardware; files that are right already are not touched."""
    destination.mkdir(parents=True, exist_ok=True)
    texts = {
        "isokern.h": header.header(),
        "operators.h": header.operator_table(),
        "elementwise_rows.h": header.elementwise_rows(),
        "tile_functions.h": header.tile_functions(),
        "loop_nests.h": header.loop_nests(),
        "isokern_native.cdef": cdef(),
    }
    texts |= {p.name: p.read_text() for p in STATIC.glob("isokern_*.[ch]")}
    texts |= {f"emulation/{p.name}": p.read_text() for p in EMULATION.glob("*.h")}
    (destination / "emulation").mkdir(exist_ok=True)
    for name, text in texts.items():
        _write(destination / name, text)
    return [destination / name for name in sorted(texts)]


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    print(*generate(Path(sys.argv[1])), sep="\n")
