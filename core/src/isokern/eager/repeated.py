"""Calls that were made before: what a call needs is found by its tensors' facts and its attributes, in one look.

Only calls of tensors are found so, which leave the outputs, the device, the stream and the policy to the library, and
for which the device has a kernel.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..backend.buffer_view import facts_of
from ..call.descriptor import Descriptor
from ..declare.operator import Operator
from ..tensors import Tensor

OPTIONS = frozenset(("out", "device", "stream", "on_missing"))
KNOWN = 1024  # calls that are kept
_known: dict[Hashable, Repeated] = {}
_EXACT = frozenset((bool, int, str))  # equal values of one of these types are the same


class Repeated:
    """A call with certain facts: its descriptor, and how its outputs are allocated."""

    __slots__ = ("allocate", "calculate", "outputs")

    def __init__(self, descriptor: Descriptor) -> None:
        self.calculate = descriptor.calculate
        self.allocate = descriptor.device.memory.alloc
        self.outputs = [
            (facts_of(desc, descriptor.device.memory), desc.nbytes, desc.dtype) for desc in descriptor.outputs
        ]

    def run(self, tensors: Sequence[Tensor | None]) -> Any:
        """Make the call, and return the output; a tuple where there are several."""
        made = [
            Tensor.over(self.allocate(nbytes, element, empty=True), facts, nbytes)
            for facts, nbytes, element in self.outputs
        ]
        self.calculate(tensors, made, workspace="auto")
        return made[0] if len(made) == 1 else tuple(made)


def key_of(operator: Operator, given: Sequence[Any], named: Mapping[str, Any]) -> Hashable | None:
    """Return what a call is found by; None for one that is not found so."""
    facts: list[Any] = []
    for value in given:
        if value.__class__ is Tensor:
            facts.append(value.facts)
        elif value is None and facts:
            facts.append(None)
        else:
            return None
    if not facts:
        return None
    if not named:
        return operator, *facts
    if not OPTIONS.isdisjoint(named):
        return None
    for value in named.values():
        kind = type(value)
        if kind is float:
            if value == 0:  # which may be -0.0
                return None
        elif kind is tuple:
            if not all(type(v) is int for v in value):
                return None
        elif kind not in _EXACT:
            return None
    return operator, *facts, *named.items(), *map(type, named.values())


def find(key: Hashable) -> Repeated | None:
    """Return what is known of a call."""
    return _known.get(key)


def remember(key: Hashable, descriptor: Descriptor) -> None:
    """Keep what a call needs for the next one of its kind."""
    if len(_known) >= KNOWN:
        _known.clear()
    _known[key] = Repeated(descriptor)
