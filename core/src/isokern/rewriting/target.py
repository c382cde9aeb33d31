"""Target: which operators may stay in a graph, and why the others may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ..backend import Device
from ..backend.dispatch import consider, refusal
from ..backend.kernels import KernelVariant
from ..declare.operator import Operator, Resolved
from ..graph.ir import Op, TensorSpec, specs_of
from ..ops import all_operators, find

Specs = Sequence[TensorSpec | None]
Answer = str | None  # why an operator may not stay
Rule = Callable[[Operator, Specs, Specs, Mapping[str, Any]], Answer]

EXCEPTIONS = {
    "random_sample": "sampling is defined bit by bit, its order of sums and its exponential included: "
    "loop nests leave these to the device",
    "copy_slice": "it changes a part of a tensor in place: the primitive that linalg calls insert_slice",
    "cache_update": "it changes a part of a tensor in place, at positions that are data",
    "paged_cache_update": "it changes a part of a tensor in place, at slots that are data",
}


def primitives() -> list[str]:
    """Return the operators that have no decomposition, without the exceptions.

    A device that has them can run every graph.
    """
    return [op.name for op in all_operators() if op.decompose is None and op.name not in EXCEPTIONS]


class Target:
    """The operators that may stay.

    `legal` and `illegal` name kinds, `dynamic` gives a function for a kind, and `otherwise` is asked about all others.
    """

    def __init__(self, otherwise: Rule | None = None) -> None:
        self._rules: dict[str, Rule] = {}
        self._otherwise = otherwise

    def legal(self, *kinds: str) -> Target:
        """Let these kinds stay."""
        self._rules |= {find(k).name: lambda *_: None for k in kinds}
        return self

    def illegal(self, *kinds: str, reason: str = "it is illegal in the target") -> Target:
        """Let these kinds not stay."""
        self._rules |= {find(k).name: lambda *_: reason for k in kinds}
        return self

    def dynamic(self, kind: str, rule: Rule) -> Target:
        """Let the rule decide whether this kind may stay: it returns None, or why not."""
        self._rules[find(kind).name] = rule
        return self

    def why_not(self, operator: Operator, inputs: Specs, outputs: Specs, attrs: Mapping[str, Any]) -> Answer:
        """Return None where an operator may stay, else the reason."""
        rule = self._rules.get(operator.name, self._otherwise)
        return f"the target does not name {operator.name}" if rule is None else rule(operator, inputs, outputs, attrs)

    def why_not_op(self, op: Op) -> Answer:
        """Return `why_not` of an operator of a graph."""
        if isinstance(self._otherwise, _OfDevice) and op.operator.name not in self._rules:
            return self._otherwise.answer(op.resolve())
        return self.why_not(op.operator, specs_of(op.declared), [v.spec for v in op.outputs], op.attrs)

    @classmethod
    def of_primitives(cls) -> Target:
        """Return a target of the primitives and the exceptions alone."""
        return cls(lambda op, *_: "it is no primitive").legal(*primitives(), *EXCEPTIONS)

    @classmethod
    def of_device(cls, device: Device) -> Target:
        """Return a target of the operators that the device has a kernel for; it is asked about each call once."""
        return cls(_OfDevice(device))


Known = WeakKeyDictionary[Resolved, tuple[Sequence[KernelVariant], Answer]]
_answers: WeakKeyDictionary[Device, Known] = WeakKeyDictionary()


class _OfDevice:
    """The rule that a device has a kernel for a call.

    What it answered is kept as long as the call is known and the device lists the same variants.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._known = device, _answers.setdefault(device, WeakKeyDictionary())

    def __call__(self, operator: Operator, inputs: Specs, outputs: Specs, attrs: Mapping[str, Any]) -> Answer:
        return self.answer(operator.resolve(inputs, [o for o in outputs if o is not None], attrs))

    def answer(self, resolved: Resolved) -> Answer:
        """Return why the device has no kernel for a call, None where it has one."""
        stem = resolved.operator.stem
        variants, known = self._device.variants(stem), self._known.get(resolved)
        if known is not None and known[0] is variants:
            return known[1]
        _, chosen, answers = consider(self._device, resolved)
        found = None if chosen is not None else refusal(self._device, stem, answers)
        self._known[resolved] = variants, found
        return found
