"""Parameters that a program has in kernels' packed layouts alone: their memory is not there twice.

Where every operator that reads a parameter reads it in a packed layout, the parameter is packed as soon as it is on the
device, and then freed. That concerns what `compile` itself put there; a caller's tensor stays.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..call.descriptor import Descriptor
from ..graph.ir import Graph, Op, Value
from ..status import InvalidArgument, IsokernError
from ..tensors import Tensor

Key = tuple[str, str]  # the names of a parameter and of a layout
Readers = dict[Key, tuple[Descriptor, str]]  # a descriptor that packs it, and its operand
Pack = Callable[[str, Any], dict[Key, Tensor]]  # an array as a parameter, in the layouts that are there of that


@dataclass
class Packed:
    """Packed tensors by parameter and layout: `names` are the parameters.

    `arrays` are those of which some were made and that nobody can write to. What else a parameter was made of is
    compared by packing it with `pack`. `restore` computes the parameters' arrays again, from those that the program was
    compiled of.
    """

    tensors: dict[Key, Tensor] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    arrays: dict[str, weakref.ref[Any]] = field(default_factory=dict)
    pack: Pack | None = None
    restore: Callable[[], Mapping[str, Any]] | None = None

    def is_of(self, name: str, array: Any, made: Mapping[Key, Tensor] | None = None) -> bool:
        """Return whether a parameter was made of these elements; `made` is the array packed, if it is already."""
        known = self.arrays.get(name)
        if known is not None and known() is array and frozen(array):
            return True
        try:
            assert self.pack is not None
            packed = self.pack(name, array) if made is None else made
        except IsokernError:  # it has another dtype or other dims
            return False
        return all(np.array_equal(t.numpy(), self.tensors[key].numpy()) for key, t in packed.items())

    def originals(self) -> Mapping[str, Any]:
        """Return the arrays of all parameters; InvalidArgument where what they come from is gone, or another now."""
        assert self.restore is not None
        found = self.restore()
        for name in self.names:
            if not self.is_of(name, found[name]):
                raise InvalidArgument(name, "what it came from has been written to", hint="compile again")
        return found


def find_readers(graph: Graph, descriptors: Mapping[Op, Descriptor]) -> dict[str, Readers]:
    """Return the parameters that are read in packed layouts alone, with who packs them."""
    found = {}
    for value in graph.parameters:
        readers = _readers(descriptors, value)
        if readers and value not in graph.outputs:
            found[value.name] = readers
    return found


def _readers(descriptors: Mapping[Op, Descriptor], value: Value) -> Readers:
    """Return who packs a parameter, nobody where one operator reads it as it is."""
    found: Readers = {}
    for op in value.users:
        descriptor = descriptors.get(op)
        if descriptor is None or op.constraints:
            return {}
        layouts = descriptor.packed_layouts
        names = op.operator.operand_names(len(op.inputs))
        for name, given in zip(names, op.inputs, strict=False):
            if given is value and name not in layouts:
                return {}
            if given is value:
                found[value.name, layouts[name].name] = descriptor, name
    return found


def frozen(array: Any) -> bool:
    """Return whether nobody can write to an array: it is read-only, and so is every array that it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        if array.base is None or isinstance(array.base, bytes):
            return True
        array = array.base
    return False


def restorer(
    sources: Mapping[str, Any], compute: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Callable[[], Mapping[str, Any]]:
    """Return a function that computes parameters again from sources, to which it has no strong reference."""
    weak = {name: weakref.ref(s) for name, s in sources.items() if isinstance(s, (np.ndarray, Tensor))}
    strong = {name: s for name, s in sources.items() if name not in weak}  # lists and the like

    def restore() -> Mapping[str, Any]:
        given = {name: ref() for name, ref in weak.items()}
        if gone := [name for name, s in given.items() if s is None]:
            raise InvalidArgument(
                "program",
                f"a parameter is there in a packed layout alone, and {gone[0]}, which it came from, is gone",
                hint="compile with prepack=False, or keep the model",
            )
        return compute({**given, **strong})

    return restore
