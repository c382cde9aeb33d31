"""Discovery of backends by entry point: each one is available, unavailable with a reason, or broken with its traceback.

Plug-ins are strangers' code. Whatever one raises, and whatever it gives for a device, stops it alone.
"""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from . import debug, hookspecs, settings
from .backend import HOOK_VERSION, Device, Stream, Unavailable
from .buffer import Memory
from .ops import Operator, all_operators, find, register as register_operator, withdraw
from .status import DeviceNotAvailable, InvalidArgument, IsokernError

GROUP = "isokern"


@dataclass
class Backend:
    """One backend of one plug-in: `status` is available, unavailable or broken, `reason` why; devices are opened when asked for.

    `usurps` is true of one that claims the name of another plug-in's backend.
    """

    name: str
    plugin: str
    version: str
    open: Callable[[], Sequence[Device]] | None = None
    libraries: Callable[[], Sequence[str]] | None = None
    emulated: bool = False
    usurps: bool = False
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
    def refused(self) -> bool:
        """Whether it is known to have no device, without opening it."""
        return self._status in ("unavailable", "broken")

    @property
    def devices(self) -> list[Device]:
        """Its devices; empty where it is not available."""
        return self._devices if self.status == "available" else []

    def _probe(self) -> None:
        try:
            assert self.open is not None
            self._devices = _examine(self.name, self.open())
            self._status = "available"
            debug.backend(self)
        except Unavailable as error:
            self._status, self.reason = "unavailable", describe(error)
            debug.backend(self)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.quarantine(describe(error), trace_of(error))

    def quarantine(self, reason: str, trace: str = "") -> None:
        """Mark as broken: it is never asked again."""
        self._status, self.reason, self.trace, self._devices = "broken", reason, trace, []
        debug.backend(self)


def describe(error: BaseException) -> str:
    """What a stranger's error says, whatever its text does."""
    kind = type(error).__name__
    try:
        text = str(error)
    except BaseException as another:
        return f"{kind}, which cannot say more: its text raises {type(another).__name__}"
    return text if isinstance(error, (IsokernError, Unavailable)) else f"{kind}: {text}"


def trace_of(error: BaseException) -> str:
    """The traceback of a stranger's error, where it can be had."""
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except BaseException as another:
        return f"there is no traceback of {type(error).__name__}: making it raises {type(another).__name__}"


_ATTRIBUTES: dict[str, type] = {
    "properties": Mapping,
    "conditions": Mapping,
    "aliases": tuple,
    "memory": Memory,
    "default_stream": Stream,
}


def _examine(backend: str, opened: Iterable[Any]) -> list[Device]:
    """What a backend opened, as devices; an error says what is wrong with one that is none, or that could not be shown."""
    devices: dict[str, Device] = {}
    for device in opened:
        if not isinstance(device, Device):
            raise TypeError(f"it opened a {type(device).__name__}, which is no isokern.backend.Device")
        name: Any = device.name
        if not isinstance(name, str) or not re.fullmatch(rf"{re.escape(backend)}:\d+", name) or name in devices:
            raise ValueError(f"device {name!r}: names are {backend}:INDEX, each once")
        for attribute, kind in _ATTRIBUTES.items():
            value = getattr(device, attribute)
            if not isinstance(value, kind):
                raise TypeError(f"device {name}: `{attribute}` is a {type(value).__name__}, not a {kind.__name__}")
        for facts in (device.properties, device.conditions):
            " ".join(f"{key} {value} {value!r}" for key, value in facts.items())  # as it will be shown
        devices[name] = device
    if not devices:
        raise Unavailable("it has no device")
    return list(devices.values())


