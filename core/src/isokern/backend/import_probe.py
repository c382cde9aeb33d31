"""Whether the import of a plug-in ends its process: each one is imported in a process of its own, all at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import EntryPoint

SECONDS = 60  # for all of them: an import may load a driver
ALIVE = b"isokern: the plug-in was imported\n"


def find_deadly(entries: Sequence[EntryPoint]) -> dict[str, str]:
    """Return why plug-ins cannot be imported, by name: they end the process, or their import does not end."""
    command = [sys.executable, "-c", _PROGRAM]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    nowhere = subprocess.DEVNULL
    asked = [
        (
            entry.name,
            subprocess.Popen(
                [*command, entry.value], stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, env=environment
            ),
        )
        for entry in entries
    ]
    end, found = time.monotonic() + SECONDS, {}
    for name, process in asked:
        try:
            told, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            found[name] = f"its import does not end within {SECONDS} s: it is left out"
            continue
        if not told.endswith(ALIVE):
            found[name] = f"its import ends the process, with {_say(process.returncode)}: it is left out"
    return found


def _say(status: int) -> str:
    return f"status {status}" if status >= 0 else f"the signal {signal.Signals(-status).name}"


def main(value: str) -> None:
    """Import what an entry point names, and confirm it at the end; the discovery reports errors, which do not count."""
    with contextlib.suppress(BaseException):
        EntryPoint("plug-in", value, "isokern").load()
    os.write(1, ALIVE)
    os._exit(0)


_PROGRAM = f"import sys; from {__name__} import main; main(sys.argv[1])"
