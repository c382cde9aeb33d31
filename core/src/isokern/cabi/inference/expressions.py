"""The compiler of expressions: each leaves one value on the machine's stack."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import typing
from collections.abc import Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from ... import layout
from ...declare.decomposition import Emitter
from ...declare.operator import Operator
from ...declare.signature import Signature
from ...layout import TensorDesc
from .words import BINARY, BUILTINS, COMPARE, INSTRUCTIONS, METHODS, Function, Tables, Unsupported

COMPILED = (TensorDesc, Signature, Operator)  # classes whose methods are compiled where they are called
# Fields of an operator that are functions, called as values
CALLED_FIELDS = ("check", "shapes", "normal_form", "combinations")


class Expressions:
    """The names, the words and the expressions of a function; `Scope` compiles its statements."""

    def __init__(self, compiler: Tables, made: Function, known: Mapping[str, Any], outer: Expressions | None) -> None:
        self.compiler, self.made, self.known, self.outer = compiler, made, known, outer
        self.slots: dict[str, int] = {}
        self.emitters: set[str] = set()  # parameters that are the emitter of a decomposition

    # Words and names

    def _emit(self, op: str, *operands: int) -> int:
        """Append an instruction; return the position of its last word."""
        self.made.code += [INSTRUCTIONS.index(op), *operands]
        return len(self.made.code) - 1

    def _builtin(self, name: str, count: int) -> None:
        self._emit("BUILTIN", list(BUILTINS.values()).index(name), count)

    def _patch(self, position: int) -> None:
        """Set the jump target at `position` to the next instruction."""
        self.made.code[position] = len(self.made.code)

    def _constant(self, given: Any) -> None:
        self._emit("CONST", self.compiler.constant(given))

    def _fail(self, node: ast.AST, what: str = "") -> Unsupported:
        text = what or f"{type(node).__name__}: {ast.unparse(node)}"
        return Unsupported(f"{self.made.name}, line {getattr(node, 'lineno', '?')}: {text}")

    def _slot(self, name: str) -> int:
        self.slots[name] = self.made.slots
        self.made.slots += 1
        return self.slots[name]

    def _store(self, name: str) -> None:
        self._emit("STORE", self.slots[name] if name in self.slots else self._slot(name))

    def _find(self, name: str) -> tuple[int, int] | None:
        """Return (how many functions further out, slot) of a variable, or None."""
        scope: Expressions | None = self
        level = 0
        while scope is not None:
            if name in scope.slots:
                return level, scope.slots[name]
            scope, level = scope.outer, level + 1
        return None

    def _is_emitter(self, node: ast.expr) -> bool:
        """Return whether an expression is the emitter, here or in a function around this one."""
        place = self._find(node.id) if isinstance(node, ast.Name) else None
        scope: Expressions | None = self
        for _ in range(place[0] if place is not None else 0):
            scope = None if scope is None else scope.outer
        return place is not None and scope is not None and isinstance(node, ast.Name) and node.id in scope.emitters

    def _value_of(self, node: ast.expr) -> Any:
        """Return the object that a name or an attribute of a module stands for; raise `Unsupported` if unknown now."""
        if isinstance(node, ast.Name) and self._find(node.id) is None and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and self._find(node.value.id) is None:
            owner = self.known.get(node.value.id)
            if isinstance(owner, (ModuleType, type)):
                return getattr(owner, node.attr)
        raise self._fail(node)

    def _assign(self, target: ast.expr) -> None:
        """Assign the value on the stack; implemented in `Scope`."""
        raise NotImplementedError

    def _store_closure(self, node: ast.FunctionDef | ast.Lambda, name: str) -> None:
        """Compile an inner function; implemented in `Scope`."""
        raise NotImplementedError

    # Expressions: each leaves one value on the stack

    def _expression(self, node: ast.expr) -> None:
        method = getattr(self, f"_on_{type(node).__name__.lower()}", None)
        if method is None:
            raise self._fail(node)
        method(node)

    def _on_constant(self, node: ast.Constant) -> None:
        self._constant(node.value)

    def _on_name(self, node: ast.Name) -> None:
        self._load(node)

    def _load(self, node: ast.Name) -> None:
        place = self._find(node.id)
        if place is None:
            self._constant(self._value_of(node))
        elif place[0] == 0:
            self._emit("LOAD", place[1])
        else:
            self._emit("LOAD_OUTER", *place)

    def _items(self, elements: Iterable[ast.expr]) -> None:
        self._emit("LIST")
        for e in elements:
            if isinstance(e, ast.Starred):
                self._expression(e.value)
                self._emit("EXTEND")
            else:
                self._expression(e)
                self._emit("APPEND")

    def _on_list(self, node: ast.List) -> None:
        self._items(node.elts)

    def _on_tuple(self, node: ast.Tuple) -> None:
        self._items(node.elts)
        self._emit("TUPLE")

    def _on_dict(self, node: ast.Dict) -> None:
        self._emit("MAP")
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self._expression(value)
                self._emit("MAP_UPDATE")
            else:
                self._expression(key)
                self._expression(value)
                self._emit("MAP_SET")

    def _binary(self, node: ast.AST, op: ast.operator) -> int:
        if type(op) not in BINARY:
            raise self._fail(node)
        return list(BINARY).index(type(op))

    def _on_binop(self, node: ast.BinOp) -> None:
        if (
            isinstance(node.op, ast.Pow)
            and isinstance(node.left, ast.Constant)
            and isinstance(node.right, ast.Constant)
        ):
            self._constant(ast.literal_eval(node.left) ** ast.literal_eval(node.right))
            return
        self._binop(node, node.left, node.op, node.right)

    def _binop(self, node: ast.AST, left: ast.expr, op: ast.operator, right: ast.expr) -> None:
        self._expression(left)
        self._expression(right)
        self._emit("BINARY", self._binary(node, op))

    def _on_unaryop(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub):
            power = node.operand
            if isinstance(power, ast.BinOp) and isinstance(power.op, ast.Pow):
                self._constant(-(ast.literal_eval(power.left) ** ast.literal_eval(power.right)))
                return
            self._expression(node.operand)
            self._emit("NEGATE")
        elif isinstance(node.op, ast.Not):
            self._expression(node.operand)
            self._emit("NOT")
        else:
            raise self._fail(node)

    def _on_boolop(self, node: ast.BoolOp) -> None:
        jump = "JUMP_TRUE_KEEP" if isinstance(node.op, ast.Or) else "JUMP_FALSE_KEEP"
        ends = []
        for value in node.values[:-1]:
            self._expression(value)
            ends.append(self._emit(jump, 0))
        self._expression(node.values[-1])
        for position in ends:
            self._patch(position)

    def _on_compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            self._expression(node.left)
            self._expression(node.comparators[0])
            self._emit("COMPARE", self._comparison(node, node.ops[0]))
            return
        holder = self.made.slots  # a < b < c: b is computed once
        self.made.slots += 1
        ends = []
        self._expression(node.left)
        for i, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            self._expression(right)
            self._emit("STORE", holder)
            self._emit("LOAD", holder)
            self._emit("COMPARE", self._comparison(node, op))
            if i < len(node.ops) - 1:
                ends.append(self._emit("JUMP_FALSE_KEEP", 0))
                self._emit("LOAD", holder)
        for position in ends:
            self._patch(position)

    def _comparison(self, node: ast.AST, op: ast.cmpop) -> int:
        return list(COMPARE).index(type(op))

    def _on_ifexp(self, node: ast.IfExp) -> None:
        self._expression(node.test)
        otherwise = self._emit("JUMP_FALSE", 0)
        self._expression(node.body)
        end = self._emit("JUMP", 0)
        self._patch(otherwise)
        self._expression(node.orelse)
        self._patch(end)

    def _on_namedexpr(self, node: ast.NamedExpr) -> None:
        self._expression(node.value)
        self._store(node.target.id)
        self._load(node.target)

    def _on_subscript(self, node: ast.Subscript) -> None:
        self._expression(node.value)
        if isinstance(node.slice, ast.Slice):
            self._bounds(node.slice)
            self._emit("SLICE")
        else:
            self._expression(node.slice)
            self._emit("INDEX")

    def _bounds(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper, node.step):
            if bound is None:
                self._constant(None)
            else:
                self._expression(bound)

    def _on_attribute(self, node: ast.Attribute) -> None:
        try:
            given = self._value_of(node)
        except Unsupported:
            self._expression(node.value)
            self._emit("FIELD", self.compiler.field(node.attr))
        else:
            self._constant(given)

    def _on_lambda(self, node: ast.Lambda) -> None:
        self._store_closure(node, "lambda")

    def _on_joinedstr(self, node: ast.JoinedStr) -> None:
        for part in node.values:
            if isinstance(part, ast.Constant):
                self._constant(part.value)
                continue
            assert isinstance(part, ast.FormattedValue)
            spec = part.format_spec
            style = 0
            if part.conversion == ord("r"):
                style = 1
            elif part.conversion != -1:
                raise self._fail(part)
            if spec is not None:
                if ast.unparse(spec) != "f'g'":
                    raise self._fail(part)
                style = 2
            self._expression(part.value)
            self._emit("FORMAT", style)
        self._emit("JOIN", len(node.values))

    def _on_set(self, node: ast.Set) -> None:
        self._items(node.elts)
        self._builtin("SET", 1)

    def _on_dictcomp(self, node: ast.DictComp) -> None:
        pair = ast.Tuple([node.key, node.value], ast.Load())
        self._on_listcomp(ast.copy_location(ast.ListComp(pair, node.generators), node))
        self._builtin("DICT", 1)

    def _on_setcomp(self, node: ast.SetComp) -> None:
        self._on_listcomp(node)
        self._builtin("SET", 1)

    def _on_listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> None:
        """Compile to a list that a loop in this function appends to, with variables of its own.

        A generator is evaluated at once, as a list.
        """
        holder = self.made.slots
        self.made.slots += 1
        self._emit("LIST")
        self._emit("STORE", holder)
        outer = dict(self.slots)
        self._comprehension(node, node.generators, holder)
        self.slots = outer
        self._emit("LOAD", holder)

    _on_generatorexp = _on_listcomp

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, generators: list[ast.comprehension], holder: int
    ) -> None:
        if not generators:
            self._expression(node.elt)
            self._emit("APPEND_TO", holder)
            return
        first, *rest = generators
        self._expression(first.iter)
        self._emit("ITERATE")
        iterator = self.made.slots
        self.made.slots += 1
        self._emit("STORE", iterator)
        start = len(self.made.code)
        end = self._emit("NEXT", iterator, 0)
        for name in dict.fromkeys(n.id for n in ast.walk(first.target) if isinstance(n, ast.Name)):
            self._slot(name)
        self._assign(first.target)
        skips = []
        for condition in first.ifs:
            self._expression(condition)
            skips.append(self._emit("JUMP_FALSE", 0))
        self._comprehension(node, rest, holder)
        for position in skips:
            self._patch(position)
        self._emit("JUMP", start)
        self._patch(end)

    # Calls

    def _on_call(self, node: ast.Call) -> None:
        try:
            target = self._value_of(node.func)
        except Unsupported:
            target = None
        if target is TensorDesc:
            target = layout.make_desc
        if self._emits(node):
            return
        if isinstance(target, type) and target not in BUILTINS and dataclasses.is_dataclass(target):
            fields = [f.name for f in dataclasses.fields(target)]
            if len(node.args) + len(node.keywords) != len(fields):
                raise self._fail(node)
            named = [ast.keyword(field, value) for field, value in zip(fields, node.args, strict=False)]
            self._mapping([*named, *node.keywords])
            self._builtin("RECORD", 1)
            return
        if target is dataclasses.replace:
            self._mapping([ast.keyword(None, node.args[0]), *node.keywords])
            self._builtin("RECORD", 1)
            return
        if target is map and len(node.args) == 2:
            made = ast.Call(node.args[0], [ast.Name("mapped", ast.Load())], [])
            each = ast.comprehension(ast.Name("mapped", ast.Store()), node.args[1], [], 0)
            self._on_listcomp(ast.fix_missing_locations(ast.copy_location(ast.ListComp(made, [each]), node)))
            return
        if target is typing.cast:
            self._expression(node.args[1])
            return
        if (
            target is isinstance
            and isinstance(node.args[1], ast.Name)
            and node.args[1].id in ("tuple", "list", "float")
        ):
            self._expression(node.args[0])
            self._builtin("IS_FLOAT" if node.args[1].id == "float" else "IS_SEQUENCE", 1)
            return
        if target is not None and isinstance(target, FunctionType) and target not in BUILTINS:
            self._arguments(node, inspect.signature(target))
            self._emit("CALL", self.compiler.function(target), len(inspect.signature(target).parameters))
        elif target is not None:
            self._call_builtin(node, target)
        elif isinstance(node.func, ast.Attribute):
            self._call_method(node, node.func)
        else:
            self._call_value(node)

    def _call_value(self, node: ast.Call) -> None:
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self._fail(node)
        self._expression(node.func)
        for argument in node.args:
            self._expression(argument)
        self._emit("CALL_VALUE", len(node.args))

    def _emits(self, node: ast.Call) -> bool:
        """Compile `e("transpose", x, axes=(1, 0))`, `e.all(…)` and `e.loop(…)`; return false for any other call."""
        if self._is_emitter(node.func) or (isinstance(node.func, ast.Attribute) and self._is_emitter(node.func.value)):
            kind = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if kind not in ("", "all"):
                method = vars(Emitter)[kind]
                assert isinstance(node.func, ast.Attribute)
                self._expression(node.func.value)
                self._arguments(node, inspect.signature(method), skip=1)
                self._emit("CALL", self.compiler.function(method), len(inspect.signature(method).parameters))
                return True
            dtypes = [k.value for k in node.keywords if k.arg == "dtypes"]
            self._expression(node.args[0])
            self._items(node.args[1:])
            self._mapping([k for k in node.keywords if k.arg != "dtypes"])
            self._expression(dtypes[0] if dtypes else ast.Constant(None))
            self._builtin("EMIT", 4)
            if not kind:
                self._constant(0)
                self._emit("INDEX")
            return True
        return False

    def _mapping(self, keywords: Iterable[ast.keyword]) -> None:
        self._emit("MAP")
        for k in keywords:
            if k.arg is not None:
                self._constant(k.arg)
            self._expression(k.value)
            self._emit("MAP_UPDATE" if k.arg is None else "MAP_SET")

    def _arguments(self, node: ast.Call, signature: inspect.Signature, skip: int = 0) -> None:
        """Push every parameter in order: its argument, or its default; then those of *args and **kwargs."""
        parameters = list(signature.parameters.values())[skip:]
        named = {k.arg: k.value for k in node.keywords if k.arg is not None}
        given = list(node.args)
        unpacked = [k for k in node.keywords if k.arg is None]
        for at, parameter in enumerate(parameters):
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                self._items(given)
                self._emit("TUPLE")
                given = []
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._mapping(ast.keyword(name, value) for name, value in named.items())
                for k in unpacked:
                    self._expression(k.value)
                    self._emit("MAP_UPDATE")
                named, unpacked = {}, []
            elif given and isinstance(given[0], ast.Starred) and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                if parameters[-1].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                    raise self._fail(node)
                left = [p for p in parameters[at:] if p.name not in named and p.kind is not p.KEYWORD_ONLY]
                if len(left) != len(parameters) - at:
                    raise self._fail(node)
                self._items(given)
                self._emit("SPREAD", len(left))
                given = []
                break
            elif given and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                self._expression(given.pop(0))
            elif parameter.name in named:
                self._expression(named.pop(parameter.name))
            elif unpacked and all(p.default is p.empty for p in parameters):
                if len(unpacked) > 1 or not isinstance(unpacked[0].value, ast.Name):
                    raise self._fail(node)
                self._expression(unpacked[0].value)
                self._constant(parameter.name)
                self._emit("INDEX")
            elif parameter.default is not inspect.Parameter.empty:
                self._constant(parameter.default)
            else:
                raise self._fail(node)
        if unpacked and all(p.default is p.empty for p in parameters):
            unpacked = []
        if named or given or unpacked:
            raise self._fail(node)

    def _call_builtin(self, node: ast.Call, target: Any) -> None:
        if target not in BUILTINS:
            raise self._fail(node)
        keys = [k.value for k in node.keywords if k.arg == "key"]
        if keys and len(node.keywords) == len(node.args) == 1 and target in (max, min, sorted):
            self._expression(node.args[0])
            self._expression(keys[0])
            self._builtin(f"{BUILTINS[target]}_BY", 2)
            return
        if target is itertools.product:
            if node.keywords:
                raise self._fail(node)
            self._items(node.args)
            self._builtin("PRODUCT", 1)
            return
        if target in (max, min, zip) and any(isinstance(a, ast.Starred) for a in node.args):
            self._items(node.args)
            self._builtin("UNZIP" if target is zip else BUILTINS[target], 1)
            return
        if target is dict and node.keywords and not node.args:
            self._mapping(node.keywords)
            return
        if target is layout.make_desc:
            self._arguments(node, inspect.signature(target))
            count = len(inspect.signature(target).parameters)
        else:
            strict = [k for k in node.keywords if k.arg == "strict"]
            if len(strict) != len(node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
                raise self._fail(node)
            for argument in node.args:
                self._expression(argument)
            count = len(node.args)
        self._builtin(BUILTINS[target], count)

    def _call_method(self, node: ast.Call, called: ast.Attribute) -> None:
        for owner in COMPILED:
            method = vars(owner).get(called.attr)
            if isinstance(method, FunctionType) and called.attr not in CALLED_FIELDS:
                self._expression(called.value)
                self._arguments(node, inspect.signature(method), skip=1)
                parameters = len(inspect.signature(method).parameters)
                self._emit("CALL", self.compiler.function(method), parameters)
                return
        if called.attr in METHODS:
            self._expression(called.value)
            if called.attr == "format" and not node.args:
                self._mapping(node.keywords)
                self._emit("METHOD", METHODS.index("format"), 1)
                return
            if any(k.arg not in ("key",) for k in node.keywords):
                raise self._fail(node)
            arguments = [*node.args, *(k.value for k in node.keywords)]
            for argument in arguments:
                self._expression(argument)
            self._emit("METHOD", METHODS.index(called.attr), len(arguments))
            return
        self._call_value(node)
