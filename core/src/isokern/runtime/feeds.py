"""The arguments of a run: feeds to read and outs to fill.

All of them are checked before anything is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare.conversion import convert
from ..dtypes import DType, dtype
from ..graph.builder import error_context
from ..graph.ir import Graph, Value, spec_text
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import Tensor, dlpack, from_dlpack, numbers

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Any] | Sequence[Any] | Any
# Kinds of dtypes; each may be converted to the later ones: booleans, unsigned and signed integers, floats and blocks,
# complex numbers
KINDS = ("b", "u", "i", "fq", "c")


def name_feeds(graph: Graph, feeds: Feeds, optional: Collection[str] = ()) -> dict[Value, Any]:
    """Return the feed of each input; `feeds` is a mapping by name, a sequence in the inputs' order, or a single feed.

    Inputs that are `optional` are fed by name or not at all. InvalidArgument if the names or the number of feeds do
    not match.
    """
    known = {v.name: v for v in graph.inputs}
    if feeds is None:
        feeds = {}
    if not isinstance(feeds, Mapping):
        listed = list(feeds) if isinstance(feeds, (list, tuple)) else [feeds]
        wanted = [n for n in known if n not in optional]
        if len(listed) != len(wanted):
            allowed = f"{len(wanted)}: {', '.join(wanted) or 'none'}"
            raise InvalidArgument(graph.name, f"{len(listed)} feeds", allowed=allowed)
        feeds = dict(zip(wanted, listed, strict=True))
    strange, missing = [n for n in feeds if n not in known], [n for n in known if n not in feeds and n not in optional]
    if strange or missing:
        given = f"feeds {', '.join(map(repr, feeds)) or 'nothing'}"
        raise InvalidArgument(graph.name, given, allowed=", ".join(known) or "none: it has no inputs")
    return {known[name]: feeds[name] for name in known if name in feeds}


def as_host_array(where: str, given: Any) -> Tensor | Array:
    """Return a tensor, or an array over host memory.

    Accepts either of them, an object with DLPack, or anything that NumPy makes an array of.
    """
    if isinstance(given, Tensor):
        if not given.buffer.alive:
            raise InvalidArgument(where, "the tensor's buffer is closed", hint="allocate a new one")
        return given
    if isinstance(given, np.ndarray) or not (
        hasattr(given, "__dlpack__") or hasattr(given, "__cuda_array_interface__")
    ):
        return numbers(where, given)
    with error_context(where):
        if hasattr(given, "__dlpack__") and dlpack.source_device(given)[0] == dlpack.CPU:
            return dlpack.to_numpy(given)
        return from_dlpack(given)


def readable(graph: Graph, value: Value, given: Any) -> Tensor | Array:
    """Return a feed if it has the input's shape, a dtype that converts to the input's, and numbers that it has."""
    where = f"{graph.name}, input {value.name}"
    found = as_host_array(where, given)
    if tuple(found.shape) != value.spec.shape:
        raise BadTensorShape(where, f"shape {list(found.shape)}", allowed=spec_text(value.spec))
    return convert_feed(where, found, value.spec.dtype, spec_text(value.spec))


def convert_feed(where: str, found: Tensor | Array, wanted: DType, allowed: str) -> Tensor | Array:
    """Return a feed, an array in an input's dtype; a tensor too, if the dtype cannot hold all numbers of the tensor's.

    BadTensorDtype if `KINDS` does not allow the conversion, or if a number is beyond the dtype: an integer that
    would wrap, a float that would become infinite. A float may round.
    """
    element = _dtype(where, found)
    if _kind(element) > _kind(wanted):
        raise BadTensorDtype(where, f"dtype {element}", allowed=allowed, hint="convert it first")
    if element is wanted or wanted.numpy is None or element.numpy is None:
        return found
    may_lose = _may_lose(element, wanted)
    if isinstance(found, Tensor) and not may_lose:
        return found
    given = found.numpy() if isinstance(found, Tensor) else found
    made: Array = convert(given, wanted.numpy)
    if not may_lose:
        return made
    if wanted.kind in "iu":
        limits = np.iinfo(wanted.numpy)
        lost = (given < limits.min) | (given > limits.max)
    else:
        lost = ~np.isfinite(made)
        if lost.any():
            lost &= np.isfinite(given)
    if lost.any():
        problem = f"{quote(given[lost].flat[0].item())} of {element}"
        raise BadTensorDtype(where, problem, allowed=f"{allowed}: numbers that {wanted} has", hint="convert it first")
    return made


def _may_lose(element: DType, wanted: DType) -> bool:
    """Return whether a dtype has numbers beyond another's: more bits, or signs that the other lacks."""
    assert element.numpy is not None and wanted.numpy is not None
    if wanted.kind in "iu":
        return not np.can_cast(element.numpy, wanted.numpy) if element.kind != "b" else False
    return element.kind in "iu" or element.numpy.itemsize >= wanted.numpy.itemsize


def _kind(element: DType) -> int:
    return next(n for n, kinds in enumerate(KINDS) if element.kind in kinds)


def writable(graph: Graph, out: Any) -> list[Tensor | Array]:
    """Return the memory for each result.

    `out` is one object, or a list of as many as there are results, of exactly their shapes and dtypes.
    """
    listed = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(listed) != len(graph.outputs):
        raise InvalidArgument(graph.name, f"out has {len(listed)} tensors", allowed=str(len(graph.outputs)))
    return [
        _writable(graph, n, value, given) for n, (value, given) in enumerate(zip(graph.outputs, listed, strict=True))
    ]


def _writable(graph: Graph, n: int, value: Value, given: Any) -> Tensor | Array:
    where = f"{graph.name}, output {n}" + (f" ({value.name})" if value.name else "")
    if not isinstance(given, (Tensor, np.ndarray)) and not hasattr(given, "__dlpack__"):
        raise InvalidArgument(where, f"out is a {type(given).__name__}", allowed="a tensor, an array, or one of DLPack")
    found = as_host_array(where, given)
    element = _dtype(where, found)
    if element is not value.spec.dtype:
        raise BadTensorDtype(where, f"dtype {element}", allowed=spec_text(value.spec))
    if tuple(found.shape) != value.spec.shape:
        raise BadTensorShape(where, f"shape {list(found.shape)}", allowed=spec_text(value.spec))
    if not (found.buffer.writable if isinstance(found, Tensor) else found.flags.writeable):
        raise InvalidArgument(where, "read-only memory", allowed=spec_text(value.spec), hint="give writable memory")
    return found


def _dtype(where: str, found: Tensor | Array) -> DType:
    if isinstance(found, Tensor):
        return found.dtype
    if not found.dtype.isnative:
        raise BadTensorDtype(where, f"dtype {found.dtype} is not in this machine's byte order", hint="convert it first")
    return dtype(found.dtype)


def fill(target: Tensor | Array, result: Tensor) -> None:
    """Copy a finished result; the copy is complete on return."""
    if isinstance(target, Tensor):
        if target.span != result.span or target.device is not result.device:
            target.copy_from(result)
            target.device.synchronize()
    else:
        np.copyto(target, result.numpy())
