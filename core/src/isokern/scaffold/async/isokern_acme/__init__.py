"""A backend for the Acme, a device with memory of its own that works while the host goes on.

Here NumPy stands for the chip: its memory is arrays that the rest of Isokern never sees, and a thread for each stream
does the work. Every place where a call of the vendor's library goes is marked by a comment that begins with `Acme:`.
"""

from __future__ import annotations

from pathlib import Path

from isokern.backend import Device, Register, hookimpl

CLAIMS = Path(__file__).with_name("claims.txt")


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the backend, whose devices are opened when they are first asked for."""
    register.backend("acme", open_devices, hook_version=1, claims=CLAIMS)


def open_devices() -> list[Device]:
    """Return the devices of this machine.

    The vendor's library is imported here and not when the plug-in is loaded, which happens in every process that uses
    Isokern.
    """
    from .devices import AcmeDevice

    # Acme: load the vendor's library, and ask it how many devices there are. Where it is missing or has none, raise
    # `Unavailable(reason)` of isokern.backend, with a reason that the user can act on
    count = 1
    return [AcmeDevice(index) for index in range(count)]
