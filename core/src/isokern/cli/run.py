"""`isokern run`: an ONNX model on any device, with files or random numbers as inputs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ..arguments import regular_file, writable_file
from ..status import InvalidArgument, quote
from ._output import Json, emit, note, progress, quiet, table

if TYPE_CHECKING:
    from ..onnx import Model, TensorInfo

Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=N", help="The size of a dim to which the ONNX model gives only a name; repeatable."
    ),
]
RANDOM = "random"


def run(
    model: Annotated[Path, typer.Argument(help="An ONNX file; needs isokern[onnx].")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=FILE", help="A .npy file, or `random`, which is the default; repeatable."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="The device; else the default one.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the results to this .npz file.")
    ] = None,
    dim: Dims = None,
    dynamic: Annotated[
        bool,
        typer.Option("--dynamic", help="Accept any size of the inputs' first dim, although the model gives a number."),
    ] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="The number of timed runs, after the first.")] = 10,
    prepack: Annotated[
        bool, typer.Option("--prepack/--no-prepack", help="Convert parameters to the layouts that kernels prefer.")
    ] = True,
    seed: Annotated[int, typer.Option("--seed", help="The seed of random inputs.")] = 0,
    json: Json = False,
) -> None:
    """Run an ONNX model; print its results and how long it took.

    In random inputs, a dim that has only a name is 1, unless --dim or an input file gives its size.
    """
    from ..onnx import load

    if output is not None:
        writable_file("run", str(output))
    with quiet(json), progress(2 + repeat) as begin_step:
        begin_step("reading")
        begin = time.perf_counter()
        loaded = load(model, device, dims=read_dims(dim), prepack=prepack, dynamic=dynamic)
        loading = time.perf_counter() - begin
        if not json:
            note(f"{loaded.name}: read in {loading:.2f} s; compiling for {loaded.device.name}")
        feeds = _feeds(loaded, inputs or [], seed)
        begin_step(f"compiling for {loaded.device.name}")
        begin = time.perf_counter()
        found = loaded.run(feeds)
        first, times = time.perf_counter() - begin, []
        for n in range(repeat):
            begin_step(f"run {n + 1} of {repeat}")
            begin = time.perf_counter()
            loaded.run(feeds)
            times.append(time.perf_counter() - begin)
        arrays = dict(
            zip([t.name for t in loaded.outputs], found if isinstance(found, tuple) else (found,), strict=True)
        )
        if output is not None:
            with open(output, "wb") as file:
                np.savez(file, **arrays)
    median = float(np.median(times))
    if json:
        facts = {"load_s": loading, "first_run_s": first, "run_s": median, "runs": repeat}
        outputs = [{"name": n, "dtype": str(y.dtype), "shape": list(y.shape), **_facts(y)} for n, y in arrays.items()]
        emit({"model": str(model), "device": loaded.device.name, **facts, "outputs": outputs})
        return
    columns = ["result", "dtype", "shape", "least", "largest", "mean"]
    rows = [
        [n, y.dtype, list(y.shape), *("" if v is None else f"{v:.6g}" for v in _facts(y).values())]
        for n, y in arrays.items()
    ]
    table(f"{loaded.name} on {loaded.device.name}", columns, rows, right=columns[3:])
    note(f"compiled and run in {first:.2f} s; then {median * 1e3:.3f} ms, the median of {repeat} runs")


def read_dims(given: Sequence[str] | None) -> dict[str, int]:
    """Return the dims of `--dim batch=8`."""
    found = {}
    for text in given or []:
        name, equals, number = text.partition("=")
        if not name or not equals or not number.isascii() or not number.isdigit():
            raise InvalidArgument("run", f"--dim {quote(text)}", allowed="NAME=N, a whole number")
        found[name] = int(number)
    return found


def _feeds(loaded: Model, given: Sequence[str], seed: int) -> dict[str, Any]:
    """Return the arrays of files, and random ones for the other inputs, of the same dims if these have names."""
    sources = {}
    for text in given:
        name, equals, source = text.partition("=")
        if not equals or not source:
            raise InvalidArgument("run", f"--input {quote(text)}", allowed="NAME=FILE or NAME=random")
        sources[name] = source
    known = {t.name: t for t in loaded.inputs}
    if strange := [name for name in sources if name not in known]:
        raise InvalidArgument(
            "run", f"input {', '.join(strange)}", allowed=", ".join(map(str, known.values())) or "none"
        )
    feeds = {name: _read(name, source) for name, source in sources.items() if source != RANDOM}
    dims = {
        told: dim
        for name, array in feeds.items()
        for told, dim in zip(known[name].shape, array.shape, strict=False)
        if isinstance(told, str)
    }
    random = np.random.default_rng(seed)
    return {t.name: feeds[t.name] if t.name in feeds else _draw(t, dims, random) for t in loaded.inputs}


def _read(name: str, path: str) -> Any:
    regular_file("run", path, exists=True)
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidArgument("run", f"input {name}: {path}: {error}", allowed="an .npy file") from None


def _draw(info: TensorInfo, dims: dict[str, int], random: np.random.Generator) -> Any:
    """Return normal numbers, or zeros where whole numbers go, which are in range for any table."""
    from ..onnx.elements import numpy_dtype

    shape = tuple(dims.get(d, 1) if isinstance(d, str) else d for d in info.shape)
    kind = numpy_dtype(info.element)
    whole = kind.kind in "iub" or "int" in kind.name
    return np.zeros(shape, kind) if whole else random.standard_normal(shape).astype(kind)


def _facts(y: Any) -> dict[str, float | None]:
    if not y.size:
        return {"least": None, "largest": None, "mean": None}
    wide = y.astype(np.float64)
    return {"least": float(wide.min()), "largest": float(wide.max()), "mean": float(wide.mean())}
