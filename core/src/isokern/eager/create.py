"""create: describe a call of one operator.

Where the device has no kernel for it and `lower` allows it, the call is made of the operators that it consists of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..backend import Device
from ..backend.discovery import device as find_device
from ..backend.hints import NONE
from ..call.descriptor import Descriptor
from ..declare.operator import Operator, Resolved
from ..layout import TensorDesc
from ..ops import find
from ..runtime.lowered import LoweredKernel
from ..status import IsokernError, NotImplementedOnDevice


def create(
    operator: str | Operator,
    inputs: Sequence[TensorDesc | None],
    outputs: Sequence[TensorDesc] | None = None,
    *,
    device: str | Device | None = None,
    dtypes: Mapping[str, Any] | None = None,
    variant: str | None = None,
    prepacked: Collection[str] = (),
    lower: bool = False,
    hints: Mapping[str, str] = NONE,
    **attrs: Any,
) -> Descriptor:
    """Describe a call: everything that can fail or choose does so here.

    `outputs` None means contiguous ones as the operator infers them (`dtypes` then names free types, `{"T": "F16"}` for
    `cast`). `variant` forces one of the device's variants by name; `hints={"variant": name}` has it asked first, on a
    device that has it. `prepacked` names inputs that stay the same over calls, such as weights, which
    `Descriptor.prepack` brings into the kernel's packed layout. With `lower`, an operator that the device has no kernel
    for is computed by the operators that it consists of, and the workspace holds their intermediate values. Raises the
    typed errors of `isokern.status`.
    """
    op = operator if isinstance(operator, Operator) else find(operator)
    target = find_device(device)
    may_lower = op.decompose is not None and variant is None
    try:
        return Descriptor.of(
            op,
            inputs,
            outputs,
            device=target,
            dtypes=dtypes,
            variant=variant,
            prepacked=prepacked,
            hints=hints,
            fallback=LoweredKernel if lower and may_lower else None,
            **attrs,
        )
    except NotImplementedOnDevice as error:
        if lower or not may_lower:
            raise
        outs = op.infer(inputs, attrs, dtypes) if outputs is None else outputs
        raise _hinting(error, target, op.resolve(inputs, outs, attrs)) from None


def _hinting(error: NotImplementedOnDevice, device: Device, resolved: Resolved) -> NotImplementedOnDevice:
    """Return the error with a hint at `lower` where that works: a device may lack the parts as well."""
    try:
        LoweredKernel(device, resolved)
    except IsokernError:
        return error
    hint = f"{error.hint}; lower=True makes it of the operators that it consists of"
    return NotImplementedOnDevice(error.where, error.problem, allowed=error.allowed, hint=hint)
