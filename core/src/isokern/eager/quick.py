"""Repeated calls in C, where a device's library has a module for them (`_calls` of the CPU plug-in).

The module finds a call by the key that `repeated.key_of` makes, in the same table, and makes it by the same functions
of the native library. What it does not know it leaves to the way in Python, which says what is wrong, too: without the
module everything is the same, and slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from marshal import dumps
from typing import Any

from .. import debug
from ..backend import streams
from ..backend.host_memory import HostMemory, PooledBuffer
from ..call.descriptor import Descriptor
from ..dtypes import DType
from ..runtime.lowered import SETTING
from ..status import InvalidArgument
from ..tensors import Tensor

_told: list[Callable[[Any], None]] = []  # of the module, when it is there
_modules: list[Any] = []  # one at most: the first that a device had


def when_quick(tell: Callable[[Any], None]) -> None:
    """Have `tell` called with the module: now, or when a device first has one."""
    _told.append(tell)
    for module in _modules:
        tell(module)


def use(module: Any) -> None:
    """Find calls by a device's module from now on, where it has one; the first such module is used for all devices."""
    if module is not None and not _modules:
        module.use(Tensor, PooledBuffer, DType, InvalidArgument, dumps, vars(debug), streams._current)
        _modules.append(module)
        for tell in _told:
            tell(module)


def quicken(
    descriptor: Descriptor, run: Callable[[Sequence[Tensor | None]], Any]
) -> Callable[[Sequence[Tensor | None]], Any]:
    """Return the call in C, as a function of its inputs; `run` itself, which does the same, where it cannot be."""
    device, memory = descriptor.device, descriptor.device.memory
    module, steps = device.calls, descriptor.native_steps()
    facts, outputs = descriptor.facts, len(descriptor.outputs)
    if (
        module not in _modules
        or steps is None
        or device.asynchronous
        or not isinstance(memory, HostMemory)
        or memory.heap is None
        or outputs > module.OUTPUTS
        or max(len(facts), *(len(places) for _, _, places, _ in steps)) > module.TENSORS
    ):
        return run
    return module.Call(  # type: ignore[no-any-return]  # the module has no types
        steps=tuple(steps),
        outputs=tuple(
            (
                desc,
                known,
                desc.dtype,
                desc.nbytes,
                None if memory.is_of_heap(desc.nbytes) else memory.allocator(desc.nbytes, desc.dtype),
            )
            for desc, known in zip(descriptor.outputs, facts, strict=False)
        ),
        facts=tuple(facts[outputs:]),
        bytes=descriptor.workspace_size,
        stream=device.default_stream.handle,
        asked=SETTING if descriptor.made_of else None,
        heap=memory.heap,
        memory=memory,
        slowly=run,
        scratch=device.default_stream.scratch,
        need=descriptor.workspace,
    )
