"""The compiler of a function: its statements, inner functions, and assignments."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from ...status import IsokernError
from .expressions import Expressions
from .words import BUILTINS, Function, Tables


def parameters_of(tree: ast.FunctionDef | ast.Lambda) -> list[ast.arg]:
    """Return the parameters of a function, in the order of its slots: *args is one, a tuple, and **kwargs a mapping."""
    a = tree.args
    stars = [[] if star is None else [star] for star in (a.vararg, a.kwarg)]
    return [*a.posonlyargs, *a.args, *stars[0], *a.kwonlyargs, *stars[1]]


def _is_emitter(parameter: ast.arg) -> bool:
    """Return whether a parameter is annotated as the emitter of a decomposition."""
    return parameter.annotation is not None and ast.unparse(parameter.annotation).startswith("Emitter")


class Scope(Expressions):
    """Compiles one function; an inner function has the scope of the outer one as `outer`."""

    def __init__(
        self,
        compiler: Tables,
        made: Function,
        tree: ast.FunctionDef | ast.Lambda,
        known: Mapping[str, Any],
        outer: Expressions | None,
        emits: bool = False,
    ) -> None:
        """`emits` is true of a method of the emitter, whose first parameter is the emitter."""
        super().__init__(compiler, made, known, outer)
        self._loops: list[tuple[list[int], int]] = []
        for parameter in parameters_of(tree):
            self._slot(parameter.arg)
            if _is_emitter(parameter) or (parameter.arg == "e" and isinstance(tree, ast.Lambda)):
                self.emitters.add(parameter.arg)
        if emits:
            self.emitters.add(parameters_of(tree)[0].arg)
        if isinstance(tree, ast.Lambda):
            self._expression(tree.body)
            self._emit("RETURN")
        else:
            for statement in tree.body:
                self._statement(statement)
            self._constant(None)
            self._emit("RETURN")

    # Statements

    def _statement(self, node: ast.stmt) -> None:
        method = getattr(self, f"_do_{type(node).__name__.lower()}", None)
        if method is None:
            raise self._fail(node)
        method(node)

    def _do_return(self, node: ast.Return) -> None:
        if node.value is None:
            self._constant(None)
        else:
            self._expression(node.value)
        self._emit("RETURN")

    def _do_assert(self, node: ast.Assert) -> None:
        """Compile to nothing: assertions are for the type checker."""

    def _do_pass(self, node: ast.Pass) -> None:
        """Compile to nothing."""

    def _do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        self._expression(node.value)
        self._emit("POP")

    def _do_assign(self, node: ast.Assign) -> None:
        self._expression(node.value)
        if len(node.targets) == 1:
            self._assign(node.targets[0])
            return
        holder = self.made.slots
        self.made.slots += 1
        self._emit("STORE", holder)
        for target in node.targets:
            self._emit("LOAD", holder)
            self._assign(target)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._expression(node.value)
            self._assign(node.target)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        """Compile `x += y`, for a name or an item; what stands in the brackets is computed twice."""
        if not isinstance(node.target, (ast.Name, ast.Subscript)):
            raise self._fail(node)
        self._binop(node, node.target, node.op, node.value)
        self._assign(node.target)

    def _do_while(self, node: ast.While) -> None:
        if node.orelse:
            raise self._fail(node)
        start = len(self.made.code)
        self._expression(node.test)
        end = self._emit("JUMP_FALSE", 0)
        self._repeat(node.body, start, end)

    def _do_if(self, node: ast.If) -> None:
        self._expression(node.test)
        otherwise = self._emit("JUMP_FALSE", 0)
        for statement in node.body:
            self._statement(statement)
        if node.orelse:
            end = self._emit("JUMP", 0)
            self._patch(otherwise)
            for statement in node.orelse:
                self._statement(statement)
            self._patch(end)
        else:
            self._patch(otherwise)

    def _do_for(self, node: ast.For) -> None:
        if node.orelse:
            raise self._fail(node)
        self._expression(node.iter)
        self._emit("ITERATE")
        # The iterator is in a slot, so that `return` in the loop leaves nothing on the stack
        holder = self.made.slots
        self.made.slots += 1
        self._emit("STORE", holder)
        start = len(self.made.code)
        end = self._emit("NEXT", holder, 0)
        self._assign(node.target)
        self._repeat(node.body, start, end)

    def _repeat(self, body: Sequence[ast.stmt], start: int, end: int) -> None:
        """Compile the body of a loop that begins at `start`; the jump at `end` leaves it, as `break` does."""
        self._loops.append(([], start))
        for statement in body:
            self._statement(statement)
        self._emit("JUMP", start)
        breaks, _ = self._loops.pop()
        for position in (end, *breaks):
            self._patch(position)

    def _do_continue(self, node: ast.Continue) -> None:
        self._emit("JUMP", self._loops[-1][1])

    def _do_break(self, node: ast.Break) -> None:
        self._loops[-1][0].append(self._emit("JUMP", 0))

    def _do_functiondef(self, node: ast.FunctionDef) -> None:
        self._store_closure(node, node.name)

    def _store_closure(self, node: ast.FunctionDef | ast.Lambda, name: str) -> None:
        made = Function(f"{self.made.name}.{name}", len(parameters_of(node)))
        number = len(self.compiler.functions)
        self.compiler.functions.append(made)
        Scope(self.compiler, made, node, self.known, self)
        self._emit("CLOSURE", number)
        if isinstance(node, ast.FunctionDef):
            self._store(name)

    def _do_raise(self, node: ast.Raise) -> None:
        call = node.exc
        if not isinstance(call, ast.Call):
            raise self._fail(node)
        error = self._value_of(call.func)
        if not (isinstance(error, type) and issubclass(error, IsokernError)) or len(call.args) != 2:
            raise self._fail(node)
        texts = {k.arg: k.value for k in call.keywords}
        if not texts.keys() <= {"allowed", "hint"}:
            raise self._fail(node)
        for argument in (*call.args, texts.get("allowed"), texts.get("hint")):
            if argument is None:
                self._constant("")
            else:
                self._expression(argument)
        self._emit("RAISE", int(error.status))

    # Assignment targets

    def _assign(self, target: ast.expr) -> None:
        """Assign the value on the stack to the target."""
        if isinstance(target, ast.Name):
            self._store(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            stars = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
            if stars:
                self._emit("UNPACK_STAR", stars[0], len(target.elts) - stars[0] - 1)
            else:
                self._emit("UNPACK", len(target.elts))
            for t in target.elts:
                self._assign(t.value if isinstance(t, ast.Starred) else t)
        elif isinstance(target, ast.Subscript):
            self._expression(target.value)
            if isinstance(target.slice, ast.Slice):
                self._bounds(target.slice)
                self._emit("BUILTIN", list(BUILTINS.values()).index("SLICE"), 3)
            else:
                self._expression(target.slice)
            self._emit("STORE_INDEX")
        else:
            raise self._fail(target)
