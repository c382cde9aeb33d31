"""`isokern graph`: show a model's operators, as built, after passes, and compiled for a device."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arguments import writable_file
from ..status import InvalidArgument
from ._output import Json, complain, emit, note, table
from .run import Dims, read_dims

if TYPE_CHECKING:
    from ..graph import Model
    from ..runtime import Program
    from ..runtime.explain import Line

Name = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model that comes with Isokern (digits, llama, mlp, resnet18), a GGUF file (its step for one token), an"
        " ONNX file, or a Python file that defines model().",
    ),
]
Passes = Annotated[
    str | None, typer.Option("--passes", help="Passes in their order, separated by commas; else the default pipeline.")
]
GGUF, ONNX = ".gguf", ".onnx"
graph = typer.Typer(
    help="Print, draw and export graphs of operators, and explain how a device runs them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@graph.command()
def dump(model: Name, dim: Dims = None) -> None:
    """Print the graph as text, which `isokern.graph.parse` reads. No device is needed."""
    typer.echo(find(model, dim).graph.dump(), nl=False)


@graph.command()
def lower(model: Name, passes: Passes = None, dim: Dims = None) -> None:
    """Print the graph as it is after passes. No device is needed."""
    from ..passes import DEFAULT, run
    from ..rewriting.rewriter import State

    found = find(model, dim)
    state = run(State(found.graph, found.parameters), DEFAULT if passes is None else passes)
    typer.echo(state.graph.dump(), nl=False)


@graph.command()
def export(
    model: Name,
    mlir: Annotated[bool, typer.Option("--mlir", help="Write MLIR: linalg on tensors. Needs isokern[mlir].")] = False,
    passes: Annotated[
        str | None,
        typer.Option("--passes", help="For MLIR: passes that end in primitives; the default ones keep all parameters."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The file to write; MLIR goes to stdout by default."),
    ] = None,
    dim: Dims = None,
) -> None:
    """Export the graph: as built, to an .onnx file (needs isokern[onnx]), or lowered to primitives, as MLIR.

    No device is needed.
    """
    from ..graph.mlir import PASSES, export
    from ..passes import run
    from ..rewriting.rewriter import State

    is_onnx = output is not None and output.suffix == ONNX
    if mlir == is_onnx:
        given = "two formats are given" if mlir else "no format is given"
        raise InvalidArgument("graph export", given, allowed=f"--mlir, or -o FILE{ONNX}")
    if is_onnx and passes is not None:
        raise InvalidArgument("graph export", "--passes of an ONNX file", allowed="the graph as it was built")
    found = find(model, dim)
    if is_onnx:
        assert output is not None
        _write_onnx(found, output)
        return
    text = export(run(State(found.graph, found.parameters), PASSES if passes is None else passes).graph)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def _write_onnx(model: Model, output: Path) -> None:
    """Write a model to a file, and its parameters to a second one next to it if they are too large for a message."""
    from ..onnx import export, exporter
    from ..onnx.library import proto

    writable_file("graph export", str(output))
    made, beside = export(model), output.with_name(f"{output.name}.data")
    if (size := exporter.count_bytes(made)) < exporter.LARGEST:
        output.write_bytes(made.SerializeToString())
        where = f"{output.stat().st_size:,} bytes"
    else:
        writable_file("graph export", str(beside))
        beside.unlink(missing_ok=True)  # the library writes behind what is there
        proto.save_model(made, output, save_as_external_data=True, location=beside.name)
        proto.checker.check_model(output, full_check=True)
        where = f"with {size:,} bytes of initializers in {beside}"
    note(f"{output}: {len(made.graph.node)} nodes of opset {made.opset_import[0].version}, {where}")


@graph.command()
def view(
    model: Name,
    device: Annotated[
        str | None,
        typer.Option("--device", help="Also draw the graph that this device compiles; else no device is needed."),
    ] = None,
    passes: Passes = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="An .html file, or an .svg of the last graph; else HTML goes to stdout.",
        ),
    ] = None,
    dim: Dims = None,
) -> None:
    """Draw the graph as built, and after each pass that changes it. Needs isokern[view]."""
    from ..backend.discovery import device as find_device
    from ..passes import DEFAULT
    from ..rewriting.rewriter import State
    from ..rewriting.target import Target
    from ..view.drawing import list_stages, page, save

    found = find(model, dim)
    target = None if device is None else Target.of_device(find_device(device))
    shown = list_stages(State(found.graph, found.parameters, target), DEFAULT if passes is None else passes)
    name = found.graph.name if device is None else f"{found.graph.name} on {device}"
    if output is None:
        typer.echo(page(name, shown), nl=False)
    else:
        save(output, name, shown)


@graph.command()
def summary(model: Name, dim: Dims = None) -> None:
    """Print a table of the layers: the output, parameters and operations of each. No device is needed."""
    typer.echo(find(model, dim).summary(), nl=False)


@graph.command()
def explain(
    model: Name,
    device: Annotated[str | None, typer.Option("--device", help="The device; else the default one.")] = None,
    passes: Passes = None,
    time: Annotated[
        bool, typer.Option("--time", help="Time each call, and compare it with the machine's limits.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the times as a Chrome trace, for Perfetto.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare each operator with its reference, on inputs of a fixed seed.")
    ] = False,
    dim: Dims = None,
    json: Json = False,
) -> None:
    """Compile for a device, and print each operator's variant, bytes and memory, and what the memory plan saves.

    Exits with 1 if a check finds a fault.
    """
    from ..bench.graphs import draw_feeds
    from ..passes import DEFAULT

    program, kept = _compile(model, device, DEFAULT if passes is None else passes, dim)
    if time or check or trace:
        program.feed(draw_feeds(program.graph))
    found = program.check(draw_feeds(program.graph)) if check else None
    del kept  # until here: a check reads the model's parameters
    lines = program.trace(trace) if trace else program.explain(timed=time)
    facts = {"arena": program.arena_bytes, "workspace": program.workspace_bytes, "naive": program.naive_bytes}
    first = None if found is None else found.first
    if json:
        document: dict[str, Any] = {"model": model, "device": program.device.name, "bytes": facts}
        document["operators"] = [{**asdict(x), "memory": x.memory} for x in lines]
        if found is not None:
            document["checked"] = [asdict(c) for c in found.operators]
            document["first_wrong"] = None if first is None else str(first)
        emit(document)
    else:
        _show(program, lines)
        for checked in [] if found is None else found.operators:
            if checked.wrong:
                note(str(checked))
    if first is not None:
        complain(f"the first wrong operator is {first.name or first.kind}")
        raise typer.Exit(1)
    if found is not None and not json:
        worst = max((c.share for c in found.operators), default=0.0)
        note(f"{len(found.operators)} operators agree with their references; the worst by {worst:.3g} of its bound")


@graph.command()
def decompositions(
    op: Annotated[
        list[str] | None, typer.Option("--op", help="An operator, repeatable; else all composite ones.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the primitives that each composite operator is decomposed into, and the memory between them.

    They are shown for the operator's largest sample. No device is needed.
    """
    from ..runtime.decompositions import decompositions

    found = decompositions(op)
    if json:
        emit([asdict(d) for d in found])
        return
    columns = ["operator", "sample", "primitives", "calls", "peak", "no reuse", "operands", "peak/operands"]
    rows = []
    for d in found:
        made = ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in d.primitives.items())
        sizes = [f"{n:,}" for n in (d.calls, d.peak, d.naive, d.operands)]
        rows.append([d.name, f"{'-'.join(d.dtypes)} {d.sample}", made, *sizes, f"{d.peak / max(1, d.operands):.2f}"])
    table(f"{len(found)} operators as primitives, in bytes", columns, rows, right=columns[3:])


