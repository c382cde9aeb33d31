"""How a process ended, in words."""

from __future__ import annotations

import signal


def describe_exit(code: int) -> str:
    """Return an exit code as `subprocess` has it in words: `exit code 3`, `signal SIGSEGV`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
