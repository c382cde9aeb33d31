"""Assembling a program from a graph.

The steps are the passes, conversion to the operators that the device has, the memory plan, the descriptors, and the
parameters on the device. The results of each are cached for the next compile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from .. import debug
from ..backend import BASE_ALIGNMENT, Device, Stream
from ..dtypes import DType
from ..graph.ir import Graph, Value, spec_text
from ..layout import TensorDesc
from ..passes import run as run_passes
from ..rewriting.conversion import convert, find_illegal
from ..rewriting.rewriter import State
from ..rewriting.target import Target
from ..status import BadTensorShape, InvalidArgument, OutOfMemory, quote
from ..tensors import Tensor, numbers
from .cache import Compiled, cache, key_of
from .lowered import check_kernels, is_lowering
from .packed import Packed, Readers, content_of, find_readers, frozen, is_same, restorer
from .program import Program


def assemble(
    graph: Graph,
    given: Mapping[str, Any],
    device: Device,
    passes: str | tuple[str, ...],
    reuse: bool,
    beside: Program | None = None,
    mutable: Collection[str] | Mapping[str, Tensor | None] = (),
    prepack: bool = True,
    stream: Stream | None = None,
    on_missing: str | None = None,
) -> Program:
    """Return a program of a graph, from the cache if it has been compiled before.

    A parameter with the same bits as one of the program `beside` uses that tensor, or its packed layouts; then nothing
    goes into the cache of whole compiles, and the caller keeps the program itself.
    """
    sources = [given[v.name] for v in graph.parameters]
    lowering = is_lowering(graph.name, on_missing)
    key = (key_of(graph), passes, device, reuse, frozenset(mutable), prepack, lowering)
    memory = _memory(graph, mutable, device)
    keepable = beside is None and all(isinstance(s, Tensor) or frozen(s) for s in sources)
    made = cache.find(key, sources) if keepable else None
    if made is not None:
        return Program(made, _with_given(made, given), memory, stream)
    target = Target.of_device(device)
    state = run_passes(State(graph, given, target), passes)
    if not lowering:
        check_kernels(state.graph, device, target)
    elif debug.LEVEL:
        for op, _ in find_illegal(state.graph, target):
            debug.say(f"{graph.name} on {device.name}: {op.kind} of {op.name or 'no layer'} is decomposed")
    state = convert(state, target)
    lowered = graph.copy() if state.graph is graph else state.graph  # a builder may still extend the caller's graph
    values = dict(state.parameters)
    del state  # so that an array that only a pass made is gone once it is on the device
    fresh: list[Tensor] = []
    try:
        recipe = cache.recipe(lowered, device, reuse, mutable, prepack)
        packed = Packed()
        readers = find_readers(recipe.memory_plan.graph, recipe.descriptors) if prepack else {}
        held: dict[str, Tensor] = {}
        for v in recipe.memory_plan.graph.parameters:
            source = values.pop(v.name)
            if v.name in readers and not isinstance(source, Tensor):
                _pack(graph.name, v, source, readers[v.name], packed, device, stream, beside, fresh)
            else:
                held[v.name] = _place_parameter(graph.name, v, source, device, beside, fresh)
        if packed.contents:
            packed.restore = _restorer(graph, given, target, passes)
        own = {n: t for n, t in held.items() if not any(t is s for s in sources)}
        made = Compiled(recipe, own, packed)
        program = Program(made, held, memory, stream)
    except BaseException as error:
        for t in fresh:
            t.buffer.close()
        if isinstance(error, OutOfMemory):
            largest = max(lowered.values.values(), key=lambda v: v.spec.nbytes)
            told = largest.name if largest.producer is None else largest.producer.name
            problem = f"{error.problem}; the largest tensor is {spec_text(largest.spec)} of {quote(told)}"
            raise OutOfMemory(f"{graph.name}: {error.where}", problem, allowed=error.allowed) from error
        raise
    if keepable:
        cache.keep(key, sources, made)
    return program


def _memory(graph: Graph, mutable: Collection[str] | Mapping[str, Tensor | None], device: Device) -> dict[str, Tensor]:
    """Return the caller's tensors for mutable inputs, by name.

    Raises typed errors if one has another layout or device, or is read-only, and if two overlap.
    """
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
                graph.name, f"inputs {one} and {other} are in the same memory", allowed="memory apart"
            )
    return given


def _with_given(made: Compiled, given: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return all parameters of a cached compile.

    They are its own, and the caller's tensors, to which the cache has no reference.
    """
    held, names = made.parameters, [v.name for v in made.recipe.memory_plan.graph.parameters]
    return {n: held[n] if n in held else given[n] for n in names if n not in made.packed.contents}


