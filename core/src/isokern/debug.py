"""The output of ISOKERN_DEBUG.

Level 1 prints plug-ins and devices, 2 also each call with its time and rate, 3 also the answer of every kernel variant,
4 also graphs before and after passes and the source of every kernel that is compiled at run time.
"""

from __future__ import annotations

import sys

from . import settings

LEVEL = settings.debug_level()


def say(text: str) -> None:
    """Print a text on the error stream."""
    print(f"isokern: {text}", file=sys.stderr)
