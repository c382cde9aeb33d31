"""Faults in what a device says of itself: its name, properties, conditions, variants and kinds of memory."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

from threaded_device import ThreadedDevice, ThreadedKernel, ThreadedMemory

from isokern.backend import Buffer, Declined, KernelVariant, Workspace
from isokern.status import InvalidArgument

from .plant import device, kernel, memory


@memory("claims/knows_its_kinds_of_memory")
class LiesAboutItsKinds(ThreadedMemory):
    """A kind of memory is listed that cannot be allocated."""

    kinds = ("default", "near", "far")

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if kind == "far":
            raise InvalidArgument("alloc", "no far memory")
        return super().allocate_buffer(nbytes, element, kind, alignment, empty)


@memory("claims/knows_its_kinds_of_memory")
class MixesItsKinds(ThreadedMemory):
    """Near memory is given as default memory."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        return super().allocate_buffer(nbytes, element, "default", alignment, empty)


@kernel("claims/describes_tensors_it_has")
class SameAnswerForNoElements(ThreadedKernel):
    """Rank 0 is computed as nothing."""

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        desc = self.plan.table[0]
        if desc is None or desc.numel > 1:
            super().compute(handles, workspace, nbytes)


@device("claims/states_known_conditions")
class MisspeltCondition(ThreadedDevice):
    """A condition that nobody knows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, conditions={"flushes_denormal": "the hardware does"})


@device("claims/flushes_denormals_if_it_says_so")
class FalseCondition(ThreadedDevice):
    """A condition that is not true."""

    def __init__(self, name: str) -> None:
        super().__init__(name, conditions={"flushes_denormals": "the hardware does"})


@device("claims/states_known_conditions")
class ConditionWithoutReason(ThreadedDevice):
    """A condition without a reason."""

    def __init__(self, name: str) -> None:
        super().__init__(name, conditions={"nondeterministic": " "})


@device("claims/has_properties_one_can_print")
class BadProperties(ThreadedDevice):
    """A property that cannot be printed as JSON."""

    def __init__(self, name: str) -> None:
        super().__init__(name, properties={"clock": object()})


@device("claims/has_a_name")
class BadAlias(ThreadedDevice):
    """An alias that is no string."""

    def __init__(self, name: str) -> None:
        super().__init__(name, aliases=(7,))


def build_with(build: Callable[[KernelVariant, Any], Any]) -> Callable[[ThreadedDevice, KernelVariant], KernelVariant]:
    """Return a `wrap` for a device whose variants build so; `build` gets the sound variant and the plan."""

    def wrap(self: ThreadedDevice, variant: KernelVariant) -> KernelVariant:
        made = ThreadedDevice.wrap(self, variant)
        return KernelVariant(made.stem, made.name, made.priority, made.supported, lambda plan: build(made, plan))

    return wrap


def answer_with(answer: Callable[[Any, str | None], Any]) -> Callable[[ThreadedDevice, KernelVariant], KernelVariant]:
    """Return a `wrap` for a device whose variants answer so; `answer` gets the plan and the sound answer."""

    def wrap(self: ThreadedDevice, variant: KernelVariant) -> KernelVariant:
        made = ThreadedDevice.wrap(self, variant)
        return KernelVariant(
            made.stem, made.name, made.priority, lambda plan: answer(plan, made.supported(plan)), made.build
        )

    return wrap


@device("claims/answers_for_every_operator")
class AnswersWithTrue(ThreadedDevice):
    """`supported` returns True where it takes a plan of a softmax."""

    wrap = answer_with(lambda plan, said: True if plan.operator.stem == "softmax" and said is None else said)


@device("claims/answers_for_every_operator")
class RefusesWithoutAReason(ThreadedDevice):
    """`supported` returns an empty text."""

    wrap = answer_with(lambda plan, said: "" if plan.operator.stem == "topk" else said)


@device("claims/answers_for_every_operator")
class RaisesWhenAsked(ThreadedDevice):
    """`supported` raises for a dtype that it does not know."""

    wrap = answer_with(lambda plan, said: {"F32": said}[plan.table[0].dtype.name])


@device("claims/answers_for_every_operator")
class ChangesItsMind(ThreadedDevice):
    """`supported` answers differently each time."""

    turn = itertools.count(1)

    @staticmethod
    def change(plan: Any, said: str | None) -> str | None:
        return said or (f"not time {next(ChangesItsMind.turn)}" if plan.operator.stem == "conv2d" else None)

    wrap = answer_with(lambda plan, said: ChangesItsMind.change(plan, said))


@device("claims/answers_for_every_operator")
class TwoVariantsOfOneName(ThreadedDevice):
    """Two variants of a stem have one name."""

    def variants(self, stem: str) -> list[KernelVariant]:
        return super().variants(stem) * 2


def _decline(made: KernelVariant, plan: Any) -> Any:
    if plan.operator.stem == "softmax":
        raise Declined("the compiler does not take it")
    return made.build(plan)


@device("claims/builds_what_it_supports")
class DeclinesWhatItSupports(ThreadedDevice):
    """A softmax counts as supported and cannot be built."""

    wrap = build_with(_decline)


@device("claims/builds_what_it_supports")
class BuildsNoKernel(ThreadedDevice):
    """What `build` returns is no kernel."""

    wrap = build_with(lambda made, plan: types.SimpleNamespace(workspace=Workspace(), packed_layouts={}))


def _raise_key_error(made: KernelVariant, plan: Any) -> Any:
    return {"F32": made.build}[plan.table[0].dtype.name](plan)


@device("claims/builds_what_it_supports")
class RaisesWhenItBuilds(ThreadedDevice):
    """`build` raises for a dtype that it does not know."""

    wrap = build_with(_raise_key_error)
