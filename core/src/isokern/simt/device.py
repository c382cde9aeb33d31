"""What a SIMT backend supplies: a prelude, the traits of its device, and how a kernel is compiled and launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..backend import KernelVariant, Memory
from ..cabi.plan import Plan
from ..disk_cache import DiskCache
from .kernel import Launcher, SimtKernel
from .launch_block import launches
from .selftest import SelfTests
from .source import KERNELS, find_missing_dtype
from .traits import Folder, Traits

PORTABLE = Folder("portable", 0, KERNELS)


class SimtDevice(Launcher):
    """A device that runs the portable kernels, preferring those of `folders`."""

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
        disk_cache: DiskCache | None = None,
    ) -> None:
        """Set up the device's folders and self-tests.

        `driver` identifies the version of the driver, and `disk_cache` keeps the verdicts of self-tests; without one
        each process runs the tests itself.
        """
        self.selftests = SelfTests(self, driver, disk_cache)
        self.traits, self.prelude, self.folders = traits, prelude, (*folders, PORTABLE)
        self._variants: dict[str, list[KernelVariant]] = {}
        super().__init__(name, properties, memory, conditions, aliases)

    def variants(self, stem: str) -> list[KernelVariant]:
        """Return one variant for each folder that has the stem."""
        if stem not in self._variants:
            found = [f for f in self.folders if (f.path / f"{stem}.c").is_file()]
            self._variants[stem] = [self._variant(stem, f) for f in found]
        return self._variants[stem]

    def _variant(self, stem: str, folder: Folder) -> KernelVariant:
        path = folder.path / f"{stem}.c"

        def supported(plan: Plan) -> str | None:
            if not self.traits.fp64 and any(d is not None and d.dtype.name == "F64" for d in plan.table):
                return "the device has no F64"
            refusal = find_missing_dtype(plan) or launches(path).choose(plan, self.traits).refusal
            return refusal or self.selftests.known_fault(folder, plan)

        def build(plan: Plan) -> SimtKernel:
            self.selftests.check(folder, plan)
            return SimtKernel(self, path, plan)

        space = "default" if launches(path).books_workspace else ""
        return KernelVariant(stem, folder.name, folder.priority, supported, build, space)
