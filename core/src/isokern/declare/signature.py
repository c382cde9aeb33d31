"""Signatures: `x: T[*b, k], w?: T[n, k] -> y: T[*b, n]`, parsed once and bound to shapes and dtypes.

The grammar is closed: a dim is a name, `*name` (any number of dims), an integer, or a sum or product of bound names and
attributes; `x?` is optional, `x...` variadic, and the tensors of `x...: T...` have a dtype each. Groups listed in
`broadcast` follow NumPy's rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..dtypes import ALL, DType, names, wider
from ..layout import TensorDesc, broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

_LITERALS = {d.name: d for d in ALL}


@dataclass(frozen=True)
class Operand:
    """One tensor of a signature: its name, type variable or dtype name, dims, and how often it may appear.

    The tensors of a variadic operand that is `mixed` have a dtype each; its type variable is bound to the one of the
    widest compute type.
    """

    name: str
    type: str
    dims: tuple[str, ...]
    optional: bool = False
    variadic: bool = False
    mixed: bool = False

    @property
    def group(self) -> str | None:
        """The name of its `*name` dims, if it has them."""
        return next((d[1:] for d in self.dims if d.startswith("*")), None)

    def __str__(self) -> str:
        mark = "?" if self.optional else "..." if self.variadic else ""
        return f"{self.name}{mark}: {self.type}{'...' if self.mixed else ''}[{', '.join(self.dims)}]"


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of an operator, and the dtypes that its type variables range over."""

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    types: Mapping[str, tuple[DType, ...]]
    broadcast: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"

    @property
    def mixed(self) -> bool:
        """Whether an operand's tensors have a dtype each."""
        return any(o.mixed for o in self.inputs)

    def dtypes_of(self, operand: Operand) -> tuple[DType, ...]:
        """Return the dtypes that an operand may have."""
        return self.types[operand.type] if operand.type in self.types else (_LITERALS[operand.type],)

    def arrange(self, where: str, given: Sequence[TensorDesc | None]) -> list[tuple[Operand, TensorDesc | None]]:
        """Pair the given inputs with operands: absent optional ones become None, variadic ones repeat."""
        variadic = any(o.variadic for o in self.inputs)
        pairs: list[tuple[Operand, TensorDesc | None]] = []
        rest = list(given)
        for position, operand in enumerate(self.inputs):
            if operand.variadic:
                take = len(rest) - (len(self.inputs) - position - 1)
                if take < 1:
                    raise InvalidArgument(where, f"no tensor is given for {operand.name}", allowed="one or more")
                pairs += [(operand, d) for d in rest[:take]]
                rest = rest[take:]
            else:
                desc, rest = rest[0] if rest else None, rest[1:]
                if desc is None and not operand.optional:
                    raise InvalidArgument(where, f"input {operand.name} is missing", allowed=f"{self}")
                pairs.append((operand, desc))
        if rest and not variadic:
            raise InvalidArgument(
                where, f"{len(given)} inputs are given", allowed=f"at most {len(self.inputs)}: {self}"
            )
        for operand, desc in pairs:
            if desc is None and operand.variadic:
                raise InvalidArgument(where, f"a tensor of {operand.name} is missing", allowed=f"{self}")
        return pairs

    @staticmethod
    def check_descs(where: str, what: str, given: Any) -> None:
        """Raise InvalidArgument unless `given` is a list of descriptions; a C host cannot pass anything else."""
        if not isinstance(given, (list, tuple)):
            raise InvalidArgument(where, f"{what} is a {type(given).__name__}", allowed="a list of TensorDesc")
        for i, desc in enumerate(given):
            if not isinstance(desc, TensorDesc) and (desc is not None or what == "outputs"):
                hint = "take its description: tensor.desc" if isinstance(getattr(desc, "desc", 0), TensorDesc) else ""
                raise InvalidArgument(
                    where, f"{what}[{i}] is a {type(desc).__name__}", allowed="a TensorDesc", hint=hint
                )

    def bind_types(self, where: str, pairs: Sequence[tuple[Operand, TensorDesc | None]]) -> dict[str, DType]:
        """Return the dtype of each type variable that the given tensors fix, checked against the allowed ones."""
        bound: dict[str, DType] = {}
        for operand, desc in pairs:
            if desc is None:
                continue
            allowed = self.dtypes_of(operand)
            if desc.dtype not in allowed:
                raise BadTensorDtype(where, f"{operand.name} has dtype {desc.dtype.name}", allowed=names(allowed))
            first = bound.setdefault(operand.type, desc.dtype)
            if operand.mixed:
                bound[operand.type] = wider(first, desc.dtype)
            elif first is not desc.dtype:
                raise BadTensorDtype(
                    where,
                    f"{operand.name} has dtype {desc.dtype.name} where {operand.type} is {first.name} already",
                    allowed=first.name,
                    hint="cast one of them",
                )
        return bound

    def bind_dims(
        self, where: str, pairs: Sequence[tuple[Operand, TensorDesc | None]], attrs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the value of each dim name; sums and products are checked once their names are known."""
        dims: dict[str, Any] = {}
        late: list[tuple[Operand, TensorDesc, str, int]] = []
        for operand, desc in pairs:
            if desc is not None and not operand.variadic:  # variadic dims may differ: the shapes function checks them
                self._bind_one(where, operand, desc, dims, late)
        scope = {**attrs, **dims}
        for operand, desc, expression, given in late:
            if any(name not in scope for name in names_in(expression)):
                continue  # an absent optional tensor would have bound it
            expected = evaluate(expression, scope)
            if given != expected:
                raise BadTensorShape(
                    where, f"{operand.name} is {desc}: dim {expression} is {given}", allowed=f"{expected}"
                )
        return dims

    def _bind_one(
        self,
        where: str,
        operand: Operand,
        desc: TensorDesc,
        dims: dict[str, Any],
        late: list[tuple[Operand, TensorDesc, str, int]],
    ) -> None:
        group = operand.group
        fixed = len(operand.dims) - (group is not None)
        if desc.ndim < fixed or (group is None and desc.ndim != fixed):
            more = " or more" if group is not None else ""
            raise BadTensorShape(
                where, f"{operand.name} is {desc}, rank {desc.ndim}", allowed=f"rank {fixed}{more}: {operand}"
            )
        shape = list(desc.shape)
        at = operand.dims.index(f"*{group}") if group is not None else len(operand.dims)
        width = desc.ndim - fixed
        singles = [
            *zip(operand.dims[:at], shape[:at], strict=True),
            *zip(operand.dims[at + 1 :], shape[at + width :], strict=True),
        ]
        if group is not None:
            self._bind_group(where, operand, desc, group, tuple(shape[at : at + width]), dims)
        for dim, value in singles:
            if not dim.isidentifier():
                late.append((operand, desc, dim, value))
            elif dims.setdefault(dim, value) != value:
                raise BadTensorShape(
                    where, f"{operand.name} is {desc}: dim {dim} is {value}", allowed=f"{dims[dim]}, as before: {self}"
                )

    def _bind_group(
        self, where: str, operand: Operand, desc: TensorDesc, group: str, value: tuple[int, ...], dims: dict[str, Any]
    ) -> None:
        known = dims.get(group)
        if known is None:
            dims[group] = value
        elif group in self.broadcast:
            both = broadcast_shapes(known, value)
            if both is None:
                raise BadTensorShape(
                    where,
                    f"{operand.name} is {desc}: {value} does not broadcast with {known}",
                    allowed="equal dims or 1",
                )
            dims[group] = both
        elif known != value:
            raise BadTensorShape(where, f"{operand.name} is {desc}: *{group} is {value}", allowed=f"{known}, as before")

    def shape_of(self, operand: Operand, scope: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the full shape of an operand once every name in it is bound."""
        shape: list[int] = []
        for dim in operand.dims:
            shape += scope[dim[1:]] if dim.startswith("*") else [evaluate(dim, scope)]
        return tuple(shape)

    def widen(self, operand: Operand, desc: TensorDesc, dims: Mapping[str, Any]) -> TensorDesc:
        """Return the operand with its broadcast group stretched (stride 0) to the bound dims."""
        group = operand.group
        if group is None or group not in self.broadcast:
            return desc
        at = operand.dims.index(f"*{group}")
        width = desc.ndim - (len(operand.dims) - 1)
        target = dims[group]
        middle = TensorDesc(
            desc.dtype, desc.shape[at : at + width], desc.strides[at : at + width], desc.offset
        ).broadcast_to(target)
        shape = (*desc.shape[:at], *middle.shape, *desc.shape[at + width :])
        strides = (*desc.strides[:at], *middle.strides, *desc.strides[at + width :])
        return TensorDesc(desc.dtype, shape, strides, desc.offset)


_OPERAND = re.compile(r"\s*(\w+)(\?|\.\.\.)?\s*:\s*(\w+)(\.\.\.)?\[([^\]]*)\]\s*$")


def parse(text: str, types: Mapping[str, tuple[DType, ...]], broadcast: Sequence[str] = ()) -> Signature:
    """Parse `inputs -> outputs`; a malformed signature is a ValueError that shows the place."""
    left, arrow, right = text.partition("->")
    if not arrow:
        raise ValueError(f"signature {text!r} has no '->'")
    signature = Signature(_operands(left, types), _operands(right, types), dict(types), tuple(broadcast))
    groups = {o.group for o in signature.inputs}
    if not set(broadcast) <= groups:
        raise ValueError(f"signature {text!r}: broadcast {broadcast} names no group of an input")
    return signature


def _operands(text: str, types: Mapping[str, tuple[DType, ...]]) -> tuple[Operand, ...]:
    operands = _read_operands(text)
    for operand in operands:
        if operand.type not in types and operand.type not in _LITERALS:
            raise ValueError(f"operand {operand.name}: type {operand.type} is no dtype and not in {sorted(types)}")
    return operands


@cache
def _read_operands(text: str) -> tuple[Operand, ...]:
    result: list[Operand] = []
    if not text.strip():
        return ()
    for part in re.split(r",(?![^\[]*\])", text):
        match = _OPERAND.match(part)
        if match is None:
            raise ValueError(f"{part!r} is not an operand like x: T[*b, d]")
        name, mark, type_, each, inner = match.groups()
        dims = tuple(d.strip() for d in inner.split(",") if d.strip())
        if sum(d.startswith("*") for d in dims) > 1:
            raise ValueError(f"operand {name}: one *group at most")
        if each and mark != "...":
            raise ValueError(f"operand {name}: only a variadic operand has a dtype for each tensor")
        for d in dims:
            _tree(d.lstrip("*"))
        result.append(Operand(name, type_, dims, mark == "?", mark == "...", bool(each)))
    return tuple(result)


@cache
def _tree(expression: str) -> ast.expr:
    tree = ast.parse(expression, mode="eval").body
    for node in ast.walk(tree):
        known = isinstance(node, (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Mult, ast.Load))
        if not known or (isinstance(node, ast.Constant) and not isinstance(node.value, int)):
            raise ValueError(f"dim {expression!r}: only names, integers, + and *")
    return tree


def names_in(expression: str) -> set[str]:
    """Return the names that a dim expression uses."""
    return {node.id for node in ast.walk(_tree(expression)) if isinstance(node, ast.Name)}


def evaluate(expression: str, scope: Mapping[str, Any]) -> int:
    """Return the value of a dim expression."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant):
            return int(node.value)  # type: ignore[arg-type]  # _tree lets only integers through
        if isinstance(node, ast.Name):
            return int(scope[node.id])
        assert isinstance(node, ast.BinOp)
        left, right = value(node.left), value(node.right)
        return left + right if isinstance(node.op, ast.Add) else left * right

    return value(_tree(expression))
