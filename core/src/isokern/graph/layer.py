"""Layer: a part of a model, and the context in which it emits its operators.

A host application's own layer is a class with `emit(ctx, *inputs)`; `ctx` gives it parameters, operators and nested
layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..status import BadTensorShape, InvalidArgument
from .builder import Builder
from .ir import Value


@dataclass(frozen=True)
class Initial:
    """How `initialise` fills a parameter: `shift` plus normally distributed numbers times `scale`."""

    scale: float = 1.0
    shift: float = 0.0


class Layer:
    """A part of a model; its constructor takes the configuration, `emit` the input values."""

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Emit the operators of this layer and return its result."""
        raise NotImplementedError(f"{type(self).__name__} does not define emit")


class Context:
    """A layer's access to the model that it is in; `path` is the layer's name there, `conv1` or `block.0.fc`."""

    def __init__(self, builder: Builder, initial: dict[str, Initial], path: str) -> None:
        self._builder, self._initial, self.path = builder, initial, path

    def emit(
        self, kind: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any] | None = None, **options: Any
    ) -> Value:
        """Emit an operator of one output, under the layer's name; `options` are those of `Builder.emit`."""
        (y,) = self.emit_all(kind, inputs, attrs, **options)
        return y

    def emit_all(
        self, kind: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any] | None = None, **options: Any
    ) -> tuple[Value, ...]:
        """Emit an operator and return all its outputs."""
        return self._builder.emit(kind, inputs, attrs, name=self.path, **options)

    def parameter(
        self, name: str, shape: Sequence[int], dtype: object = "F32", *, scale: float = 1.0, shift: float = 0.0
    ) -> Value:
        """Declare a parameter of this layer; `scale` and `shift` say how `Model.initialise` fills it."""
        full = f"{self.path}.{name}"
        value = self._builder.parameter(full, shape, dtype)
        self._initial[full] = Initial(scale, shift)
        return value

    def add(self, layer: Layer, *inputs: Value, name: str) -> Value:
        """Apply a layer inside this one, and return its result."""
        return Context(self._builder, self._initial, f"{self.path}.{name}").apply(layer, inputs)

    def apply(self, layer: Layer, inputs: Sequence[Value]) -> Value:
        """Apply a layer under the name `path`, with which errors begin, and return its result."""
        if not isinstance(layer, Layer):
            raise InvalidArgument(self.path, f"{layer!r} is a {type(layer).__name__}", allowed="a Layer")
        found = layer.emit(self, *inputs)
        if not isinstance(found, Value):
            raise InvalidArgument(self.path, f"{type(layer).__name__}.emit gave {found!r}", allowed="a Value")
        return found

    def expect(self, inputs: Sequence[Value], count: int) -> Sequence[Value]:
        """Return the inputs if there are `count`; raise InvalidArgument otherwise."""
        if len(inputs) != count:
            raise InvalidArgument(self.path, f"{len(inputs)} inputs are given", allowed=str(count))
        return inputs

    def dim(self, x: Value, axis: int, rank: int | None = None) -> int:
        """Return a dim of x; raise BadTensorShape unless x has that axis (and that rank, if one is given)."""
        shape = x.spec.shape
        if (rank is not None and len(shape) != rank) or not -len(shape) <= axis < len(shape):
            allowed = f"rank {rank}" if rank is not None else f"a rank that has dim {axis}"
            raise BadTensorShape(self.path, f"{x!r}", allowed=allowed)
        return shape[axis]
