"""Functions: the bodies by which ONNX defines operators in terms of others, for those that have no row in the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .elements import name_of
from .library import proto
from .node import Node, dtype_of, shape_of


def function_of(view: Node, node: Any, schema: Any, opsets: Mapping[str, int]) -> Any:
    """Return the body of an operator for the types of its inputs, None where its definition has none."""
    if schema is None:
        return None
    version = max(opsets.get(node.domain, 1), schema.since_version)
    if schema.has_function:
        known = [v for v in schema.function_opset_versions if v <= version]
        found = schema.get_function_with_opset_version(max(known)) if known else schema.function_body
        return _parse(found) if isinstance(found, bytes) else found
    if not schema.has_context_dependent_function:
        return None
    known = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    if not known:
        return None
    types = [_type_of(view, n).SerializeToString() for n in range(len(view.inputs))]
    content = schema.get_context_dependent_function_with_opset_version(max(known), node.SerializeToString(), types)
    return _parse(content)


def _parse(content: bytes) -> Any:
    function = proto.FunctionProto()
    function.ParseFromString(content)
    return function


def _type_of(view: Node, n: int) -> Any:
    x = view.tensor(n)
    if x is None:
        return proto.TypeProto()
    name = view.elements[n] or name_of(dtype_of(x))
    return proto.helper.make_tensor_type_proto(proto.TensorProto.DataType.Value(name), shape_of(x))


def bind_function(function: Any, attrs: Mapping[str, Any]) -> list[Any]:
    """Return the nodes of a function with the values of the attributes that they refer to."""
    defaults = {a.name: proto.helper.get_attribute_value(a) for a in function.attribute_proto}
    given = {**defaults, **attrs}
    return [_bind(node, given) for node in function.node]


def _bind(node: Any, given: Mapping[str, Any]) -> Any:
    if not any(a.ref_attr_name or a.type == proto.AttributeProto.GRAPH for a in node.attribute):
        return node
    bound = proto.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                value = given[attribute.ref_attr_name]
                if attribute.type == proto.AttributeProto.TENSOR and not isinstance(value, proto.TensorProto):
                    value = proto.numpy_helper.from_array(value)
                bound.attribute.append(proto.helper.make_attribute(attribute.name, value, attr_type=attribute.type))
        elif attribute.type == proto.AttributeProto.GRAPH:
            kept = bound.attribute.add()
            kept.CopyFrom(attribute)
            inner = [_bind(n, given) for n in attribute.g.node]
            del kept.g.node[:]
            kept.g.node.extend(inner)
        else:
            bound.attribute.append(attribute)
    return bound
