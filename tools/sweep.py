"""Try functions of one number on a part of all F32 that moves with the commit: `python tools/sweep.py cpu [device …]`.

`PARTS` commits in a row cover all 2^32. A result beyond what its declaration allows, or in the cases one that is less
exact than docs/accuracy.tsv says, is a failure.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from conformance import ROOT, count_commits

PARTS = {"cpu": 256}  # of a device that compiles or emulates, a smaller part takes as long
MOST = 4096
TABLE = ROOT / "docs" / "accuracy.tsv"


def main(devices: Sequence[str]) -> int:
    """Measure each device: the table's rows first, then the moving part; return 1 where one fails."""
    failed = False
    for device in devices:
        measure = [sys.executable, "-m", "isokern", "accuracy", "--device", device]
        failed |= bool(subprocess.run([*measure, "--against", str(TABLE)], check=False).returncode)
        parts = PARTS.get(device, MOST)
        try:
            part = count_commits() % parts + 1
        except LookupError as error:
            print(f"{device}: the moving part is left out: {error}", flush=True)
            continue
        moving = ["--no-cases", "--slice", f"{part}/{parts}"]
        failed |= bool(subprocess.run([*measure, *moving], check=False).returncode)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
