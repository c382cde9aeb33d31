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
    from ..backend.discovery import backends, probe_imports
    from ..backend.register import describe, trace_of

    probe_imports()
    found: list[dict[str, Any]] = []
    for backend in backends():
        try:
            told = [_row(backend.name, d.name, "available", "", _facts(d), _count(d)) for d in backend.devices]
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


def _count(device: Device) -> dict[str, int]:
    """Return how many operators the device has a kernel for, how many it decomposes, and how many it lacks.

    It is asked about the first sample of each, in its first dtypes.
    """
    from ..backend.capabilities import support
    from ..declare.samples import assignments
    from ..ops import all_operators
    from ..runtime.lowered import can_lower

    count = dict.fromkeys(("kernels", "lowered", "missing"), 0)
    for op in all_operators():
        types = assignments(op)[0]
        (refused,) = support(device, op, types).values()
        count["kernels" if refused is None else "lowered" if can_lower(device, op, types) else "missing"] += 1
    return count


def _row(
    backend: str,
    device: str | None,
    status: str,
    reason: str,
    properties: dict[str, Any],
    operators: dict[str, int] | None = None,
) -> dict[str, Any]:
    return {
        "backend": backend,
        "device": device,
        "status": status,
        "reason": reason,
        "properties": properties,
        "operators": operators,
    }


def _say_count(count: dict[str, int]) -> str:
    more = ((count["lowered"], "decomposed"), (count["missing"], "missing"))
    return ", ".join([f"{count['kernels']} by its kernels", *(f"{n} {text}" for n, text in more if n)])


def _show(found: list[dict[str, Any]]) -> None:
    lines = []
    for row in found:
        told = {**row["properties"], **({"operators": _say_count(row["operators"])} if row["operators"] else {})}
        facts = "\n".join(f"{k}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in told.items())
        lines.append(
            [row["backend"], row["device"] or "-", Text(row["status"], COLOURS[row["status"]]), row["reason"] or facts]
        )
    table("Devices", ["backend", "device", "status", "properties, or why not"], lines)
