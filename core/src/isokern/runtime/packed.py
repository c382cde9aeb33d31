"""Parameters that a program has in kernels' packed layouts alone: their memory is not there twice.

If every operator that reads a parameter reads it in a packed layout, the parameter is packed as soon as it is on the
device, and then freed. That concerns parameters that `compile` itself put there; a caller's tensor stays.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backend import PackedLayout
from ..call.descriptor import Descriptor
from ..graph.ir import Graph, Op, Value
from ..status import InvalidArgument
from ..tensors import Tensor

Key = tuple[str, PackedLayout]  # the name of a parameter, and a layout
Readers = dict[Key, tuple[Descriptor, str]]  # a descriptor that packs it, and its operand
Content = bytes | weakref.ref[Any]  # a digest, or a read-only array


@dataclass
class Packed:
    """Packed tensors by parameter and layout; `contents` has the content of each parameter when it was packed.

    `restore` computes the parameters' arrays again, from those that the program was compiled of.
    """

    tensors: dict[Key, Tensor] = field(default_factory=dict)
    contents: dict[str, Content] = field(default_factory=dict)
    restore: Callable[[], Mapping[str, Any]] | None = None

    def originals(self) -> Mapping[str, Any]:
        """Return the arrays of all parameters; InvalidArgument where what they come from is gone, or another now."""
        assert self.restore is not None
        found = self.restore()
        for name, content in self.contents.items():
            if not is_same(content_of(found[name]), content):
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
    """Return the descriptors that pack a parameter, none if one operator reads it as it is."""
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
                found[value.name, layouts[name]] = descriptor, name
    return found


def content_of(array: Any) -> Content:
    """Return a key of an array's content: the array itself if it is read-only, else a digest."""
    return weakref.ref(array) if frozen(array) else digest(array)


def is_same(one: Content | None, other: Content | None) -> bool:
    """Return whether two contents are known to be equal."""
    if isinstance(one, weakref.ref) and isinstance(other, weakref.ref):
        array = one()
        return array is not None and array is other()
    return isinstance(one, bytes) and one == other


def frozen(array: Any) -> bool:
    """Return whether an array cannot be written to: it is read-only, and so is every array that it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        if array.base is None or isinstance(array.base, bytes):
            return True
        array = array.base
    return False


def digest(array: Any) -> bytes:
    """Return a digest of an array's content, its dtype and dims."""
    dense = np.ascontiguousarray(array)
    made = hashlib.blake2b(f"{dense.dtype} {dense.shape}".encode(), digest_size=16)
    made.update(dense.reshape(-1).view(np.uint8).data)
    return made.digest()


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
