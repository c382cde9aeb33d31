"""The eager functions, one an operator: `isokern.rms_norm(x, w, eps=1e-5)` over a cache of descriptors.

Each takes the operator's inputs (tensors, arrays, lists or numbers), its attributes by name, and `out=`, `device=`,
`stream=` and `on_missing=`, the policy of `create`; it returns a tensor (a tuple where there are several outputs).
Types that no input fixes are named: `isokern.cast(x, dtype="F16")`.
"""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np

from ..arguments import is_integer
from ..backend import Device, Stream, check_stream, current_stream, renew_in_child
from ..backend.discovery import device as find_device
from ..call.descriptor import Descriptor
from ..call.prepack import describe_original, is_prepacked
from ..declare.attributes import REQUIRED, in_float64
from ..declare.operator import Operator
from ..declare.signature import Operand
from ..dtypes import I64, U64, DType, dtype as dtype_of
from ..layout import TensorDesc
from ..ops import all_operators, find
from ..ops.aliases import ALIASES
from ..ops.fill import split_integer
from ..runtime.lowered import is_lowering
from ..status import BadTensorShape, InvalidArgument, IsokernError, quote
from ..tensors import Tensor, as_tensor, dlpack, empty, from_numpy, numbers, tensor
from .create import create

CACHE_SIZE = 1024
_cache: OrderedDict[Any, Descriptor] = OrderedDict()
_lock = threading.RLock()


@renew_in_child
def _fork() -> None:
    global _lock
    _lock = threading.RLock()


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

    The attribute blob distinguishes -0.0 from 0.0, and True from 1. One that is made of others is returned only where
    the policy allows it.
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


def _target(values: Sequence[Any], out: Any, device: str | Device | None) -> Device:
    """Return the named device, else that of the first tensor given, else the default one."""
    if device is not None:
        return find_device(device)
    outs = out if isinstance(out, (list, tuple)) else [out]
    return next((v.device for v in (*values, *outs) if isinstance(v, Tensor)), None) or find_device(None)


def _flat(op: Operator, given: Sequence[Any]) -> list[tuple[Operand, Any]]:
    """Return (operand, value) of each tensor, without the trailing optional ones that are absent."""
    pairs: list[tuple[Operand, Any]] = []
    for operand, item in zip(op.signature.inputs, given, strict=True):
        if operand.variadic and not (isinstance(item, Iterable) and not isinstance(item, (str, bytes, dict))):
            raise InvalidArgument(op.name, f"{operand.name} is a {type(item).__name__}", allowed="a list of tensors")
        pairs += [(operand, v) for v in (item if operand.variadic else (item,))]
    while pairs and pairs[-1][1] is None and not pairs[-1][0].variadic:
        pairs.pop()
    return pairs


def _tensors(op: Operator, pairs: Sequence[tuple[Operand, Any]], target: Device) -> list[Tensor | None]:
    """Return the values as tensors.

    A number or list beside a tensor of the same type variable takes that tensor's dtype.
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
    """Apply NumPy 2's rule for Python scalars: they take the tensor's dtype, which has to hold them."""
    array = numbers(op.name, value)
    held = tensor(array, like, device=target)
    if like.kind != "f" and not (held.numpy() == array).all():
        raise InvalidArgument(
            op.name,
            f"{operand.name} is {quote(value)} beside a tensor of {like}",
            allowed=f"what {like} can hold",
            hint="cast the tensor, or give an array with a dtype",
        )
    return held


def _each(out: Any) -> Sequence[Any]:
    """Return what `out=` names, one by one."""
    return () if out is None else out if isinstance(out, (list, tuple)) else (out,)


def _outputs(op: Operator, out: Any, target: Device, stream: Stream) -> list[Tensor]:
    """Return tensors for what `out=` names.

    They lie over the caller's memory, or in the device's own where that cannot use the host's: `_give_back` then copies
    what they hold to the caller's arrays.
    """
    result = []
    for o in _each(out):
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
    """Return a tensor of the device for an array of the host; it has the array's content where the operator keeps some.

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
    arrays = [(o, y) for o, y in zip(_each(out), made, strict=True) if not isinstance(o, Tensor)]
    if not arrays or stream.recording is not None:
        return
    target = arrays[0][1].device
    try:
        if target.asynchronous:
            stream.synchronize()
    finally:  # where the device found a wrong index, its result is defined all the same
        for o, y in arrays if not target.memory.wraps else ():
            array = o if isinstance(o, np.ndarray) else dlpack.to_numpy(o)
            array[...] = y.numpy()


