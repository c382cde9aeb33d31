"""`isokern-xpu profile`: count what the kernels of one call do on the emulator; it does not measure time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from isokern.backend import Device
from isokern.cli._output import Json, emit, table
from isokern.cli.why import GRAMMAR, NONE, resolve
from isokern.layout import TensorDesc
from isokern.status import InvalidArgument
from isokern.tensors import Tensor

from ..settings import CHECK, PROFILE

COUNTERS = (
    *("fences", "barriers", "gm_loads", "gm_stores", "vector_loads", "vector_stores"),
    *("scalar_loads", "scalar_stores", "atomics"),
)
DIRECTIONS = ("GM2LM", "LM2GM", "GM2SM", "SM2GM", "GM2GSM", "GSM2GM")


@dataclass
class LaunchProfile:
    """One launch: the kernel, its grid, and the counters of every core (missing: 0).

    `available` is the device's number of clusters.
    """

    kernel: str
    clusters: int
    cores: int
    available: int
    sm: int
    per_core: list[dict[str, Any]]

    def copies(self, direction: str) -> tuple[int, int, int]:
        """Return copies, bytes, and the 64-byte lines of device memory that the copies touched."""
        found = [core.get(direction, {}) for core in self.per_core]
        copies, nbytes, lines = (sum(f.get(name, 0) for f in found) for name in ("copies", "bytes", "lines"))
        return copies, nbytes, lines

    def total(self, counter: str) -> int:
        """Return a counter's sum over the cores."""
        return sum(core.get(counter, 0) for core in self.per_core)

    def loads(self) -> np.ndarray[Any, Any]:
        """Return the bytes that each core moved: [cluster, core]."""
        moved = np.zeros((self.clusters, self.cores), np.int64)
        for core in self.per_core:
            moved[core["cluster"], core["core"]] = sum(core.get(d, {}).get("bytes", 0) for d in DIRECTIONS)
        return moved

    def document(self) -> dict[str, Any]:
        """Return the counters as `--json` prints them."""
        loads = self.loads()
        mean = float(loads.mean())
        directions = {d: self.copies(d) for d in DIRECTIONS}
        idle = int((loads == 0).sum())
        return {
            "kernel": self.kernel,
            "clusters": self.clusters,
            "cores": self.cores,
            "busy_cores": loads.size - idle,
            "device_cores": self.available * self.cores,
            "copies": {
                d: {
                    "copies": n,
                    "bytes": nbytes,
                    "mean_burst": nbytes / n,
                    "bytes_per_line": nbytes / lines if lines else None,
                }
                for d, (n, nbytes, lines) in directions.items()
                if n
            },
            **{name: self.total(name) for name in COUNTERS},
            "lm_high_water": max((core.get("lm", 0) for core in self.per_core), default=0),
            "sm_high_water": self.sm,
            "idle_cores": idle,
            "busiest_over_mean": float(loads.max()) / mean if mean else None,
        }


def profile(
    op: Annotated[str, typer.Argument(help="The operator.")],
    call: Annotated[
        list[str] | None, typer.Argument(help=f"Tensors {GRAMMAR}; attributes NAME=VALUE; types T=F16. {NONE}")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="The dtype of the first sample.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="A .png or .svg: bytes moved by each core. Needs the extra `plot`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run one call on the emulated XPU and count its copies, bytes, fences and barriers."""
    if picture is not None and picture.suffix not in (".png", ".svg"):
        raise InvalidArgument("profile", f"picture {picture}", allowed="a name that ends in .png or .svg")
    launches = measure(op, call or [], dtype)
    if picture is not None:
        draw(launches, picture)
    if as_json:
        emit([launch.document() for launch in launches])
        return
    table("", ["launches", "copies", "bytes"], [totals(launches)], right=["launches", "copies", "bytes"])
    for launch in launches:
        show(launch)


def totals(launches: Sequence[LaunchProfile]) -> list[int]:
    """Return launches, copies and bytes of a call."""
    counted = [launch.copies(d) for launch in launches for d in DIRECTIONS]
    return [len(launches), sum(copies for copies, _, _ in counted), sum(nbytes for _, nbytes, _ in counted)]


def measure(op: str, call: Sequence[str], dtype: str | None) -> list[LaunchProfile]:
    """Run one call on the checked kernels of this process's emulated device and return its launches."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "launches"
        os.environ[CHECK], os.environ[PROFILE] = "1", str(path)
        from isokern import device as find_device
        from isokern.call.descriptor import Descriptor
        from isokern.ops import find

        device = find_device("kunlun_sim:0")
        resolved = resolve(find(op), call, dtype)
        inputs = [None if d is None else _fill(d, device) for d in resolved.inputs]
        descriptor = Descriptor(device, resolved)
        outputs = [_fill(d, device) for d in resolved.outputs]
        space = descriptor.alloc_workspace()
        path.unlink(missing_ok=True)  # drop the launches that filled the buffers
        descriptor.calculate(inputs, outputs, workspace=space)
        device.synchronize()
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    available = device.properties["clusters"]
    return [LaunchProfile(f["kernel"], f["clusters"], f["cores"], available, f["sm"], f["per_core"]) for f in found]


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
