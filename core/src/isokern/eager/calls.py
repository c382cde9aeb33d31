"""Calls of operators on values: tensors of what was given, a cached descriptor, the outputs, and the work itself."""

from __future__ import annotations

import atexit
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..backend import Device, Stream, check_stream, current_stream
from ..backend.buffer_view import facts_of
from ..backend.discovery import device as find_device
from ..call.descriptor import Descriptor
from ..call.prepack import describe_original, is_prepacked
from ..declare.operator import Operator
from ..declare.signature import Operand
from ..dtypes import DType, dtype as dtype_of
from ..layout import TensorDesc
from ..process.forks import own_lock
from ..runtime.lowered import is_lowering
from ..status import BadTensorDtype, InvalidArgument, quote
from ..tensors import Tensor, as_tensor, dlpack, empty, from_numpy, numbers, tensor
from .create import create
from .foreign import give_foreign, take_foreign
from .quick import join
from .repeated import Call, Found, calls_of, is_kept, keep, key_of, remember

CACHE_SIZE = 1024
_cache: OrderedDict[Any, Descriptor] = OrderedDict()
_lock = own_lock(sys.modules[__name__], "_lock")
_numbers: dict[Any, Tensor] = {}
atexit.register(_numbers.clear)  # device memory is freed while the backends' modules are whole


def cached_descriptor(
    op: Operator,
    device: Device,
    inputs: Sequence[TensorDesc | None],
    outputs: Sequence[TensorDesc],
    attrs: dict[str, Any],
    prepacked: Sequence[str] = (),
    on_missing: str | None = None,
) -> Descriptor:
    """Return a descriptor from the cache, or a new one; the least recently used are dropped.

    The attribute blob distinguishes -0.0 from 0.0, and True from 1. A decomposed call is returned only if the policy
    allows it.
    """
    key = (op, device, *inputs, None, *outputs, op.attrs.pack(op.attrs.check(op.name, attrs)), *prepacked)
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
    own = found is not None and not found.made_of
    lowering = (own and on_missing is None) or is_lowering(op.name, on_missing)
    if found is not None and (own or lowering):
        return found
    made = create(op, inputs, outputs, device=device, prepacked=prepacked, on_missing=on_missing, **attrs)
    with _lock:
        _cache[key] = made
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return made


def remember_views(
    op: Operator,
    function: str,
    given: Sequence[Tensor],
    views: Sequence[Tensor],
    made: Tensor,
    desc: TensorDesc,
    run: Call,
) -> None:
    """Keep a call of views of the tensors that were given as one of these, which the function finds the next time.

    The operator itself would refuse what was given. `desc` is what of `made`, its result, `run` returns: all of its
    memory, in another shape.
    """
    if not is_lowering(op.name):
        return
    memory = made.buffer.memory
    descriptor = cached_descriptor(op, made.device, [v.desc for v in views], [made.desc], {})
    facts = [facts_of(TensorDesc(desc.dtype, desc.shape), memory), *(t.facts for t in given)]
    keep(function, tuple(t.facts for t in given), join([(descriptor, range(len(facts)))], facts, run))


def find_target(values: Sequence[Any], out: Any, device: str | Device | None) -> Device:
    """Return the named device, else that of the first tensor given, else the default one."""
    if device is not None:
        return find_device(device)
    outs = out if isinstance(out, (list, tuple)) else [out]
    return next((v.device for v in (*values, *outs) if isinstance(v, Tensor)), None) or find_device(None)


def pair_operands(op: Operator, given: Sequence[Any]) -> list[tuple[Operand, Any]]:
    """Return (operand, value) of each tensor, without the trailing optional ones that are absent."""
    pairs: list[tuple[Operand, Any]] = []
    for operand, item in zip(op.signature.inputs, given, strict=True):
        if operand.variadic and not (isinstance(item, Iterable) and not isinstance(item, (str, bytes, dict))):
            raise InvalidArgument(op.name, f"{operand.name} is a {type(item).__name__}", allowed="a list of tensors")
        pairs += [(operand, v) for v in (item if operand.variadic else (item,))]
    while pairs and pairs[-1][1] is None and not pairs[-1][0].variadic:
        pairs.pop()
    return pairs