def _pack(
    where: str,
    value: Value,
    given: Any,
    readers: Readers,
    packed: Packed,
    device: Device,
    stream: Stream | None,
    beside: Program | None,
    fresh: list[Tensor],
) -> None:
    """Convert a parameter to the packed layouts that its readers prefer; share those of `beside` if they have its bits.

    New ones are appended to `fresh`.
    """
    near = beside.packed if beside is not None else Packed()
    packed.contents[value.name] = content = content_of(given)
    if is_same(near.contents.get(value.name), content) and readers.keys() <= near.tensors.keys():
        packed.tensors |= {key: near.tensors[key] for key in readers}
        return
    original: list[Tensor] = []
    try:
        tensor = _wrap(value, given, device, value.spec.dtype.itemsize)
        if tensor is None:
            tensor = _place_parameter(where, value, given, device, None, original)
        for key, (descriptor, operand) in readers.items():
            packed.tensors[key] = descriptor.prepack(operand, tensor, stream=stream)
            fresh.append(packed.tensors[key])
    finally:
        for t in original:
            t.buffer.close()


def _wrap(value: Value, given: Any, device: Device, alignment: int) -> Tensor | None:
    """Return a parameter over an array's own memory; None if the device cannot have it there."""
    if not device.memory.wraps or not isinstance(given, np.ndarray) or not value.spec.dtype.holds(given):
        return None
    fits = given.size > 0 and given.flags.c_contiguous and given.shape == value.spec.shape
    if not fits or given.ctypes.data % alignment:
        return None
    return Tensor(TensorDesc(value.spec.dtype, given.shape), device.memory.wrap(given, value.spec.dtype))


def _restorer(
    graph: Graph, given: Mapping[str, Any], target: Target, passes: str | tuple[str, ...]
) -> Callable[[], Mapping[str, Any]]:
    kept = graph.snapshot()

    def compute(sources: Mapping[str, Any]) -> Mapping[str, Any]:
        return convert(run_passes(State(kept(), sources, target), passes), target).parameters

    return restorer({v.name: given[v.name] for v in graph.parameters}, compute)


def _place_parameter(
    where: str, value: Value, given: Any, device: Device, beside: Program | None, fresh: list[Tensor]
) -> Tensor:
    """Return a parameter on the device.

    It is the caller's tensor, one of `beside` with the same bits, or a new one, which is appended to `fresh`.
    """
    near = None if beside is None else beside.parameters.get(value.name)
    # Over the memory that the array is a view of: the cache drops the packed layouts of the array when that is gone
    shared = given.view() if frozen(given) and given.base is not None else None
    shared = None if shared is None or shared.base is given else shared
    if isinstance(given, Tensor):
        held = given
    elif near is not None and near.desc == value.spec and _same_bits(near, given):
        held = near
    elif (wrapped := _wrap(value, shared, device, BASE_ALIGNMENT)) is not None:
        held = wrapped
        fresh.append(held)
    else:
        held = _copy(where, given, value.spec.dtype, device, fresh)
    if held.desc != value.spec or held.device is not device:
        raise BadTensorShape(
            where,
            f"parameter {value.name} is {spec_text(held.desc)} on {held.device.name}",
            allowed=f"{spec_text(value.spec)} on {device.name}",
        )
    return held


def _copy(where: str, given: Any, element: DType, device: Device, fresh: list[Tensor]) -> Tensor:
    """Copy a parameter to memory aligned as `aligned` constraints may require.

    It is appended to `fresh` before anything is written, so that the caller can free it after an error.
    """
    array = numbers(where, given)
    desc = TensorDesc(element, array.shape)
    fresh.append(Tensor(desc, device.memory.alloc(desc.nbytes, element, alignment=BASE_ALIGNMENT, empty=True)))
    return fresh[-1].copy_from(array)


def _same_bits(held: Tensor, given: Any) -> bool:
    if not isinstance(given, np.ndarray) or given.shape != held.shape or not held.dtype.holds(given):
        return False
    there = held.numpy()
    if there.ctypes.data == given.ctypes.data and there.strides == given.strides:
        return True
    a, b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (there, given))
    return np.array_equal(a, b)
