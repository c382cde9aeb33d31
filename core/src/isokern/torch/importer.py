"""Importer: the nodes of a torch.fx graph of ATen operators become operators of ours, for one set of dims."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..dtypes import DType
from ..graph.builder import error_context
from ..graph.ir import Value
from ..importing.draft import Draft
from ..importing.emission import UnsupportedModel
from ..importing.operand import Array, dtype_of, shape_of
from ..status import BadTensorDtype, BadTensorShape, IsokernError
from .elements import our_dtype, to_array
from .library import library as torch
from .node import AtenNode, Handler, is_operand
from .table import NODES

SPACES = ("aten", "prims")
FACTS = frozenset({"sym_size", "sym_numel", "sym_stride", "sym_storage_offset", "sym_is_contiguous", "dim", "numel"})
CHECKS = frozenset({"_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
                    "sym_constrain_range_for_size"})  # fmt: skip
SMALL = 1 << 10  # elements of a constant of a graph that is an array from the start


@dataclass(frozen=True)
class Shared:
    """A parameter in PyTorch's memory: its name and its array, which is not copied."""

    name: str
    array: Array


@dataclass(frozen=True)
class Unreadable:
    """What a node gave that nothing here can read, and why."""

    problem: str


class ModuleImporter(Draft):
    """A graph under construction from nodes; `found` has what each gave: operands, numbers, lists of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.found: dict[Any, Any] = {}

    def share(self, shared: Shared) -> Value:
        """Declare a parameter that has another's memory."""
        return self.parameter(shared.name, shared.array.shape, dtype_of(shared.array), shared.array)

    def constant(self, name: str, tensor: Any) -> Any:
        """Return a tensor of the graph itself as an operand; a small one is known when the graph is built."""
        array = to_array(name, tensor)
        if array.size <= SMALL:
            return array.copy()
        self.named[id(array)] = name
        return self.place(array)

    def run_node(self, owner: Any, node: Any) -> None:
        """Import one node that calls a function or names a constant."""
        if node.op == "get_attr":
            held = attribute_of(owner, node.target)
            self.found[node] = self.constant(node.target, held) if isinstance(held, torch.Tensor) else held
            return
        if node.op != "call_function":
            raise UnsupportedModel(describe(node), f"a node {node.op}", allowed="call_function")
        self.label = node.name
        with error_context(describe(node)):
            try:
                self.found[node] = self._call(node)
            except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RuntimeError) as error:
                if isinstance(error, IsokernError):
                    raise
                problem = f"{type(error).__name__}: {error}"
                raise UnsupportedModel(name_of(node.target), problem) from error

    def _call(self, node: Any) -> Any:
        target = node.target
        args, named = self.resolve(node.args), self.resolve(node.kwargs)
        if target is operator.getitem:
            return args[0][args[1]]
        name = name_of(target)
        if name in CHECKS or target is getattr(torch, "_check", None):
            return None
        if name in FACTS:
            return _fact(name, *args)
        if _numbers_only((args, named)) and not _is_tensor(value_of(node)):
            return target(*args, **named)  # arithmetic of dims
        val = value_of(node)
        first = val[0] if isinstance(val, (tuple, list)) else val
        wanted: DType | None = our_dtype(name, first.dtype) if _is_tensor(first) else None
        handler = handler_of(target)
        if handler is None:
            raise UnsupportedModel(name, "no counterpart here")
        source = next((a for a in node.args if isinstance(a, torch.fx.Node)), None)
        plain, sole = source is not None and _is_plain(value_of(source)), source is not None and len(source.users) == 1
        read = read_results(node) if isinstance(val, (tuple, list)) else None
        view = AtenNode(short_name(target), bind(target, args, named), self, wanted, read, plain, sole)
        made = handler(view)
        check(name, made, val, read)
        return made

    def resolve(self, x: Any) -> Any:
        """Return arguments with nodes as what they gave."""
        if isinstance(x, torch.fx.Node):
            found = self.found[x]
            if isinstance(found, Unreadable):
                raise UnsupportedModel(x.name, found.problem)
            return found
        if isinstance(x, (list, tuple)):
            return type(x)(self.resolve(v) for v in x) if type(x) in (list, tuple) else [self.resolve(v) for v in x]
        if isinstance(x, Mapping):
            return {k: self.resolve(v) for k, v in x.items()}
        return x


def describe(node: Any) -> str:
    """Return what messages call a node."""
    return f"{node.name}, {name_of(node.target)}" if node.op == "call_function" else str(node.name)


