"""compile: from a model and a device to a program, by way of what earlier compiles have left."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ..backend import BASE_ALIGNMENT, Device, Stream, check_stream
from ..dtypes import DType
from ..graph.ir import Graph, Value, spec_text
from ..graph.model import Model
from ..layout import TensorDesc
from ..lowering import DEFAULT, State, run as run_passes
from ..lowering.conversion import Target, convert
from ..plugins import device as find_device
from ..status import BadTensorShape, InvalidArgument
from ..tensors import Tensor, numbers
from .cache import Compiled, cache, frozen, key_of
from .program import Program

if TYPE_CHECKING:
    from .dynamic import DynamicProgram


@overload
def compile(
    model: Model | Graph,
    device: str | Device | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    passes: str | Iterable[str] = DEFAULT,
    reuse: bool = True,
    mutable: Iterable[str] | Mapping[str, Tensor | None] = (),
    prepare: bool = False,
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
    prepare: bool = False,
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
    prepare: bool = False,
    stream: Stream | None = None,
    dynamic: bool | Collection[str] = False,
) -> Program | DynamicProgram:
    """The program of a model on a device: variants chosen, memory planned and allocated, parameters there, every call bound.

    `parameters` are a model's own by default. `passes` are done to the graph before (`isokern.lowering`); "" for none. An operator that the device
    has no kernel for is replaced by those that it consists of. With `reuse` false no memory is shared. Inputs named in `mutable` are updated in
    their own memory, and keep over runs what was left there; where it names tensors, by name, in the memory of these, which programs may have in
    common. With `dynamic` the leading dim of every input, or of those named, may be another at
    each run. With `prepare`, kernels that would rather read a parameter in a form of their own get it so, made once for all programs, in memory
    beside the parameter (`Program.prepared`). `stream`, the device's default one where it is None, is where the program's calls are bound, captured
    and run; runs beside it in other threads have streams of their own. What compiles of the same have in common is kept (`isokern.runtime.cache`). Raises the typed errors
    of create, with the operator's name in front, and NotImplementedOnDevice where the device lacks one; then nothing stays allocated.
    """
    graph, given = taken(model, parameters)
    # Each is read more than once, and what is given may be a generator
    passes = passes if isinstance(passes, str) else tuple(passes)
    mutable = mutable if isinstance(mutable, Mapping) else (mutable,) if isinstance(mutable, str) else tuple(mutable)
    found = find_device(stream.device if device is None and isinstance(stream, Stream) else device)
    if stream is not None:
        check_stream("compile", stream, found)
    if dynamic is False:
        return assembled(graph, given, found, passes, reuse, mutable=mutable, prepare=prepare, stream=stream)
    if mutable:
        raise InvalidArgument(graph.name, f"mutable={mutable!r} of a dynamic program", allowed="one or the other")
    from .dynamic import DynamicProgram

    return DynamicProgram(graph, given, found, passes, reuse, dynamic, prepare, stream)


def taken(model: Model | Graph, parameters: Mapping[str, Any] | None) -> tuple[Graph, Mapping[str, Any]]:
    """The graph, and the values of its parameters; InvalidArgument where one is not given."""
    if isinstance(model, Model) and parameters is None:
        model.complete()
        parameters = model.parameters
    graph, given = model.graph if isinstance(model, Model) else model, parameters or {}
    for value in graph.parameters:
        if value.name not in given:
            raise InvalidArgument(graph.name, f"parameter {value.name} is not given", allowed=spec_text(value.spec))
    return graph, given


def assembled(
    graph: Graph,
    given: Mapping[str, Any],
    device: Device,
    passes: str | tuple[str, ...],
    reuse: bool,
    beside: Mapping[str, Tensor] | None = None,
    mutable: Collection[str] | Mapping[str, Tensor | None] = (),
    prepare: bool = False,
    stream: Stream | None = None,
) -> Program:
    """A program of what is kept, or made. Parameters that have the bits of those in `beside` are those; the caller then keeps the program itself."""
    sources = [given[v.name] for v in graph.parameters]
    key = (key_of(graph), passes, device, reuse, frozenset(mutable), prepare)
    memory = _memory(graph, mutable, device)
    keepable = beside is None and all(isinstance(s, Tensor) or frozen(s) for s in sources)
    made = cache.find(key, sources) if keepable else None
    if made is not None:
        return Program(made, _with_given(made, given), memory, stream)
    target = Target.of_device(device)
    state = convert(run_passes(State(graph, given, target), passes), target)
    lowered = graph.copy() if state.graph is graph else state.graph  # a builder may go on with the caller's
    fresh: list[Tensor] = []
    try:
        recipe = cache.recipe(lowered, device, reuse, mutable, prepare)
        held = {v.name: _held(v, state, device, beside or {}, fresh) for v in recipe.plan.graph.parameters}
        made = Compiled(recipe, {n: t for n, t in held.items() if t is not state.parameters[n]})
        program = Program(made, held, memory, stream)
    except BaseException:
        for t in fresh:
            t.buffer.close()
        raise
    if keepable:
        cache.keep(key, sources, made)
    return program


def _memory(graph: Graph, mutable: Collection[str] | Mapping[str, Tensor | None], device: Device) -> dict[str, Tensor]:
    """The tensors that mutable inputs are in, where the caller has them; typed errors where one is of another layout or device, or read-only."""
    given = {n: t for n, t in mutable.items() if t is not None} if isinstance(mutable, Mapping) else {}
    for value in (v for v in graph.inputs if v.name in given):
        held = given[value.name]
        where, allowed = f"{graph.name}, input {value.name}", f"{spec_text(value.spec)} on {device.name}"
        if not isinstance(held, Tensor):
            raise InvalidArgument(where, f"its memory is a {type(held).__name__}", allowed=f"a tensor, {allowed}")
        if held.desc != value.spec or held.device is not device:
            raise BadTensorShape(where, f"{spec_text(held.desc)} on {held.device.name}", allowed=allowed)
        if not held.buffer.alive or not held.buffer.writable:
            problem = "read-only memory" if held.buffer.alive else "the tensor's buffer is closed"
            raise InvalidArgument(where, problem, allowed=allowed, hint="give a tensor that can be written")
    ends = sorted((t.span, n) for n, t in given.items() if t.desc.numel)
    for (before, one), (after, other) in itertools.pairwise(ends):
        if after[0] < before[1]:
            raise InvalidArgument(
                graph.name, f"inputs {one} and {other} lie in the same memory", allowed="memory apart"
            )
    return given


def _with_given(made: Compiled, given: Mapping[str, Any]) -> dict[str, Tensor]:
    """All parameters of a compile that was kept: what was made then, and the caller's own tensors, which it does not keep."""
    held = made.parameters
    return {n: held[n] if n in held else given[n] for n in (v.name for v in made.recipe.plan.graph.parameters)}


