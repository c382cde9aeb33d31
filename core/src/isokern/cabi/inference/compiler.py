"""The compiler of declarations: compiles functions and constants on first use, and prints them as tables in C."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from ...declare.decomposition import Emitter
from ...declare.operator import Operator
from ...declare.signature import Operand, Signature
from ...dtypes import DType
from ...expr.tree import Expr, to_text
from ...layout import TensorDesc
from .functions import Scope, parameters_of
from .words import Function, Tables, Unsupported, c_text

# Fields of a description, which the machine has itself
_NATIVE_FIELDS = ("dtype", "shape", "strides", "offset", "numel")
_RECORDS: dict[type, tuple[str, ...]] = {
    Operand: ("name", "type", "dims", "optional", "variadic", "mixed", "group"),
    Signature: ("inputs", "outputs", "types", "broadcast"),
    Operator: (
        "name",
        "signature",
        "check",
        "shapes",
        "normal_form",
        "combinations",
        "shapes_take_outputs",
        "free_types",
        "scalar_expr",
    ),
}


class Compiler(Tables):
    """Compiles functions and constants on first use; `tables` prints them all as C."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: list[str] = []  # initialisers of `ik_value`
        self._definitions: list[str] = []  # arrays that constants point to
        self._known: dict[Any, int] = {}
        self._known_functions: dict[int, int] = {}
        self._held: list[Any] = []  # keeps objects alive, so that no id is reused
        self.refused: dict[str, str] = {}  # operator → what in its decomposition the machine does not have
        self.names: dict[str, int] = {}
        self.properties: dict[str, int] = {}  # property of a description → function

    def name(self, text: str) -> int:
        """Return the number of a field or method."""
        return self.names.setdefault(text, len(self.names))

    def function(self, given: Callable[..., Any]) -> int:
        """Return the number of a function, which is compiled on first use."""
        key = id(given)
        if key not in self._known_functions:
            self._held.append(given)
            self._known_functions[key] = len(self.functions)
            if not isinstance(given, FunctionType):
                raise Unsupported(f"{given!r} is not a function of Python")
            tree = _tree_of(given)
            made = Function(f"{given.__module__.rpartition('.')[2]}.{given.__qualname__}", len(parameters_of(tree)))
            self.functions.append(made)
            closed = inspect.getclosurevars(given)
            scope = {**vars(builtins), **given.__globals__, **closed.nonlocals}
            Scope(self, made, tree, scope, None, given in vars(Emitter).values())
        return self._known_functions[key]

    def decomposition(self, operator: Operator) -> int | None:
        """Return the number of the function that decomposes an operator; None if there is none, or not one in C."""
        if operator.decompose is None:
            return None
        lists: tuple[list[Any], ...] = (self.functions, self.constants, self._definitions)
        maps: tuple[dict[Any, int], ...] = (self._known, self._known_functions, self.names, self.properties)
        before = [len(x) for x in lists], [dict(x) for x in maps]
        try:
            return self.function(operator.decompose)
        except Unsupported as why:
            for made, count in zip(lists, before[0], strict=True):
                del made[count:]
            for known, old in zip(maps, before[1], strict=True):
                known.clear()
                known.update(old)
            self.refused[operator.name] = str(why)
            return None

    def constant(self, given: Any) -> int:
        """Return the number of a constant."""
        key = _key(given)
        if key not in self._known:
            self._held.append(given)
            made = self._initialiser(given)
            self._known[key] = len(self.constants)
            self.constants.append(made)
        return self._known[key]

    def _initialiser(self, given: Any) -> str:
        if given is None:
            return "{ .tag = IK_V_NONE }"
        if isinstance(given, bool):
            return f"{{ .tag = IK_V_BOOL, .as.integer = {int(given)} }}"
        if isinstance(given, int):
            if not -(2**127) < given < 2**127:
                raise Unsupported(f"the constant {given} leaves 128 bits")
            number = f"INT64_C({given})"
            if not -(2**63) < given < 2**63:
                high, low = divmod(abs(given), 2**64)
                number = f"{'-' if given < 0 else ''}((ik_wide)UINT64_C({high}) << 64 | UINT64_C({low}))"
            return f"{{ .tag = IK_V_INT, .as.integer = {number} }}"
        if isinstance(given, float):
            number = repr(given).replace("inf", "HUGE_VAL").replace("nan", "NAN")
            return f"{{ .tag = IK_V_FLOAT, .as.number = {number} }}"
        if isinstance(given, Expr):
            given = to_text(given)  # the machine has expressions as texts
        if isinstance(given, str):
            data = given.encode()
            return f"{{ .tag = IK_V_TEXT, .length = {len(data)}, .as.text = {c_text(data)} }}"
        if isinstance(given, DType):
            return f"{{ .tag = IK_V_DTYPE, .as.integer = {given.code} }}"
        if isinstance(given, (FunctionType, MethodType)):
            return f"{{ .tag = IK_V_FUNCTION, .as.closure = {{ {self.function(given)}, NULL }} }}"
        if isinstance(given, (tuple, list, range)):
            return self._sequence(given, isinstance(given, list))
        if isinstance(given, Mapping):
            pairs = self._array([x for pair in given.items() for x in pair])
            map_ = self._define("ik_map", f"{{ {pairs}, {len(given)}, {len(given)} }}")
            return f"{{ .tag = IK_V_MAP, .as.map = (ik_map *)&{map_} }}"
        if type(given) in _RECORDS:
            fields = _RECORDS[type(given)]
            values = [getattr(given, f) for f in fields] + [str(given)]
            pairs = self._array([x for name, value in zip((*fields, ""), values, strict=True) for x in (name, value)])
            map_ = self._define("ik_map", f"{{ {pairs}, {len(fields) + 1}, {len(fields) + 1} }}")
            return f"{{ .tag = IK_V_RECORD, .as.map = (ik_map *)&{map_} }}"
        raise Unsupported(f"the constant {given!r} is a {type(given).__name__}")

    def _sequence(self, given: Sequence[Any], listed: bool) -> str:
        sequence = self._define("ik_sequence", f"{{ {self._array(given)}, {len(given)}, {len(given)} }}")
        return f"{{ .tag = {'IK_V_LIST' if listed else 'IK_V_TUPLE'}, .as.sequence = (ik_sequence *)&{sequence} }}"

    def _array(self, given: Iterable[Any]) -> str:
        items = [self._initialiser(x) for x in given]
        return "(ik_value *)" + self._define("ik_value", f"{{ {', '.join(items)} }}", "[]") if items else "NULL"

    def _define(self, type_: str, initialiser: str, suffix: str = "") -> str:
        text = f"{initialiser}{suffix}"
        if ("definition", type_, text) not in self._known:
            self._known["definition", type_, text] = len(self._definitions)
            number = len(self._definitions)
            self._definitions.append(f"static const {type_} ik_held_{number}{suffix} = {initialiser};")
        return f"ik_held_{self._known['definition', type_, text]}"

    def tables(self, entries: Mapping[str, Callable[..., Any]], operators: Sequence[Operator]) -> str:
        """Return, as C, all that is needed to run `entries` on `operators`."""
        numbers = {name: self.function(f) for name, f in entries.items()}
        for name in ("is_contiguous",):
            self._property(name)
        records = [self._initialiser(o) for o in operators]
        decompositions = [self.decomposition(o) for o in operators]
        code: list[int] = []
        rows = []
        for made in self.functions:
            rows.append(f"    {{ {len(code)}, {made.parameters}, {made.slots} }}, /* {made.name} */")
            code += made.code
        lines = ["/* What the declarations compute, for the machine of isokern_inference.c. */", *self._definitions]
        lines += ["static const ik_value ik_constants[] = {", *(f"    {c}," for c in self.constants), "};"]
        lines += ["static const ik_value ik_records[] = { /* in the order of the operator table */"]
        lines += [f"    {r}," for r in records] + ["};"]
        numbers_of = ", ".join(str(-1 if n is None else n) for n in decompositions)
        lines += [
            f"static const int32_t ik_decompositions[] = {{ {numbers_of} }}; /* functions, of the same operators */"
        ]
        shares = ", ".join(str(int(bool(o.aliases or o.inout))) for o in operators)
        lines += [f"static const unsigned char ik_shares[] = {{ {shares} }}; /* an output may be stored in an input */"]
        lines += [f"static const int32_t ik_code[] = {{ {', '.join(map(str, code))} }};"]
        lines += ["static const ik_function ik_functions[] = {", *rows, "};"]
        lines += [f"enum {{ {', '.join(f'IK_ENTRY_{name.upper()} = {n}' for name, n in numbers.items())} }};"]
        names = ", ".join(c_text(n.encode()) for n in self.names)
        lines += [f"static const char *const ik_names[] = {{ {names or '0'} }};"]
        pairs = ", ".join(f"{{ {c_text(n.encode())}, {f} }}" for n, f in self.properties.items())
        lines += [f"static const ik_property ik_properties[] = {{ {pairs} }};"]
        return "\n".join([*lines, ""])

    def _property(self, name: str) -> None:
        if name not in self.properties:
            self.properties[name] = -1
            getter = vars(TensorDesc)[name].fget
            self.properties[name] = self.function(getter)

    def field(self, name: str) -> int:
        """Return the number of a field's name; a property of a description of that name is compiled."""
        if name not in _NATIVE_FIELDS and isinstance(vars(TensorDesc).get(name), property):
            self._property(name)
        return self.name(name)


