"""Time each operator's first call, a process each, on open devices: `python tools/first_calls.py opencl:0 cpu:0`.

Each operator is called with its first small sample that has elements, in the first dtypes that have one. The first run
may build kernels; the others of `--runs` find these in the disk cache. Prints the medians over operators, and the
slowest of each run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

CALL = (
    "import sys; sys.path.insert(0, sys.argv[1]); from first_calls import first_call; "
    "first_call(sys.argv[2], sys.argv[3])"
)


def first_call(device_name: str, name: str) -> None:
    """Make one call in this process and print its seconds until the result is there.

    They are those of the wall clock and of the processor.
    """
    import numpy as np

    import isokern
    from isokern.declare.samples import assignments, describe, fits
    from isokern.ops import find

    device, operator = isokern.device(device_name), find(name)
    types, sample = next(
        (t, s)
        for t in assignments(operator)
        for s in operator.samples()
        if s.size == "small" and fits(operator, s, t) and all(d.numel for d in describe(operator, s, t)[1])
    )
    inputs, outputs = describe(operator, sample, types)
    tensors = [d and isokern.Tensor(d, device.memory.alloc(d.nbytes, d.dtype)) for d in (*outputs, *inputs)]
    for tensor in tensors:
        if tensor is not None:
            tensor.buffer.write(np.zeros(tensor.desc.nbytes, np.uint8))
    wall, processor = time.perf_counter(), time.process_time()
    made = isokern.create(name, inputs, outputs, device=device, **sample.attrs)
    made.calculate(tensors[len(outputs) :], tensors[: len(outputs)], workspace=made.alloc_workspace())
    device.synchronize()
    print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]))


def calls(device: str, names: list[str]) -> Iterator[tuple[str, float, float]]:
    """Yield each operator with the wall and processor seconds of its first call in a process of its own."""
    from pathlib import Path

    for name in names:
        command = [sys.executable, "-c", CALL, str(Path(__file__).parent), device, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{device} {name}: {done.stderr.strip().splitlines()[-1]}")
            continue
        wall, processor = json.loads(done.stdout.splitlines()[-1])
        yield name, wall, processor


def main() -> None:
    """Measure, and print a line for each run."""
    from isokern.ops import all_operators

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="+", help="as isokern.device takes them")
    parser.add_argument("--op", action="append", help="only these operators")
    parser.add_argument("--runs", type=int, default=2, help="how often each is measured")
    given = parser.parse_args()
    names = given.op or [operator.name for operator in all_operators()]
    for device in given.devices:
        for run in range(given.runs):
            found = list(calls(device, names))
            if not found:
                break
            middle = [1e3 * statistics.median(f[i] for f in found) for i in (1, 2)]
            print(
                f"{device} run {run + 1}: {len(found)} operators, median {middle[0]:.1f} ms, "
                f"{middle[1]:.1f} ms of the processor; slowest",
                end=" ",
            )
            slowest = sorted(found, key=lambda f: -f[2])[:3]
            print(", ".join(f"{n} {1e3 * w:.1f} ms ({1e3 * p:.1f})" for n, w, p in slowest))


if __name__ == "__main__":
    main()
