"""Calls of operators from Python and through the C interface, on the same bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import isokern
from isokern import IsokernError, TensorDesc
from isokern.cabi.plan import _pack
from isokern.declare.operator import Operator, Sample
from isokern.declare.samples import assignments, describe, fits, slots
from isokern.dtypes import DType
from isokern.oracle import values
from isokern.oracle.layouts import place
from isokern.status import Status
from isokern.tensors import Tensor

POISON = 0xA5


@dataclass
class Call:
    """One call: an operator, its tensors as they are stored, and the bytes of its inputs."""

    operator: Operator
    inputs: list[TensorDesc | None]
    outputs: list[TensorDesc]
    attrs: Mapping[str, Any]
    data: list[bytes | None]
    text: str


def _bytes_of(desc: TensorDesc) -> int:
    return max(1, desc.dtype.nbytes(desc.extent[1]))


def _store(array: Any, desc: TensorDesc) -> bytes:
    """Return the buffer of a tensor with an array's elements; what is between them is poison."""
    if desc.dtype.block > 1 or (desc.is_contiguous and desc.offset == 0):
        return np.ascontiguousarray(array).tobytes() or b"\0"
    raw = np.full(_bytes_of(desc), POISON, np.uint8)
    size = desc.dtype.itemsize
    flat = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).reshape(*desc.shape, size)
    strides = [s * size for s in desc.strides]
    view = np.lib.stride_tricks.as_strided(raw[desc.offset * size :], (*desc.shape, size), (*strides, 1))
    view[...] = flat
    return raw.tobytes()


def calls(op: Operator, types: Mapping[str, DType], layout: str = "contiguous") -> Iterator[Call]:
    """Yield a call for each small sample that goes with these dtypes."""
    for sample in op.samples():
        if sample.size == "small" and fits(op, sample, types):
            yield _call(op, sample, types, layout)


def _call(op: Operator, sample: Sample, types: Mapping[str, DType], layout: str) -> Call:
    rng = values.generator(f"{op.name}/{sample.text}")
    domains = {**op.domains, **sample.values}
    given = slots(op, sample, types)
    inputs, outputs = describe(op, sample, types)

    def stored(desc: TensorDesc) -> TensorDesc:
        return desc if desc.dtype.block > 1 else place(layout, desc.dtype, desc.shape, 0)[0]

    descs = [None if d is None else stored(d) for d in inputs]
    data: list[bytes | None] = []
    for slot, desc in zip(given, descs, strict=False):
        if desc is None:
            data.append(None)
            continue
        data.append(_store(values.draw(domains.get(slot.operand.name, "any"), slot.dtype, desc.shape, rng), desc))
    dtypes = ",".join(d.name for d in types.values())
    return Call(
        op, descs, [stored(o) for o in outputs], sample.attrs, data, f"{op.name}/{dtypes}/{sample.text}/{layout}"
    )


def in_python(call: Call, device: Any) -> tuple[Status, Sequence[bytes], Sequence[str]]:
    """Return the status, the outputs' buffers, and what the call was made of."""

    def tensor(desc: TensorDesc, data: bytes) -> Tensor:
        made = Tensor(desc, device.memory.alloc(max(len(data), 1), desc.dtype, empty=True))
        ctypes.memmove(made.buffer.address, data, len(data))
        return made

    try:
        made = isokern.create(call.operator, call.inputs, call.outputs, device=device, **call.attrs)
    except IsokernError as error:
        return error.status, [], []
    ins = [None if d is None else tensor(d, b or b"\0") for d, b in zip(call.inputs, call.data, strict=True)]
    outs = [tensor(o, bytes([POISON]) * _bytes_of(o)) for o in call.outputs]
    try:
        made.calculate(ins, outs, workspace="auto")
        status = Status.SUCCESS
    except IsokernError as error:
        status = error.status
    found = [ctypes.string_at(t.buffer.address, _bytes_of(t.desc)) for t in outs]
    return status, found, made.made_of or ()


def in_c(call: Call, ffi: Any, lib: Any) -> tuple[Status, Sequence[bytes], int]:
    """Return the status, the outputs' buffers, and the bytes of the workspace."""
    op, descs = call.operator, [*call.outputs, *call.inputs]
    tensors = ffi.new("ik_tensor[]", max(1, len(descs)))
    for i, desc in enumerate(descs):
        ffi.memmove(ffi.addressof(tensors, i), bytes(_pack(desc)), ffi.sizeof("ik_tensor"))
    blob = op.attrs.pack(op.attrs.check(op.name, call.attrs)) if op.attrs.attrs else b""
    packed = ffi.new("char[]", blob or b"\0")
    given = ffi.new("ik_attributes *", [op.attrs.schema_id, len(blob), packed] if blob else [0, 0, ffi.NULL])
    plan = ffi.new("ik_plan **")
    status = Status(lib.ik_op_create(op.kind_id, tensors, len(descs), given, plan))
    if status != Status.SUCCESS:
        return status, [], 0
    size, kind = ffi.new("uint64_t *"), ffi.new("const char **")
    assert lib.ik_op_workspace(plan[0], size, kind) == 0
    stream, memory = lib.ik_stream_create(), ffi.new("void **")
    assert lib.ik_memory_alloc(size[0] + 64, b"default", memory) == 0
    buffers = [_aligned(ffi, bytes([POISON]) * _bytes_of(o)) for o in call.outputs]
    buffers += [(ffi.NULL, ffi.NULL) if b is None else _aligned(ffi, b) for b in call.data]
    data = ffi.new("void *[]", [at for _, at in buffers])
    end = ffi.buffer(ffi.cast("char *", memory[0]) + size[0], 64)
    end[:] = bytes([POISON]) * 64
    status = Status(lib.ik_op_call(plan[0], data, memory[0] if size[0] else ffi.NULL, size[0], stream))
    assert end[:] == bytes([POISON]) * 64, f"{call.text}: it writes behind its workspace"
    found = [bytes(ffi.buffer(at, _bytes_of(o))) for (_, at), o in zip(buffers, call.outputs, strict=False)]
    lib.ik_memory_free(memory[0])
    lib.ik_stream_destroy(stream)
    lib.ik_op_destroy(plan[0])
    return status, found, size[0]


def _aligned(ffi: Any, data: bytes) -> tuple[Any, Any]:
    """Return (what keeps the memory, its address): a copy of the data at an address divisible by 64."""
    kept = ffi.new("char[]", len(data) + 64)
    at = kept + (-int(ffi.cast("uintptr_t", kept)) % 64)
    ffi.memmove(at, data, len(data))
    return kept, at


def first_types(op: Operator) -> dict[str, DType]:
    """Return the dtypes of the first combination."""
    return assignments(op)[0]
