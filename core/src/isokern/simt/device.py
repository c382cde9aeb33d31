"""What a SIMT backend supplies: a prelude, the traits of its device, and how a kernel is compiled and launched."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..abi.plan import Plan
from ..backend import Device, KernelVariant, Stream
from ..buffer import Memory
from ..store import Store
from .kernel import Launch, SimtKernel
from .launch import block
from .selftest import SelfTests
from .source import KERNELS


@dataclass(frozen=True)
class Traits:
    """What launch blocks may know of a device.

    `kind` is cpu, gpu or accelerator; `group` the most items of a work-group that uses barriers (a power of two); `items` the work-group of
    kernels without any; `units` its compute units; `fp64` whether it has double; `features` the names of what a
    backend's own kernels may need.
    """

    kind: str = "gpu"
    group: int = 256
    items: int = 256
    units: int = 1
    fp64: bool = True
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Folder:
    """Kernel files that are one variant of their stems."""

    name: str
    priority: int
    path: Path


PORTABLE = Folder("portable", 0, KERNELS)


class SimtDevice(Device):
    """A device that runs the portable kernels, and those of `folders` before them."""

    asynchronous = True

    def __init__(
        self,
        name: str,
        properties: Mapping[str, Any],
        memory: Memory,
        conditions: Mapping[str, str],
        traits: Traits,
        prelude: Path,
        folders: Sequence[Folder] = (),
        aliases: tuple[str, ...] = (),
        driver: str = "",
        store: Store | None = None,
    ) -> None:
        """`driver` tells versions of the driver apart, and `store` keeps the verdicts of self-tests; without one each process makes its own."""
        self.selftests = SelfTests(self, driver, store)
        self.traits, self.prelude, self.folders = traits, prelude, (*folders, PORTABLE)
        self._variants: dict[str, list[KernelVariant]] = {}
        super().__init__(name, properties, memory, conditions, aliases)

    @abstractmethod
    def compile(self, launch: Launch) -> Any:
        """The entry, built for this device; the backend keeps what it built before.

        Raises `GroupTooLarge` where the device gives this kernel fewer items a work-group than `launch.local`.
        """

    @abstractmethod
    def enqueue(self, launch: Launch, function: Any, handles: Sequence[Any], workspace: Any, stream: Stream) -> None:
        """Run it on `stream`: `launch.groups` work-groups of `launch.local` items.

        The arguments are `handles[i]` for i in `launch.tensors`, then the workspace where `launch.workspace`, then the stream's error words
        (three 64-bit integers: kind, at, value) where `launch.reports`, then the bytes of `launch.record` by value.
        """

    def bound(
        self, launch: Launch, function: Any, handles: Sequence[Any], workspace: Any, stream: Stream
    ) -> Callable[[], None]:
        """`enqueue` with everything fixed, as cheap as the backend can make it."""
        return lambda: self.enqueue(launch, function, handles, workspace, stream)

    def same_memory(self, a: Any, b: Any) -> bool:
        """Whether two handles are of one allocation."""
        return a is b

    def variants(self, stem: str) -> list[KernelVariant]:
        """One a folder that has the stem."""
        if stem not in self._variants:
            found = [f for f in self.folders if (f.path / f"{stem}.c").is_file()]
            self._variants[stem] = [self._variant(stem, f) for f in found]
        return self._variants[stem]

    def _variant(self, stem: str, folder: Folder) -> KernelVariant:
        path = folder.path / f"{stem}.c"

        def supported(plan: Plan) -> str | None:
            if not self.traits.fp64 and any(d is not None and d.dtype.name == "F64" for d in plan.table):
                return "the device has no F64"
            return block(path).steps(plan, self.traits).refusal or self.selftests.found(folder, plan)

        def prepare(plan: Plan) -> SimtKernel:
            self.selftests.check(folder, plan)
            return SimtKernel(self, path, plan)

        space = "default" if block(path).books_workspace else ""
        return KernelVariant(stem, folder.name, folder.priority, supported, prepare, space)
