"""The statements of a device about itself: names, properties, conditions and answers must be well-formed and true."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import numpy as np

from ... import tensors
from ...backend import Device, Kernel
from ...backend.discovery import backends, device as find_device
from ...backend.register import describe as describe_error
from ...cabi.plan import Plan
from ...call.descriptor import Descriptor
from ...declare.samples import assignments, describe
from ...layout import TensorDesc
from ...ops import all_operators, find
from ...oracle.cases import samples
from ...oracle.verdicts import Failure, Verdict
from ...status import DeviceNotAvailable, InvalidArgument, NotImplementedOnDevice
from .check import fail, lacks, runtime_check
from .work import Chain, choose_unary

CONDITIONS = ("flushes_denormals", "nondeterministic")
NAME = re.compile(r"[a-z0-9_]+:[0-9]+")


@runtime_check()
def has_a_name(device: Device) -> None:
    """The device is called `backend:index`, its aliases are strings, and a name of no device is refused."""
    if not NAME.fullmatch(device.name):
        fail(f"the device is called {device.name!r}", Verdict.FAIL_CLAIM)
    if not all(isinstance(a, str) and a for a in device.aliases):
        fail(f"aliases are {device.aliases!r}", Verdict.FAIL_CLAIM)
    try:
        find_device(f"{device.name}9999999")
    except DeviceNotAvailable:
        return
    fail(f"{device.name}9999999 was found")


@runtime_check()
def has_properties_one_can_print(device: Device) -> None:
    """`properties` and `conditions` map names to what JSON can say."""
    for facts in (device.properties, device.conditions):
        if not isinstance(facts, Mapping) or not all(isinstance(k, str) and k for k in facts):
            fail(f"{facts!r} is not a mapping with names", Verdict.FAIL_CLAIM)
        try:
            json.dumps(dict(facts), default=list)
        except (TypeError, ValueError) as error:
            fail(f"{facts!r}: {error}", Verdict.FAIL_CLAIM)


@runtime_check()
def states_known_conditions(device: Device) -> None:
    """Every condition is one that the suite knows, with a reason."""
    for name, reason in device.conditions.items():
        if name not in CONDITIONS:
            fail(f"condition {name!r} is not known; allowed: {', '.join(CONDITIONS)}", Verdict.FAIL_CLAIM)
        if not isinstance(reason, str) or not reason.strip():
            fail(f"condition {name} has no reason: {reason!r}", Verdict.FAIL_CLAIM)


@runtime_check()
def flushes_denormals_if_it_says_so(device: Device) -> None:
    """Where `flushes_denormals` is a condition, the device does not keep subnormal numbers in some operator."""
    if "flushes_denormals" not in device.conditions:
        lacks("the device follows IEEE 754")
    x = np.array([1e-40, -3e-42, 1e-45, 2e-39], np.float32)
    y = np.ones(4, np.float32)
    for name, given, wanted in (
        ("mul", [x, y], x),
        ("add", [x, x], x + x),
        ("neg", [x], -x),
        ("sqrt", [np.abs(x)], np.sqrt(np.abs(x))),
    ):
        if not device.supports(name, T="F32"):
            continue
        inputs = [tensors.tensor(a, device=device) for a in given]
        out = tensors.zeros((4,), device=device)
        descriptor = Descriptor.of(find(name), [t.desc for t in inputs], device=device)
        descriptor.calculate(inputs, out, workspace="auto")
        if (out.numpy() != wanted).any():
            return
    fail("mul, add, neg and sqrt keep subnormal numbers", Verdict.FAIL_CLAIM)


@runtime_check()
def answers_for_every_operator(device: Device) -> None:
    """Variants have distinct names, and `supported` returns None or a reason for any plan, the same one each time."""
    for operator in all_operators():
        variants = device.variants(operator.stem)
        names = [v.name for v in variants]
        if len(set(names)) != len(names) or not all(isinstance(n, str) and n for n in names):
            fail(f"variants of {operator.stem} are called {names}", Verdict.FAIL_CLAIM)
        for types in assignments(operator)[:4] if variants else ():
            for sample in samples(operator, "small", types)[:2]:
                plan = Plan(operator.resolve(*describe(operator, sample, types), sample.attrs))
                for v in variants:
                    try:
                        answers = [v.supported(plan) for _ in range(2)]
                    except Exception as error:
                        what = f"supported raised {describe_error(error)}"
                        raise Failure(Verdict.FAIL_CLAIM, f"{operator.name}, variant {v.name}: {what}") from error
                    first, second = answers
                    if first is not None and (not isinstance(first, str) or not first.strip()):
                        fail(f"{operator.name}, variant {v.name}: supported returned {first!r}", Verdict.FAIL_CLAIM)
                    if first != second:
                        fail(f"{operator.name}, variant {v.name}: answers {first!r}, then {second!r}")


@runtime_check()
def builds_what_it_supports(device: Device) -> None:
    """What `device.supports` lists can be created, and is a kernel with a workspace."""
    for name in ("add", "matmul", "softmax", "cast", "reduce_sum", choose_unary(device)):
        operator = find(name)
        for types in device.supports(operator)[:6]:
            sample = samples(operator, "small", types)[0]
            inputs, outputs = describe(operator, sample, types)
            try:
                descriptor = Descriptor.of(operator, inputs, outputs, device=device, **sample.attrs)
            except NotImplementedOnDevice as refused:
                fail(f"{name} counts as supported for {types}, and is refused: {refused}", Verdict.FAIL_CLAIM)
            if not isinstance(descriptor._kernel, Kernel):
                fail(f"{name}: the kernel is a {type(descriptor._kernel).__name__}", Verdict.FAIL_CLAIM)


@runtime_check()
def knows_its_kinds_of_memory(device: Device) -> None:
    """`memory.kinds` names kinds of memory that can be allocated; any other kind is refused."""
    kinds = device.memory.kinds
    if not kinds or len(set(kinds)) != len(kinds) or not all(isinstance(k, str) and k for k in kinds):
        fail(f"kinds are {kinds!r}", Verdict.FAIL_CLAIM)
    for kind in kinds:
        buffer = device.memory.alloc(64, kind=kind)
        if buffer.kind != kind or buffer.device is not device:
            fail(f"memory of kind {kind!r} says that it is {buffer.kind!r} of {buffer.device.name}", Verdict.FAIL_CLAIM)
    try:
        device.memory.alloc(64, kind="an unknown kind")
    except InvalidArgument:
        return
    fail("memory of a kind that the device does not have was allocated")


@runtime_check()
def refuses_memory_of_others(device: Device) -> None:
    """A call refuses tensors of another device, if possible of the same backend, and names it."""
    near_first = sorted(backends(), key=lambda b: b.name != _backend_of(device))  # no more are opened than needed
    other = next((d for b in near_first for d in b.devices if d is not device), None)
    if other is None:
        lacks("there is no other device")
    chain = Chain(device, length=1)
    foreign = tensors.zeros((64,), device=other)
    try:
        chain.descriptor.calculate(chain.tensors[0], foreign, workspace=chain.workspace)
    except InvalidArgument as error:
        if other.name not in str(error):
            fail(f"the error does not name {other.name}: {error}")
        return
    fail(f"a call wrote to a tensor of {other.name}")


@runtime_check()
def has_distinct_devices(device: Device) -> None:
    """Devices of a backend have memories and streams of their own, and the backend's name stands for the first."""
    backend = _backend_of(device)
    every = [d for b in backends() if b.name == backend for d in b.devices]
    if len(every) < 2:
        lacks("the backend has one device")
    for one in every:
        if find_device(one.name) is not one:
            fail(f"{one.name} is the name of another device", Verdict.FAIL_CLAIM)
    if find_device(backend) is not every[0]:
        fail(f"{backend} is {find_device(backend).name}, not {every[0].name}", Verdict.FAIL_CLAIM)
    for other in every:
        if other is device:
            continue
        if other.memory is device.memory or other.default_stream is device.default_stream:
            fail(f"{other.name} shares its memory or its default stream with {device.name}", Verdict.FAIL_CLAIM)
        before = device.memory.live
        kept = other.memory.alloc(1000)
        if device.memory.live != before:
            fail(f"memory of {other.name} counts as memory of {device.name}")
        own = device.memory.alloc(1000)
        own.write(np.full(1000, 1, np.uint8))
        kept.write(np.full(1000, 2, np.uint8))
        if (own.read() != 1).any() or (kept.read() != 2).any():
            fail(f"a write to memory of {other.name} changed memory of {device.name}")
        if device.stream_of(device.default_stream.handle) is other.default_stream:
            fail(f"the default stream of {other.name} is found by the handle of that of {device.name}")


def _backend_of(device: Device) -> str:
    return device.name.rpartition(":")[0]


@runtime_check()
def describes_tensors_it_has(device: Device) -> None:
    """Empty tensors, rank 0 and rank 8 are computed."""
    name = choose_unary(device)
    for shape in ((0,), (3, 0, 2), (), (1, 2, 1, 3, 1, 2, 1, 2)):
        desc = TensorDesc("F32", shape)
        x = tensors.tensor(np.full(shape, -2, np.float32), device=device)
        y = tensors.zeros(shape, device=device)
        Descriptor.of(find(name), [desc], device=device).calculate(x, y, workspace="auto")
        wanted = {"neg": 2, "copy": -2, "abs": 2, "relu": 0, "square": 4}[name]
        if (y.numpy() != wanted).any():
            fail(f"{name} of shape {shape} is wrong")
