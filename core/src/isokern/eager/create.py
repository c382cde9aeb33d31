"""create: describe a call of one operator.

If the device has no kernel for it, the call is decomposed into other operators, if the policy allows it.
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
from ..runtime.lowered import decompose, find_fallback
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
    on_missing: str | None = None,
    hints: Mapping[str, str] = NONE,
    **attrs: Any,
) -> Descriptor:
    """Describe a call: everything that can fail or choose does so here.

    `outputs` None means contiguous ones as the operator infers them (`dtypes` then names free types, `{"T": "F16"}` for
    `cast`). `variant` forces one of the device's variants by name; `hints={"variant": name}` has it asked first, on a
    device that has it. `prepacked` names inputs that stay the same over calls, such as weights, which
    `Descriptor.prepack` brings into the kernel's packed layout.

    `on_missing` is the policy for an operator that the device has no kernel for, by default that of the setting
    ISOKERN_ON_MISSING. With "lower", the default, it is decomposed into others: `made_of` names them, and the
    workspace holds their intermediate values. With "error" it is refused. Raises the typed errors of
    `isokern.status`.
    """
    op = operator if isinstance(operator, Operator) else find(operator)
    target = find_device(device)
    fallback = find_fallback(op, on_missing, variant)
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
            fallback=fallback,
            **attrs,
        )
    except NotImplementedOnDevice as error:
        if fallback is not None or find_fallback(op, "lower", variant) is None:
            raise
        outs = op.infer(inputs, attrs, dtypes) if outputs is None else outputs
        raise _hinting(error, target, op.resolve(inputs, outs, attrs)) from None


def _hinting(error: NotImplementedOnDevice, device: Device, resolved: Resolved) -> NotImplementedOnDevice:
    """Return the error with a hint at the policy if that would help: a device may lack the parts as well."""
    try:
        decompose(device, resolved)
    except IsokernError:
        return error
    hint = f"{error.hint}; on_missing='lower' decomposes it into operators that the device has"
    return NotImplementedOnDevice(error.where, error.problem, allowed=error.allowed, hint=hint)