def _compile(name: str, device: str | None, passes: str, dim: Sequence[str] | None) -> tuple[Program, Model]:
    """Compile the program of a model; that of a GGUF file has the file's weights, and its caches are mutable."""
    from ..runtime import compile

    if not name.endswith(GGUF):
        made = find(name, dim)
        return compile(made, device, passes=passes), made
    from ..llm import Model
    from ..llm.decoder import updated_inputs

    made, loaded = find(name), Model.open(name, device=device)
    state = updated_inputs(made.graph)
    program = compile(made, loaded.device, parameters=loaded.parameters, passes=passes, mutable=state, prepack=False)
    return program, made


def _show(program: Program, lines: list[Line]) -> None:
    timed = any(x.time_us is not None for x in lines)
    columns = ["layer", "operator", "variant", "output", "bytes", "workspace", "memory"]
    rows = [[x.name, x.kind, x.variant, x.outputs, f"{x.nbytes:,}", f"{x.workspace:,}", x.memory] for x in lines]
    if timed:
        columns += ["µs", "of limit"]
        for row, x in zip(rows, lines, strict=True):
            row.append("" if x.time_us is None else f"{x.time_us:,.1f}")
            row.append("" if x.share is None else f"{x.share:.0%}")
    right = ["bytes", "workspace", "µs", "of limit"]
    table(f"{program.graph.name} on {program.device.name}", columns, rows, right=right)
    peak = program.arena_bytes + program.workspace_bytes
    note(
        f"activations and workspaces {program.arena_bytes:,} bytes, workspaces apart {program.workspace_bytes:,}: "
        f"{peak / max(1, program.naive_bytes):.2f} of {program.naive_bytes:,} without reuse"
    )
    if timed:
        note(f"{sum(x.time_us or 0 for x in lines):,.1f} µs in all, the medians of each call's times")


