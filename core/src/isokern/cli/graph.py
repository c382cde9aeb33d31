"""`isokern graph`: a model's operators, and what a device makes of them."""

from __future__ import annotations

import runpy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..status import InvalidArgument
from ._output import Json, emit, note, table

if TYPE_CHECKING:
    from ..graph import Model

Name = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model that comes with Isokern (digits, mlp, resnet18), or a Python file that defines model().")
]  # fmt: skip
Passes = Annotated[
    str | None, typer.Option("--passes", help="Passes in their order, separated by commas; the usual ones by default.")
]
graph = typer.Typer(help="Graphs of operators: print them, and see what a device makes of them.", no_args_is_help=True)


@graph.command()
def dump(model: Name) -> None:
    """Print the graph as text, which `isokern.graph.parse` reads. No device is needed."""
    typer.echo(find(model).graph.dump(), nl=False)


@graph.command()
def lower(model: Name, passes: Passes = None) -> None:
    """Print the graph as it is after passes. No device is needed."""
    from ..lowering import DEFAULT, State, run

    found = find(model)
    state = run(State(found.graph, found.parameters), DEFAULT if passes is None else passes)
    typer.echo(state.graph.dump(), nl=False)


@graph.command()
def summary(model: Name) -> None:
    """Print a table of the layers: what each makes, its parameters and operations. No device is needed."""
    typer.echo(find(model).summary(), nl=False)


@graph.command()
def explain(
    model: Name,
    device: Annotated[
        str | None, typer.Option("--device", help="The device; the default one where it is not given.")
    ] = None,
    passes: Passes = None,
    json: Json = False,
) -> None:
    """Compile for a device, and print each operator's variant, bytes and memory, and what the plan saves."""
    from ..lowering import DEFAULT
    from ..runtime import compile

    program = compile(find(model), device, passes=DEFAULT if passes is None else passes)
    facts = {"arena": program.arena_bytes, "workspace": program.workspace_bytes, "naive": program.naive_bytes}
    lines = program.explain()
    if json:
        emit({"model": model, "device": program.device.name, "bytes": facts, "operators": [asdict(x) for x in lines]})
        return
    columns = ["layer", "operator", "variant", "output", "bytes", "workspace", "memory"]
    rows = [[x.name, x.kind, x.variant, x.outputs, f"{x.nbytes:,}", f"{x.workspace:,}", x.memory] for x in lines]
    table(f"{program.graph.name} on {program.device.name}", columns, rows, right=["bytes", "workspace"])
    peak = facts["arena"] + facts["workspace"]
    note(
        f"activations {facts['arena']:,} bytes, workspace {facts['workspace']:,}: {peak / max(1, facts['naive']):.2f} of {facts['naive']:,} without reuse"
    )


def find(name: str) -> Model:
    """The model of that name, or of that file."""
    from ..graph import Model
    from ..graph.zoo import MODELS

    if name in MODELS:
        return MODELS[name]()
    path = Path(name)
    if not path.is_file():
        allowed = f"{', '.join(MODELS)}, or a Python file that defines model()"
        raise InvalidArgument("graph", f"model {name!r}", allowed=allowed)
    make = runpy.run_path(name).get("model")
    made = make() if callable(make) else None
    if not isinstance(made, Model):
        raise InvalidArgument("graph", f"{name} defines no model() that gives an isokern.graph.Model")
    if made.graph.parameters and not made.parameters:
        made.initialise()
    return made
