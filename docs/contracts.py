"""The methods that a backend implements, with their contracts, from the docstrings of isokern.backend."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

# Methods that a backend may also define, if its device has something better than the default. All other public methods
# are for users of the class, and stay as they are.
OPTIONAL = {
    "Device": (
        *("synchronize", "adopt_stream", "stream_of", "hand_over", "foreign_stream", "limits", "timer", "peers"),
        *("digest", "toolchain", "calls"),
    ),
    "Memory": ("wrap", "adopt", "copy_from", "allocator", "alloc_lasting", "alloc", "parts", "part"),
    "Buffer": ("map_bytes", "unmap_bytes", "native", "close", "is_mapped", "map_for_cpu", "unmap_for_gpu"),
    "Stream": ("wait", "copy_by_engine", "native", "scratch"),
    "Event": ("synchronize", "query"),
    "Recording": ("find", "redirect"),
    "Kernel": ("bind", "pack", "launcher", "native_steps"),
}


def classes() -> Iterator[type]:
    """Yield the classes that a backend derives its own from, in the order in which a bring-up meets them."""
    from isokern import backend

    for name in OPTIONAL:
        yield getattr(backend, name)


def required(cls: type) -> list[str]:
    """Return the abstract methods of a class, in the order of the source."""
    return [name for name, value in vars(cls).items() if getattr(value, "__isabstractmethod__", False)]


def contracts() -> str:
    """Return a section for each class: what it is, what a backend implements, and what it may."""
    parts = []
    for cls in classes():
        parts += [f"### {cls.__name__}", inspect.getdoc(cls) or ""]
        for title, names in (("A backend implements", required(cls)), ("It may define", OPTIONAL[cls.__name__])):
            if names:
                parts += [f"{title}:", "\n".join(_say_method(cls, name) for name in names)]
    return "\n\n".join(parts)


def _say_method(cls: type, name: str) -> str:
    value = inspect.getattr_static(cls, name)
    if isinstance(value, property):
        spelled = f"{name}: {inspect.signature(_getter(value)).return_annotation}"
    else:
        spelled = f"{name}{inspect.signature(value)}".replace("(self, ", "(").replace("(self)", "()")
    text = " ".join((inspect.getdoc(value) or "").split())
    return f"- `{spelled.replace(chr(39), '')}`  \n  {text}"


def _getter(value: property) -> Any:
    assert value.fget is not None
    return value.fget
