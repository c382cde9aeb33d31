"""The eager functions, one an operator: `isokern.rms_norm(x, w, eps=1e-5)` over a cache of descriptors.

Each takes the operator's inputs (tensors, arrays, lists or numbers), its attributes by name, and `out=`, `device=`, `stream=`; it returns a
tensor (a tuple where there are several outputs). Types that no input fixes are named: `isokern.cast(x, dtype="F16")`.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .abi.records import REQUIRED
from .backend import Device, Stream, current_stream
from .buffer import Buffer
from .descriptor import Descriptor, create
from .layout import TensorDesc
from .ops import Operator, find
from .plugins import device as find_device
from .status import InvalidArgument
from .tensors import Tensor, as_tensor, empty, from_dlpack, from_numpy, tensor

CACHE_SIZE = 1024
_cache: OrderedDict[Any, Descriptor] = OrderedDict()
_lock = threading.RLock()
_scratch = threading.local()


def _fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread that is not in the child may hold the lock
    os.register_at_fork(after_in_child=_fork)


def _descriptor(
    op: Operator,
    device: Device,
    inputs: Sequence[TensorDesc | None],
    outputs: Sequence[TensorDesc],
    attrs: dict[str, Any],
) -> Descriptor:
    """A descriptor from the cache (least recently used goes first), or a new one."""
    blob = op.attrs.pack(
        op.attrs.check(op.name, attrs)
    )  # as Python values 0.0 is -0.0, 1 is True, and a list is no key
    key = (op, device, *inputs, None, *outputs, blob)
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
            return found
    made = create(op, inputs, outputs, device=device, **attrs)
    with _lock:
        _cache[key] = made
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return made


def cache_clear() -> None:
    """Forget all cached descriptors."""
    with _lock:
        _cache.clear()


def _workspace(descriptor: Descriptor, stream: Stream) -> Buffer | None:
    """Scratch memory of this thread and stream, grown as needed; a recording gets memory of its own."""
    need = descriptor.workspace
    if need.size == 0:
        return None
    memory = descriptor.device.memory
    if stream.recording is not None:
        return memory.alloc(need.size, kind=need.kind, alignment=need.alignment, empty=True)
    pools: WeakKeyDictionary[Stream, dict[Any, Buffer]] = _scratch.__dict__.setdefault("pools", WeakKeyDictionary())
    pool = pools.setdefault(stream, {})
    key = (need.kind, need.alignment)
    held = pool.get(key)
    if held is None or held.nbytes < need.size:
        held = pool[key] = memory.alloc(need.size, kind=need.kind, alignment=need.alignment, empty=True)
    return held


def _target(values: Sequence[Any], out: Any, device: str | Device | None) -> Device:
    """The named device, else that of the first tensor given, else the default one."""
    if device is not None:
        return find_device(device)
    outs = out if isinstance(out, (list, tuple)) else [out]
    return next((v.device for v in (*values, *outs) if isinstance(v, Tensor)), None) or find_device(None)


def call(
    op: Operator,
    given: Sequence[Any],
    *,
    out: Any = None,
    device: str | Device | None = None,
    stream: Stream | None = None,
    dtype: Any = None,
    **attrs: Any,
) -> Any:
    """Run `op` eagerly: see the module."""
    flat = [
        v
        for item, operand in zip(given, op.signature.inputs, strict=True)
        for v in (item if operand.variadic else (item,))
    ]
    while flat and flat[-1] is None:
        flat.pop()
    target = _target(flat, out, device)
    tensors = _tensors(flat, target)
    inputs = [None if t is None else t.desc for t in tensors]
    if out is None:
        free = dict.fromkeys(op.free_types, dtype) if dtype is not None else None
        outputs = [empty(d.shape, d.dtype, device=target) for d in op.infer(inputs, attrs, free)]
    else:
        outputs = [_output(op, o, target) for o in (out if isinstance(out, (list, tuple)) else [out])]
    if stream is None:
        stream = current_stream(target)
    descriptor = _descriptor(op, target, inputs, [o.desc for o in outputs], attrs)
    descriptor.calculate(tensors, outputs, workspace=_workspace(descriptor, stream), stream=stream)
    result = outputs if out is None else list(out) if isinstance(out, (list, tuple)) else [out]
    return result[0] if len(result) == 1 else tuple(result)


def _tensors(values: Sequence[Any], target: Device) -> list[Tensor | None]:
    """Inputs as tensors: a Python number or list beside a tensor takes that tensor's dtype (NumPy 2's rule for Python scalars)."""
    like = next((v.dtype for v in values if hasattr(v, "dtype")), None)

    def one(value: Any) -> Tensor:
        return (
            as_tensor(value, target) if hasattr(value, "dtype") or like is None else tensor(value, like, device=target)
        )

    return [None if v is None else one(v) for v in values]


def _output(op: Operator, value: Any, target: Device) -> Tensor:
    """What `out=` names, in place or not at all: a result in a copy of it would be lost."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return from_numpy(value, device=target)
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value, device=target)
    raise InvalidArgument(op.name, f"out is a {type(value).__name__}", allowed="a tensor or an array")


