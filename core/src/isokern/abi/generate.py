"""Write what a plug-in derives from core into a folder: `python -m isokern.abi.generate DEST [DEPFILE]`."""

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


def sources() -> list[Path]:
    """What the texts come from: the modules that this process has loaded, the folders in which others would be found, and files that are copied."""
    package = Path(__file__).parents[1]
    modules = {Path(m.__file__) for m in list(sys.modules.values()) if getattr(m, "__file__", None)}
    own = {path for path in modules if package in path.parents}
    return sorted({*own, *(path.parent for path in own), *STATIC.glob("isokern_*.[ch]"), *EMULATION.glob("*.h")})


def write_depfile(target: Path, made: list[Path]) -> None:
    """What the files come from, as make and ninja read it."""
    escaped = [str(path).replace(" ", "\\ ") for path in sources()]
    target.write_text(f"{' '.join(map(str, made))}: {' '.join(escaped)}\n")


if __name__ == "__main__":
    written = generate(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        write_depfile(Path(sys.argv[2]), written)
    print(*written, sep="\n")
