"""`isokern bench`: time calls of operators or programs, with the machine's measured limits and other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..status import InvalidArgument, NotImplementedOnDevice
from ._output import Json, emit, note, quiet, table

if TYPE_CHECKING:
    from ..backend import Device
    from ..bench.cases import Measurement
    from ..declare.operator import Operator
    from ..dtypes import DType


def bench(
    device: Annotated[
        list[str] | None, typer.Option("--device", help="A device, repeatable; else every available one.")
    ] = None,
    op: Annotated[list[str] | None, typer.Option("--op", help="An operator, repeatable; else every one.")] = None,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help="A device to compare with, timed in the same rounds; repeatable."),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            "--size",
            help="small, medium (in cache), large (from memory) or huge (256 MB and more, products of 4096³ and"
            " 8192³).",
        ),
    ] = "medium",
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Dtypes, separated by commas; else F32, or an operator's first.")
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            "--graph",
            metavar="MODEL",
            help="Time a model's program instead, compared with ONNX Runtime if that is installed.",
        ),
    ] = None,
    lowered: Annotated[
        bool,
        typer.Option("--lowered", help="Compare each call with the same call decomposed into other operators."),
    ] = False,
    calls: Annotated[bool, typer.Option("--calls", help="Measure the overhead of a call from Python instead.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to time each call.", min=0.001)] = 0.05,
    json: Json = False,
) -> None:
    """Time operators, compared with NumPy and the limits of this machine.

    Prints the time of a call, GB/s or GFLOP/s, its share of this machine's copy bandwidth or multiply-add peak, and
    NumPy's time, all from one run.
    """
    with quiet(json):
        targets = _devices(device)
        if graph is not None:
            found = _graph(targets, graph, seconds)
        else:
            found = (
                _calls(targets, seconds) if calls else _cases(targets, op, size, dtype, seconds, against or (), lowered)
            )
    if json:
        emit([asdict(m) for m in found])
    else:
        what = "programs" if graph is not None else f"{size} samples"
        _show(found, "calls of one element, and captured lists" if calls else what)


def _devices(names: Sequence[str] | None) -> list[Device]:
    from ..backend.discovery import device, devices

    return [device(n) for n in names] if names else devices() or [device(None)]


def _graph(targets: Sequence[Device], name: str, seconds: float) -> list[Measurement]:
    from ..bench.graphs import measure_graph
    from .graph import find

    found = [measure_graph(target, find(name), seconds) for target in targets]
    for m in found:
        for peer, why in m.left_out.items():
            note(f"bench: {peer} is left out on {m.device}: {why}")
    return found


def _calls(targets: Sequence[Device], seconds: float) -> list[Measurement]:
    from ..bench.calls import measure_calls
    from ..bench.lists import measure_list

    return [m for target in targets for m in (*measure_calls(target, seconds), *measure_list(target, seconds))]


def _cases(
    targets: Sequence[Device],
    names: Sequence[str] | None,
    size: str,
    dtypes: str | None,
    seconds: float,
    against: Sequence[str],
    lowered: bool,
) -> list[Measurement]:
    from ..backend.discovery import device
    from ..backend.dispatch import say_parts
    from ..bench.cases import measure
    from ..measure.sizes import SIZES, samples
    from ..ops import all_operators, find

    if size not in SIZES:
        raise InvalidArgument("bench", f"--size {size}", allowed=", ".join(SIZES))
    operators = [find(n) for n in names] if names else all_operators()
    rivals = [device(name) for name in against]
    found, refused = [], []
    for target in targets:
        for op in operators:
            for element in _dtypes(op, dtypes, bool(names)):
                for sample in samples(op, size, element):
                    try:
                        found.append(measure(target, op, sample, element, seconds, rivals, lowered=lowered))
                    except NotImplementedOnDevice as error:
                        refused.append(error)
    for (name, on), m in {(m.op, m.device): m for m in found if m.made_of}.items():
        note(f"bench: {on} has no kernel for {name}, which is {say_parts(m.made_of)}")
    untimed = [(m, name, why) for m in found for name, why in m.left_out.items()]
    if untimed:
        m, name, why = untimed[0]
        note(
            f"bench: {len(untimed)} calls of peers are left out, for instance {name}'s {m.op} of {m.dtype}, {m.case}:"
            f" {why}"
        )
    if refused and found:
        note(f"bench: {len(refused)} cases are left out, for instance: {refused[0]}")
    if refused and not found:
        raise refused[0]
    if not found:
        raise InvalidArgument("bench", "no sample of that size in that dtype", hint="see `isokern ops`")
    return found


def _dtypes(op: Operator, given: str | None, named: bool) -> list[DType]:
    """Return the dtypes to time.

    One that an operator does not take is an error if the operator is named, else it is skipped.
    """
    from .. import dtypes
    from ..declare.samples import principal

    allowed = principal(op)[1]
    if given is None:
        return [dtypes.F32 if dtypes.F32 in allowed else allowed[0]]
    wanted = [dtypes.dtype(d.strip()) for d in given.split(",")]
    wrong = [d for d in wanted if d not in allowed]
    if wrong and named:
        raise InvalidArgument(op.name, f"--dtype {wrong[0]}", allowed=dtypes.names(allowed))
    return [d for d in wanted if d in allowed]


def _show(found: Sequence[Measurement], title: str) -> None:
    lines = []
    for m in found:
        share = "-" if m.share_of_limit is None else f"{m.share_of_limit:.2f}"
        peers = ", ".join(f"{name} {t:.4g} ({t / m.time_us:.2f}×)" for name, t in m.peers.items()) or "-"
        lines.append([m.op, m.device, m.dtype, m.case, f"{m.time_us:.4g}", f"{m.rate:.4g}", m.rate_unit, share, peers])
    columns = ["operator", "device", "dtype", "case", "µs", "rate", "unit", "of limit", "peers, µs (× ours)"]
    table(f"Bench: {title}", columns, lines, right=["µs", "rate", "of limit"])