def check_fingerprints(plugin: str, version: str, fingerprints: Mapping[str, int]) -> None:
    """RuntimeError where native code was compiled against other attribute records than this core has (operator → fingerprint).

    A plug-in that loads its library when a device is asked for calls it then.
    """
    for operator, given in fingerprints.items():
        own = find(operator).attrs.fingerprint
        if given != own:
            raise RuntimeError(
                f"operator {operator}: plug-in {plugin} {version} was built with attribute record {given:#x}, this isokern"
                f" {_version('isokern')} has {own:#x}: rebuild the plug-in"
            )


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
        emulated: bool = False,
    ) -> None:
        """A backend whose devices are called `name:INDEX`.

        `open` makes them when first asked, or raises `Unavailable(reason)`; for a setting that is wrong it raises InvalidArgument, which says what is
        allowed. `hook_version` is the one the plug-in was written for, and `fingerprints` (operator → fingerprint of its attribute record) what
        native code was compiled against. `libraries` gives the paths that a C host links, the one with the verbs of isokern.h first; without it the
        backend is reached from Python alone. `emulated` says that the devices imitate hardware: they compute where they are named, and are no
        default.
        """
        if hook_version != HOOK_VERSION:
            raise RuntimeError(
                f"plug-in {self._plugin} is written for hook version {hook_version}; this isokern has {HOOK_VERSION}: install matching versions"
            )
        check_fingerprints(self._plugin, self._version, fingerprints or {})
        if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name) or not callable(open):
            raise TypeError(f"backend {name!r}: a name is letters, digits, _ and -, and `open` a function")
        if name in {b.name for b in self.backends}:
            raise ValueError(f"plug-in {self._plugin} has two backends called {name}")
        self.backends.append(Backend(name, self._plugin, self._version, open, libraries=libraries, emulated=emulated))

    def operator(self, operator: Operator) -> None:
        """A declaration of the plug-in's own; the conformance suite covers it. It goes where the plug-in is quarantined as a whole."""
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
    brought: dict[Register, list[Operator]] = {}  # of each plug-in that was loaded
    backends: list[Backend] = []
    for entry in entries:
        version = entry.dist.version if entry.dist is not None else ""
        register = Register(entry.name, version)
        before = set(all_operators())
        second = entry.name in {b.plugin for b in backends if b.open is not None}
        try:
            if second:
                raise RuntimeError(f"it is the second plug-in called {entry.name}: uninstall one of the distributions")
            plugin = entry.load()
            manager.register(plugin, entry.name)
            manager.check_pending()
            others = [p for p in manager.get_plugins() if p is not plugin]
            manager.subset_hook_caller("isokern_register_backends", others)(register=register)
            if not register.backends and not register.commands:
                raise RuntimeError(
                    f"plug-in {entry.name} registered nothing: it needs a function isokern_register_backends marked @hookimpl"
                )
            backends += register.backends
            brought[register] = _since(before)
        except BaseException as error:  # an import may do anything, SystemExit included
            _withdraw(_since(before))
            if isinstance(error, KeyboardInterrupt):  # who asks again begins anew
                _withdraw(operator for operators in brought.values() for operator in operators)
                raise
            broken = Backend(entry.name, entry.name, version)
            broken.quarantine(describe(error), trace_of(error))
            backends.append(broken)
            if not second and manager.has_plugin(entry.name):
                manager.unregister(name=entry.name)
    for name in dict.fromkeys(b.name for b in backends):
        _settle(name, [b for b in backends if b.name == name])
    commands = []
    for register, operators in brought.items():
        if register.backends and all(b.refused for b in register.backends):
            _withdraw(operators)
        else:
            commands += register.commands
    return Registry(backends, commands)


def _since(before: set[Operator]) -> list[Operator]:
    return [operator for operator in all_operators() if operator not in before]


def _withdraw(operators: Iterable[Operator]) -> None:
    for operator in operators:
        withdraw(operator)


def _settle(name: str, claims: Sequence[Backend]) -> None:
    """Of several plug-ins that claim one name for their devices, the one that is called so has it; where none is, nobody has."""
    if len(claims) == 1:
        return
    owners = [b for b in claims if b.plugin == name]
    owners.sort(key=lambda b: b.open is None)  # what was loaded comes first
    rivals = " and ".join(sorted(b.plugin for b in claims))
    for backend in claims:
        if not owners:
            backend.quarantine(
                f"plug-ins {rivals} both provide devices called {name}: uninstall one, or name one in ISOKERN_PLUGINS"
            )
        elif backend is not owners[0]:
            backend.usurps = True
            if not backend.refused:
                backend.quarantine(
                    f"plug-in {backend.plugin} provides devices called {name}, a name that belongs to the plug-in {name}: uninstall"
                    f" {backend.plugin}, or leave it out of ISOKERN_PLUGINS"
                )


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
    """The device called `name` (`backend:index`, or `backend` for its first); None is ISOKERN_DEVICE, or the first that is no emulator."""
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
        return _default()
    for backend in backends():
        if backend.name == wanted.split(":")[0] and not backend.usurps:
            for candidate in backend.devices:
                if wanted in (candidate.name, *candidate.aliases, backend.name):
                    return candidate
            if backend.status != "available":
                raise DeviceNotAvailable(
                    "device", f"{wanted!r}: backend {backend.name} is {backend.status}: {backend.reason}"
                )
    known = ", ".join(d.name for d in devices()) or "none"
    raise DeviceNotAvailable("device", f"no device is called {wanted!r}", allowed=known, hint="see `isokern devices`")


def _default() -> Device:
    """The first device that is no emulator. A backend without hardware is passed over; a broken one is not, since it would be used if it were whole.

    No backend behind the one that has the device is opened.
    """
    candidates = [b for b in backends() if not b.emulated and not b.usurps]
    for backend in candidates:
        for device in backend.devices:
            if not device.properties.get("emulated"):
                return device
        if backend.status == "broken":
            others = [f"{b.name} (emulated)" if b.emulated else b.name for b in backends() if not b.refused]
            raise DeviceNotAvailable(
                "device",
                f"backend {backend.name}, which would be the default, is broken: {backend.reason}",
                hint="; ".join(["mend that", *_naming("or use another device", others)]),
            )
    hints = [f"{b.name}: {b.status}, {b.reason}" for b in candidates if b.refused]
    hints += _naming("an emulator is never the default: use it", [b.name for b in backends() if not b.refused])
    raise DeviceNotAvailable(
        "device",
        "no device is available",
        hint="; ".join(hints) or "install a backend, for instance: pip install isokern-cpu",
    )


def _naming(what: str, names: Sequence[str]) -> list[str]:
    """How a user asks for a device of these backends, where there are any."""
    return [f"{what} by its name, or by ISOKERN_DEVICE: {', '.join(names)}"] if names else []
