"""Try random calls on a device: whatever it accepts it must build, run and compute, and what it refuses have a reason.

    python tools/fuzz_calls.py --device cpu --calls 100000 --seed 1

Operators, dtypes, attributes, shapes, layouts, special values and in-place use are drawn by the seed and the number of
the call, and each call is judged as a case of `isokern check` is. Exits with 1 where a claim is false. `--only N` makes
one call again. `--programs N` draws shapes and dtypes for N calls only and gives each several layouts and values, for
devices that compile a program for each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from isokern import IsokernError
from isokern.backend import Device
from isokern.backend.discovery import device as find_device
from isokern.backend.dispatch import consider
from isokern.conformance.run import Runner
from isokern.declare.operator import Operator, Sample
from isokern.declare.samples import assignments, describe, fits
from isokern.ops import all_operators, find
from isokern.oracle.cases import Case
from isokern.oracle.layouts import LAYOUTS, OVERLAPS
from isokern.oracle.values import CHECKED
from isokern.oracle.verdicts import Outcome, Verdict

LARGEST = 40  # elements of a dim that is drawn
MOST = 20_000  # elements of a tensor
TOLD = 60.0  # seconds after which a line says how far it is
SHOWN = 20  # failures that are printed


def draw_sample(operator: Operator, sample: Sample, rng: np.random.Generator) -> Sample:
    """Return the sample with other sizes: equal ones stay equal, whole blocks stay whole, and 0 and 1 stay.

    One whose values depend on the sizes is returned as it is.
    """
    domains = {**operator.domains, **sample.values}
    if sample.outputs or any(d.startswith(CHECKED) for d in domains.values()):
        return sample
    sizes: dict[int, int] = {}

    def change(shape: Sequence[int]) -> tuple[int, ...]:
        for n in shape:
            if n > 1 and n not in sizes:
                sizes[n] = int(rng.integers(1, 5)) * 32 if n % 32 == 0 else int(rng.integers(1, LARGEST))
        return tuple(sizes.get(n, n) for n in shape)

    shapes = {
        name: [change(s) for s in given] if isinstance(given, list) else None if given is None else change(given)
        for name, given in sample.shapes.items()
    }
    return Sample(shapes, sample.attrs, types=sample.types, values=sample.values)


def draw_case(seed: int, number: int, operators: Sequence[Operator], programs: int) -> Case:
    """Return the case of that number."""
    rng = np.random.default_rng((seed, number % programs if programs else number))
    operator = operators[rng.integers(len(operators))]
    choices = assignments(operator)
    types = choices[rng.integers(len(choices))]
    usable = [s for s in operator.samples() if s.size == "small" and fits(operator, s, types)]
    if not usable:
        return draw_case(seed + 1, number, operators, programs)
    sample = usable[rng.integers(len(usable))]
    drawn = draw_sample(operator, sample, rng)
    try:
        inputs, outputs = describe(operator, drawn, types)
        operator.resolve(inputs, outputs, drawn.attrs)
        if fits(operator, drawn, types) and all(d is None or d.numel <= MOST for d in (*inputs, *outputs)):
            sample = drawn
    except (IsokernError, IndexError):  # the operator does not allow these sizes together
        pass
    inputs, outputs = describe(operator, sample, types)
    rng = np.random.default_rng((seed, number, 1))
    aliases = [
        name
        for name, given in sample.shapes.items()
        if name in operator.aliases and not operator.inout and given is not None and tuple(given) == outputs[0].shape
    ]
    if aliases and outputs[0].numel and rng.random() < 0.2:
        layout = OVERLAPS[rng.integers(3)]
        return Case(operator, tuple(types.values()), sample, layout, alias=aliases[rng.integers(len(aliases))])
    layouts = list(LAYOUTS)
    special = bool(operator.signature.inputs) and rng.random() < 0.25
    values = "special" if special else "drawn"
    return Case(operator, tuple(types.values()), sample, layouts[rng.integers(len(layouts))], values)


def judge(runner: Runner, case: Case) -> Outcome:
    """Return the outcome of a case; a refusal by the attempt to build what `supported` had accepted is a failure."""
    outcome = runner.run(case)
    if outcome.verdict is Verdict.UNSUPPORTED:
        inputs, outputs = describe(case.operator, case.sample, case.bound_types)
        resolved = case.operator.resolve(inputs, outputs, case.sample.attrs)
        _, chosen, _ = consider(runner.device, resolved)
        if chosen is not None and case.layout in ("contiguous", "bare"):
            detail = f"variant {chosen.name} supports it, and it could not be built: {outcome.detail}"
            return Outcome(case.id, runner.device.name, Verdict.FAIL_CLAIM, detail)
    return outcome


def fuzz(device: Device, operators: Sequence[Operator], seed: int, numbers: Sequence[int], programs: int) -> int:
    """Make the calls, print what is wrong, and return how many are."""
    runner, count, start = Runner(device, on_missing="error"), Counter[str](), time.monotonic()
    failed, told = 0, start
    for done, number in enumerate(numbers, 1):
        case = draw_case(seed, number, operators, programs)
        outcome = judge(runner, case)
        count[outcome.verdict.value] += 1
        if outcome.verdict.failed:
            failed += 1
            if failed <= SHOWN:
                again = f"python tools/fuzz_calls.py --device {device.name} --seed {seed} --only {number}"
                again += f" --programs {programs}" if programs else ""
                print(f"{outcome.verdict.value}: {case.id}: {outcome.detail}\n    {again}", flush=True)
        if time.monotonic() > told + TOLD or done == len(numbers):
            told = time.monotonic()
            counts = ", ".join(f"{n} {name}" for name, n in count.most_common())
            seconds = f"{time.monotonic() - start:.0f} s"
            print(f"{device.name}, seed {seed}: {done} calls in {seconds}: {counts}; {failed} false claims", flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", required=True)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="N", help="make this call alone")
    parser.add_argument("--programs", type=int, default=0, metavar="N", help="calls that differ in shapes and dtypes")
    parser.add_argument("--op", action="append", help="only this operator, repeatable")
    given = parser.parse_args(arguments)
    operators = [find(name) for name in given.op] if given.op else all_operators()
    numbers = range(given.calls) if given.only is None else [given.only]
    return 1 if fuzz(find_device(given.device), operators, given.seed, numbers, given.programs) else 0


if __name__ == "__main__":
    sys.exit(main())
