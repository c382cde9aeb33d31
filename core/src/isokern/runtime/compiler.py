"""compile: from a model and a device to a program, by way of what earlier compiles have left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, overload

from ..backend import Device, Stream, check_stream
from ..backend.discovery import device as find_device
from ..graph.ir import Graph, spec_text
from ..graph.model import Model
from ..passes import DEFAULT
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
    prepack: bool = False,
    stream: Stream | None = None,
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
    prepack: bool = False,
    stream: Stream | None = None,
    dynamic: Literal[True] | Collection[str],
) -> DynamicProgram: ...
def compile(
    model: Model | Graph,
    device: str | Device | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    passes: str | Iterable[str] = DEFAULT,
    reuse: bool = True,
    mutable: Iterable[str] | Mapping[str, Tensor | None] = (),
    prepack: bool = False,
    stream: Stream | None = None,
    dynamic: bool | Collection[str] = False,
) -> Program | DynamicProgram:
    """The program of a model on a device: variants chosen, memory planned and allocated, parameters there, every call bound.

    `parameters` are a model's own by default. `passes` are done to the graph before (`isokern.passes`); "" for none. An operator that the device
    has no kernel for is replaced by those that it consists of. With `reuse` false no memory is shared. Inputs named in `mutable` are updated in
    their own memory, and keep over runs what was left there; where it names tensors, by name, in the memory of these, which programs may have in
    common. With `dynamic` the leading dim of every input, or of those named, may be another at
    each run. With `prepack`, kernels that would rather read a parameter in a form of their own get it so, made once for all programs, in memory
    beside the parameter (`Program.prepacked`). `stream`, the device's default one where it is None, is where the program's calls are bound, captured
    and run; runs beside it in other threads have streams of their own. What compiles of the same have in common is kept (`isokern.runtime.cache`). Raises the typed errors
    of create, with the operator's name in front, and NotImplementedOnDevice where the device lacks one; then nothing stays allocated.
    """
    graph, given = take_model(model, parameters)
    # Each is read more than once, and what is given may be a generator
    passes = passes if isinstance(passes, str) else tuple(passes)
    mutable = mutable if isinstance(mutable, Mapping) else (mutable,) if isinstance(mutable, str) else tuple(mutable)
    of_stream: Any = stream.device if device is None and isinstance(stream, Stream) else None
    found = find_device(device) if of_stream is None else of_stream
    if stream is not None:
        check_stream("compile", stream, found)
    if dynamic is False:
        return assemble(graph, given, found, passes, reuse, mutable=mutable, prepack=prepack, stream=stream)
    if mutable:
        raise InvalidArgument(graph.name, f"mutable={mutable!r} of a dynamic program", allowed="one or the other")
    return DynamicProgram(graph, given, found, passes, reuse, dynamic, prepack, stream)


def take_model(model: Model | Graph, parameters: Mapping[str, Any] | None) -> tuple[Graph, Mapping[str, Any]]:
    """The graph, and the values of its parameters; InvalidArgument where one is not given."""
    if isinstance(model, Model) and parameters is None:
        model.complete()
        parameters = model.parameters
    graph, given = model.graph if isinstance(model, Model) else model, parameters or {}
    for value in graph.parameters:
        if value.name not in given:
            raise InvalidArgument(graph.name, f"parameter {value.name} is not given", allowed=spec_text(value.spec))
    return graph, given
