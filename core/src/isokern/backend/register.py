"""The objects that a plug-in registers: its backends, each with its state, and its operators, commands and settings.

Plug-ins are third-party code: whatever one raises, and whatever it returns as a device, stops that plug-in alone.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import debug, settings
from ..declare.operator import Operator
from ..declare.registry import fingerprint_of, register as register_operator
from ..ops import find
from ..process.forks import own_lock
from ..status import IsokernError
from .device import Device, Unavailable
from .memory import Memory
from .streams import Stream

HOOK_VERSION = 1


@dataclass
class Backend:
    """One backend of one plug-in; its devices are opened when they are asked for.

    `status` is available, unavailable or broken, and `reason` says why. `claims` is the file of the pairs that its
    devices must not refuse, None for all pairs. `usurps` is true of a backend that takes the name of another plug-in's.
    """

    name: str
    plugin: str
    version: str
    open: Callable[[], Sequence[Device]] | None = None
    libraries: Callable[[], Sequence[str]] | None = None
    emulated: bool = False
    claims: Path | None = None
    usurps: bool = False
    reason: str = ""
    trace: str = ""
    _status: str = ""
    _devices: list[Device] = field(default_factory=list)
    _lock: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._lock = own_lock(self, "_lock")

    @property
    def status(self) -> str:
        """The state: available, unavailable or broken; the backend is asked the first time."""
        with self._lock:
            if not self._status:
                self._probe()
            return self._status

    @property
    def refused(self) -> bool:
        """Whether the backend is known to have no device, without opening it."""
        return self._status in ("unavailable", "broken")

    @property
    def devices(self) -> list[Device]:
        """The backend's devices; empty if it is not available."""
        return self._devices if self.status == "available" else []

    def _probe(self) -> None:
        try:
            assert self.open is not None
            self._devices = _examine(self.name, self.open())
            self._status = "available"
            self._report()
        except Unavailable as error:
            self._status, self.reason = "unavailable", describe(error)
            self._report()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.quarantine(describe(error), trace_of(error))

    def _report(self) -> None:
        if debug.LEVEL >= 1:
            what = ", ".join(f"{d.name} {dict(d.properties)}" for d in self.devices) or self.reason
            debug.say(f"{self.name} ({self.plugin} {self.version}) is {self.status}: {what}")

    def quarantine(self, reason: str, trace: str = "") -> None:
        """Mark the backend as broken: it is never asked again."""
        self._status, self.reason, self.trace, self._devices = "broken", reason, trace, []
        self._report()


def describe(error: BaseException) -> str:
    """Return the text of an error of third-party code, also if its own conversion to text fails."""
    kind = type(error).__name__
    try:
        text = str(error)
    except BaseException as another:
        return f"{kind}, which cannot say more: its text raises {type(another).__name__}"
    return text if isinstance(error, (IsokernError, Unavailable)) else f"{kind}: {text}"


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error of third-party code, or why there is none."""
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
    """Return what a backend opened, as devices.

    Raises an error that says what is wrong with one that is not a device, or that could not be shown.
    """
    devices: dict[str, Device] = {}
    for device in opened:
        if not isinstance(device, Device):
            raise TypeError(f"it opened a {type(device).__name__}, which is not an isokern.backend.Device")
        name: Any = device.name
        if not isinstance(name, str) or not re.fullmatch(rf"{re.escape(backend)}:\d+", name) or name in devices:
            raise ValueError(f"device {name!r}: names are {backend}:INDEX, each once")
        for attribute, kind in _ATTRIBUTES.items():
            value = getattr(device, attribute)
            if not isinstance(value, kind):
                raise TypeError(f"device {name}: `{attribute}` is a {type(value).__name__}, not a {kind.__name__}")
        for facts in (device.properties, device.conditions):
            " ".join(f"{key} {value} {value!r}" for key, value in facts.items())  # formatted as it will be shown
        devices[name] = device
    if not devices:
        raise Unavailable("it has no device")
    return list(devices.values())


def check_fingerprints(plugin: str, version: str, fingerprints: Mapping[str, int]) -> None:
    """Raise RuntimeError where native code was compiled against other attribute records than this core has.

    `fingerprints` maps operators to the fingerprints of their records. A plug-in that loads its library only when a
    device is asked for calls this then.
    """
    for operator, given in fingerprints.items():
        own = fingerprint_of(operator)
        if given != own and own is not None:
            own = find(operator).attrs.fingerprint
        if given != own:
            raise RuntimeError(
                f"operator {operator}: plug-in {plugin} {version} was built with attribute record {given:#x}, this"
                f" isokern {_version('isokern')} has {'none' if own is None else f'{own:#x}'}: rebuild the plug-in"
            )


class Register:
    """The object with which a plug-in's hook registers backends, operators, commands and settings."""

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
        claims: Path | None = None,
    ) -> None:
        """Register a backend whose devices are called `name:INDEX`.

        `open` makes them when first asked, or raises `Unavailable(reason)`; for a wrong setting it raises
        InvalidArgument, which says what is allowed. `hook_version` is the one that the plug-in was written for, and
        `fingerprints` (operator → fingerprint of its attribute record) what native code was compiled against.
        `libraries` gives the paths that a C host links, the one with the verbs of isokern.h first; without it the
        backend can be used from Python alone. `emulated` says that the devices imitate hardware: they compute only if
        they are named, and are never the default. `claims` is a file of the operators and dtypes that the devices must
        not refuse, in the form of `isokern check --require`; `isokern check --claimed` checks them, or without such a
        file everything that is declared.
        """
        if hook_version != HOOK_VERSION:
            raise RuntimeError(
                f"plug-in {self._plugin} is written for hook version {hook_version}; this isokern has {HOOK_VERSION}:"
                " install matching versions"
            )
        check_fingerprints(self._plugin, self._version, fingerprints or {})
        if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name) or not callable(open):
            raise TypeError(f"backend {name!r}: a name is letters, digits, _ and -, and `open` a function")
        if name in {b.name for b in self.backends}:
            raise ValueError(f"plug-in {self._plugin} has two backends called {name}")
        if claims is not None and not isinstance(claims, Path):
            raise TypeError(f"backend {name!r}: claims is a {type(claims).__name__}, not the pathlib.Path of a file")
        self.backends.append(Backend(name, self._plugin, self._version, open, libraries, emulated, claims))

    def operator(self, operator: Operator) -> None:
        """Register an operator that the plug-in declares; the conformance suite covers it.

        It is withdrawn if the plug-in as a whole is quarantined.
        """
        register_operator(operator)

    def command(self, group: Any) -> None:
        """Register a Typer application as a sub-command of `isokern`, under its `info.name`."""
        self.commands.append(group)

    def setting(self, name: str, doc: str) -> None:
        """Declare an environment variable of the plug-in's own."""
        settings.declare(name, doc)


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(not installed)"
