"""The sources that compilers get of a kernel file: one for each way in which conformance samples specialise it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from isokern import TensorDesc
from isokern.cabi.plan import Plan
from isokern.declare.operator import Operator
from isokern.declare.samples import Descs, assignments, describe, fits
from isokern.ops import all_operators, find
from isokern.oracle.layouts import arrangements, place
from isokern.simt import Launch, Traits
from isokern.simt.kernel import launches_of
from isokern.simt.launch_block import launches
from isokern.simt.source import KERNELS

CUDA = Path(__file__).parents[2] / "plugins/cuda/src/isokern_cuda"
PRELUDE = CUDA / "prelude.h"
PORTABLE = sorted(KERNELS.glob("*.c"))
LAYOUTS = ("contiguous", "gaps", "broadcast", "permuted_in", "permuted_out")
ROW = ("#define IK_ROW", "#define IK_OP_", "#define IK_COMPUTE_")  # lines of what the plan fixes
TYPES = ("#define IK_TYPE_", "#define IK_SIZE_", "#define IK_CODEBOOK_")
PARAMS = "#define IK_KERNEL_"  # follows from the types, and from which operands are there
FEW = 4  # samples of an elementwise operator in each type but the first: the types do not decide how it is launched


def plans(operator: Operator) -> Iterator[Plan]:
    """Yield the plans of all samples in each dtype, with several layouts of small ones; no memory is allocated."""
    for turn, types in enumerate(assignments(operator)):
        fitting = [s for s in operator.samples() if fits(operator, s, types)]
        for sample in fitting[:FEW] if turn and operator.stem == "elementwise" else fitting:
            inputs, outputs = describe(operator, sample, types)
            for layout in LAYOUTS if sample.size == "small" else LAYOUTS[:1]:
                kinds = arrangements(layout, len(outputs), len(inputs))
                placed: Descs = [
                    d and place(k, d.dtype, d.shape)[0] for k, d in zip(kinds, [*outputs, *inputs], strict=True)
                ]
                made = [d for d in placed[: len(outputs)] if d is not None]
                yield Plan(operator.resolve(placed[len(outputs) :], made, sample.attrs))


def _parts(launch: Launch, optional: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield what the plan fixes for a launch, in parts that are independent of each other."""
    row, types = [launch.entry], ["types"]
    rest = [launch.entry, "rest", f"workspace {launch.workspace}", f"reports {launch.reports}"]
    for line in launch.origin[2].splitlines():
        if optional and line.startswith(optional):
            yield ("types", line)
        elif not line.startswith(PARAMS):
            (row if line.startswith(ROW) else types if line.startswith(TYPES) else rest).append(line)
    yield from (tuple(row), tuple(types), tuple(rest))


@cache
def specialisations(path: Path, devices: tuple[Traits, ...]) -> list[Launch]:
    """Return the distinct sources of a file on devices with these traits, with CUDA's prelude.

    A row's expression, the types in memory, those of each optional operand, and all else that the plan fixes are
    independent of each other: each occurs in a source, but not every combination of them.
    """
    found: dict[tuple[str, ...], Launch] = {}
    for operator in all_operators():
        optional = tuple(f"{kind}{o.name} " for o in operator.signature.inputs if o.optional for kind in TYPES)
        for plan in plans(operator) if operator.stem == path.stem else ():
            for traits in devices:
                for launch in launches_of(PRELUDE, path, plan, launches(path).choose(plan, traits)):
                    keys = set(_parts(launch, optional))
                    if not keys <= found.keys():
                        found |= dict.fromkeys(keys, launch)
    return list({launch.digest: launch for launch in found.values()}.values())


def first(path: Path, devices: tuple[Traits, ...]) -> list[Launch]:
    """Return the sources of a file for the first plan that a conformance sample makes, on devices with these traits."""
    operator = next(op for op in all_operators() if op.stem == path.stem)
    plan = next(plans(operator))
    return [
        launch for traits in devices for launch in launches_of(PRELUDE, path, plan, launches(path).choose(plan, traits))
    ]


def planted(folder: Path, line: str, body: str, helper: str = "", traits: Traits | None = None) -> Launch:
    """Write an entry `broken` with that line in the launch block, and return its launch.

    It computes y = relu(x) of 64 elements in F32; `helper` precedes it.
    """
    path = folder / "broken.c"
    path.write_text(
        f'/* launch\n * {line}\n */\n#include "simt.h"\n\n{helper}\nIK_ENTRY(broken)(IK_PARAMS)\n{{\n    {body}\n}}\n'
    )
    plan = Plan(find("relu").resolve([TensorDesc("F32", (64,))], [TensorDesc("F32", (64,))], {}))
    (launch,) = launches_of(PRELUDE, path, plan, launches(path).choose(plan, traits or Traits()))
    return launch
