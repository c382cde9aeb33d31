"""Repeated calls in C, if a device's library has a module for them (`_calls` of the CPU plug-in).

The module finds a call by the key that `repeated.key_of` makes, in the same table, and makes it by the same functions
of the native library. It leaves unknown calls to the code in Python, which also reports mistakes: without the module
everything is the same, and slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from marshal import dumps
from typing import Any

from .. import debug
from ..backend import Device, Workspace, streams
from ..backend.buffer_view import Facts
from ..backend.host_memory import HostMemory, PooledBuffer
from ..backend.kernels import NativeStep
from ..call.descriptor import Descriptor
from ..dtypes import DType
from ..runtime.lowered import SETTING
from ..status import InvalidArgument
from ..tensors import Tensor

_told: list[Callable[[Any], None]] = []  # called with the module, when it is there
_modules: list[Any] = []  # one at most: the first that a device had


def when_quick(tell: Callable[[Any], None]) -> None:
    """Have `tell` called with the module: now, or when a device first has one."""
    _told.append(tell)
    for module in _modules:
        tell(module)


def use(module: Any) -> None:
    """Find calls by a device's module from now on, if it has one; the first such module is used for all devices."""
    if module is not None and not _modules:
        module.use(Tensor, PooledBuffer, DType, InvalidArgument, dumps, vars(debug), streams._current)
        _modules.append(module)
        for tell in _told:
            tell(module)


def quicken(
    descriptor: Descriptor, run: Callable[..., Any], inputs: Sequence[Tensor | None], out: Tensor | None = None
) -> Callable[..., Any]:
    """Return the call in C, as a function of its inputs; `run` itself, which does the same, if that is impossible.

    With `out` it is also a function of its output, and returns that. The facts that it compares are those of `inputs`
    and `out`, by which it is found: the descriptor's may be equal ones that were made at another time.
    """
    outputs = len(descriptor.outputs)
    facts = descriptor.facts[:outputs] if out is None else [out.facts]
    facts += [None if t is None else t.facts for t in inputs]
    facts += [None] * (len(descriptor.facts) - len(facts))  # absent inputs, which `inputs` does not list
    aliases = -1 if out is None else sum(1 << at - outputs for at in descriptor.aliasable)
    steps = descriptor.native_steps()
    setting = SETTING if descriptor.made_of else None
    made = _make(descriptor.device, steps, facts, outputs, descriptor.workspace, run, setting, aliases)
    return run if made is None else made


def join(
    calls: Sequence[tuple[Descriptor, Sequence[int]]], facts: Sequence[Facts], run: Callable[..., Any]
) -> Callable[..., Any]:
    """Return several calls in C as one; `run`, a function of a sequence of the inputs, if that is impossible.

    `facts` are those of the output and the inputs. Each call works on views of these: it comes with the places of its
    tensors among them, outputs first, -2 for an absent one.
    """
    steps: list[NativeStep] = []
    space = Workspace()
    for descriptor, places in calls:
        inner = None if descriptor.made_of else descriptor.native_steps()
        if inner is None:
            return run
        steps += [(do, plan, tuple(p if p < 0 else places[p] for p in at), fail) for do, plan, at, fail in inner]
        space = descriptor.workspace if descriptor.workspace.size > space.size else space
    made = _make(calls[0][0].device, steps, facts, 1, space, run)
    return run if made is None else made


def _make(
    device: Device,
    steps: Sequence[NativeStep] | None,
    facts: Sequence[Facts | None],
    outputs: int,
    need: Workspace,
    run: Callable[..., Any],
    setting: str | None = None,
    aliases: int = -1,
) -> Callable[..., Any] | None:
    """Return the call in C, of kernels that run in this thread, on memory of the heap; else None."""
    module, memory = device.calls, device.memory
    if (
        module not in _modules
        or not steps
        or device.asynchronous
        or not isinstance(memory, HostMemory)
        or memory.heap is None
        or outputs > (module.OUTPUTS if aliases < 0 else 1)
        or max(len(facts), *(len(places) for _, _, places, _ in steps)) > module.TENSORS
    ):
        return None
    made: Callable[..., Any] = module.Call(
        steps=tuple(steps),
        outputs=tuple(_describe_output(known, memory) for known in facts[:outputs]),
        facts=tuple(facts[outputs:]),
        bytes=need.size,
        stream=device.default_stream.handle,
        setting=setting,
        heap=memory.heap,
        memory=memory,
        fallback=run,
        scratch=device.default_stream.scratch,
        need=need,
        aliases=aliases,
        running=partial(streams.running_stream, device),
        default_stream=device.default_stream,
    )
    return made


def _describe_output(known: Facts | None, memory: HostMemory) -> tuple[Any, ...]:
    """Return the facts of a new output; the last is the function that allocates memory too large for the heap."""
    assert known is not None
    desc = known.desc
    allocate = None if memory.is_of_heap(desc.nbytes) else memory.allocator(desc.nbytes, desc.dtype)
    return desc, known, desc.dtype, desc.nbytes, allocate
