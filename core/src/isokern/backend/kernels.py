"""Kernel variants: what a backend can compute, and the kernels that they build for a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..cabi.plan import Plan
from ..status import InvalidArgument
from .memory import Workspace
from .streams import Stream

# A call of C by which a launch is made: the function, the plan, the places of the plan's tensors among the kernel's (-1
# is the workspace, -2 an absent one), and what raises the error of a status
NativeStep = tuple[int, int, tuple[int, ...], Callable[[int], None]]


class Declined(Exception):
    """Raised by a variant's `build` that cannot do what `supported` promised; the text is the reason.

    Dispatch goes on to the next variant.
    """


@dataclass(frozen=True)
class PackedLayout:
    """A packed layout that a kernel prefers for a constant input.

    Equal names and sizes are equal layouts of a tensor as the caller has it, whatever else the plan says.
    """

    name: str
    nbytes: int


class Kernel(ABC):
    """A plan bound to one variant, ready to launch from many threads.

    `packed_layouts` maps positions of `plan.constants` to the kernel's packed layouts: `pack` converts these inputs to
    them before a launch. `made_of` names the operators that are launched in its place, in order; it is empty if the
    device has its own kernel.
    """

    workspace: Workspace
    made_of: tuple[str, ...] = ()
    packed_layouts: Mapping[int, PackedLayout] = MappingProxyType({})

    def pack(self, position: int, source: Any, target: Any, stream: Stream) -> None:
        """Bring a constant input into its packed layout at `target`; enqueued, or done on return.

        `source` is the handle of the input, which is laid out as the plan says.
        """
        raise NotImplementedError(f"{type(self).__name__} has no packed layouts")

    @abstractmethod
    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Enqueue the call on `stream`.

        `handles` are buffer handles in the plan's order (None where absent); `workspace` is a handle or None.
        """

    def launcher(self) -> Callable[[Sequence[Any], Any, int, Stream], None]:
        """Return `launch`, as cheap as the backend can make it: for calls that are repeated."""
        return self.launch

    def native_steps(self) -> list[NativeStep] | None:
        """Return the C calls of which a launch on a device of the host is a sequence, None if it is not.

        What raises an error keeps the plan.
        """
        return None

    def bind(
        self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream, owned: Any
    ) -> Callable[[], None]:
        """Return a function that launches with exactly these arguments, as cheaply as the backend can.

        It keeps `owned` (the descriptor and tensors) alive, and adds it to a recording that the stream is making.
        """
        fixed = tuple(handles)

        def launch_bound() -> None:
            if stream.recording is not None:
                stream.recording.owned.append(owned)
            self.launch(fixed, workspace, workspace_bytes, stream)

        return launch_bound


@dataclass(frozen=True)
class KernelVariant:
    """One way to compute the operators of a stem.

    `supported` is cheap (it looks at rank, dtype, layout and attributes) and answers None or the reason. `build` makes
    a kernel for an accepted plan, or raises `Declined` if only the attempt could show it (a compiler, a self-test).
    `workspace` is the kind of memory that its calls may need scratch memory of, "" if none does, None if the
    backend does not say.
    """

    stem: str
    name: str
    priority: int
    supported: Callable[[Plan], str | None]
    build: Callable[[Plan], Kernel]
    workspace: str | None = None


def run_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls of one operator, and raise what the first raised that met a wrong value.

    Each writes its declared result all the same, and those behind it have to.
    """
    wrong: InvalidArgument | None = None
    for call in calls:
        try:
            call()
        except InvalidArgument as error:
            wrong = wrong or error
    if wrong is not None:
        raise wrong
