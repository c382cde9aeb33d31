"""The proofs of a device in the ledger, and those that outcomes add: one subject for each operator, one for the rest.

A subject's cases are run again when its digest has no entry; a failure removes its entry.
"""

from __future__ import annotations

import importlib
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from .. import settings
from ..backend import Device
from ..oracle.verdicts import Outcome
from ..status import InvalidArgument
from .dependencies import Dependencies, digest_of, package_of
from .derive import rank_variants
from .items import Item
from .ledger import Entry, Ledger, State, machine, today
from .runtime.check import RuntimeCheck
from .source_tree import CORE, SourceTree

RUNTIME = "runtime"  # the subject of all requirements on the runtime
EVERY = 5.0  # seconds between two writes of the file
# Settings for the place of files and messages, or for the device that runs, which do not change a result
ASIDE = {"ISOKERN_CACHE", "ISOKERN_DEBUG", "ISOKERN_DEVICE", "ISOKERN_PLUGINS"}


def find_tree(where: Path) -> SourceTree:
    """Return the checkout of Isokern that contains a folder; raise InvalidArgument if there is none."""
    for folder in (where, *where.parents):
        if (folder / CORE / "__init__.py").exists():
            return SourceTree(folder)
    raise InvalidArgument(
        "--ledger",
        f"{where} is not in a checkout of Isokern",
        allowed="a folder of a checkout, whose files the proofs depend on",
    )


def check_installed(tree: SourceTree, package: str) -> None:
    """Raise InvalidArgument if the package that runs differs from the one in the checkout: nothing would be proved."""
    found = Path(importlib.import_module(package).__file__ or "").parent
    homes = [p.removesuffix("__init__.py") for p in tree.files if p.endswith(f"/src/{package}/__init__.py")]
    for home in homes:
        if (tree.root / home).resolve() == found.resolve():
            continue
        for path in tree.below(home):
            installed = found / path.removeprefix(home)
            if path.endswith(".py") and not installed.exists():
                differs = "is not installed"
            elif installed.exists() and installed.read_bytes() != (tree.root / path).read_bytes():
                differs = "differs from what is installed"
            else:
                continue
            raise InvalidArgument(
                "--ledger",
                f"{path} {differs}, so a result would prove nothing of this checkout",
                hint="install the checkout again: python tools/install.py core …",
            )


class Proofs:
    """The subjects of one device in a ledger, under a name that says how they are judged, such as `cpu-sanitize`.

    `every` are the items of the subjects, as chosen by the options of the check. Nothing is proved once there is
    something in the file `findings`, to which a checker writes mistakes that no case notices. `conditions` are strings
    that the proofs depend on, such as `ISOKERN_XPU_CHECK=1`; without them the settings of this process.
    """

    def __init__(
        self,
        device: Device,
        ledger: Ledger,
        tree: SourceTree,
        name: str,
        every: Sequence[Item],
        findings: Path | None = None,
        conditions: Sequence[str] | None = None,
    ) -> None:
        self.device, self.ledger, self.name, self._findings = device, ledger, name, findings
        self.dependencies = Dependencies(package_of(device), tree)
        self._conditions = _list_settings() if conditions is None else list(conditions)
        for package in ("isokern", self.dependencies.package):
            check_installed(tree, package)
        self.items = defaultdict[str, list[Item]](list)
        for item in every:
            self.items[subject_of(item)].append(item)
        # A worker that does not end in order is a failure of the runtime, also in a check of kernels alone
        self._open = Counter({subject: len(items) for subject, items in self.items.items()})
        self._parts = defaultdict[str, set[str]](set)
        self._failed: set[str] = set()
        self._made: list[Entry] = []
        self._written = time.monotonic()
        self._proved: set[str] | None = None

    @property
    def has_findings(self) -> bool:
        """Whether a checker has written something."""
        return self._findings is not None and self._findings.exists() and self._findings.stat().st_size > 0

    def full_name(self, subject: str) -> str:
        """Return a subject as the ledger has it."""
        return f"{self.name}/{subject}"

    def state(self, subject: str) -> State:
        """Return the function from the parts of lowered calls to a digest of all that the subject depends on."""
        chosen = digest_of(item.id for item in self.items[subject])
        conditions = self._conditions

        def state(parts: Sequence[str]) -> str:
            if subject == RUNTIME:
                return digest_of([self.dependencies.runtime, chosen, *conditions])
            first = self.items[subject][0]
            assert not isinstance(first, RuntimeCheck)
            variants = rank_variants(self.device, first.operator) or []
            known = self.dependencies.operator(subject, parts)
            return digest_of([known, chosen, " > ".join(variants), *conditions])

        return state

    @property
    def proved(self) -> set[str]:
        """The subjects that have an entry for this tree and these tools."""
        if self._proved is None:
            self._proved = {
                s
                for s in self.items
                if self.ledger.proof(self.full_name(s), self.state(s), self.device.toolchain) is not None
            }
        return self._proved

    def stale(self) -> list[Item]:
        """Return the items of subjects that are not proved, subject by subject, so that a run that ends keeps most."""
        return [item for subject, items in self.items.items() if subject not in self.proved for item in items]

    def draw(self, percent: float, seed: int) -> list[Item]:
        """Return a drawn part of the proved cases: all of some operators and dtypes, which share compiled programs."""
        groups = defaultdict[str, list[Item]](list)
        for subject in sorted(self.proved):
            for item in self.items[subject]:
                groups[item.id if isinstance(item, RuntimeCheck) else f"{subject}/{item.dtype}"].append(item)
        names = sorted(groups)
        count = min(len(names), max(1, round(len(names) * percent / 100))) if names else 0
        return [item for name in random.Random(seed).sample(names, count) for item in groups[name]]

    def add(self, item: Item, outcome: Outcome) -> None:
        """Count an outcome: when all items of a subject have passed, it is proved, and a failure removes its proof."""
        subject = subject_of(item)
        self._open[subject] -= 1
        self._parts[subject].update(outcome.made_of)
        if outcome.verdict.failed:
            self._failed.add(subject)
        elif not self._open[subject] and subject not in self._failed and not self.has_findings:
            parts = tuple(sorted(self._parts[subject]))
            entry = Entry(
                self.full_name(subject), len(self.items[subject]), today(), self.device.toolchain, machine(), parts
            )
            self._made.append(entry.seal(self.state(subject)(parts)))
        if time.monotonic() - self._written > EVERY:
            self.write()

    def write(self) -> None:
        """Write to the ledger what has been found since the last time."""
        self.ledger.update(self._made, map(self.full_name, self._failed))
        self._made.clear()
        self._written = time.monotonic()

    def describe(self) -> str:
        """Say how many subjects are proved for this tree."""
        return f"{self.name}: {len(self.proved)} of {len(self.items)} subjects are proved for this tree"


def _list_settings() -> list[str]:
    """Return the settings of this process, except those that name files of this machine."""
    asked = (f"{name}={os.environ[name]}" for name in settings.table() if name in os.environ and name not in ASIDE)
    return [c for c in asked if os.sep not in c]


def subject_of(item: Item) -> str:
    """Return the subject that an item belongs to: its operator, or the runtime."""
    return RUNTIME if isinstance(item, RuntimeCheck) else item.operator.name
