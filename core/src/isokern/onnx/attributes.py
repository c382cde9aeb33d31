"""The attributes of a node, complete: those that it names, and the defaults of its operator's definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..status import InvalidArgument, IsokernError
from .elements import array_of
from .library import proto

_TYPES = proto.AttributeProto.AttributeType
_TENSOR, _GRAPH = _TYPES.Value("TENSOR"), _TYPES.Value("GRAPH")


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


READ: dict[int, Callable[[Any], Any]] = {  # by the number of the type, which is cheaper to compare than its name
    _TYPES.Value("FLOAT"): lambda a: a.f,
    _TYPES.Value("INT"): lambda a: a.i,
    _TYPES.Value("STRING"): lambda a: _decode(a.s),
    _TYPES.Value("FLOATS"): lambda a: list(a.floats),
    _TYPES.Value("INTS"): lambda a: list(a.ints),
    _TYPES.Value("STRINGS"): lambda a: [_decode(v) for v in a.strings],
    _GRAPH: lambda a: a.g,
}


def read_attribute(where: str, attribute: Any) -> Any:
    """Return an attribute as Python has it; a tensor as an array, text as `str`."""
    number = attribute.type
    if number == _TENSOR:
        return array_of(f"{where}: attribute {attribute.name}", attribute.t)
    read = READ.get(number)
    if read is None:
        name = _TYPES.Name(number) if number in _TYPES.values() else str(number)
        allowed = ", ".join(_TYPES.Name(n) for n in (*READ, _TENSOR))
        raise InvalidArgument(where, f"attribute {attribute.name} is of type {name}", allowed=allowed)
    return read(attribute)


@dataclass(frozen=True)
class Definition:
    """An operator in a version of its domain: the library's schema, and the attributes that have a default."""

    schema: Any
    since: int
    defaults: Mapping[str, Any]


@lru_cache(1024)  # the library makes a schema, and its table of attributes, anew each time that it is asked
def _define(op_type: str, version: int, domain: str) -> Definition:
    schema, defaults = proto.defs.get_schema(op_type, version, domain), {}
    for name, told in schema.attributes.items():
        if told.default_value is not None and told.default_value.type:
            defaults[name] = read_attribute(op_type, told.default_value)
    return Definition(schema, schema.since_version, defaults)


def definition_of(op_type: str, domain: str, opsets: Mapping[str, int]) -> Definition | None:
    """Return the definition of an operator in the model's version of its domain, None where there is none."""
    try:
        return _define(op_type, opsets.get(domain, 1), domain)
    except IsokernError:
        raise
    except Exception:  # the library's own type, which is not exported everywhere
        return None


def complete(node: Any, definition: Definition | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes by name, and the graphs among them; those without a value and a default are missing."""
    told = {} if definition is None else definition.defaults
    found = {name: list(v) if isinstance(v, list) else v for name, v in told.items()}  # a handler may change its own
    graphs: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            graphs[attribute.name] = attribute.g
        if not attribute.ref_attr_name:
            found[attribute.name] = read_attribute(node.op_type, attribute)
    return found, graphs
