"""Decomposition of composite operators: an `Emitter` of operators, and the loop nests that most decompose into.

A decomposition is a function `(e, inputs, attrs, outputs)` in the operator's declaration. It emits operators of a lower
level and returns the values that stand for the outputs. Intermediate values that a kernel would hold in its compute
type (F32 for F16 and BF16) have that type here too, and are rounded once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ..dtypes import DType
from ..layout import TensorDesc

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Described(Protocol):
    """A value of a graph, with a description."""

    @property
    def spec(self) -> TensorDesc:
        """The value's description."""


V = TypeVar("V", bound=Described)
Emit = Callable[[str, Sequence["V | None"], Mapping[str, Any], Mapping[str, DType] | None], Sequence[V]]


class Emitter(Generic[V]):
    """Emits operators: `e("transpose", x, axes=(1, 0))`, and loop nests by `e.loop`."""

    def __init__(self, emit: Emit[V]) -> None:
        self._emit = emit

    def __call__(self, kind: str, *inputs: V | None, dtypes: Mapping[str, DType] | None = None, **attrs: Any) -> V:
        """Emit an operator; return its first output."""
        return self.all(kind, *inputs, dtypes=dtypes, **attrs)[0]

    def all(self, kind: str, *inputs: V | None, dtypes: Mapping[str, DType] | None = None, **attrs: Any) -> Sequence[V]:
        """Emit an operator; return all its outputs."""
        return self._emit(kind, inputs, attrs, dtypes)

    def cast(self, x: V, dtype: DType) -> V:
        """Return x in another dtype; x itself where it has that dtype."""
        return x if x.spec.dtype is dtype else self("cast", x, dtypes={"T": dtype})

    def fill(self, shape: Sequence[int], value: float, dtype: DType) -> V:
        """Emit a tensor of one value."""
        return self("fill", dtypes={"T": dtype}, shape=tuple(shape), value=value)

    def iota(self, length: int, dtype: DType, **attrs: Any) -> V:
        """Emit the numbers from 0."""
        return self("iota", dtypes={"T": dtype}, shape=(length,), **attrs)

    def loop(
        self,
        maps: str,
        body: str,
        *xs: V,
        dtype: DType | None = None,
        combine: str = "none",
        init: V | None = None,
    ) -> V:
        """Emit a `generic`.

        Inputs of several dtypes are cast to the widest compute type among them; a missing init is the identity of
        `combine`.
        """
        if len({x.spec.dtype for x in xs}) > 1:
            computes = {x.spec.dtype.compute for x in xs}
            widest = max(computes, key=lambda d: (d.kind == "f", d.itemsize))
            xs = tuple(self.cast(x, widest) for x in xs)
        result = dtype or xs[0].spec.dtype
        if combine != "none" and init is None:
            ins, _, out = maps.partition("->")
            sizes = dict(zip(ins.replace(",", ""), [d for x in xs for d in x.spec.shape], strict=True))
            init = self.fill([sizes[c] for c in out], IDENTITY[combine], result)
        return self("generic", init, *xs, dtypes={"U": result}, maps=maps, body=body, combine=combine)

    def collapse(self, x: V, groups: Sequence[int]) -> V:
        """Return x with runs of dims merged; x itself where that changes nothing."""
        if x.spec.ndim == len(groups) and all(n == 1 for n in groups):
            return x
        return self("collapse_shape", x, groups=tuple(groups))

    def reshape(self, x: V, shape: Sequence[int]) -> V:
        """Return x in another shape of as many elements, in row-major order; x itself where it has that shape."""
        if x.spec.shape == tuple(shape):
            return x
        if x.spec.ndim == 0:
            return self("expand_shape", x, groups=(), shape=tuple(shape))
        flat = self.collapse(x, (x.spec.ndim,))
        if len(shape) == 0:
            return self("collapse_shape", flat, groups=())
        return flat if len(shape) == 1 else self("expand_shape", flat, groups=(len(shape),), shape=tuple(shape))

    def repeat(self, x: V, shape: Sequence[int]) -> V:
        """Return x broadcast to a shape, bit for bit; x itself where it has that shape."""
        return x if x.spec.shape == tuple(shape) else self("broadcast_to", x, shape=tuple(shape))

    def squeeze(self, x: V, letters: str, out: Mapping[str, int]) -> tuple[V, str]:
        """Return x without the dims of 1 that repeat along a longer loop, and the letters of the dims that remain."""
        kept = [i for i, (c, d) in enumerate(zip(letters, x.spec.shape, strict=True)) if not (d == 1 != out[c])]
        if len(kept) == len(letters):
            return x, letters
        starts = [0, *kept[1:]] if kept else []  # a dim of 1 joins the one before it, or the first
        ends = [*kept[1:], x.spec.ndim] if kept else []
        groups = [end - start for start, end in zip(starts, ends, strict=True)]
        return self.collapse(x, groups), "".join(letters[i] for i in kept)

    def pointwise(self, body: str, *xs: V, dtype: DType | None = None) -> V:
        """Emit the body over operands that broadcast by NumPy's rule."""
        rank = max(x.spec.ndim for x in xs)
        every = LETTERS[:rank]
        sizes: dict[str, int] = dict.fromkeys(every, 1)
        for x in xs:
            for c, d in zip(every[rank - x.spec.ndim :], x.spec.shape, strict=True):
                sizes[c] = d if d != 1 else sizes[c]
        pairs = [(x, every[rank - x.spec.ndim :]) for x in xs]
        return self.over([sizes[c] for c in every], body, pairs, dtype=dtype)

    def over(self, shape: Sequence[int], body: str, pairs: Sequence[tuple[V, str]], *, dtype: DType | None = None) -> V:
        """Emit the body over `shape`, whose loops are a, b, …

        Each operand has a letter for each of its dims; a dim of 1 is repeated.
        """
        every = LETTERS[: len(shape)]
        given = [self.squeeze(x, letters, dict(zip(every, shape, strict=True))) for x, letters in pairs]
        return self.loop(f"{','.join(c for _, c in given)}->{every}", body, *(x for x, _ in given), dtype=dtype)


def find_optional(inputs: Sequence[V], at: int) -> V | None:
    """Return an optional input; None where it is absent, or where the inputs end before it."""
    return inputs[at] if at < len(inputs) else None


IDENTITY = {"sum": 0.0, "product": 1.0, "maximum": -math.inf, "minimum": math.inf}


def constant(value: float) -> str:
    """Return a number as the scalar language writes it."""
    if math.isnan(value):
        return "(0 * 1e999)"
    text = repr(float(value)).replace("inf", "1e999")
    return f"({text})" if text.startswith("-") else text
