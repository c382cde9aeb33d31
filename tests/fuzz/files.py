"""Fuzz the readers of files and texts of others, guided by what they cover: `python tests/fuzz/files.py --seconds 600`.

Atheris (libFuzzer for Python) changes the inputs of tests/fuzz/doors.py and keeps those that reach new code. An error
that is not typed, more than `SECONDS` for one input, or more than `ROOM` MiB ends a door's run, and the input is kept:
`--input FILE` enters it again.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
SECONDS, ROOM, LONGEST = 10, 2048, 1 << 16
sys.path += [str(Path(__file__).parent), str(ROOT / "tests/llm"), str(ROOT / "tools")]
with atheris.instrument_imports(include=["isokern"], exclude=["isokern.ops", "isokern.conformance"]):
    from doors import DOORS


def fuzz(name: str, given: list[str]) -> None:
    """Fuzz one door in this process, which libFuzzer ends."""
    door, folder = DOORS[name], Path(tempfile.mkdtemp())
    corpus = folder / "corpus"
    corpus.mkdir()
    for n, seed in enumerate(door.seeds(folder)):
        door.enter(seed, folder)
        (corpus / f"{n}").write_bytes(seed)

    def once(content: bytes) -> None:
        with contextlib.suppress(door.errors):
            door.enter(content, folder)

    atheris.Setup([sys.argv[0], *given, str(corpus)], once)
    atheris.Fuzz()


def main() -> int:
    """Fuzz every door, or those named, each in a process of its own; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("doors", nargs="*", default=list(DOORS), help=", ".join(DOORS))
    parser.add_argument("--seconds", type=int, default=600, help="for each door")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", type=Path, help="enter this file at the one door named, and show the error")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.input:
        with tempfile.TemporaryDirectory() as folder:
            DOORS[given.doors[0]].enter(given.input.read_bytes(), Path(folder))
        return 0
    if given.alone:
        limits = [f"-timeout={SECONDS}", f"-rss_limit_mb={ROOM}", f"-max_len={LONGEST}", f"-seed={given.seed}"]
        fuzz(given.doors[0], [*limits, f"-max_total_time={given.seconds}", f"-artifact_prefix=fuzz-{given.doors[0]}-"])
    failed = []
    for name in given.doors:
        options = ["--alone", "--seconds", str(given.seconds), "--seed", str(given.seed)]
        if subprocess.run([sys.executable, __file__, name, *options], check=False).returncode:
            failed.append(name)
    print(
        f"{len(given.doors) - len(failed)} of {len(given.doors)} doors held{': not ' * bool(failed)}{', '.join(failed)}"
    )
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