def _function(op: Operator) -> Callable[..., Any]:
    """The eager function of one operator, with a signature and a docstring made from the declaration."""
    inputs, fields = op.signature.inputs, op.attrs.attrs
    kinds = inspect.Parameter
    parameters = [
        kinds(o.name, kinds.POSITIONAL_OR_KEYWORD, default=None if o.optional else kinds.empty) for o in inputs
    ]
    parameters += [
        kinds(a.name, kinds.KEYWORD_ONLY, default=kinds.empty if a.default is REQUIRED else a.default) for a in fields
    ]
    parameters += [
        kinds(n, kinds.KEYWORD_ONLY, default=None)
        for n in ("out", "device", "stream", *(["dtype"] if op.free_types else []))
    ]
    signature = inspect.Signature(parameters)

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(op.name, str(error), allowed=f"{op.name}{signature}") from None
        named = bound.arguments
        return call(op, [named.pop(o.name, None) for o in inputs], **named)

    function.__name__ = function.__qualname__ = op.name
    function.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature reads
    function.__doc__ = _docstring(op)
    return function


def _docstring(op: Operator) -> str:
    lines = [op.doc, "", f"Signature: {op.signature}"]
    for variable, dtypes in op.signature.types.items():
        lines.append(f"    {variable}: {', '.join(d.name for d in dtypes)}")
    lines += [f"    {a.name}: {a.doc or a.allowed} ({a.allowed})" for a in op.attrs.attrs]
    lines.append(
        f"out may be {' or '.join(op.aliases)} itself." if op.aliases else "out shares no memory with an input."
    )
    lines.append("Raises the typed errors of isokern.status.")
    return "\n".join(lines)


def add_assign(a: Any, b: Any, **options: Any) -> Any:
    """a += b in a's own memory; returns a. `add` with out=a."""
    return call(find("add"), [a, b], out=a, **options)


def matmul(a: Any, b: Any, **options: Any) -> Any:
    """a @ b by NumPy's rule: a vector gets a dim of 1 that the result loses again; else the operator `matmul`."""
    left, right = _tensors([a, b], _target([a, b], options.get("out"), options.get("device")))
    if left is None or right is None:
        raise InvalidArgument(
            "matmul", f"input {'a' if left is None else 'b'} is missing", allowed="a matrix or a vector"
        )
    squeeze = (left.ndim == 1, right.ndim == 1)
    if not any(squeeze):
        return call(find("matmul"), [left, right], **options)
    if options.get("out") is not None:
        raise InvalidArgument("matmul", "out= with a vector", allowed="matrices", hint="reshape the vector to a matrix")
    y = call(find("matmul"), [left[None] if squeeze[0] else left, right[..., None] if squeeze[1] else right], **options)
    y = y[..., 0] if squeeze[1] else y
    return y[..., 0, :] if squeeze[0] and not squeeze[1] else y[..., 0] if squeeze[0] else y


def transpose(x: Any, axes: Sequence[int] | None = None, **options: Any) -> Any:
    """A contiguous copy of x with its dims in the order `axes` (reversed by default): `rearrange` of a view."""
    given = as_tensor(x, options.get("device"))
    return call(
        find("rearrange"), [given.permute(*(axes if axes is not None else reversed(range(given.ndim))))], **options
    )


ALIASES: dict[str, Callable[..., Any]] = {"add_assign": add_assign, "matmul": matmul, "transpose": transpose}


@cache
def function(name: str) -> Callable[..., Any]:
    """The eager function of an operator, or one of the aliases above; made when first asked for, since plug-ins bring operators."""
    return ALIASES.get(name) or _function(find(name))
