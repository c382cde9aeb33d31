"""Dispatch, in one place: which variant of a device runs a plan, and what each of the others answered."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..cabi.plan import Plan
from ..declare.operator import Resolved
from ..status import InternalError, InvalidArgument, IsokernError, NotImplementedOnDevice
from .hints import NONE
from .kernels import Declined, Kernel, KernelVariant


class HasVariants(Protocol):
    """The part of a device that dispatch asks."""

    name: str

    def variants(self, stem: str) -> Sequence[KernelVariant]:
        """Return the variants of a stem, in any order; empty if the device has none."""


@dataclass(frozen=True)
class Candidate:
    """One variant's answer: `reason` is None for the one that was chosen, else why it was not."""

    variant: str
    priority: int
    reason: str | None
    chosen: bool = False


def consider(
    device: HasVariants,
    resolved: Resolved,
    variant: str | None = None,
    failed: Mapping[str, str] | None = None,
    constants: Sequence[int] = (),
    hints: Mapping[str, str] = NONE,
) -> tuple[Plan, KernelVariant | None, list[Candidate]]:
    """Ask the operator's variants in descending priority, and choose the first that takes the plan (None if none does).

    Those of one priority are asked in the order in which the device lists them.
    `variant` admits only one, by name; a variant that `hints` name is asked before the others; `failed` maps variants
    whose kernel could not be built to the reason; `constants` are positions of inputs that may be prepacked. Nothing is
    compiled or built. The audit event `isokern.kernel` has the names of the device and the operator.
    """
    operator = resolved.operator
    sys.audit("isokern.kernel", device.name, operator.name)
    plan = Plan(resolved, constants)
    wish = hints.get("variant")
    every = sorted(_list_variants(device, operator.stem), key=lambda v: (v.name != wish, -v.priority))
    if variant is not None and variant not in [v.name for v in every]:
        raise InvalidArgument(
            operator.name,
            f"variant {variant!r} of {device.name}",
            allowed=", ".join(v.name for v in every) or "it has none",
        )
    taken = "a variant of higher priority takes it" if wish is None else "a variant that is asked before takes it"
    answers: list[Candidate] = []
    chosen: KernelVariant | None = None
    for v in every:
        if variant is not None and v.name != variant:
            answers.append(Candidate(v.name, v.priority, f"variant {variant} was asked for"))
            continue
        reason = (failed or {}).get(v.name) or _ask(device, v, plan)
        if reason is None and chosen is None:
            chosen = v
            answers.append(Candidate(v.name, v.priority, None, chosen=True))
        else:
            answers.append(Candidate(v.name, v.priority, taken if reason is None else reason))
    if wish is not None and wish not in [v.name for v in every]:
        answers.append(Candidate(wish, 0, f"a hint names it, and {device.name} does not have this variant"))
    return plan, chosen, answers


def _list_variants(device: HasVariants, stem: str) -> Sequence[KernelVariant]:
    """Return the variants of a stem; anything else that a plug-in returns is named as its fault."""
    found = device.variants(stem)
    if isinstance(found, Sequence) and all(isinstance(v, KernelVariant) for v in found):
        return found
    raise InternalError(stem, f"variants of {device.name} returned {found!r}", allowed="a list of KernelVariant")


def _ask(device: HasVariants, variant: KernelVariant, plan: Plan) -> str | None:
    """Return what a variant answers; an error or anything but None and a text is the plug-in's fault, and named so."""
    where, who = plan.operator.name, f"variant {variant.name} of {device.name}"
    try:
        reason: object = variant.supported(plan)
    except IsokernError:
        raise
    except Exception as error:
        raise InternalError(where, f"{who}: supported raised {type(error).__name__}: {error}") from error
    if reason is None or isinstance(reason, str):
        return reason
    raise InternalError(where, f"{who}: supported returned {reason!r}", allowed="None, or the reason as a text")


def choose(
    device: HasVariants,
    resolved: Resolved,
    variant: str | None = None,
    constants: Sequence[int] = (),
    hints: Mapping[str, str] = NONE,
) -> tuple[Plan, Kernel, list[Candidate]]:
    """Return a call's plan, the kernel that runs it, ready to launch, and every variant's answer.

    `variant` forces one by name, `hints` prefer one; `constants` are positions of inputs that may be prepacked.
    NotImplementedOnDevice lists every candidate with its reason.
    """
    failed: dict[str, str] = {}
    while True:
        plan, chosen, answers = consider(device, resolved, variant, failed, constants, hints)
        if chosen is None:
            given = ", ".join("absent" if d is None else str(d) for d in resolved.inputs) or str(resolved.outputs[0])
            raise NotImplementedOnDevice(
                resolved.operator.name,
                f"no variant of {device.name} takes {given}",
                hint=refusal(device, resolved.operator.stem, answers),
            )
        try:
            kernel: object = chosen.build(plan)
        except Declined as reason:
            failed[chosen.name] = str(reason)
            continue
        if not isinstance(kernel, Kernel):
            who = f"variant {chosen.name} of {device.name}"
            raise InternalError(resolved.operator.name, f"{who}: build returned {kernel!r}", allowed="a Kernel")
        return plan, kernel, answers


def say_parts(made_of: Sequence[str]) -> str:
    """Name the operators that a call is decomposed into: `made of reduce_max, generic ×2`."""
    counts = Counter(made_of).items()
    return f"made of {', '.join(name if n == 1 else f'{name} ×{n}' for name, n in counts)}"


def refusal(device: HasVariants, stem: str, answers: list[Candidate]) -> str:
    """Say in one line why no variant takes a call."""
    return "; ".join(f"{a.variant}: {a.reason}" for a in answers) or f"{device.name} has no kernel for {stem}"
