"""Importer: the nodes of a model become operators of a graph, or are computed where all they read is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..graph.builder import error_context
from ..status import InvalidArgument, IsokernError, quote
from .attributes import Definition, complete, definition_of
from .bounds import MAX_CALLS, MAX_NODES, Key, key_of
from .construction import Construction
from .control import CONTROL
from .elements import Array, array_of, narrow_name, widen
from .functions import bind_function, function_of
from .node import Handler, Node, OperandScope, Output, Ragged, UnsupportedModel, describe
from .nodes_microsoft import NODES as MICROSOFT
from .reader import DOMAINS, Source, subgraphs, versions_of
from .table import ML_NODES, NODES

DOMAIN_NODES = {"": NODES, "ai.onnx.ml": ML_NODES, "com.microsoft": MICROSOFT}
MOVES = frozenset({
    "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip


class Importer(Construction):
    """Runs the nodes of a model: operators are emitted into the last segment."""

    def __init__(self, source: Source, answers: Sequence[Array] = ()) -> None:
        super().__init__(source.message.graph.name or "model", answers)
        self.source = source
        self._opsets: Mapping[str, int] = source.opsets  # of the graph or function whose nodes are imported
        self._calls = self._nodes = 0

    # Graphs

    def run_graph(self, graph: Any, scope: OperandScope) -> None:
        """Import the initialisers and nodes of a graph into a scope."""
        for tensor in graph.initializer:
            if tensor.name not in scope:
                array = array_of(f"initialiser {quote(tensor.name)}", tensor)
                self.define(scope, tensor.name, array)
        self.run_nodes(graph.node, scope, self._opsets)

    def define(self, scope: OperandScope, name: str, array: Array) -> None:
        """Enter an array under a name; a narrow type is kept beside it."""
        scope.enter(name, widen(array), narrow_name(array))
        self.named[id(scope[name])] = name

    def results_of(self, where: str, graph: Any, scope: OperandScope) -> tuple[list[Any], list[str | None]]:
        """Return the operands that a graph gives, and their narrow types."""
        names = [value.name for value in graph.output]
        return [scope.find(where, n) for n in names], [scope.narrow.get(n) for n in names]

    def run_nodes(self, nodes: Sequence[Any], scope: OperandScope, opsets: Mapping[str, int]) -> None:
        """Import nodes in their order."""
        before, self._opsets = self._opsets, opsets
        try:
            self._run_nodes(nodes, scope, opsets)
        finally:
            self._opsets = before

    def _run_nodes(self, nodes: Sequence[Any], scope: OperandScope, opsets: Mapping[str, int]) -> None:
        for node in nodes:
            name = describe(node.op_type, node.name, node.output)
            where = f"{name}, {node.op_type}"
            with error_context(where):
                try:
                    self._run_node(where, name, node, scope, opsets)
                except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as error:
                    if isinstance(error, IsokernError):
                        raise
                    raise InvalidArgument(node.op_type, f"{type(error).__name__}: {error}") from error

    def _run_node(self, where: str, name: str, node: Any, scope: OperandScope, opsets: Mapping[str, int]) -> None:
        self._nodes += 1
        op_type, read, made = node.op_type, list(node.input), list(node.output)  # each time, messages make them anew
        if self._nodes > MAX_NODES:
            raise InvalidArgument(op_type, "the model is too long", allowed=f"{MAX_NODES} nodes")
        domain = "" if node.domain in DOMAINS else node.domain
        own = self.source.functions.get(key_of(node))
        definition = definition_of(op_type, domain, opsets) if own is None else None
        handler = handler_of(op_type, domain)
        inputs = [scope.find(where, n) if n else None for n in read]
        attrs, graphs = complete(node, definition)
        narrow = [scope.narrow.get(n) for n in read]
        since = definition.since if definition is not None else 0
        view = Node(op_type, name, since, inputs, attrs, [bool(n) for n in made], self, graphs, narrow)
        for i, x in enumerate(inputs):
            if isinstance(x, Ragged):
                count = int(view.know(x.count, f"the size of input {i}"))
                view.inputs[i] = view.emit("slice", x.value, starts=(0,), ends=(count,), axes=(x.axis,))
        self.label = node.name or next((n for n in made if n), "")
        found: Output | Sequence[Output]
        if own is not None:
            found = self._call(view, own, node, versions_of(own))
        elif op_type in CONTROL and not domain:
            found = CONTROL[op_type](view, scope)
        else:
            found = self._handle(view, handler, node, definition, domain, opsets)
        outputs = list(found) if isinstance(found, (tuple, list)) else [found]
        if view.made is None and op_type in MOVES:
            view.made = next((e for e in view.elements if e is not None), None)
        for n, output, kind in zip(made, outputs, view.each or [view.made] * len(outputs), strict=False):
            if n:
                scope.enter(n, output, kind)
        if any(made[len(outputs) :]):
            raise UnsupportedModel(op_type, f"{len(made)} outputs", allowed=f"{len(outputs)}")

    def _handle(
        self,
        view: Node,
        handler: Handler | None,
        node: Any,
        definition: Definition | None,
        domain: str,
        opsets: Mapping[str, int],
    ) -> Output | Sequence[Output]:
        """Return the outputs by the handler, else by the body of the operator's function.

        What a handler emitted before it refused is read by nobody, and the pass that removes dead code takes it away.
        """
        refused: UnsupportedModel | None = None
        if handler is not None:
            try:
                return handler(view)
            except UnsupportedModel as error:
                refused = error
        function = function_of(view, node, None if definition is None else definition.schema, opsets)
        if function is None:
            raise refused or UnsupportedModel(node.op_type, f"domain {quote(domain)}", allowed="a known operator")
        return self._call(view, function, node, {**opsets, **versions_of(function)})

    def _call(self, view: Node, function: Any, node: Any, opsets: Mapping[str, int]) -> Sequence[Output]:
        """Return what the body of a function gives, whose nodes are of the versions that it states."""
        if self._calls >= MAX_CALLS:
            raise InvalidArgument(node.op_type, "functions within functions", allowed=f"{MAX_CALLS}")
        self._calls += 1
        try:
            inner = OperandScope()
            for n, name in enumerate(function.input):
                inner.enter(name, view.get(n), view.elements[n] if n < len(view.elements) else None)
            self.run_nodes(bind_function(function, view.attrs), inner, opsets)
            names = zip(function.output, node.output, strict=False)
            given = [inner.find(node.op_type, name) if wanted else None for name, wanted in names]
            view.each = [inner.narrow.get(name) for name in function.output]
            return given
        finally:
            self._calls -= 1


def handler_of(op_type: str, domain: str) -> Handler | None:
    """Return what the table has for an operator."""
    return DOMAIN_NODES[domain].get(op_type) if domain in DOMAIN_NODES else None


def list_unknown(source: Source) -> list[str]:
    """Return a line for each node, of inner graphs too, that neither the table nor a function answers."""
    found: list[str] = []

    seen = set[Key]()

    def walk(nodes: Any, opsets: Mapping[str, int]) -> None:
        for node in nodes:
            domain, key = "" if node.domain in DOMAINS else node.domain, key_of(node)
            if key in source.functions:
                if key not in seen:
                    seen.add(key)
                    walk(source.functions[key].node, versions_of(source.functions[key]))
                continue
            known = handler_of(node.op_type, domain) is not None or (not domain and node.op_type in CONTROL)
            if not known and not _has_function(definition_of(node.op_type, domain, opsets)):
                opset = f"{domain or 'ai.onnx'} {opsets.get(domain, '(not imported)')}"
                found.append(f"{node.op_type} of {opset} at {describe(node.op_type, node.name, node.output)}")
            for inner in subgraphs(node):
                walk(inner.node, opsets)

    walk(source.message.graph.node, source.opsets)
    return found


def _has_function(definition: Definition | None) -> bool:
    schema = None if definition is None else definition.schema
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)