def _held(value: Value, state: State, device: Device, beside: Mapping[str, Tensor], fresh: list[Tensor]) -> Tensor:
    """A parameter on the device: the caller's tensor, one with the same bits, or a new one, which goes to `fresh` too."""
    given, near = state.parameters[value.name], beside.get(value.name)
    if isinstance(given, Tensor):
        held = given
    elif near is not None and near.desc == value.spec and _same_bits(near, given):
        held = near
    else:
        held = _copied(state.graph.name, given, value.spec.dtype, device, fresh)
    if held.desc != value.spec or held.device is not device:
        raise BadTensorShape(
            state.graph.name,
            f"parameter {value.name} is {spec_text(held.desc)} on {held.device.name}",
            allowed=f"{spec_text(value.spec)} on {device.name}",
        )
    return held


def _copied(where: str, given: Any, element: DType, device: Device, fresh: list[Tensor]) -> Tensor:
    """A copy of a parameter in memory that begins where `aligned` constraints may ask; it goes to `fresh` before anything is written."""
    array = numbers(where, given)
    desc = TensorDesc(element, array.shape)
    fresh.append(Tensor(desc, device.memory.alloc(desc.nbytes, element, alignment=BASE_ALIGNMENT, empty=True)))
    return fresh[-1].copy_from(array)


def _same_bits(held: Tensor, given: Any) -> bool:
    if not isinstance(given, np.ndarray) or given.shape != held.shape or given.dtype != held.dtype.numpy:
        return False
    a, b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (held.numpy(), given))
    return np.array_equal(a, b)
