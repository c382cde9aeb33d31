"""Model: layers applied to inputs, the parameters by name, and the graph that results."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arguments import integer, regular_file
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import numbers
from .builder import Builder
from .ir import PARAMETER, Graph, Op, Value, spec_text
from .layer import Context, Initial, Layer

Array = np.ndarray[Any, Any]


class Model:
    """A model: built by `input`, `add` and `output`; then its `graph`, and the values of its parameters.

    `parameters` maps names to read-only arrays of the graph's dtypes and shapes; `set`, `load` and `initialise` replace
    them.
    """

    def __init__(self, name: str = "model") -> None:
        self.builder = Builder(name)
        self.initial: dict[str, Initial] = {}
        self.parameters: dict[str, Array] = {}
        self._used: dict[str, int] = {}

    @property
    def graph(self) -> Graph:
        """The graph so far."""
        return self.builder.graph

    def input(self, name: str, shape: Sequence[int], dtype: object = "F32") -> Value:
        """Declare a tensor that is fed to every run."""
        return self.builder.input(name, shape, dtype)

    def add(self, layer: Layer, *inputs: Value, name: str | None = None) -> Value:
        """Apply a layer and return its result.

        The default name is the layer's class and a number, `linear1`.
        """
        if name is None:
            kind = type(layer).__name__.lower()
            self._used[kind] = self._used.get(kind, 0) + 1
            name = f"{kind}{self._used[kind]}"
        return self.apply(layer, inputs, name)

    def apply(self, layer: Layer, inputs: Sequence[Value], path: str) -> Value:
        """Apply a layer under a full name; errors begin with it."""
        return Context(self.builder, self.initial, path).apply(layer, inputs)

    def output(self, *values: Value) -> None:
        """Append values to the results, in order."""
        self.builder.output(*values)

    # Parameters

    def set(self, arrays: Mapping[str, Any]) -> None:
        """Set parameters by name; each is checked, and converted to the graph's dtype.

        Names that the graph does not have are errors. An error leaves all parameters as they were.
        """
        known = {v.name: v for v in self.graph.parameters}
        checked: dict[str, Array] = {}
        if not isinstance(arrays, Mapping):
            given = f"arrays is a {type(arrays).__name__}"
            raise InvalidArgument(self.graph.name, given, allowed="a mapping of names to arrays")
        for name, given in arrays.items():
            if name not in known:
                import difflib

                close = difflib.get_close_matches(name, known) if isinstance(name, str) else []
                near = ", ".join(close) or ", ".join(known) or "none"
                raise InvalidArgument(self.graph.name, f"parameter {quote(name)}", allowed=near)
            spec = known[name].spec
            array = numbers(self.graph.name, given)
            if array.shape != spec.shape:
                raise BadTensorShape(
                    self.graph.name, f"parameter {name} has shape {list(array.shape)}", allowed=spec_text(spec)
                )
            if spec.dtype.numpy is None:
                raise BadTensorDtype(
                    self.graph.name, f"parameter {name} is {spec.dtype}", allowed="a dtype that NumPy has"
                )
            if array.dtype != spec.dtype.numpy and not (array.dtype.kind in "fV" and spec.dtype.kind == "f"):
                raise BadTensorDtype(
                    self.graph.name,
                    f"parameter {name} is of {array.dtype}",
                    allowed=f"{spec.dtype}, or another float type",
                )
            held = np.array(array, spec.dtype.numpy, order="C")
            held.flags.writeable = False  # so that compiles of one model may share their copies of it
            checked[name] = held
        self.parameters |= checked

    def initialise(self, seed: int = 0) -> None:
        """Fill all parameters as their layers say.

        The same seed and the same names give the same numbers on every machine.
        """
        seed, values = integer("initialise", "seed", seed, 0), {}
        for value in self.graph.parameters:
            how = self.initial.get(value.name, Initial())
            words = [seed, *value.name.encode()]
            values[value.name] = how.shift + how.scale * np.random.default_rng(words).standard_normal(value.spec.shape)
        self.set(values)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Load all parameters from a safetensors file; needs the extra isokern[graph].

        An error leaves all parameters as they were.
        """
        safe = import_safetensors()
        regular_file("load", path, exists=True)
        try:
            arrays = safe.numpy.load_file(path)
        except Exception as error:  # not a safetensors file: the message is the library's
            raise InvalidArgument("load", f"{os.fspath(path)}: {error}", allowed="a safetensors file") from error
        missing = [v.name for v in self.graph.parameters if v.name not in arrays]
        if missing:
            raise InvalidArgument("load", f"{os.fspath(path)} has no {', '.join(missing)}", allowed="all parameters")
        self.set(arrays)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all parameters to a safetensors file; needs the extra isokern[graph]."""
        self.complete()
        safe, held = import_safetensors(), {v.name: self.parameters[v.name] for v in self.graph.parameters}
        regular_file("save", path, exists=False)
        try:
            safe.numpy.save_file(held, path)
        except Exception as error:  # the folder is missing or not writable: the message is the library's
            raise InvalidArgument(
                "save", f"{os.fspath(path)}: {error}", allowed="a path that can be written"
            ) from error

    def complete(self) -> None:
        """Raise InvalidArgument unless every parameter has a value."""
        missing = [v.name for v in self.graph.parameters if v.name not in self.parameters]
        if missing:
            hint = "give them by set, load or initialise"
            raise InvalidArgument(self.graph.name, f"parameters {', '.join(missing)} are not given", hint=hint)

    # Showing

    def summary(self) -> str:
        """Return a table of the operators, each with its layer, outputs, number of parameters and operations."""
        from rich.console import Console
        from rich.table import Table

        table = Table(title=self.graph.name)
        for column in ("layer", "operator", "output"):
            table.add_column(column)
        for column in ("parameters", "MFLOP"):
            table.add_column(column, justify="right")
        total, work = 0, 0.0
        for op in self.graph.ops:
            held = sum(v.spec.numel for v in op.given if v.role == PARAMETER and v.users[0] is op)
            flops = work_of(op)
            outputs = ", ".join(spec_text(v.spec) for v in op.outputs)
            table.add_row(op.name, op.kind, outputs, f"{held:,}" if held else "", f"{flops / 1e6:.3g}" if flops else "")
            total, work = total + held, work + flops
        table.add_section()
        table.add_row("", "", "", f"{total:,}", f"{work / 1e6:.3g}")
        console = Console(width=120, file=io.StringIO(), markup=False, emoji=False, highlight=False)
        with console.capture() as shown:
            console.print(table)
        return shown.get()


def work_of(op: Op) -> float:
    """Return the floating-point operations of an operator, 0 if its declaration does not give them."""
    given, made = [None if v is None else v.spec for v in op.declared], [v.spec for v in op.outputs]
    return op.operator.flops(given, made) if op.operator.flops is not None else 0.0


def import_safetensors() -> Any:
    """Return the library, or raise InvalidArgument with the way to install it."""
    try:
        import safetensors.numpy
    except ImportError:
        raise InvalidArgument(
            "safetensors", "the library is not installed", hint="pip install 'isokern[graph]'"
        ) from None
    return safetensors
