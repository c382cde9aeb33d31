"""Faults in the scratch memory of calls, and growth with their number."""

from __future__ import annotations

from typing import Any

import numpy as np
from threaded_device import Block, ThreadedKernel

from isokern.backend import Workspace

from .plant import KEPT, kernel


@kernel("workspaces/keeps_calls_apart")
class OneScratchForAll(ThreadedKernel):
    """All calls share one scratch memory, whatever workspace they are given."""

    shared = Block(1 << 22, 4096)

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        if workspace is not None and nbytes <= 1 << 22:
            workspace = self.shared
        super().compute(handles, workspace, nbytes)


@kernel("workspaces/uses_what_it_asks_for")
class Overclaims(ThreadedKernel):
    """A workspace of four times what is needed is asked for."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        need = self.workspace
        self.workspace = Workspace(need.size * 4, need.alignment, need.kind)


@kernel("workspaces/claims_possible_workspaces")
class OddAlignment(ThreadedKernel):
    """The alignment of a workspace is 3."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.workspace = Workspace(self.workspace.size, 3, self.workspace.kind)


@kernel("workspaces/claims_possible_workspaces")
class UnknownKindOfWorkspace(ThreadedKernel):
    """A workspace is asked for in memory that the device does not have."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.workspace = Workspace(self.workspace.size, self.workspace.alignment, "moon")


@kernel("workspaces/starts_from_any_workspace")
class TrustsItsWorkspace(ThreadedKernel):
    """The result depends on what the workspace held."""

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        first = 0 if workspace is None else int(workspace.bytes[0])
        super().compute(handles, workspace, nbytes)
        if first == 0x5A:
            handles[0].bytes[:1] ^= 1


@kernel("workspaces/allocates_nothing_in_a_call")
class AllocatesInALaunch(ThreadedKernel):
    """A call takes memory of the device."""

    def launch(self, *args: Any) -> None:
        temporary = self.device.memory.alloc(256)
        super().launch(*args)
        temporary.close()


@kernel("workspaces/allocates_nothing_in_a_call")
class KeepsMemoryOfALaunch(ThreadedKernel):
    """A call takes memory of the device and keeps it."""

    def launch(self, *args: Any) -> None:
        KEPT.append(self.device.memory.alloc(16))
        super().launch(*args)


@kernel("workspaces/calls_without_growth")
class LeaksInACall(ThreadedKernel):
    """Each call on the default stream leaks a megabyte of the host."""

    def launch(self, *args: Any) -> None:
        if args[3] is self.device.default_stream:
            KEPT.append(np.full(1 << 17, 1.0))
        super().launch(*args)


@kernel("workspaces/calls_a_hundred_thousand_times_without_growth")
class LeaksALittleInACall(ThreadedKernel):
    """Each call on the default stream leaks a kilobyte of the host, which 300 calls do not show."""

    def launch(self, *args: Any) -> None:
        if args[3] is self.device.default_stream:
            KEPT.append(bytes(1024))
        super().launch(*args)
