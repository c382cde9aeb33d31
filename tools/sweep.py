"""Try functions of one number on a part of all F32: `python tools/sweep.py cpu [device …] [--part N]`.

The parts together cover all 2^32; without `--part` it is the first, so that the same tree is tested in the same way. A
result beyond what its declaration allows, or in the cases one that is less exact than docs/accuracy.tsv says, is a
failure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from conformance import ROOT

PARTS = {"cpu": 256}  # of a device that compiles or emulates, a smaller part takes as long
MOST = 4096
TABLE = ROOT / "docs" / "accuracy.tsv"


def main(arguments: Sequence[str]) -> int:
    """Measure each device: the table's rows first, then a part of all F32; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("devices", nargs="+")
    parser.add_argument("--part", type=int, default=1, metavar="N", help="which part of all F32, from 1")
    options = parser.parse_args(arguments)
    failed = False
    for device in options.devices:
        measure = [sys.executable, "-m", "isokern", "accuracy", "--device", device]
        failed |= bool(subprocess.run([*measure, "--against", str(TABLE)], check=False).returncode)
        parts = PARTS.get(device, MOST)
        part = f"{(options.part - 1) % parts + 1}/{parts}"
        failed |= bool(subprocess.run([*measure, "--no-cases", "--slice", part], check=False).returncode)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
