"""Discovery of backends by entry point: each one is available, unavailable with a reason, or broken with its traceback.

Plug-ins are third-party code: whatever one raises, and whatever it returns as a device, stops that plug-in alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

import pluggy

from .. import settings
from ..declare.operator import Operator
from ..declare.registry import is_offered, list_declared, withdraw
from ..process.crashes import name_at_exit
from ..process.forks import own_lock
from ..status import DeviceNotAvailable, InvalidArgument
from . import hooks
from .device import Device
from .register import Backend, Register, describe, trace_of

GROUP = "isokern"


@dataclass
class Registry:
    """What discovery found: backends, and the plug-ins' command groups."""

    backends: list[Backend]
    commands: list[Any]


def _choose_entries() -> list[EntryPoint]:
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


def discover(entries: Sequence[EntryPoint], deadly: Mapping[str, str] = MappingProxyType({})) -> Registry:
    """Load each entry point on its own: one that fails is quarantined, and the others go on.

    Those in `deadly`, which says why, are not imported.
    """
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hooks)
    brought: dict[Register, list[Operator]] = {}  # the operators of each plug-in that was loaded
    backends: list[Backend] = []
    for entry in entries:
        version = entry.dist.version if entry.dist is not None else ""
        register = Register(entry.name, version)
        before = set(list_declared())
        second = entry.name in {b.plugin for b in backends if b.open is not None}
        try:
            if second:
                raise RuntimeError(f"it is the second plug-in called {entry.name}: uninstall one of the distributions")
            if entry.name in deadly:
                raise RuntimeError(deadly[entry.name])
            with name_at_exit(f"the import of plug-in {entry.name} ({entry.value})"):
                plugin = entry.load()
            manager.register(plugin, entry.name)
            manager.check_pending()
            others = [p for p in manager.get_plugins() if p is not plugin]
            manager.subset_hook_caller("isokern_register_backends", others)(register=register)
            if not register.backends and not register.commands:
                raise RuntimeError(
                    f"plug-in {entry.name} registered nothing: it needs a function isokern_register_backends"
                    " marked @hookimpl"
                )
            backends += register.backends
            brought[register] = _since(before)
        except BaseException as error:  # an import may do anything, SystemExit included
            _withdraw(_since(before))
            if isinstance(error, KeyboardInterrupt):  # the next call starts anew
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
    return [operator for operator in list_declared() if operator not in before and not is_offered(operator)]


def _withdraw(operators: Iterable[Operator]) -> None:
    for operator in operators:
        withdraw(operator)


def _settle(name: str, claims: Sequence[Backend]) -> None:
    """Give a device name that several plug-ins claim to the plug-in of that name; without one, to none of them."""
    if len(claims) == 1:
        return
    owners = [b for b in claims if b.plugin == name]
    owners.sort(key=lambda b: b.open is None)  # a plug-in that was loaded comes first
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
                    f"plug-in {backend.plugin} provides devices called {name}, a name that belongs to the plug-in"
                    f" {name}: uninstall {backend.plugin}, or leave it out of ISOKERN_PLUGINS"
                )


_finding = own_lock(sys.modules[__name__], "_finding")


def registry() -> Registry:
    """Return what is installed, found once in the process's life, by the first thread that asks."""
    with _finding:
        return _registry()


_deadly: dict[str, str] = {}


def probe_imports() -> None:
    """Import each plug-in in a process of its own first: one that ends the process is quarantined, and named.

    Nothing if they were imported already.
    """
    from .import_probe import find_deadly  # it brings subprocess, which other commands and libraries do not need

    with _finding:
        if not _registry.cache_info().currsize:
            _deadly.update(find_deadly(_choose_entries()))


@cache
def _registry() -> Registry:
    found = discover(_choose_entries(), _deadly)
    if all(b.open is not None for b in found.backends):  # a plug-in that failed to load has not declared its settings
        settings.check()
    return found


def backends() -> list[Backend]:
    """Return every installed backend, whatever its state."""
    return registry().backends


def devices() -> list[Device]:
    """Return every available device, by backend."""
    return [d for b in backends() for d in b.devices]


_by_name: dict[str, Device] = {}


def device(name: str | Device | None = None) -> Device:
    """Return the device called `name`: `backend:index`, an alias, or `backend` for its first device.

    None means ISOKERN_DEVICE, or the first device that is not emulated.
    """
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
    """Return the first device that is not emulated, without opening a backend after the one that has it.

    A backend that is unavailable is passed over. A broken one is an error, since it would be the default if it worked.
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
                hint="; ".join(["fix that", *_naming("or use another device", others)]),
            )
    hints = [f"{b.name}: {b.status}, {b.reason}" for b in candidates if b.refused]
    hints += _naming("an emulator is never the default: use it", [b.name for b in backends() if not b.refused])
    raise DeviceNotAvailable(
        "device",
        "no device is available",
        hint="; ".join(hints) or "install a backend, for instance: pip install isokern-cpu",
    )


def _naming(what: str, names: Sequence[str]) -> list[str]:
    """Return the hint by which a user names a device of these backends; empty if there are none."""
    return [f"{what} by its name, or by ISOKERN_DEVICE: {', '.join(names)}"] if names else []
