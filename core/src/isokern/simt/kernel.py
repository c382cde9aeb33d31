"""Kernels that run a plan as a list of launches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..backend import Declined, Device, Kernel, Stream, Workspace
from ..backend.kernels import run_all
from ..cabi.plan import Plan
from . import source
from .launch import LaunchList
from .launch_block import launches
from .traits import Folder, Traits


@dataclass(frozen=True)
class Launch:
    """One launch of one entry: what a backend compiles and enqueues. Equal digests mean equal sources."""

    entry: str
    digest: str
    groups: int
    local: int
    tensors: tuple[int, ...]
    record: bytes
    workspace: bool
    reports: bool
    aliased: bool | None
    origin: tuple[Path, Path, str]  # prelude, kernel file, what the plan fixes

    @property
    def source(self) -> str:
        """The complete source for a compiler, built on demand."""
        prelude, path, head = self.origin
        return source.complete(prelude, path, self.entry, head)


class GroupTooLarge(Exception):
    """Raised by `Launcher.compile` where the device limits work-groups of a compiled kernel to `limit` items."""

    def __init__(self, entry: str, asked: int, limit: int) -> None:
        super().__init__(f"{entry} takes work-groups of {asked} items, and the device gives it {limit}")
        self.limit = limit


def launches_of(prelude: Path, path: Path, plan: Plan, found: LaunchList) -> list[Launch]:
    """Return what is compiled and enqueued for a plan."""
    reports, space = bool(plan.operator.device_error), found.workspace > 0
    launches = []
    for request in found.launches:
        text = source.kernel_text(path, request.entry)
        head = source.specialisation(plan, request, text, reports, space)
        launches.append(
            Launch(
                request.entry,
                source.digest(prelude, path, request.entry, head),
                request.groups,
                request.local,
                tuple(at for _, at, _ in request.tensors),
                source.record(plan, request, text),
                space,
                reports,
                request.aliased,
                (prelude, path, head),
            )
        )
    return launches


class Launcher(Device):
    """A device that compiles and enqueues the launches of portable kernels."""

    asynchronous = True
    traits: Traits
    prelude: Path
    folders: tuple[Folder, ...]

    @abstractmethod
    def compile(self, launch: Launch) -> Any:
        """Return the entry, built for this device; the backend keeps what it built before.

        Raises `GroupTooLarge` where the device gives this kernel fewer items per work-group than `launch.local`.
        """

    @abstractmethod
    def enqueue(self, launch: Launch, function: Any, handles: Sequence[Any], workspace: Any, stream: Stream) -> None:
        """Run a launch on `stream`: `launch.groups` work-groups of `launch.local` items.

        The arguments are `handles[i]` for i in `launch.tensors`, then the workspace where `launch.workspace`, then the
        stream's error words (three 64-bit integers: kind, at, value) where `launch.reports`, then the bytes of
        `launch.record` by value.
        """

    def bind_launch(
        self, launch: Launch, function: Any, handles: Sequence[Any], workspace: Any, stream: Stream
    ) -> Callable[[], None]:
        """Return `enqueue` with all its arguments bound, as cheap to call as the backend can make it."""
        return lambda: self.enqueue(launch, function, handles, workspace, stream)

    def same_memory(self, a: Any, b: Any) -> bool:
        """Return whether two handles belong to one allocation."""
        return a is b


class SimtKernel(Kernel):
    """The compiled launches of a plan."""

    def __init__(self, device: Launcher, path: Path, plan: Plan) -> None:
        traits = device.traits
        while True:
            try:
                self._build(device, path, plan, traits)
                return
            except GroupTooLarge as large:
                if large.limit >= traits.group and large.limit >= traits.items:
                    raise Declined(str(large)) from None
                traits = replace(traits, group=min(traits.group, large.limit), items=min(traits.items, large.limit))

    def _build(self, device: Launcher, path: Path, plan: Plan, traits: Traits) -> None:
        found = launches(path).choose(plan, traits)
        if found.refusal is not None:
            raise Declined(found.refusal)
        self.device, self.plan, self.path = device, plan, path
        self.workspace = Workspace(found.workspace)
        self.launches = launches_of(device.prelude, path, plan, found)
        self.functions = [device.compile(launch) for launch in self.launches]
        self._outputs = len(plan.operator.signature.outputs)
        pairs = list(zip(self.launches, self.functions, strict=True))
        self._only = pairs[0] if len(pairs) == 1 and pairs[0][0].aliased is None else None

    def _choose(self, handles: Sequence[Any]) -> list[tuple[Launch, Any]]:
        """Return launches and functions, choosing those that depend on aliasing by the handles."""
        every = list(zip(self.launches, self.functions, strict=True))
        if all(launch.aliased is None for launch in self.launches):
            return every
        same = self.device.same_memory(handles[0], handles[self._outputs])
        return [(launch, f) for launch, f in every if launch.aliased in (None, same)]

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Enqueue the launches in order."""
        if self._only is not None:
            self.device.enqueue(*self._only, handles, workspace, stream)
            return
        run_all(
            partial(self.device.enqueue, launch, function, handles, workspace, stream)
            for launch, function in self._choose(handles)
        )

    def bind(
        self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream, owned: Any
    ) -> Callable[[], None]:
        """Return a call that enqueues the launches with all arguments bound."""
        chosen = self._choose(handles)
        calls = [self.device.bind_launch(one, f, handles, workspace, stream) for one, f in chosen]
        keep = (self, owned)

        def launch_bound(keep: Any = keep) -> None:
            if stream.recording is not None:
                stream.recording.owned.append(keep)
            run_all(calls)

        if len(calls) == 1:
            (only,) = calls

            def launch_one(keep: Any = keep) -> None:
                if stream.recording is not None:
                    stream.recording.owned.append(keep)
                only()

            return launch_one
        return launch_bound
