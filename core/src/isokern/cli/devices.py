"""`isokern devices`: every installed backend, its devices and their properties, or why it is not usable."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from ._output import Json, console, debugging, emit, plain, quiet, table

COLOURS = {"available": "green", "unavailable": "yellow", "broken": "red"}


def devices(json: Json = False) -> None:
    """Every installed backend, its devices and properties, or why it is not usable."""
    with quiet(json):
        found = rows()
    if json:
        emit(found)
    elif not found:
        console().print("no backend is installed; for instance: pip install isokern-cpu")
    else:
        _show(found)


def rows() -> list[dict[str, Any]]:
    """One object a device, and one for each backend that is not usable (its device is null)."""
    from ..plugins import backends

    found: list[dict[str, Any]] = []
    for backend in backends():
        status = backend.status
        if status != "available":
            found.append(_row(backend.name, None, status, backend.reason, {}))
        for device in backend.devices:
            conditions = {"conditions": dict(device.conditions)} if device.conditions else {}
            found.append(_row(backend.name, device.name, status, "", {**device.properties, **conditions}))
        if backend.trace and debugging():
            print(backend.trace, file=sys.stderr)
    return found


def _row(backend: str, device: str | None, status: str, reason: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"backend": backend, "device": device, "status": status, "reason": reason, "properties": dict(properties)}


def _show(found: list[dict[str, Any]]) -> None:
    lines = []
    for row in found:
        facts = "\n".join(
            f"{k}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in plain(row["properties"]).items()
        )
        lines.append(
            [row["backend"], row["device"] or "-", Text(row["status"], COLOURS[row["status"]]), row["reason"] or facts]
        )
    table("Devices", ["backend", "device", "status", "properties, or why not"], lines)
