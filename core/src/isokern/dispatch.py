"""Dispatch, in one place: which variant of a device runs a plan, and what each of the others said."""

from __future__ import annotations

from dataclasses import dataclass

from .abi.plan import Plan
from .backend import Device, Kernel
from .ops.declaration import Resolved
from .status import InvalidArgument, NotImplementedOnDevice


@dataclass(frozen=True)
class Candidate:
    """One variant's answer: `reason` is None for the one that was chosen, else why it was not."""

    variant: str
    priority: int
    reason: str | None
    chosen: bool = False


def choose(device: Device, resolved: Resolved, variant: str | None = None) -> tuple[Plan, Kernel, list[Candidate]]:
    """Walk the operator's variants in descending priority; the first that takes the plan runs it.

    `variant` forces one by name. NotImplementedOnDevice lists every candidate with its reason.
    """
    operator = resolved.operator
    plan = Plan(resolved)
    every = sorted(device.variants(operator.stem), key=lambda v: -v.priority)
    if variant is not None and variant not in {v.name for v in every}:
        raise InvalidArgument(
            operator.name,
            f"variant {variant!r} of {device.name}",
            allowed=", ".join(v.name for v in every) or "it has none",
        )
    answers: list[Candidate] = []
    kernel: Kernel | None = None
    for v in every:
        if variant is not None and v.name != variant:
            answers.append(Candidate(v.name, v.priority, f"variant {variant} was asked for"))
            continue
        reason = v.supported(plan)
        if reason is None and kernel is None:
            kernel = v.prepare(plan)
            answers.append(Candidate(v.name, v.priority, None, chosen=True))
        else:
            answers.append(Candidate(v.name, v.priority, reason or "a variant of higher priority takes it"))
    if kernel is None:
        shown = (
            "; ".join(f"{a.variant}: {a.reason}" for a in answers) or f"{device.name} has no kernel for {operator.stem}"
        )
        given = ", ".join("absent" if d is None else str(d) for d in resolved.inputs) or str(resolved.outputs[0])
        raise NotImplementedOnDevice(operator.name, f"no variant of {device.name} takes {given}", hint=shown)
    return plan, kernel, answers