def call(
    op: Operator,
    given: Sequence[Any],
    *,
    out: Any = None,
    device: str | Device | None = None,
    stream: Stream | None = None,
    dtype: Any = None,
    on_missing: str | None = None,
    **attrs: Any,
) -> Any:
    """Run `op` eagerly: see the module."""
    pairs = _flat(op, given)
    target = _target([v for _, v in pairs], out, device)
    if stream is None:
        stream = current_stream(target)
    check_stream(op.name, stream, target)
    tensors = _tensors(op, pairs, target)
    prepacked = [o.name for (o, _), t in zip(pairs, tensors, strict=True) if t is not None and is_prepacked(t)]
    inputs = [None if t is None else describe_original(t) for t in tensors]
    if out is None:
        free = dict.fromkeys(op.free_types, dtype) if dtype is not None else None
        outputs = [empty(d.shape, d.dtype, device=target) for d in op.infer(inputs, attrs, free)]
    else:
        outputs = _outputs(op, out, target, stream)
    descriptor = cached_descriptor(op, target, inputs, [o.desc for o in outputs], attrs, prepacked, on_missing)
    descriptor.calculate(tensors, outputs, workspace="auto", stream=stream)
    if out is not None:
        _give_back(out, outputs, stream)
    result = outputs if out is None else list(out) if isinstance(out, (list, tuple)) else [out]
    return result[0] if len(result) == 1 else tuple(result)


