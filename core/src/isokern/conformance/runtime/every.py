"""Every requirement on a runtime: importing this module registers them."""

from __future__ import annotations

from . import (  # noqa: F401  # they register
    capture,
    claims,
    exhaustion,
    memory,
    prepacking,
    processes,
    streams,
    threads,
    workspaces,
)
from .check import RuntimeCheck, checks


def runtime_checks() -> list[RuntimeCheck]:
    """Return every requirement, in the order in which they are judged."""
    return list(checks.values())
