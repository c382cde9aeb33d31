"""Draws of one node of an operator of ONNX: what a recipe gives, and the numbers that it draws, by a definition.

A recipe states values once, for all versions: those at the front are inputs in their order, the others have names. What
a version has as an attribute becomes one, what it has as an input becomes that, and what it does not have is left out.
Types are drawn from the definition, and so are opsets from those in which it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import defs, helper

NEWEST = defs.onnx_opset_version()
KINDS = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(bool)": np.bool_,
    **{f"tensor({n})": np.dtype(n).type for n in ("int8", "int16", "int32", "int64")},
    **{f"tensor({n})": np.dtype(n).type for n in ("uint8", "uint16", "uint32", "uint64")},
}
FLOATS = (np.float32, np.float64, np.float16)
ABSENT = None


@dataclass
class Drawn:
    """What a recipe gives: inputs in their order, values by name, and the number of results; or nodes and a result.

    `known` are places of inputs that are initialisers. Of `random` numbers only dtype and dims are compared.
    """

    inputs: Sequence[Any] = ()
    named: dict[str, Any] = field(default_factory=dict)
    outputs: int | None = None
    known: Sequence[int] = ()
    random: bool = False
    before: Sequence[Any] = ()  # nodes that make what the node reads, such as a sequence, named `before`
    after: Sequence[Any] = ()  # nodes that make a tensor `y` of what the node gives, named `o0`
    reads: Sequence[str] | None = None  # the names that the node reads, where they are not those of the inputs
    loose: float = 1.0  # by how much more than usual the results may differ


class Draw:
    """The draws for one node of an operator in a version."""

    def __init__(self, schema: Any, opset: int, seed: int) -> None:
        self.schema, self.opset = schema, opset
        self.rng = np.random.default_rng([seed, schema.since_version, *schema.name.encode()])
        self.version: int = schema.since_version
        self.kinds: dict[str, Any] = {}

    # Numbers

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def int(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def ints(self, count: int, low: int, high: int) -> list[int]:
        return [self.int(low, high) for _ in range(count)]

    def float(self, low: float, high: float) -> float:
        return float(np.float32(self.rng.uniform(low, high)))

    def pick(self, values: Sequence[Any]) -> Any:
        return values[self.int(0, len(values) - 1)]

    def maybe(self, value: Any, p: float = 0.6) -> Any:
        """Return a value, or none: then the default holds, or the input is absent."""
        return value if self.chance(p) else ABSENT

    def permutation(self, n: int) -> list[int]:
        return [int(v) for v in self.rng.permutation(n)]

    def subset(self, n: int, least: int = 1) -> list[int]:
        return sorted(self.permutation(n)[: self.int(min(least, n), n)])

    # Dims and axes

    def shape(self, low: int = 1, high: int = 4, largest: int = 5) -> tuple[int, ...]:
        return tuple(self.ints(self.int(low, high), 1, largest))

    def axis(self, rank: int, since: int = 11) -> int:
        """Return an axis, which may count from the end since a version."""
        at = self.int(0, rank - 1)
        return at - rank if self.version >= since and self.chance(0.4) else at

    def axes(self, rank: int, since: int = 11, least: int = 1) -> list[int]:
        return [a - rank if self.version >= since and self.chance(0.4) else a for a in self.subset(rank, least)]

    def like(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return dims that broadcast to a shape."""
        kept = [d if self.chance(0.7) else 1 for d in shape]
        return tuple(kept[self.int(0, len(kept)) :]) if self.chance(0.3) else tuple(kept)

    # Tensors

    def kind(self, i: int, *, only: Sequence[Any] | None = None) -> Any:
        """Return the type of input i: that of the variable in the definition, drawn once, and often F32."""
        formal = self.schema.inputs[min(i, len(self.schema.inputs) - 1)]
        variable = formal.type_str
        if variable not in self.kinds:
            known = [c.allowed_type_strs for c in self.schema.type_constraints if c.type_param_str == variable]
            allowed = [KINDS[t] for t in (known[0] if known else [variable]) if t in KINDS]
            allowed = [k for k in allowed if only is None or k in only]
            usual = np.float32 in allowed and self.chance(0.5)
            self.kinds[variable] = np.float32 if usual else self.pick(sorted(allowed, key=str))
        return self.kinds[variable]

    def array(self, shape: Sequence[int], kind: Any = np.float32, low: float = -3, high: float = 3) -> Any:
        if kind is np.bool_:
            return np.asarray(self.rng.random(tuple(shape)) < 0.5)
        if np.dtype(kind).kind in "iu":
            least = 0 if np.dtype(kind).kind == "u" else int(low * 3)
            return np.asarray(self.rng.integers(max(least, int(low * 3)), int(high * 3) + 1, tuple(shape)), kind)
        return np.asarray(self.rng.uniform(low, high, tuple(shape)), kind)

    def tensor(self, i: int, shape: Sequence[int], low: float = -3, high: float = 3, only: Any = None) -> Any:
        return self.array(shape, self.kind(i, only=only), low, high)

    def index(self, i: int, shape: Sequence[int], dim: int, negative: bool = True) -> Any:
        """Return indices of an axis of `dim` elements."""
        low = -dim if negative and self.version >= 11 and self.chance(0.5) else 0
        return np.asarray(self.rng.integers(low, dim, tuple(shape)), self.kind(i, only=(np.int64, np.int32)))


Recipe = Callable[[Draw], Drawn]


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attrs)
