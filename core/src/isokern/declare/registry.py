"""The declared operators by name and by kind; importing `isokern.ops` registers all of core's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from ..dtypes import DType
from ..status import InvalidArgument
from . import signature as _signature
from .operator import Operator

_BY_NAME: dict[str, Operator] = {}
_BY_KIND: dict[int, Operator] = {}
_BY_SCHEMA: dict[str, list[Operator]] = {}  # operators that share a record share its id


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
    other = _BY_NAME.get(operator.name) or _BY_KIND.get(operator.kind_id)
    if other is not None:
        raise ValueError(f"{operator!r} ({operator.kind}) clashes with {other!r} ({other.kind})")
    alike = _BY_SCHEMA.setdefault(operator.attrs.schema, [])
    if alike and alike[0].attrs.fingerprint != operator.attrs.fingerprint:
        raise ValueError(f"{operator!r} has another record than {alike[0]!r} under its id {operator.attrs.schema}")
    alike.append(operator)
    _BY_NAME[operator.name] = operator
    _BY_KIND[operator.kind_id] = operator


def withdraw(operator: Operator) -> None:
    """Remove a declaration; what was made from it stays."""
    if _BY_NAME.get(operator.name) is operator:
        del _BY_NAME[operator.name], _BY_KIND[operator.kind_id]
        _BY_SCHEMA[operator.attrs.schema].remove(operator)


def all_operators() -> list[Operator]:
    """Return every declared operator, ordered by name."""
    return [_BY_NAME[name] for name in sorted(_BY_NAME)]


def find(name: str) -> Operator:
    """Return the operator of that name, or raise InvalidArgument with the nearest names."""
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):  # what has no hash is no name either
        near = ", ".join(difflib.get_close_matches(str(name), _BY_NAME)) or "see `isokern ops`"
        raise InvalidArgument("find", f"no operator is called {name!r}", allowed=near) from None


def by_kind(kind_id: int) -> Operator:
    """Return the operator with that kind id, or raise InvalidArgument."""
    if kind_id not in _BY_KIND:
        raise InvalidArgument("by_kind", f"no operator has kind {kind_id:#x}")
    return _BY_KIND[kind_id]
