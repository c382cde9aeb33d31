"""What ISOKERN_DEBUG prints: 1 plug-ins and devices, 2 each call with its time and rate, 3 also every variant's answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import settings
from .status import InvalidArgument

if TYPE_CHECKING:
    from .descriptor import Descriptor
    from .plugins import Backend


def _level() -> int:
    text = settings.get("ISOKERN_DEBUG") or "0"
    if not text.isdecimal():
        raise InvalidArgument("environment", f"ISOKERN_DEBUG={text}", allowed="a level from 0")
    return int(text)


LEVEL = _level()


def backend(found: Backend) -> None:
    """One line for a backend that was asked for its devices, or could not be."""
    if LEVEL >= 1:
        what = ", ".join(f"{d.name} {dict(d.properties)}" for d in found.devices) or found.reason
        print(f"isokern: {found.name} ({found.plugin} {found.version}) is {found.status}: {what}", file=sys.stderr)


def call(descriptor: Descriptor, seconds: float) -> None:
    """One line for a call that took `seconds`."""
    moved = sum(d.nbytes for d in (*descriptor.inputs, *descriptor.outputs) if d is not None)
    print(
        f"isokern: {descriptor!r} {seconds * 1e6:.1f} us {moved / max(seconds, 1e-9) / 1e9:.2f} GB/s", file=sys.stderr
    )
    if LEVEL >= 3:
        for c in descriptor.considered:
            print(f"isokern:   {c.variant} (priority {c.priority}): {c.reason or 'chosen'}", file=sys.stderr)
