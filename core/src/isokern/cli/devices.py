"""`isokern devices`: every installed backend, its devices and their properties, or why it is not usable."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ._output import Json, console, debugging, emit, plain, quiet, table

if TYPE_CHECKING:
    from ..backend import Device

COLOURS = {"available": "green", "unavailable": "yellow", "broken": "red"}


def devices(json: Json = False) -> None:
    """List every installed backend, its devices and their properties, or why it is not usable."""
    with quiet(json):
        found = rows()
    if json:
        emit(found)
    elif not found:
        console().print("no backend is installed; for instance: pip install isokern-cpu")
    else:
        _show(found)


def rows() -> list[dict[str, Any]]:
    """Return one object for each device, and one for each backend that is not usable (its device is null)."""
    from ..backend.discovery import backends
    from ..backend.register import describe, trace_of

    found: list[dict[str, Any]] = []
    for backend in backends():
        try:
            told = [_row(backend.name, d.name, "available", "", _facts(d)) for d in backend.devices]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # third-party code, which worked when the device was opened
            told = []
            backend.quarantine(describe(error), trace_of(error))
        found += told or [_row(backend.name, None, backend.status, backend.reason, {})]
        if backend.trace and debugging():
            print(backend.trace, file=sys.stderr)
    return found


def _facts(device: Device) -> dict[str, Any]:
    conditions = {"conditions": dict(device.conditions)} if device.conditions else {}
    facts: dict[str, Any] = plain({**device.properties, **conditions})
    return facts


def _row(backend: str, device: str | None, status: str, reason: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"backend": backend, "device": device, "status": status, "reason": reason, "properties": properties}


def _show(found: list[dict[str, Any]]) -> None:
    lines = []
    for row in found:
        facts = "\n".join(
            f"{k}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in row["properties"].items()
        )
        lines.append(
            [row["backend"], row["device"] or "-", Text(row["status"], COLOURS[row["status"]]), row["reason"] or facts]
        )
    table("Devices", ["backend", "device", "status", "properties, or why not"], lines)