def _function(op: Operator) -> Callable[..., Any]:
    """Return the eager function of one operator, with a signature and a docstring made from the declaration."""
    inputs, fields = op.signature.inputs, op.attrs.attrs
    kinds = inspect.Parameter
    # The inputs that may be left out; any other absent one is given as None
    trailing = [all(o.optional for o in inputs[i:]) for i in range(len(inputs))]
    parameters = [
        kinds(o.name, kinds.POSITIONAL_OR_KEYWORD, default=None if may else kinds.empty)
        for o, may in zip(inputs, trailing, strict=True)
    ]
    parameters += [
        kinds(a.name, kinds.KEYWORD_ONLY, default=kinds.empty if a.default is REQUIRED else a.default) for a in fields
    ]
    parameters += [
        kinds(n, kinds.KEYWORD_ONLY, default=None)
        for n in ("out", "device", "stream", "on_missing", *(["dtype"] if op.free_types else []))
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
    """Add b to a in a's own memory, and return a: `add` with out=a."""
    if "out" in options:
        raise InvalidArgument("add_assign", "out= is given", allowed="none: the result is in a")
    return call(find("add"), [a, b], out=a, **options)


def matmul(a: Any, b: Any, **options: Any) -> Any:
    """Return a @ b by NumPy's rule: the operator `matmul`.

    A vector gets a dim of 1, which the result loses again. Where b is a matrix of another type, such as quantised
    weights, it is the operator `matmul_mixed`.
    """
    if isinstance(b, Tensor) and b.ndim == 2 and getattr(a, "dtype", b.dtype) not in (b.dtype, b.dtype.numpy):
        return call(find("matmul_mixed"), [a, b], **options)
    op = find("matmul")
    pairs = _flat(op, [a, b])
    left, right = [*_tensors(op, pairs, _target([a, b], options.get("out"), options.get("device"))), None, None][:2]
    if left is None or right is None:
        return call(op, [left, right], **options)  # which says what is missing
    squeeze = (left.ndim == 1, right.ndim == 1)
    if not any(squeeze):
        return call(op, [left, right], **options)
    if options.get("out") is not None:
        raise InvalidArgument("matmul", "out= with a vector", allowed="matrices", hint="reshape the vector to a matrix")
    y = call(op, [left[None] if squeeze[0] else left, right[..., None] if squeeze[1] else right], **options)
    y = y[..., 0] if squeeze[1] else y
    return y[..., 0, :] if squeeze[0] and not squeeze[1] else y[..., 0] if squeeze[0] else y


def matmul_slice(x: Any, w: Any, rows: tuple[int, int], columns: tuple[int, int] | None = None, **options: Any) -> Any:
    """Return x w[rows, columns]ᵀ: `matmul_transposed` with a part of a larger weight.

    Ranges are (first, one past the last); columns of a block type are whole blocks. The weight is read where it lies.
    """
    held = as_tensor(w, options.get("device"))
    if held.ndim != 2:
        raise BadTensorShape("matmul_slice", f"w is {held.desc}", allowed="a matrix")
    ranges = [rows, (0, held.shape[1]) if columns is None else columns]
    for name, part, size in zip(("rows", "columns"), ranges, held.shape, strict=True):
        if len(part) != 2 or not 0 <= part[0] <= part[1] <= size:
            raise InvalidArgument("matmul_slice", f"{name}={quote(part)}", allowed=f"(first, last) within 0 to {size}")
    (top, bottom), (left, right) = ranges
    return call(find("matmul_transposed"), [x, held[top:bottom, left:right]], **options)


def cast(x: Any, **options: Any) -> Any:
    """Convert x to another element type by the operator `cast`, or by `quantize` and `dequantize` for block types."""
    wanted, out = options.get("dtype"), options.get("out")
    if wanted is not None and dtype_of(wanted).block > 1:
        return call(find("quantize"), [x], **options)
    if getattr(getattr(out, "dtype", None), "block", 1) > 1:
        return call(find("quantize"), [x], **options)
    if getattr(getattr(x, "dtype", None), "block", 1) > 1:
        return call(find("dequantize"), [x], **options)
    return call(find("cast"), [x], **options)


def clip(x: Any, *, min: Any = None, max: Any = None, **options: Any) -> Any:
    """Return x limited to [min, max], None being no limit: the operator `clip`, or `clamp` where a limit is a tensor.

    A limit of I64 or U64 that float64 cannot represent, and that so cannot be an attribute, is applied by `maximum` or
    `minimum`.
    """
    if any(isinstance(limit, (Tensor, np.ndarray)) for limit in (min, max)):
        return call(find("clamp"), [x, min, max], **options)
    min, max = -np.inf if min is None else min, np.inf if max is None else max
    beyond = [limit for limit in (min, max) if not _is_attribute(limit)]
    y = as_tensor(x, options.get("device")) if beyond else x
    if not beyond or y.dtype not in (I64, U64) or not all(_is_in(y.dtype, limit) for limit in beyond):
        return call(find("clip"), [y], min=min, max=max, **options)
    for kind, limit, limits in (
        ("maximum", min, {"min": min, "max": np.inf}),
        ("minimum", max, {"min": -np.inf, "max": max}),
    ):
        if _is_attribute(limit):
            y = call(find("clip"), [y], **limits, **options)
        else:
            y = call(find(kind), [y, limit], **options)
        options["out"] = y
    return y


def copy(x: Any, **options: Any) -> Any:
    """Return x in memory of its own, or in `out`: the operator `copy`.

    The stream's copy engine does it where it takes the two tensors.
    """
    out, stream = options.get("out"), options.get("stream")
    if isinstance(x, Tensor) and isinstance(out, Tensor):
        target = _target([x], out, options.get("device"))
        if stream is None:
            stream = current_stream(target)
        check_stream("copy", stream, target)
        if (x.shape, x.dtype) == (out.shape, out.dtype) and stream.copy_by_engine(out, x):
            return out
    return call(find("copy"), [x], **options)


def fill(*, value: Any = 0.0, shape: Sequence[int] = (), offset: int = 0, **options: Any) -> Any:
    """Return a tensor, or `out`, of one value: the operator `fill`.

    An I64 or U64 that float64 cannot represent is written as such a number and an `offset`.
    """
    out = _each(options.get("out"))
    wanted = getattr(out[0], "dtype", None) if out else options.get("dtype")
    element = None if _is_attribute(value) or wanted is None else dtype_of(wanted)
    if element in (I64, U64) and not offset and _is_in(element, value):
        value, offset = split_integer(value)
    return call(find("fill"), [], value=value, shape=shape, offset=offset, **options)


def _is_attribute(value: Any) -> bool:
    """Return False for integers that float64 cannot represent: they cannot be attributes."""
    return not is_integer(value) or in_float64(value)


def _is_in(element: DType, value: int) -> bool:
    """Return whether an integer dtype can represent a value."""
    assert element.numpy is not None
    limits = np.iinfo(element.numpy)
    return bool(limits.min <= value <= limits.max)


def gather(x: Any, indices: Any, *, axis: int = 0, **options: Any) -> Any:
    """Return x[…, indices, …] along `axis`: the operator `gather`.

    Rows of a table of a block type are F32, by `embedding`.
    """
    if getattr(getattr(x, "dtype", None), "block", 1) == 1:
        return call(find("gather"), [x, indices], axis=axis, **options)
    if axis not in (0, -x.ndim):
        raise InvalidArgument("gather", f"axis={axis} of a table of {x.dtype}", allowed="0, its rows")
    if options.get("out") is None:
        options.setdefault("dtype", "F32")
    return call(find("embedding"), [x, indices], **options)


def rope_inplace(x: Any, start_pos: int = 0, theta: float = 10000.0, **options: Any) -> Any:
    """Rotate x by its positions, in its own memory, and return x: `rope` with out=x."""
    if "out" in options:
        raise InvalidArgument("rope_inplace", "out= is given", allowed="none: the result is in x")
    return call(find("rope"), [x, None, None], out=x, start_pos=start_pos, theta=theta, **options)


def _axes(axes: Any) -> Sequence[int]:
    return axes if isinstance(axes, (list, tuple)) else (axes,)


def transpose(x: Any, axes: Sequence[int] | None = None, **options: Any) -> Any:
    """Return a contiguous copy of x with its dims in the order `axes` (reversed by default): `rearrange` of a view."""
    given = as_tensor(x, options.get("device"))
    return call(find("rearrange"), [given.T if axes is None else given.permute(*_axes(axes))], **options)


def functions_of(op: Operator) -> list[str]:
    """Return the names of the eager functions that call the operator."""
    own = [] if op.name in ALIASES else [op.name]
    return [*own, *(name for name, called in ALIASES.items() if op.name in called)]


@cache
def function(name: str) -> Callable[..., Any]:
    """Return the eager function of an operator, or one of the functions above.

    It is made when first asked for, since plug-ins bring operators.
    """
    if name not in ALIASES:
        return _function(find(name))
    own: Callable[..., Any] = globals()[name]
    if any(op.name == name for op in all_operators()):
        own.__doc__ = f"{own.__doc__}\n\n{_docstring(find(name))}"
    return _check_arguments(own)


def _check_arguments(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with InvalidArgument for arguments that it does not take."""
    signature = inspect.signature(own)

    @wraps(own)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return own(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, IsokernError):
                raise
            try:
                signature.bind(*args, **kwargs)
            except TypeError as wrong:
                given = str(wrong)
            else:
                raise
        raise InvalidArgument(own.__name__, given, allowed=f"{own.__name__}{signature}")

    return function