def _of_file(path: Path) -> Model:
    """Return the graph of a GGUF file's model for a step of one token; its parameters stay in the file."""
    from .. import llm
    from ..llm.architecture import Config
    from ..llm.decoder import decoder
    from ..llm.steps import TokenStep

    file = llm.GGUF.open(path)
    config = Config.of(file)
    return decoder(file, config, TokenStep(config.context))


def _of_onnx(name: str, dim: Sequence[str] | None) -> Model:
    """Return the graph of an ONNX file; dims that are only named are 1 unless `dim` says another."""
    from .. import onnx

    given = read_dims(dim)
    loaded = onnx.load(name, dims=given)
    free = dict.fromkeys(d for t in loaded.inputs for d in t.shape if isinstance(d, str))
    if free:
        note(f"{', '.join(free)}: 1 each, unless --dim NAME=N says another")
        loaded = onnx.load(name, dims={**given, **dict.fromkeys(free, 1)})
    return loaded.built


def find(name: str, dim: Sequence[str] | None = None) -> Model:
    """Return the model of that name, or of that file; `dim` has dims that an ONNX file only names."""
    from ..demo.zoo import MODELS
    from ..graph import Model

    if dim and not name.endswith(ONNX):
        raise InvalidArgument("graph", f"--dim of {name}", allowed="an ONNX file")
    if name in MODELS:
        return MODELS[name]()
    path = Path(name)
    if not path.is_file():
        allowed = f"{', '.join(MODELS)}, a GGUF or ONNX file, or a Python file that defines model()"
        raise InvalidArgument("graph", f"model {name!r}", allowed=allowed)
    if name.endswith(GGUF):
        return _of_file(path)
    if name.endswith(ONNX):
        return _of_onnx(name, dim)
    make = runpy.run_path(name).get("model")
    made = make() if callable(make) else None
    if not isinstance(made, Model):
        raise InvalidArgument("graph", f"{name} defines no model() that gives an isokern.graph.Model")
    if made.graph.parameters and not made.parameters:
        made.initialise()
    return made