def make_tensors(op: Operator, pairs: Sequence[tuple[Operand, Any]], target: Device) -> list[Tensor | None]:
    """Return the values as tensors.

    A number or list that is given along with a tensor of the same type variable takes that tensor's dtype.
    """
    known: dict[str, Any] = {}
    for operand, value in pairs:
        if hasattr(value, "dtype"):
            known.setdefault(operand.type, value.dtype)
    result: list[Tensor | None] = []
    for operand, value in pairs:
        if value is None:
            result.append(None)
        elif hasattr(value, "dtype") or operand.type not in known:
            result.append(as_tensor(value, target))
        else:
            result.append(_number(op, operand, value, dtype_of(known[operand.type]), target))
    return result


def _number(op: Operator, operand: Operand, value: Any, like: DType, target: Device) -> Tensor:
    """Apply NumPy 2's rule for Python scalars: they take the tensor's dtype, which has to hold them.

    The tensors of the numbers that a program uses are kept; they are never written.
    """
    if value.__class__ not in (int, float, bool):
        return _make_number(op, operand, value, like, target)
    key = value or repr(value), value.__class__, like, target  # -0.0 equals 0.0
    kept = _numbers.get(key)
    if kept is None:
        kept = _make_number(op, operand, value, like, target)
        if len(_numbers) >= CACHE_SIZE:
            _numbers.clear()
        _numbers[key] = kept
    return kept


def _make_number(op: Operator, operand: Operand, value: Any, like: DType, target: Device) -> Tensor:
    array = numbers(op.name, value)
    if array.dtype.kind == "c":
        given = f"{operand.name} is {quote(value)}, with a tensor of {like}"
        raise BadTensorDtype(op.name, given, allowed="real numbers", hint="isokern.array_api has complex arrays")
    try:
        held = tensor(array, like, device=target)
    except InvalidArgument:  # beyond the dtype
        held = None
    if held is None or (like.kind != "f" and not (held.numpy() == array).all()):
        raise InvalidArgument(
            op.name,
            f"{operand.name} is {quote(value)}, with a tensor of {like}",
            allowed=f"what {like} can hold",
            hint="cast the tensor, or give an array with a dtype",
        )
    return held


def list_outputs(out: Any) -> Sequence[Any]:
    """Return what `out=` names, one by one."""
    return () if out is None else out if isinstance(out, (list, tuple)) else (out,)


def _outputs(op: Operator, out: Any, target: Device, stream: Stream) -> list[Tensor]:
    """Return tensors for what `out=` names.

    They are views of the caller's memory, or in the device's own if that cannot use the host's: `_give_back` then
    copies their content to the caller's arrays.
    """
    result = []
    for o in list_outputs(out):
        array = dlpack.to_numpy(o) if hasattr(o, "__dlpack__") and not isinstance(o, (Tensor, np.ndarray)) else o
        if not isinstance(array, (Tensor, np.ndarray)):
            raise InvalidArgument(op.name, f"out is a {type(o).__name__}", allowed="a tensor or an array")
        if isinstance(array, Tensor):
            result.append(array)
        elif target.memory.wraps:
            result.append(from_numpy(array, device=target))
        else:
            result.append(_stand_in(op, array, target, stream))
    return result


def _stand_in(op: Operator, array: Any, target: Device, stream: Stream) -> Tensor:
    """Return a tensor of the device for an array of the host, with its content if the operator keeps some of it.

    A wrong shape or dtype is refused with the call, before anything is written.
    """
    if not array.flags.writeable:
        raise InvalidArgument(op.name, "out is a read-only array", allowed="an array that may be written")
    if stream.recording is not None:
        allowed = f"a tensor of {target.name}, whose memory the host's is not"
        raise InvalidArgument(op.name, "out is an array while the stream records", allowed=allowed)
    if not array.dtype.isnative:
        raise InvalidArgument(op.name, f"out has dtype {array.dtype}", allowed="this machine's byte order")
    return tensor(array, device=target) if op.inout else empty(array.shape, dtype_of(array.dtype), device=target)


