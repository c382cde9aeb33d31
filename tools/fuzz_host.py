"""Fuzz the C verbs of the CPU library with random changes of valid calls.

The operators' samples make a corpus of valid calls, which the driver tools/fuzz_host.c changes at random. Run it where
the library is built with sanitizers, with their runtime preloaded, as `tox -e conformance-cpu-sanitize` does.
"""

from __future__ import annotations

import argparse
import os
import shlex
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import isokern_cpu
from isokern.cabi.plan import _pack
from isokern.declare.samples import assignments, describe, fits
from isokern.ops import all_operators

HERE = Path(__file__).parent
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1", "-O1"]


def write_corpus(path: Path) -> int:
    """Write every small sample in the first and the last dtypes that fit it, as fuzz_host.c reads it.

    Return how many calls there are.
    """
    count = 0
    with open(path, "wb") as file:
        for op in all_operators():
            for sample in (s for s in op.samples() if s.size == "small"):
                together = [types for types in assignments(op) if fits(op, sample, types)]
                for types in (together[0], together[-1]) if together else ():
                    inputs, outputs = describe(op, sample, types)
                    blob = op.attrs.pack(op.attrs.check(op.name, sample.attrs)) if op.attrs.attrs else b""
                    descs = [*outputs, *inputs]
                    file.write(
                        struct.pack("<IIIQQ", op.kind_id, len(descs), len(outputs), op.attrs.schema_id, len(blob))
                    )
                    file.write(blob + b"".join(bytes(_pack(d)) for d in descs))
                    count += 1
    return count


def main() -> int:
    """Build the driver, run it, and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    library = Path(isokern_cpu.get_library())
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # the driver has its own
    with tempfile.TemporaryDirectory() as folder:
        corpus, driver = Path(folder, "corpus"), Path(folder, "fuzz_host")
        print(f"{write_corpus(corpus)} right calls")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        command = [
            *compiler,
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            *SANITIZE,
            f"-I{HERE.parent / 'plugins/cpu/generated'}",
            HERE / "fuzz_host.c",
        ]
        linked = [library, f"-Wl,-rpath,{library.parent}", "-o", driver]
        subprocess.run([*command, *linked], check=True, env=environment)
        done = subprocess.run([driver, corpus, str(given.calls), str(given.seed)], check=False, env=environment)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
