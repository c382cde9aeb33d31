"""Time models of torchvision and transformers here and in ONNX Runtime and PyTorch, in turns: `tox -e bench-models`.

Weights are random, and nothing is downloaded. Every round times each runtime once, with two threads or as many as
`--threads` says; a ratio is of the shortest times, and above 1 where Isokern is faster. Below the table is what falls
short of the bars beside ONNX Runtime: no model slower, and faster on the whole. To load is to read, compile and prepack
the model, up to the first run but without it; ONNX Runtime does all of it when a session is created. The memory of a
run is by how much a process grows that runs a loaded model (`model_memory.py`), and beside ONNX Runtime's it is below 1
where Isokern takes less.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
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

LOADS = 4  # times that each runtime loads a model: the shortest counts
PAUSE = 0.05  # seconds before each call, in which the threads of the one before stop spinning
IMAGE = 224  # pixels of the sides of images, but for models that are made for others
# Of language models: large enough that the time is that of their products, as in a small BERT
LANGUAGE = {"length": 128, "width": 256, "layers": 4, "vocabulary": 4096, "frames": 512, "image": 112}
EACH, MEAN = 1.0, 1.15  # least ratios beside ONNX Runtime: of a model, and their geometric mean


def peers(path: str, feeds: list[Any], threads: int) -> tuple[dict[str, float], Any, Any]:
    """Return the seconds to load a file, ours with the first run, ONNX Runtime's session and our model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    made: dict[str, Any] = {}

    def load_ours() -> None:
        made["isokern"] = load(path, "cpu:0")
        made["isokern"].run(*feeds)

    def load_theirs() -> None:
        made["onnxruntime"] = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    seconds = measure({"onnxruntime": load_theirs, "isokern": load_ours}, LOADS)
    return seconds, made["onnxruntime"], made["isokern"]


def memory(path: str, feeds: dict[str, Any]) -> dict[str, int]:
    """Return the bytes by which a process of each runtime grows when it runs a loaded model."""
    found, given = {}, f"{path}.npz"
    np.savez(given, **feeds)
    for runtime in ("isokern", "onnxruntime"):
        script = Path(__file__).with_name("model_memory.py")
        command = [sys.executable, str(script), runtime, path, given]
        found[runtime] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


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
        args, named = (zoo.images(size, batch),), {}
    else:
        build, named = zoo.LANGUAGE[name](zoo.Dims(batch, **LANGUAGE))
        module, args = zoo.make(build), ()
    given = [t.numpy() for t in zoo.tensors([args, named])]
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.onnx"))
        onnx.save(zoo.export_onnx(module, args, named), path)
        seconds, session, ours = peers(path, given, threads)
        feeds = {i.name: x for i, x in zip(session.get_inputs(), given, strict=True)}
        found, wanted = ours.run(feeds), session.run(None, feeds)
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
        best, grown = measure(calls, rounds), memory(path, feeds)
    return {
        **best,
        "load": seconds["isokern"] - best["isokern"],
        "load onnxruntime": seconds["onnxruntime"],
        "bytes": grown["isokern"],
        "bytes onnxruntime": grown["onnxruntime"],
        "error": error,
    }


def shortfalls(ratios: dict[str, float]) -> list[str]:
    """Return what is below the bars, a line each, of models' ratios."""
    found = [f"{name}: {ratio:.2f}, under {EACH:.2f}" for name, ratio in ratios.items() if ratio < EACH]
    mean = statistics.geometric_mean(ratios.values())
    return [*found, *([f"geometric mean: {mean:.2f}, under {MEAN:.2f}"] if mean < MEAN else [])]


def main(
    models: Annotated[list[str] | None, typer.Argument(help="names of models; all by default")] = None,
    batch: Annotated[int, typer.Option(help="images, or texts, at a time")] = 1,
    rounds: Annotated[int, typer.Option(help="times that each runtime runs")] = 15,
    threads: Annotated[int, typer.Option(help="threads of each runtime")] = 2,
    inductor: Annotated[bool, typer.Option(help="time torch.compile's own compiler, too")] = False,
) -> None:
    """Print a table of ratios, with their geometric means."""
    os.environ["ISOKERN_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    peers_of = ["onnxruntime", "eager", *(["inductor"] if inductor else [])]
    columns = [
        "model",
        "ms",
        *(f"{p} / isokern" for p in peers_of),
        "load s",
        "load / onnxruntime's",
        "MB",
        "MB / onnxruntime's",
    ]
    columns.append("error")
    table = Table(*columns, title=f"batch {batch}, {threads} threads")
    ratios: dict[str, dict[str, float]] = {p: {} for p in peers_of}
    for name in track(models or [*zoo.VISION, *zoo.LANGUAGE], console=Console(stderr=True)):
        found = compare(name, batch, rounds, threads, inductor)
        for p in peers_of:
            ratios[p][name] = found[p] / found["isokern"]
        loads = found["load"] / found["load onnxruntime"]
        shown = [f"{ratios[p][name]:.2f}" for p in peers_of]
        grown = f"{found['bytes'] / 1e6:.1f}", f"{found['bytes'] / max(found['bytes onnxruntime'], 1):.2f}"
        row = [f"{1e3 * found['isokern']:.2f}", *shown, f"{found['load']:.2f}", f"{loads:.2f}", *grown]
        row.append(f"{found['error']:.1e}")
        table.add_row(name, *row)
    means = [f"{statistics.geometric_mean(ratios[p].values()):.2f}" for p in peers_of]
    table.add_section()
    table.add_row("geometric mean", "", *means)
    console = Console(width=None if Console().is_terminal else 140)
    console.print(table)
    missed = shortfalls(ratios["onnxruntime"])
    console.print("Beside ONNX Runtime:", "; ".join(missed) or f"every model at {EACH:.2f}, the mean at {MEAN:.2f}")


if __name__ == "__main__":
    typer.run(main)
