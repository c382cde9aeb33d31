"""The plan and the call: the two records of the calling convention, as ctypes structures.

The C header is generated from them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..layout import MAX_RANK, TensorDesc

if TYPE_CHECKING:
    from ..declare.operator import Operator, Resolved

ABI_VERSION = 4


class TensorRecord(ctypes.Structure):
    """One tensor in normal form; dtype 0 is an optional tensor that is absent."""

    _fields_ = (
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    )


class PlanRecord(ctypes.Structure):
    """A plan as kernels read it.

    It is filled at create, by dispatch with the variant and its workspace, and not written afterwards, so many threads
    may run it with different data.
    """

    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("variant", ctypes.c_uint32),
        ("tensor_count", ctypes.c_uint32),
        ("tensors", ctypes.POINTER(TensorRecord)),
        ("schema_id", ctypes.c_uint64),
        ("attr_bytes", ctypes.c_uint64),
        ("attrs", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
        ("prepacked", ctypes.c_uint64),
        ("seal", ctypes.c_uint64),  # marks a plan made by ik_op_create for its verbs; 0 here
    )


class CallRecord(ctypes.Structure):
    """A plan with its data, as in a recorded list."""

    _fields_ = (
        ("plan", ctypes.POINTER(PlanRecord)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
    )


class Plan:
    """A packed plan that owns its memory; native backends take its `address`.

    `operator`, `table` (outputs first; None where absent) and `attrs` are the same facts for backends driven from
    Python. `constants` are positions in the table of inputs that the caller is ready to prepack; a kernel that has a
    packed layout for one sets its bit of `record.prepacked`.
    """

    __slots__ = ("_blob", "_tensors", "attrs", "constants", "operator", "record", "table")

    def __init__(self, resolved: Resolved, constants: Sequence[int] = ()) -> None:
        self.constants = tuple(constants)
        self.operator: Operator = resolved.operator
        self.table: Sequence[TensorDesc | None] = resolved.table
        self.attrs = resolved.attrs
        record = self.operator.attrs
        self._tensors = (TensorRecord * len(self.table))(*map(_pack, self.table))
        self._blob = ctypes.create_string_buffer(record.pack(resolved.attrs), record.nbytes) if record.attrs else None
        self.record = PlanRecord(
            abi_version=ABI_VERSION,
            kind=self.operator.kind_id,
            variant=0,
            tensor_count=len(self.table),
            tensors=ctypes.cast(self._tensors, ctypes.POINTER(TensorRecord)),
            schema_id=record.schema_id,
            attr_bytes=record.nbytes,
            attrs=ctypes.addressof(self._blob) if self._blob is not None else None,
            workspace_bytes=0,
            prepacked=0,
            seal=0,
        )

    @property
    def address(self) -> int:
        """The address of the C record."""
        return ctypes.addressof(self.record)


def _pack(desc: TensorDesc | None) -> TensorRecord:
    if desc is None:
        return TensorRecord(dtype=0, ndim=0)
    record = TensorRecord(dtype=desc.dtype.code, ndim=desc.ndim, offset=desc.offset)
    record.shape[: desc.ndim] = desc.shape
    record.strides[: desc.ndim] = desc.strides
    return record
