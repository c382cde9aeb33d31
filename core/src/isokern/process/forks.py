"""What a forked child has to renew: a thread that is not in the child may hold a lock.

Every lock of the package is made here, so that there is none that a child would wait for without end.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, overload

Lock = TypeVar("Lock")
_owned: dict[int, tuple[Callable[[], Any], str, Callable[[], Any] | None]] = {}  # by a number that rises
_numbers = itertools.count()  # which no two threads get the same of


def renew_in_child(renew: Callable[[], None]) -> Callable[[], None]:
    """Have `renew` called in every child that this process forks; usable as a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
    return renew


@overload
def own_lock(owner: Any, name: str) -> threading.RLock: ...
@overload
def own_lock(owner: Any, name: str, make: Callable[[], Lock]) -> Lock: ...
def own_lock(owner: Any, name: str, make: Callable[[], Any] = threading.RLock) -> Any:
    """Return a new lock for the attribute `name` of an object or a module, which a child replaces by another.

    `make` makes it: also a condition or an event, which begins anew. The owner may die first.
    """
    _add(owner, name, make)
    return make()


def tell_in_child(owner: Any, method: str) -> None:
    """Have a method of an object called in every child, after all locks were renewed, as long as the object lives."""
    _add(owner, method, None)


def _add(owner: Any, name: str, make: Callable[[], Any] | None) -> None:
    number = next(_numbers)

    def forget(_: object) -> None:
        _owned.pop(number, None)

    found: Callable[[], Any] = (lambda: owner) if isinstance(owner, ModuleType) else weakref.ref(owner, forget)
    _owned[number] = (found, name, make)


@renew_in_child
def _renew() -> None:
    """Renew all locks, then tell the objects that asked for it; in a child there is one thread."""
    every = list(_owned.values())
    for find, name, make in every:
        owner = find()
        if owner is not None and make is not None:
            setattr(owner, name, make())
    for find, name, make in every:
        owner = find()
        if owner is not None and make is None:
            getattr(owner, name)()
