"""Hints: what a caller prefers of dispatch.

No hint changes what is computed, and a device ignores what it cannot follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..status import InvalidArgument, quote

KNOWN = {"variant": "the name of a kernel variant, which a device that has it asks first"}
NONE: Mapping[str, str] = MappingProxyType({})


def check_hints(where: str, hints: object) -> dict[str, str]:
    """Return the hints as a new dict; InvalidArgument if they are malformed."""
    if hints is NONE:
        return {}
    allowed = "; ".join(f"{name}: {meaning}" for name, meaning in KNOWN.items())
    if not isinstance(hints, Mapping):
        raise InvalidArgument(where, f"hints={quote(hints)}", allowed=f"a mapping ({allowed})")
    for name, wish in hints.items():
        if name not in KNOWN or not isinstance(wish, str) or not wish:
            raise InvalidArgument(where, f"hint {quote(name)}: {quote(wish)}", allowed=allowed)
    return dict(hints)
