"""The eager functions, one an operator: `isokern.rms_norm(x, w, eps=1e-5)` over a cache of descriptors.

Each takes the operator's inputs (tensors, arrays, lists or numbers), its attributes by name, and `out=`, `device=`,
`stream=` and `on_missing=`, the policy of `create`; it returns a tensor (a tuple if there are several outputs).
Types that no input fixes are named: `isokern.cast(x, dtype="F16")`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np

from ..arguments import is_integer
from ..backend import check_stream, current_stream
from ..declare.attributes import REQUIRED, in_float64
from ..declare.operator import Operator
from ..declare.registry import has
from ..dtypes import I64, U64, DType, dtype as dtype_of
from ..ops import find
from ..ops.aliases import ALIASES
from ..ops.fill import split_integer
from ..status import BadTensorShape, InvalidArgument, IsokernError, quote
from ..tensors import Tensor, as_tensor
from . import conveniences
from .calls import call, find_target, list_outputs, make_tensors, pair_operands, remember_views
from .foreign import give_foreign, take_foreign
from .quick import when_quick
from .repeated import Calls, calls_of, key_of


def _repeat(op: Operator, describe: Callable[..., Any], *tables: Calls) -> Callable[..., Any]:
    """Return a function that finds calls that were made before in one of two tables, and has the others described.

    The first is that of the operator, which has as many positional arguments at most.
    """
    count = len(op.signature.inputs)

    def find(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = key_of(args, kwargs) if len(args) <= count else None
        if found is not None:
            for calls in tables:
                known = calls.get(found[0])
                if known is not None:
                    return known(*found[1:])
        return describe(*args, **kwargs)

    def find_quickly(module: Any) -> None:
        nonlocal find
        find = module.Finder(tables[0], tables[-1], count, describe).find

    def function(*args: Any, **kwargs: Any) -> Any:
        return find(args, kwargs)

    when_quick(find_quickly)
    return function


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
    least = len(inputs) - trailing.count(True)
    named = frozenset(p.name for p in parameters if p.kind is kinds.KEYWORD_ONLY)
    needed = frozenset(a.name for a in fields if a.default is REQUIRED)

    def describe(*args: Any, **kwargs: Any) -> Any:
        if least <= len(args) <= len(inputs) and needed <= kwargs.keys() <= named:  # which `bind` would only repeat
            return call(op, [*args, *[None] * (len(inputs) - len(args))], **kwargs)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(op.name, str(error), allowed=f"{op.name}{signature}") from None
        rest = bound.arguments
        return call(op, [rest.pop(o.name, None) for o in inputs], **rest)

    function = _repeat(op, describe, calls_of(op))
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

    A vector gets a dim of 1, which the result loses again. If b is a matrix of another type, such as quantized
    weights, it is the operator `matmul_mixed`.
    """
    if isinstance(b, Tensor) and b.ndim == 2 and getattr(a, "dtype", b.dtype) not in (b.dtype, b.dtype.numpy):
        return call(find("matmul_mixed"), [a, b], **options)
    op = find("matmul")
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.ndim > 1 and b.ndim > 1:
            return call(op, [a, b], **options)
        if a.ndim and b.ndim and options.get("out") is None:
            return _matmul_vectors(a, b, a.ndim == 1, b.ndim == 1, options)
    pairs = pair_operands(op, [a, b])
    left, right = [
        *make_tensors(op, pairs, find_target([a, b], options.get("out"), options.get("device"))),
        None,
        None,
    ][:2]
    if left is None or right is None:
        return call(op, [left, right], **options)  # which says what is missing
    squeeze = (left.ndim == 1, right.ndim == 1)
    if not any(squeeze):
        return call(op, [left, right], **options)
    if options.get("out") is not None:
        raise InvalidArgument("matmul", "out= with a vector", allowed="matrices", hint="reshape the vector to a matrix")
    return _matmul_vectors(left, right, *squeeze, options)


def _matmul_vectors(left: Tensor, right: Tensor, row: bool, column: bool, options: dict[str, Any]) -> Any:
    """Return the product of a matrix or a row by a matrix or a column, which is found by these the next time."""

    def multiply(given: Sequence[Tensor]) -> Any:
        matrices = given[0][None] if row else given[0], given[1][..., None] if column else given[1]
        product = plain("matmul")(*matrices, **options)
        y = product[..., 0] if column else product[..., 0, :]
        return matrices, product, y[..., 0] if row and column else y

    matrices, product, y = multiply((left, right))
    if not options and y.desc.is_contiguous and y.desc.numel:  # so its memory is that of the product
        remember_views(
            find("matmul"), "matmul", (left, right), matrices, product, y.desc, lambda given: multiply(given)[2]
        )
    return y


def matmul_slice(x: Any, w: Any, rows: tuple[int, int], columns: tuple[int, int] | None = None, **options: Any) -> Any:
    """Return x w[rows, columns]ᵀ: `matmul_transposed` with a part of a larger weight.

    Ranges are (first, one past the last); columns of a block type are whole blocks. The weight is read in place.
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
    """Return x limited to [min, max], None being no limit: the operator `clip`, or `clamp` if a limit is a tensor.

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

    The stream's copy engine does it if it takes the two tensors.
    """
    out, stream = options.get("out"), options.get("stream")
    if isinstance(x, Tensor) and isinstance(out, Tensor):
        target = find_target([x], out, options.get("device"))
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
    out = list_outputs(options.get("out"))
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
        return call(find("gather"), [x, indices], **({"axis": axis} if axis else {}), **options)
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
    return plain("rearrange")(given.T if axes is None else given.permute(*_axes(axes)), **options)


def functions_of(op: Operator) -> list[str]:
    """Return the names of the eager functions that call the operator."""
    own = [] if op.name in ALIASES else [op.name]
    return [*own, *(name for name, called in ALIASES.items() if op.name in called)]


def find_alias(name: str) -> Callable[..., Any]:
    """Return the function of ALIASES of that name, which is here or in conveniences.py."""
    found: Callable[..., Any] = globals().get(name) or getattr(conveniences, name)
    return found


@cache
def plain(name: str) -> Callable[..., Any]:
    """Return the function of an operator alone, without the additions of the function of its name."""
    return _function(find(name))


@cache
def function(name: str) -> Callable[..., Any]:
    """Return the eager function of an operator, or one of the functions above.

    It is made when first asked for, since plug-ins bring operators.
    """
    if name not in ALIASES:
        return _function(find(name))
    own: Callable[..., Any] = find_alias(name)
    checked = _check_arguments(own)
    if not has(name):
        return checked
    own.__doc__ = checked.__doc__ = f"{own.__doc__}\n\n{_docstring(find(name))}"
    # If the operator itself takes a call, the function does what the operator does, so that its calls are also found
    return wraps(own)(_repeat(find(name), checked, calls_of(find(name)), calls_of(name)))


def _check_arguments(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with InvalidArgument for arguments that it does not take."""
    signature = inspect.signature(own)

    @wraps(own)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            read = {n: v for n, v in kwargs.items() if n != "out"}
            taken, foreign = take_foreign(own.__name__, [*args, *read.values()])
            if not foreign:
                return own(*args, **kwargs)
            named = zip(read, taken[len(args) :], strict=True)
            return give_foreign(foreign, own(*taken[: len(args)], **{**kwargs, **dict(named)}))
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