def _give_back(out: Any, made: Sequence[Tensor], stream: Stream) -> None:
    """Bring results to the caller's arrays, which cannot be waited for."""
    arrays = [(o, y) for o, y in zip(list_outputs(out), made, strict=True) if not isinstance(o, Tensor)]
    if not arrays or stream.recording is not None:
        return
    target = arrays[0][1].device
    try:
        if target.asynchronous:
            stream.synchronize()
    finally:  # if the device found a wrong index, its result is defined all the same
        for o, y in arrays if not target.memory.wraps else ():
            array = o if isinstance(o, np.ndarray) else dlpack.to_numpy(o)
            array[...] = y.numpy()


def call(op: Operator, given: Sequence[Any], **named: Any) -> Any:
    """Run `op` eagerly, with attributes and options by name: see functions.py."""
    found = key_of(given, named)
    if found is None:
        return _convert(op, given, named)
    known = calls_of(op).get(found[0])
    if known is not None:
        return known(*found[1:])
    return _call(op, given, found if is_kept(named) else None, **named)


def _convert(op: Operator, given: Sequence[Any], named: dict[str, Any]) -> Any:
    """Run a call of arrays, lists and numbers by what is known of the tensors that they become."""
    device = named.get("device")
    kept = {name: value for name, value in named.items() if name != "device"}
    if not given or not is_kept(kept) or any(o.variadic for o in op.signature.inputs):
        return _call(op, given, **named)
    taken, foreign = take_foreign(op.name, given)
    pairs = pair_operands(op, taken)
    target = find_target([v for _, v in pairs], kept.get("out"), device)
    tensors = make_tensors(op, pairs, target)
    found = key_of(tensors, kept)
    if found is None or any(t is not None and t.buffer.memory is not target.memory for t in tensors):
        return give_foreign(foreign, _call(op, [*tensors, *[None] * (len(taken) - len(tensors))], **named))
    known = calls_of(op).get(found[0])
    if known is None:
        return give_foreign(foreign, _call(op, [*tensors, *[None] * (len(taken) - len(tensors))], found, **kept))
    return give_foreign(foreign, known(*found[1:]))


def _call(
    op: Operator,
    given: Sequence[Any],
    found: Found | None = None,
    *,
    out: Any = None,
    device: str | Device | None = None,
    stream: Stream | None = None,
    dtype: Any = None,
    on_missing: str | None = None,
    **attrs: Any,
) -> Any:
    """Describe and run a call; `found` is by what it is found the next time, and its tensors (see repeated.py)."""
    given, foreign = take_foreign(op.name, given)
    pairs = pair_operands(op, given)
    target = find_target([v for _, v in pairs], out, device)
    if stream is None:
        stream = current_stream(target)
    check_stream(op.name, stream, target)
    tensors = make_tensors(op, pairs, target)
    prepacked = [o.name for (o, _), t in zip(pairs, tensors, strict=True) if t is not None and is_prepacked(t)]
    inputs = [None if t is None else describe_original(t) for t in tensors]
    if out is None:
        free = dict.fromkeys(op.free_types, dtype) if dtype is not None else None
        outputs = [empty(d.shape, d.dtype, device=target) for d in op.infer(inputs, attrs, free)]
    else:
        outputs = _outputs(op, out, target, stream)
    descriptor = cached_descriptor(op, target, inputs, [o.desc for o in outputs], attrs, prepacked, on_missing)
    descriptor.calculate(tensors, outputs, workspace="auto", stream=stream)
    if found is not None and [*map(id, found[1])] == [*map(id, tensors)]:  # the tensors themselves were given
        remember(found, descriptor, attrs)
    if out is not None:
        _give_back(out, outputs, stream)
    result = outputs if out is None else list(out) if isinstance(out, (list, tuple)) else [out]
    return give_foreign(foreign, result[0] if len(result) == 1 else tuple(result))
