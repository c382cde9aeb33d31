"""compile: make a program from a model and a device, with the cached results of earlier compiles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, overload

from ..backend import Device, Stream, check_stream
from ..backend.discovery import device as find_device
from ..graph.ir import Graph, spec_text
from ..graph.model import Model
from ..passes import DEFAULT
from ..process.garbage import hold_collections
from ..status import InvalidArgument
from ..tensors import Tensor
from .assemble import assemble
from .dynamic import DynamicProgram
from .program import Program


@overload
def compile(
    model: Model | Graph,
    device: str | Device | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    passes: str | Iterable[str] = DEFAULT,
    reuse: bool = True,
    mutable: Iterable[str] | Mapping[str, Tensor | None] = (),
    prepack: bool = True,
    stream: Stream | None = None,
    on_missing: str | None = None,
    dynamic: Literal[False] = False,
) -> Program: ...
@overload
def compile(
    model: Model | Graph,
    device: str | Device | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    passes: str | Iterable[str] = DEFAULT,
    reuse: bool = True,
    prepack: bool = True,
    stream: Stream | None = None,
    on_missing: str | None = None,
    dynamic: Literal[True] | Collection[str],
) -> DynamicProgram: ...
@hold_collections()
def compile(
    model: Model | Graph,
    device: str | Device | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    passes: str | Iterable[str] = DEFAULT,
    reuse: bool = True,
    mutable: Iterable[str] | Mapping[str, Tensor | None] = (),
    prepack: bool = True,
    stream: Stream | None = None,
    on_missing: str | None = None,
    dynamic: bool | Collection[str] = False,
) -> Program | DynamicProgram:
    """Compile a model for a device.

    Chooses kernel variants, plans and allocates memory, puts parameters there and binds every call. `parameters` are a
    model's own by default. `passes` run on the graph first (`isokern.passes`); "" runs none. An operator that the
    device has no kernel for is decomposed, or refused if `on_missing` is "error" (the default is the setting
    ISOKERN_ON_MISSING, else "lower"). With `reuse` false no memory is shared. What compiles of the same graph share is
    cached (`isokern.runtime.cache`).

    Inputs named in `mutable` are updated in place, and keep their content over runs; a mapping gives for each name the
    tensor to use, which programs may share, or None. With `dynamic` the leading dim of every input, or of those named,
    may differ at each run. With `prepack`, kernels that prefer a packed layout of a parameter get it, made once for all
    programs (`Program.prepacked`). If no kernel reads such a parameter otherwise, the device keeps only
    its packed layout, unless it is a tensor of the caller's. The program's calls are bound, captured and
    run on `stream`, by default the device's default one; concurrent runs in other threads have streams of their own.

    Raises the typed errors of create, with the operator's name in front, and NotImplementedOnDevice if the device
    lacks an operator; then nothing stays allocated.
    """
    graph, given = take_model(model, parameters)
    # Each is read more than once, so a generator is turned into a tuple
    passes = passes if isinstance(passes, str) else tuple(passes)
    mutable = mutable if isinstance(mutable, Mapping) else (mutable,) if isinstance(mutable, str) else tuple(mutable)
    of_stream: Any = stream.device if device is None and isinstance(stream, Stream) else None
    found = find_device(device) if of_stream is None else of_stream
    if stream is not None:
        check_stream("compile", stream, found)
    if dynamic is False:
        options: dict[str, Any] = {"mutable": mutable, "prepack": prepack, "stream": stream, "on_missing": on_missing}
        return assemble(graph, given, found, passes, reuse, **options)
    if mutable:
        raise InvalidArgument(graph.name, f"mutable={mutable!r} of a dynamic program", allowed="one or the other")
    return DynamicProgram(graph, given, found, passes, reuse, dynamic, prepack, stream, on_missing)


def take_model(model: Model | Graph, parameters: Mapping[str, Any] | None) -> tuple[Graph, Mapping[str, Any]]:
    """Return the graph and the values of its parameters; InvalidArgument if one is not given."""
    if isinstance(model, Model) and parameters is None:
        model.complete()
        parameters = model.parameters
    graph, given = model.graph if isinstance(model, Model) else model, parameters or {}
    for value in graph.parameters:
        if value.name not in given:
            raise InvalidArgument(graph.name, f"parameter {value.name} is not given", allowed=spec_text(value.spec))
    return graph, given
