"""Time models of torchvision and transformers here and in ONNX Runtime and PyTorch, in turns: `tox -e bench-models`.

Weights are random, and nothing is downloaded. Every round times each runtime once, with two threads or as many as
`--threads` says; a ratio is of the shortest times, and above 1 where Isokern is faster.
"""

from __future__ import annotations

import io
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import module_zoo as zoo
import numpy as np
import onnx
import onnxruntime
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from isokern.onnx import load

PAUSE = 0.05  # seconds before each call, in which the threads of the one before stop spinning
IMAGE = 224  # pixels of the sides of images, but for models that are made for others


def export(model: Any, args: tuple[Any, ...], named: dict[str, Any]) -> onnx.ModelProto:
    """Return a module as an ONNX model, as PyTorch exports it."""
    held = io.BytesIO()
    program = torch.onnx.export(model, args, kwargs=named, dynamo=True, verbose=False)
    program.save(held)
    return onnx.load_from_string(held.getvalue())


def peers(model: onnx.ModelProto, threads: int) -> tuple[dict[str, float], Any, Any]:
    """Return the seconds to load a model, ONNX Runtime's session and our model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    begin = time.perf_counter()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    loaded = time.perf_counter()
    ours = load(model, "cpu:0")
    return {"onnxruntime": loaded - begin, "isokern": time.perf_counter() - loaded}, session, ours


def measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the shortest seconds of each call, taken in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(PAUSE)
            begin = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def compare(name: str, batch: int, rounds: int, threads: int, inductor: bool) -> dict[str, float]:
    """Measure one model: seconds of each runtime, of loading, and our largest error of the scale of the results."""
    if name in zoo.VISION:
        module = zoo.make(zoo.VISION[name])
        size = zoo.SIZE if name == "vit_b_16" else IMAGE
        args, named = (torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(1)),), {}
    else:
        build, given = zoo.LANGUAGE[name]
        module, args, named = zoo.make(build), (), given
    with torch.no_grad():
        model = export(module, args, named)
        seconds, session, ours = peers(model, threads)
        given = [t.numpy() for t in (*args, *named.values()) if isinstance(t, torch.Tensor)]
        feeds = {i.name: x for i, x in zip(session.get_inputs(), given, strict=True)}
        begin = time.perf_counter()
        found = ours.run(feeds)
        compiled = time.perf_counter() - begin
        wanted = session.run(None, feeds)
        listed = found if isinstance(found, tuple) else (found,)
        error = max(
            float(np.abs(y - w).max() / max(np.abs(w).max(), 1e-30)) for y, w in zip(listed, wanted, strict=True)
        )
        calls = {
            "isokern": lambda: ours.run(feeds),
            "onnxruntime": lambda: session.run(None, feeds),
            "eager": lambda: module(*args, **named),
        }
        if inductor:
            fast = torch.compile(module)
            fast(*args, **named)
            calls["inductor"] = lambda: fast(*args, **named)
        best = measure(calls, rounds)
    return {**best, "load": seconds["isokern"] + compiled, "load onnxruntime": seconds["onnxruntime"], "error": error}


def main(
    models: Annotated[list[str] | None, typer.Argument(help="names of models; all by default")] = None,
    batch: Annotated[int, typer.Option(help="images at a time")] = 1,
    rounds: Annotated[int, typer.Option(help="times that each runtime runs")] = 15,
    threads: Annotated[int, typer.Option(help="threads of each runtime")] = 2,
    inductor: Annotated[bool, typer.Option(help="time torch.compile's own compiler, too")] = False,
) -> None:
    """Print a table of ratios, with their geometric means."""
    os.environ["ISOKERN_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    peers_of = ["onnxruntime", "eager", *(["inductor"] if inductor else [])]
    columns = ["model", "ms", *(f"{p} / isokern" for p in peers_of), "load s", "load / onnxruntime's", "error"]
    table = Table(*columns, title=f"batch {batch}, {threads} threads")
    ratios: dict[str, list[float]] = {p: [] for p in peers_of}
    for name in track(models or [*zoo.VISION, *zoo.LANGUAGE], console=Console(stderr=True)):
        found = compare(name, batch, rounds, threads, inductor)
        for p in peers_of:
            ratios[p].append(found[p] / found["isokern"])
        loads = found["load"] / found["load onnxruntime"]
        shown = [f"{ratios[p][-1]:.2f}" for p in peers_of]
        row = [f"{1e3 * found['isokern']:.2f}", *shown, f"{found['load']:.2f}", f"{loads:.2f}", f"{found['error']:.1e}"]
        table.add_row(name, *row)
    means = [f"{statistics.geometric_mean(ratios[p]):.2f}" for p in peers_of]
    table.add_section()
    table.add_row("geometric mean", "", *means)
    Console(width=None if Console().is_terminal else 140).print(table)


if __name__ == "__main__":
    typer.run(main)