def name_of(target: Any) -> str:
    """Return the name of what a node calls, with its overload, but for facts about tensors."""
    if isinstance(target, torch._ops.OpOverload):
        space, _, name = target._schema.name.partition("::")
        if name in FACTS or name in CHECKS:
            return str(name)
        return f"{space}.{name}.{target._overloadname}"
    return getattr(target, "__name__", str(target))


def short_name(target: Any) -> str:
    """Return the name of an operator without its space and overload."""
    return str(target._schema.name.partition("::")[2])


def handler_of(target: Any) -> Handler | None:
    """Return what the table has for the target of a node: by its overload first, then by its name."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in SPACES:
        return None
    name = short_name(target)
    return NODES.get(f"{name}_{target._overloadname}") or NODES.get(name)


def bind(target: Any, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments by the names of the schema, those that are not given as its defaults."""
    found = {}
    for n, argument in enumerate(target._schema.arguments):
        if n < len(args):
            found[argument.name] = args[n]
        elif argument.name in named:
            found[argument.name] = named[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found


def value_of(node: Any) -> Any:
    """Return what PyTorch knows of a node's result: fake tensors, or numbers of dims."""
    return node.meta.get("val")


def _is_tensor(val: Any) -> bool:
    if isinstance(val, (tuple, list)):
        return any(_is_tensor(v) for v in val)
    return isinstance(val, torch.Tensor)


def _is_plain(val: Any) -> bool:
    return isinstance(val, torch.Tensor) and val.is_contiguous() and val.storage_offset() == 0


def read_results(node: Any) -> frozenset[int]:
    """Return the results of a node that anything reads."""
    picked = [u.args[1] for u in node.users if u.target is operator.getitem]
    return frozenset(picked) if len(picked) == len(node.users) else frozenset(range(16))


def _numbers_only(x: Any) -> bool:
    """Return whether no argument is a tensor."""
    if isinstance(x, (list, tuple)):
        return all(map(_numbers_only, x))
    if isinstance(x, Mapping):
        return all(map(_numbers_only, x.values()))
    return not is_operand(x)


def _fact(name: str, x: Any, dim: int | None = None, *_: Any) -> Any:
    """Return a fact about a tensor's dims."""
    shape = shape_of(x)
    if name in ("sym_size", "dim"):
        return len(shape) if name == "dim" else list(shape) if dim is None else shape[dim]
    if name in ("sym_numel", "numel"):
        return _product(shape)
    if name == "sym_stride":
        strides = [_product(shape[n + 1 :]) for n in range(len(shape))]
        return strides if dim is None else strides[dim]
    return 0 if name == "sym_storage_offset" else True


def _product(shape: Sequence[int]) -> int:
    found = 1
    for d in shape:
        found *= d
    return found


def attribute_of(owner: Any, path: str) -> Any:
    """Return what a module has at a path of names."""
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def check(name: str, made: Any, val: Any, read: frozenset[int] | None) -> None:
    """Raise a typed error where a result has another shape or dtype than PyTorch says."""
    if isinstance(val, (tuple, list)):
        listed = list(made) if isinstance(made, (list, tuple)) else [made]
        if read is not None and any(
            n >= len(listed) or (listed[n] is None and _is_tensor(val[n])) for n in read if n < len(val)
        ):
            raise UnsupportedModel(name, f"results {sorted(read)} are read", allowed="the first alone")
        for one, told in zip(listed, val, strict=False):
            check(name, one, told, None)
        return
    if not _is_tensor(val) or not is_operand(made):
        return
    said = our_dtype(name, val.dtype)
    if dtype_of(made) is not said:
        raise BadTensorDtype(name, f"the result is {dtype_of(made)}", allowed=f"{said}, as PyTorch has")
    sizes = [d if type(d) is int else None for d in val.shape]
    shape = shape_of(made)
    if len(shape) != len(sizes) or any(d is not None and d != s for s, d in zip(shape, sizes, strict=True)):
        raise BadTensorShape(name, f"the result is {list(shape)}", allowed=f"{list(val.shape)}, as PyTorch has")


def outputs_of(graph: Any) -> list[Any]:
    """Return the nodes, numbers and Nones that a graph gives, in order."""
    (node,) = (n for n in graph.nodes if n.op == "output")
    given = node.args[0]
    return list(given) if isinstance(given, (list, tuple)) else [given]
