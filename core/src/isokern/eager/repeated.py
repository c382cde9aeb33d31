"""Calls that were made before: what a call needs is found by its tensors' facts and its attributes, in one look.

Only calls of tensors are found so, which leave the device, the stream and the policy to the library, and the outputs,
or give one tensor for them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from marshal import dumps
from typing import Any

from ..backend.buffer_view import facts_of
from ..call.descriptor import Descriptor
from ..dtypes import DType
from ..runtime.lowered import is_lowering
from ..tensors import Tensor
from .create import create
from .quick import quicken, use

Call = Callable[..., Any]  # a known call, as a function of a sequence of its inputs, and of `out` if one was given
Found = tuple[Any, ...]  # the key of a call, its tensors, and `out` if that is given
Calls = dict[Hashable, Call]  # those of an operator: by the facts of their tensors, and their attributes

OPTIONS = frozenset(("device", "stream", "on_missing"))
KNOWN = 1024  # calls that are kept
GROUP = 1 << 20  # more than the tensors of a list
_known: dict[Hashable, Calls] = {}


def calls_of(owner: Hashable) -> Calls:
    """Return the known calls of an operator, or those that a function adds to it: always the same object."""
    return _known.setdefault(owner, {})


def _repeat(descriptor: Descriptor, attrs: Mapping[str, Any], given: Sequence[Tensor | None]) -> Call:
    """Return the call as a function of its inputs, which allocates the output; a tuple if there are several."""
    memory, calculate = descriptor.device.memory, descriptor.repeater()
    if descriptor.made_of:
        calculate = _ask_policy(calculate, descriptor, attrs)
    outputs = [
        (memory.allocator(desc.nbytes, desc.dtype), facts_of(desc, memory), desc.nbytes) for desc in descriptor.outputs
    ]
    over = Tensor.over

    def run(inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        made = tuple([over(allocate(), known, nbytes) for allocate, known, nbytes in outputs])
        calculate((*made, *inputs))
        return made

    if len(outputs) > 1:
        return quicken(descriptor, run, given)
    ((allocate, known, nbytes),) = outputs
    desc, new = known.desc, Tensor.__new__

    def run_one(inputs: Sequence[Tensor | None]) -> Tensor:
        made = new(Tensor)  # what Tensor.over does, without its call
        made.desc, made.facts, made.buffer = desc, known, allocate()
        at = made.buffer.address
        made.span = (at, at + nbytes)
        calculate((made, *inputs))
        return made

    return quicken(descriptor, run_one, given)


def _repeat_into(
    descriptor: Descriptor, attrs: Mapping[str, Any], given: Sequence[Tensor | None], target: Tensor
) -> Call:
    """Return the call as a function of its inputs and its output, which is returned."""

    def calculate(tensors: Sequence[Tensor | None]) -> None:
        descriptor.calculate(tensors[1:], tensors[:1], workspace="auto")  # which checks whether they overlap

    checked = _ask_policy(calculate, descriptor, attrs) if descriptor.made_of else calculate

    def run(inputs: Sequence[Tensor | None], out: Tensor) -> Tensor:
        checked((out, *inputs))
        return out

    return quicken(descriptor, run, given, target)


def _ask_policy(
    calculate: Callable[[Sequence[Tensor | None]], None], descriptor: Descriptor, attrs: Mapping[str, Any]
) -> Callable[[Sequence[Tensor | None]], None]:
    """Return the call of a decomposed operator, as long as the setting allows decomposing."""
    op, inputs, outputs, device = descriptor.operator, descriptor.inputs, descriptor.outputs, descriptor.device

    def run(tensors: Sequence[Tensor | None]) -> None:
        if not is_lowering(op.name):
            create(op, inputs, outputs, device=device, **attrs)  # which says why not
        calculate(tensors)

    return run


def key_of(given: Sequence[Any], named: Mapping[str, Any]) -> Found | None:
    """Return what a call is found by among its operator's, and the arguments of that; None for one not found so.

    `named` are its attributes and options. As bytes, values are equal only where their types are, and -0.0 is not 0.0.
    """
    out = named.get("out")
    if out.__class__ is Tensor:
        into = key_of(given, {name: value for name, value in named.items() if name != "out"})
        return None if into is None else (("out", out.facts, *into[0]), into[1], out)
    tensors: list[Tensor | None] = []
    groups = 0  # the position and the length of the list of tensors
    for at, value in enumerate(given):
        if value.__class__ is list or value.__class__ is tuple:
            if groups:
                return None
            tensors.extend(value)
            groups = (at + 1) * GROUP + len(value)
        else:
            tensors.append(value)
    while tensors and tensors[-1] is None:
        tensors.pop()
    try:
        facts = [None if t is None else t.facts for t in tensors]
        if facts:
            if not named and not groups:
                return tuple(facts), tensors
            values = [v.name if v.__class__ is DType else v for v in named.values()]
            return (*facts, groups, *named, dumps((*values,), 0)), tensors
    except (AttributeError, ValueError):  # something that is not a tensor, or an object that has no bytes
        pass
    return None


def is_kept(named: Mapping[str, Any]) -> bool:
    """Return whether a call may be found again: by attributes of Python's own types, and `out`."""
    return all(
        v.__class__ is Tensor
        if name == "out"
        else name not in OPTIONS
        and (type(v) in (bool, int, float, str, DType) or (type(v) is tuple and all(type(i) is int for i in v)))
        for name, v in named.items()
    )


def remember(found: Found, descriptor: Descriptor, attrs: Mapping[str, Any]) -> None:
    """Keep what a call needs for the next one of its kind."""
    use(descriptor.device.calls)
    make = _repeat if len(found) == 2 else _repeat_into
    keep(descriptor.operator, found[0], make(descriptor, attrs, *found[1:]))


def keep(owner: Hashable, key: Hashable, call: Call) -> None:
    """Keep a call by its key; all are forgotten when there are many."""
    tables = list(_known.values())  # a copy, since another thread may add one meanwhile
    if sum(map(len, tables)) >= KNOWN:
        for calls in tables:
            calls.clear()
    calls_of(owner)[key] = call
