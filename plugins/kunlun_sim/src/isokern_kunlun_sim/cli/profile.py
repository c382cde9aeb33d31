"""`isokern-xpu profile`: count what the kernels of one call, or one's own, do on the emulator."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from isokern.backend import Device
from isokern.cli._output import Json, emit, table
from isokern.cli._own_kernels import Define, Include, compiler_options
from isokern.cli.why import GRAMMAR, NONE, resolve
from isokern.layout import TensorDesc
from isokern.status import InvalidArgument
from isokern.tensors import Tensor

from ..compiling import read
from ..settings import CHECK
from .counts import COUNTERS, DIRECTIONS, LaunchProfile, record
from .host_program import has_main
from .run import Clusters, Cores, KernelName, compile_kernels, find_launches
from .session import KernelFailed, Session, kernels_of, open_emulator

TIMED = 5  # runs in fast mode, of which the median is shown


def profile(
    op: Annotated[str, typer.Argument(help="The operator, or your own .xpu file.")],
    call: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Tensors {GRAMMAR}; attributes NAME=VALUE; types T=F16. {NONE} For a file: as for `isokern-xpu run`."
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="The dtype of the first sample.")] = None,
    kernel: KernelName = "",
    clusters: Clusters = 0,
    cores: Cores = 64,
    define: Define = None,
    include: Include = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the bytes that each core moves to a .png or .svg file. Needs the extra `plot`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run one call on the emulated XPU and count its copies, bytes, fences and barriers.

    Kernels of a file are also timed: in fast mode, with all arrays copied before. That is the emulator's time.
    """
    if picture is not None and picture.suffix not in (".png", ".svg"):
        raise InvalidArgument("profile", f"picture {picture}", allowed="a name that ends in .png or .svg")
    milliseconds = None
    if op.endswith(".xpu"):
        options = compiler_options(define, include)
        launches, milliseconds = measure_file(Path(op), call or [], kernel, clusters, cores, options)
    else:
        launches = measure(op, call or [], dtype)
    if picture is not None:
        draw(launches, picture)
    if as_json:
        emit([launch.document() for launch in launches])
        return
    table("", ["launches", "copies", "bytes"], [totals(launches)], right=["launches", "copies", "bytes"])
    for launch in launches:
        show(launch)
    if milliseconds is not None:
        typer.echo(f"{milliseconds:.2f} ms on the emulator in fast mode (no card's time), the median of {TIMED} runs")


def measure_file(
    source: Path, arguments: Sequence[str], kernel: str, clusters: int, cores: int, options: Sequence[str]
) -> tuple[list[LaunchProfile], float]:
    """Run the launches of one's own kernels, and return what they did and their time in milliseconds."""
    if not source.is_file():
        raise InvalidArgument("profile", f"{source} is no file", allowed="an operator, or a .xpu file")
    if not kernel and has_main(read(source)):
        hint = "name a kernel with --kernel; for the host program, isokern-xpu run counts its launches"
        raise InvalidArgument("profile", f"{source} has a host program", hint=hint)
    os.environ[CHECK] = "1"
    launches = find_launches(source, arguments, kernel, clusters, cores, options)
    names = kernels_of(launches)
    checked, fast = (compile_kernels(source, names, mode, options) for mode in ("checked", "fast"))
    try:
        with record() as recorded:
            session = Session(open_emulator(), checked, launches)
            session.run()
            found = recorded.launches(session.available)
        timed, seconds = Session(session.runtime, fast, launches), []
        for _ in range(TIMED):
            timed.run(show=False)
            seconds.append(timed.seconds)
    except KernelFailed as error:
        typer.secho(str(error), fg="red", err=True)
        sys.exit(1)
    return found, 1000 * statistics.median(seconds)


def totals(launches: Sequence[LaunchProfile]) -> list[int]:
    """Return launches, copies and bytes of a call."""
    counted = [launch.copies(d) for launch in launches for d in DIRECTIONS]
    return [len(launches), sum(copies for copies, _, _ in counted), sum(nbytes for _, nbytes, _ in counted)]


def measure(op: str, call: Sequence[str], dtype: str | None) -> list[LaunchProfile]:
    """Run one call on the checked kernels of this process's emulated device and return its launches."""
    os.environ[CHECK] = "1"
    with record() as recorded:
        from isokern import device as find_device
        from isokern.call.descriptor import Descriptor
        from isokern.ops import find

        device = find_device("kunlun_sim:0")
        available = device.properties["clusters"]
        resolved = resolve(find(op), call, dtype)
        inputs = [None if d is None else _fill(d, device) for d in resolved.inputs]
        descriptor = Descriptor(device, resolved)
        outputs = [_fill(d, device) for d in resolved.outputs]
        space = descriptor.alloc_workspace()
        recorded.launches(available)  # drop the launches that filled the buffers
        descriptor.calculate(inputs, outputs, workspace=space)
        device.synchronize()
        return recorded.launches(available)


def _fill(desc: TensorDesc, device: Device) -> Tensor:
    """Return a tensor of the layout, zero everywhere, so that indices are in range."""
    _, end = desc.byte_range
    return Tensor(desc, device.memory.alloc(end, desc.dtype))


def show(launch: LaunchProfile) -> None:
    """Print a table of the counters."""
    document = launch.document()
    rows: list[list[Any]] = [
        [
            d,
            c["copies"],
            c["bytes"],
            f"{c['mean_burst']:.0f}",
            "-" if c["bytes_per_line"] is None else f"{c['bytes_per_line']:.1f}",
        ]
        for d, c in document["copies"].items()
    ]
    title = f"{launch.kernel}<<<{launch.clusters}, {launch.cores}>>>"
    numbers = ["copies", "bytes", "bytes a copy", "bytes a 64-byte line"]
    table(title, ["direction", *numbers], rows, right=numbers)
    names = (*COUNTERS, "lm_high_water", "sm_high_water")
    rest = [["cores busy", f"{document['busy_cores']} of {document['device_cores']}"]]
    rest += [[name.replace("_", " "), document[name]] for name in names if document[name]]
    if document["busiest_over_mean"] is not None:
        rest.append(["busiest core over mean", f"{document['busiest_over_mean']:.2f}"])
    table("", ["counter", "value"], rest, right=["value"])


def draw(launches: Sequence[LaunchProfile], path: Path) -> None:
    """Draw the bytes moved by each core, with one plot for each launch."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidArgument(
            "profile", "matplotlib is not installed", hint="pip install 'isokern-kunlun-sim[plot]'"
        ) from None
    figure = Figure(figsize=(10, 1.2 + 2.2 * len(launches)), layout="constrained")
    for number, launch in enumerate(launches, 1):
        axes = figure.add_subplot(len(launches), 1, number)
        image = axes.imshow(launch.loads(), aspect="auto", interpolation="nearest")
        axes.set(title=f"{launch.kernel}<<<{launch.clusters}, {launch.cores}>>>", xlabel="core", ylabel="cluster")
        figure.colorbar(image, ax=axes, label="bytes moved")
    figure.savefig(path)
