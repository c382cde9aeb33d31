"""The attributes of a node, complete: those that it names, and the defaults of its operator's definition."""

from __future__ import annotations

from typing import Any

from ..status import InvalidArgument
from .elements import array_of
from .library import proto

READ = ["FLOAT", "INT", "STRING", "TENSOR", "FLOATS", "INTS", "STRINGS"]


def read_attribute(where: str, attribute: Any) -> Any:
    """Return an attribute as Python has it; a tensor as an array, text as `str`."""
    kinds = proto.AttributeProto.AttributeType
    name = kinds.Name(attribute.type) if attribute.type in kinds.values() else str(attribute.type)
    if name == "GRAPH":
        return attribute.g
    if name not in READ:
        raise InvalidArgument(where, f"attribute {attribute.name} is of type {name}", allowed=", ".join(READ))
    if name == "TENSOR":
        return array_of(f"{where}: attribute {attribute.name}", attribute.t)
    value = proto.helper.get_attribute_value(attribute)
    if name == "STRING":
        return value.decode("utf-8", "replace")
    return [v.decode("utf-8", "replace") for v in value] if name == "STRINGS" else value


def complete(node: Any, schema: Any) -> dict[str, Any]:
    """Return the attributes by name; those without a value and a default are missing."""
    found: dict[str, Any] = {}
    for name, told in {} if schema is None else schema.attributes.items():
        if told.default_value is not None and told.default_value.type:
            found[name] = read_attribute(node.op_type, told.default_value)
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            found[attribute.name] = read_attribute(node.op_type, attribute)
    return found
