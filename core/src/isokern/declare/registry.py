"""The declared operators by name and by kind.

Core's are declared when they are asked for: `isokern.ops` offers the modules that declare them. Whatever asks for all
operators, or for one that nobody offers, loads every module. The audit event `isokern.operator` has the name of each
operator when it is first looked up, and `*` when all are, so that a tracer sees what a process depends on.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ..dtypes import DType
from ..status import InvalidArgument
from . import signature as _signature
from .attributes import fourcc
from .operator import Operator

_BY_NAME: dict[str, Operator] = {}
_FOUND: dict[str, Operator] = {}  # those that have been looked up
_BY_KIND: dict[int, Operator] = {}
_BY_SCHEMA: dict[str, list[Operator]] = {}  # operators that share a record share its id


@dataclass(frozen=True, slots=True)
class Offer:
    """An operator that a module declares: what is known of it before."""

    kind: str
    module: str
    fingerprint: int


_OFFERS: dict[str, Offer] = {}  # by name, whether they are declared by now or not
_OFFERED_KINDS: dict[int, str] = {}  # the names by kind id


def _load_nothing(module: str) -> None:
    """Load nothing: nobody has offered anything."""


class _Modules:
    """The package whose modules declare what is offered, and how they are loaded: one by name, or all with ""."""

    def __init__(self) -> None:
        self.package = ""
        self.load: Callable[[str], None] = _load_nothing


_modules = _Modules()


def offer(package: str, offers: Mapping[str, Offer], load: Callable[[str], None]) -> None:
    """Offer operators of a package by name.

    `load` loads one of its modules when an operator of it is asked for, and with "" all of them.
    """
    _modules.package, _modules.load = package, load
    _OFFERS.update(offers)
    _OFFERED_KINDS.update((fourcc(given.kind), name) for name, given in offers.items())


def _ask_for(name: object) -> Operator | None:
    """Return the operator of a name, declared now where it is offered; else every module is loaded."""
    if not isinstance(name, str):
        return None
    if name in _OFFERS and name not in _BY_NAME:
        _modules.load(_OFFERS[name].module)
    if name not in _BY_NAME:
        _modules.load("")
    return _BY_NAME.get(name)


def declare(
    name: str,
    kind: str,
    signature: str,
    types: Mapping[str, tuple[DType, ...]],
    *,
    broadcast: Sequence[str] = (),
    **fields: Any,
) -> Operator:
    """Declare and register an operator; `fields` are those of `Operator`."""
    operator = Operator(name, kind, signature=_signature.parse(signature, types, broadcast), **fields)
    register(operator)
    return operator


def register(operator: Operator) -> None:
    """Add a declaration.

    A name, a kind, or a schema id of another record that exists already is a ValueError that names both operators.
    """
    if not _is_loading():
        _modules.load("")  # a plug-in's may clash with any
    other = _BY_NAME.get(operator.name) or _BY_KIND.get(operator.kind_id)
    if other is not None:
        raise ValueError(f"{operator!r} ({operator.kind}) clashes with {other!r} ({other.kind})")
    alike = _BY_SCHEMA.setdefault(operator.attrs.schema, [])
    if alike and alike[0].attrs.fingerprint != operator.attrs.fingerprint:
        raise ValueError(f"{operator!r} has another record than {alike[0]!r} under its id {operator.attrs.schema}")
    alike.append(operator)
    _BY_NAME[operator.name] = operator
    _BY_KIND[operator.kind_id] = operator


def _is_loading() -> bool:
    """Return whether one of the modules that declare what is offered runs right now, in this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__package__") == _modules.package:
            return True
        frame = frame.f_back
    return False


def withdraw(operator: Operator) -> None:
    """Remove a declaration; what was made from it stays."""
    if _BY_NAME.get(operator.name) is operator:
        del _BY_NAME[operator.name], _BY_KIND[operator.kind_id]
        _FOUND.pop(operator.name, None)
        _BY_SCHEMA[operator.attrs.schema].remove(operator)


def all_operators() -> list[Operator]:
    """Return every operator, ordered by name."""
    sys.audit("isokern.operator", "*")
    return scan_operators()


def scan_operators() -> list[Operator]:
    """Return every operator for a search, whose caller looks up with `find` what it uses of them."""
    _modules.load("")
    return [_BY_NAME[name] for name in sorted(_BY_NAME)]


def list_declared() -> list[Operator]:
    """Return the operators that are declared by now."""
    return list(_BY_NAME.values())


def is_offered(operator: Operator) -> bool:
    """Return whether an operator is one of those that `offer` told of."""
    return operator.name in _OFFERS


def fingerprint_of(name: str) -> int | None:
    """Return the fingerprint of an operator's record, without declaring it where it is offered; None if there is none.

    What is offered may be out of date: who finds another one asks the operator itself.
    """
    if name in _BY_NAME or name not in _OFFERS:
        found = _ask_for(name)
        return None if found is None else found.attrs.fingerprint
    return _OFFERS[name].fingerprint


def find(name: str) -> Operator:
    """Return the operator of that name, or raise InvalidArgument with the nearest names."""
    try:
        return _FOUND[name]
    except (KeyError, TypeError):  # what has no hash is no name either
        sys.audit("isokern.operator", name)
        found = _ask_for(name)
        if found is not None:
            _FOUND[name] = found
            return found
        near = ", ".join(difflib.get_close_matches(str(name), _BY_NAME)) or "see `isokern ops`"
        raise InvalidArgument("find", f"no operator is called {name!r}", allowed=near) from None


def has(name: str) -> bool:
    """Return whether there is an operator of that name, without declaring it where it is offered."""
    return name in _BY_NAME or name in _OFFERS or _ask_for(name) is not None


def by_kind(kind_id: int) -> Operator:
    """Return the operator with that kind id, or raise InvalidArgument."""
    if kind_id not in _BY_KIND:
        _ask_for(_OFFERED_KINDS.get(kind_id, ""))
    if kind_id not in _BY_KIND:
        raise InvalidArgument("by_kind", f"no operator has kind {kind_id:#x}")
    return find(_BY_KIND[kind_id].name)