def _tree_of(given: FunctionType) -> ast.FunctionDef | ast.Lambda:
    """Return the syntax tree of a function; of several lambdas in one line, the one of the same bytecode."""
    if given.__name__ != "<lambda>":
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(given))).body
        assert isinstance(tree, ast.FunctionDef)
        return tree
    found = [n for n in _lambdas_of(given.__code__.co_filename) if n.lineno == given.__code__.co_firstlineno]
    if len(found) > 1:
        found = [n for n in found if _is_code_of(n, given)]
    if len(found) != 1:
        raise Unsupported(f"{given!r} is a lambda like others in its line: give it a name")
    return found[0]


@cache
def _lambdas_of(file: str) -> list[ast.Lambda]:
    return [n for n in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))) if isinstance(n, ast.Lambda)]


def _is_code_of(node: ast.Lambda, given: FunctionType) -> bool:
    code = compile(ast.Expression(node), "", "eval").co_consts[0]
    own = given.__code__
    same = [(c.co_varnames, c.co_names, [k for k in c.co_consts if not isinstance(k, CodeType)]) for c in (code, own)]
    return same[0][0] == same[1][0] and set(same[0][1]) == set(same[1][1]) and same[0][2] == same[1][2]


def _key(given: Any) -> Any:
    if isinstance(given, (bool, int, float, str, type(None))):
        return type(given), repr(given)
    if isinstance(given, (tuple, list)):
        return type(given), tuple(map(_key, given))
    return id(given)
