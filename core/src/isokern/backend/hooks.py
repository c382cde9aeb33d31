"""The one hook that a plug-in implements, and the markers for it."""

from __future__ import annotations

import pluggy

from .register import Register

hookspec = pluggy.HookspecMarker("isokern")
hookimpl = pluggy.HookimplMarker("isokern")


@hookspec
def isokern_register_backends(register: Register) -> None:
    """Register backends, operators, commands and settings with `register`.

    Keep it light: no driver is loaded before a device is asked for.
    """
