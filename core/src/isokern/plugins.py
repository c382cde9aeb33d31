"""Discovery of backends by entry point: each one is available, unavailable with a reason, or broken with its traceback."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from . import debug, hookspecs, settings
from .backend import HOOK_VERSION, Device, Unavailable
from .ops import Operator, all_operators, find, register as register_operator
from .status import DeviceNotAvailable, InvalidArgument

GROUP = "isokern"


@dataclass
class Backend:
    """One backend of one plug-in: `status` is available, unavailable or broken, `reason` why; devices are opened when asked for."""

    name: str
    plugin: str
    version: str
    open: Callable[[], Sequence[Device]] | None = None
    libraries: Callable[[], Sequence[str]] | None = None
    reason: str = ""
    trace: str = ""
    _status: str = ""
    _devices: list[Device] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.RLock, repr=False)

    @property
    def status(self) -> str:
        """available, unavailable or broken; asks the backend the first time."""
        with self._lock:
            if not self._status:
                self._probe()
            return self._status

    @property
    def devices(self) -> list[Device]:
        """Its devices; empty where it is not available."""
        return self._devices if self.status == "available" else []

    def _probe(self) -> None:
        try:
            assert self.open is not None
            self._devices = list(self.open())
            names = [d.name for d in self._devices]
            if not names:
                raise Unavailable("it has no device")
            wrong = [n for n in names if n.split(":")[0] != self.name or names.count(n) > 1]
            if wrong:
                raise ValueError(f"device {wrong[0]!r}: names are {self.name}:INDEX, each once")
            self._status = "available"
        except Unavailable as error:
            self._status, self.reason = "unavailable", str(error)
        except (
            Exception,
            SystemExit,
        ) as error:  # a stranger's code: whatever it raises must not stop the other plug-ins
            self.quarantine(f"{type(error).__name__}: {error}", traceback.format_exc())
            return
        debug.backend(self)

    def quarantine(self, reason: str, trace: str = "") -> None:
        """Mark as broken: it is never asked again."""
        self._status, self.reason, self.trace, self._devices = "broken", reason, trace, []
        debug.backend(self)


class Register:
    """What a plug-in's hook is given to tell what it brings."""

    def __init__(self, plugin: str, version: str) -> None:
        self._plugin, self._version = plugin, version
        self.backends: list[Backend] = []
        self.commands: list[Any] = []

    def backend(
        self,
        name: str,
        open: Callable[[], Sequence[Device]],
        *,
        hook_version: int,
        fingerprints: Mapping[str, int] | None = None,
        libraries: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """A backend whose devices are called `name:INDEX`.

        `open` makes them when first asked, or raises `Unavailable(reason)`. `hook_version` is the one the plug-in was written for, and
        `fingerprints` (operator → fingerprint of its attribute record) what native code was compiled against. `libraries` gives the paths
        that a C host links, the one with the verbs of isokern.h first; without it the backend is reached from Python alone.
        """
        if hook_version != HOOK_VERSION:
            raise RuntimeError(
                f"plug-in {self._plugin} is written for hook version {hook_version}; this isokern has {HOOK_VERSION}: install matching versions"
            )
        for operator, given in (fingerprints or {}).items():
            own = find(operator).attrs.fingerprint
            if given != own:
                raise RuntimeError(
                    f"operator {operator}: plug-in {self._plugin} {self._version} was built with attribute record {given:#x}, this isokern"
                    f" {_version('isokern')} has {own:#x}: rebuild the plug-in"
                )
        self.backends.append(Backend(name, self._plugin, self._version, open, libraries=libraries))

    def operator(self, operator: Operator) -> None:
        """A declaration of the plug-in's own; the conformance suite covers it."""
        register_operator(operator)

    def command(self, group: Any) -> None:
        """A Typer application that becomes a sub-command of `isokern`; its `info.name` is the word."""
        self.commands.append(group)

    def setting(self, name: str, doc: str) -> None:
        """An environment variable of the plug-in's own."""
        settings.declare(name, doc)


@dataclass
class Registry:
    """All that was found."""

    backends: list[Backend]
    commands: list[Any]


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(not installed)"


def _chosen() -> list[EntryPoint]:
    found = sorted(entry_points(group=GROUP), key=lambda e: e.name)
    wanted = settings.get("ISOKERN_PLUGINS")
    if wanted is None:
        return found
    names = [n.strip() for n in wanted.split(",") if n.strip()]
    known = {e.name for e in found}
    for name in names:
        if name not in known:
            raise DeviceNotAvailable(
                "ISOKERN_PLUGINS",
                f"no plug-in is called {name!r}",
                allowed=", ".join(sorted(known)) or "none is installed",
            )
    return [e for e in found if e.name in names]


def discover(entries: Sequence[EntryPoint]) -> Registry:
    """Load each entry point on its own: one that fails is quarantined and the others go on."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    all_operators()
    registry = Registry([], [])
    for entry in entries:
        version = entry.dist.version if entry.dist is not None else ""
        register = Register(entry.name, version)
        try:
            plugin = entry.load()
            manager.register(plugin, entry.name)
            manager.check_pending()
            others = [p for p in manager.get_plugins() if p is not plugin]
            manager.subset_hook_caller("isokern_register_backends", others)(register=register)
            if not register.backends and not register.commands:
                raise RuntimeError(
                    f"plug-in {entry.name} registered nothing: it needs a function isokern_register_backends marked @hookimpl"
                )
            registry.backends += register.backends
            registry.commands += register.commands
        except BaseException as error:  # an import may do anything, SystemExit included
            if isinstance(error, KeyboardInterrupt):
                raise
            broken = Backend(entry.name, entry.name, version)
            broken.quarantine(f"{type(error).__name__}: {error}", traceback.format_exc())
            registry.backends.append(broken)
            if manager.has_plugin(entry.name):
                manager.unregister(name=entry.name)
    for backend in registry.backends:
        rivals = sorted({b.plugin for b in registry.backends if b.name == backend.name})
        if len(rivals) > 1:
            backend.quarantine(
                f"plug-ins {' and '.join(rivals)} both provide devices called {backend.name}: uninstall one, or name one in ISOKERN_PLUGINS"
            )
    return registry


_finding = threading.RLock()


def registry() -> Registry:
    """What is installed, found once in the process's life, by the first thread that asks."""
    with _finding:
        return _registry()


@cache
def _registry() -> Registry:
    found = discover(_chosen())
    if all(b.open is not None for b in found.backends):  # one that failed to load has not said what its settings are
        settings.check()
    return found


def backends() -> list[Backend]:
    """Every installed backend, whatever its state."""
    return registry().backends


def devices() -> list[Device]:
    """Every available device, by backend."""
    return [d for b in backends() for d in b.devices]


_by_name: dict[str, Device] = {}


def device(name: str | Device | None = None) -> Device:
    """The device called `name` (`backend:index`, or `backend` for its first); None is ISOKERN_DEVICE or the first available."""
    if isinstance(name, Device):
        return name
    if name is not None and not isinstance(name, str):
        raise InvalidArgument("device", f"{name!r} is a {type(name).__name__}", allowed="a name, a device or None")
    cached = _by_name.get(name or "")
    if cached is None:
        cached = _by_name[name or ""] = _find(name)
    return cached


def _find(name: str | None) -> Device:
    wanted = name or settings.get("ISOKERN_DEVICE")
    if wanted is None:
        every = devices()
        if not every:
            state = "; ".join(f"{b.name}: {b.status}, {b.reason}" for b in backends())
            raise DeviceNotAvailable(
                "device",
                "no device is available",
                hint=state or "install a backend, for instance: pip install isokern-cpu",
            )
        return every[0]
    for backend in backends():
        if backend.name == wanted.split(":")[0]:
            for candidate in backend.devices:
                if wanted in (candidate.name, *candidate.aliases, backend.name):
                    return candidate
            if backend.status != "available":
                raise DeviceNotAvailable(
                    "device", f"{wanted!r}: backend {backend.name} is {backend.status}: {backend.reason}"
                )
    known = ", ".join(d.name for d in devices()) or "none"
    raise DeviceNotAvailable("device", f"no device is called {wanted!r}", allowed=known, hint="see `isokern devices`")
