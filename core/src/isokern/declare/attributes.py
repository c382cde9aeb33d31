"""Attribute records: ordered, typed, and packed into a blob that kernels read as a C struct.

Every field is a multiple of 8 bytes wide, so the packed bytes (little-endian, in declared order) and the C struct agree
without padding.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..expr import stack_code
from ..expr.tree import to_text
from ..status import BadAttrSchema, BadAttrSize, InvalidArgument, quote

LIST_LENGTH = 8
TEXT_LENGTH = 128
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "required"})()


class CheckedAttributes(dict[str, Any]):
    """All attributes of a call, checked once: they cannot be changed, and calls can share them.

    `text` distinguishes what only compares equal: -0.0 and 0.0, 1 and True.
    """

    __slots__ = ("record", "text")

    def __init__(self, record: Record, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.record, self.text = record, repr(dict(values))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("checked attributes cannot be changed: change a copy, dict(attributes)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


@dataclass(frozen=True)
class Attr:
    """One attribute.

    `kind` is int, float, bool, ints (a list of at most 8), choice (one of `choices`), text (at most 128 ASCII
    characters) or body (an expression of x0, x1, …, see expr/tree.py; kernels get its stack code, see
    expr/stack_code.py).
    """

    name: str
    kind: str
    default: Any = REQUIRED
    doc: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    @property
    def allowed(self) -> str:
        """The values that the attribute accepts, for messages and docs."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        text = {
            "int": "an integer",
            "float": "a number in float64",
            "bool": "True or False",
            "ints": "up to 8 integers",
            "text": f"up to {TEXT_LENGTH} ASCII characters",
            "body": "an expression of x0, x1, …",
        }[self.kind]
        low = "" if self.minimum is None else f" from {self.minimum:g}"
        return text + low + ("" if self.maximum is None else f" to {self.maximum:g}")

    def check(self, where: str, given: Any) -> Any:
        """Return `given` as the attribute's Python type, or raise InvalidArgument."""
        if self.kind == "body":
            return self._body(where, given)
        try:
            value = self._convert(given)
        except (TypeError, ValueError, AttributeError, OverflowError):
            value = None
        if value is None:
            given_text = f"attribute {self.name}={quote(given)}"
            if self.kind == "float" and (near := _neighbours(given)) is not None:
                allowed = f"{self.allowed}, such as {near[0]} and {near[1]}"
                hint = "no float64 is this integer: use an operator that takes it as a tensor (maximum, minimum, copy)"
                raise InvalidArgument(where, given_text, allowed=allowed, hint=hint)
            raise InvalidArgument(where, given_text, allowed=self.allowed)
        return value

    def _body(self, where: str, given: Any) -> str:
        try:
            return stack_code.normal_form(given)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                where, f"attribute {self.name}={quote(given)}: {error}", allowed=self.allowed
            ) from None

    def _convert(self, given: Any) -> Any:
        if self.kind == "text":
            fits = isinstance(given, str) and given.isascii() and given.isprintable() and len(given) <= TEXT_LENGTH
            return str(given) if fits else None
        if self.kind == "choice":
            return str(given) if isinstance(given, str) and given in self.choices else None
        if self.kind == "bool":
            return bool(given) if given in (True, False) else None
        if self.kind == "float":
            return None if isinstance(given, (str, bytes)) else self._check_range(_float64(given))
        if self.kind == "int":
            return self._check_range(_int64(given))
        items = (given,) if hasattr(given, "__index__") and np.ndim(given) == 0 else tuple(given)
        values = [self._check_range(_int64(v)) for v in items]
        return tuple(values) if len(values) <= LIST_LENGTH and None not in values else None

    def _check_range(self, value: Any) -> Any:
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        bounded = self.minimum is not None or self.maximum is not None
        return value if not bounded or low <= value <= high else None


def _float64(value: Any) -> float:
    number = float(value)
    if not in_float64(value):
        raise OverflowError(number)
    return number


def in_float64(value: Any) -> bool:
    """Return whether a number is exact in float64; only integers may not be."""
    try:
        return not hasattr(value, "__index__") or float(value) == value.__index__()
    except OverflowError:
        return False


def _neighbours(value: Any) -> tuple[int, int] | None:
    """Return the float64s around an integer of up to 64 bits that is not a float64 itself; None for anything else."""
    if not isinstance(value, (int, np.integer)) or int(value).bit_length() > 64 or in_float64(value):
        return None
    integer, near = int(value), float(value)
    if near < integer:
        return int(near), int(math.nextafter(near, math.inf))
    return int(math.nextafter(near, -math.inf)), int(near)


def _int64(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    number: int = value.__index__()
    if not -(2**63) <= number < 2**63:
        raise OverflowError(number)
    return number


@dataclass(frozen=True)
class Record:
    """The attributes of one operator, in order, under a stable four-character schema id."""

    schema: str = ""
    attrs: tuple[Attr, ...] = ()
    _format: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if bool(self.schema) != bool(self.attrs) or (self.schema and len(self.schema) != 4):
            raise ValueError(f"record {self.schema!r}: four characters, and none without attributes")
        formats = {"int": "q", "float": "d", "bool": "q", "choice": "q", "ints": f"q{LIST_LENGTH}q"}
        formats |= {"text": f"{TEXT_LENGTH}s", "body": f"q{stack_code.LENGTH}q"}
        object.__setattr__(self, "_format", "<" + "".join(formats[a.kind] for a in self.attrs))

    @property
    def schema_id(self) -> int:
        """The four characters as a little-endian 32-bit number; 0 for an operator without attributes."""
        return fourcc(self.schema) if self.schema else 0

    @property
    def nbytes(self) -> int:
        """Length of the packed blob in bytes."""
        return struct.calcsize(self._format)

    @property
    def layout(self) -> list[tuple[str, str, int]]:
        """(name, kind, byte offset) of each field, as in the golden file."""
        rows, offset = [], 0
        for a in self.attrs:
            told = {"choice": "|".join(a.choices), "body": stack_code.LANGUAGE}.get(a.kind)
            rows.append((a.name, a.kind if told is None else f"{a.kind}({told})", offset))
            offset += {"ints": 8 * (1 + LIST_LENGTH), "text": TEXT_LENGTH, "body": 8 * (1 + stack_code.LENGTH)}.get(
                a.kind, 8
            )
        return rows

    @cached_property
    def fingerprint(self) -> int:
        """63 bits that change whenever the packing does."""
        text = f"{self.schema}{self.layout}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1

    def check(self, where: str, given: Mapping[str, Any]) -> CheckedAttributes:
        """Return all attributes, defaults filled in; raise InvalidArgument that names the one at fault."""
        if isinstance(given, CheckedAttributes) and given.record is self:
            return given
        known = {a.name for a in self.attrs}
        for name in given:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none: it takes no attributes"
                raise InvalidArgument(where, f"unknown attribute {name!r}", allowed=listed)
        values = {}
        for a in self.attrs:
            value = given.get(a.name, a.default)
            if value is REQUIRED:
                raise InvalidArgument(where, f"attribute {a.name} is missing", allowed=a.allowed)
            values[a.name] = a.check(where, value)
        return CheckedAttributes(self, values)

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """Return the blob of checked values."""
        flat: list[Any] = []
        for a in self.attrs:
            value = values[a.name]
            if a.kind == "ints":
                flat += [len(value), *value, *([0] * (LIST_LENGTH - len(value)))]
            elif a.kind == "choice":
                flat.append(a.choices.index(value))
            elif a.kind == "text":
                flat.append(value.encode("ascii"))
            elif a.kind == "body":
                code = stack_code.words_of(value)
                flat += [len(code), *code, *([0] * (stack_code.LENGTH - len(code)))]
            else:
                flat.append(float(value) if a.kind == "float" else int(value))
        return struct.pack(self._format, *flat)

    def unpack(self, where: str, schema_id: int, blob: bytes) -> dict[str, Any]:
        """Return the values of a blob; `schema_id` 0 without bytes stands for the defaults."""
        if schema_id == 0 and not blob:
            return self.check(where, {})
        if schema_id != self.schema_id:
            given, own = unfourcc(schema_id), self.schema or "none"
            raise BadAttrSchema(where, f"attribute schema {given}", allowed=f"{own}, or 0 without bytes for defaults")
        if len(blob) != self.nbytes:
            raise BadAttrSize(where, f"{len(blob)} bytes of attributes", allowed=f"{self.nbytes} for {self.schema}")
        flat = iter(struct.unpack(self._format, blob))
        values: dict[str, Any] = {}
        for a in self.attrs:
            value: Any = next(flat)
            if a.kind == "ints":
                if not 0 <= value <= LIST_LENGTH:
                    raise InvalidArgument(where, f"attribute {a.name} has {value} items", allowed=f"0 to {LIST_LENGTH}")
                values[a.name] = tuple([next(flat) for _ in range(LIST_LENGTH)][:value])
            elif a.kind == "choice":
                values[a.name] = a.choices[value] if 0 <= value < len(a.choices) else value
            elif a.kind == "text":
                values[a.name] = value.rstrip(b"\0").decode("latin-1")
            elif a.kind == "body":
                code = [next(flat) for _ in range(stack_code.LENGTH)][: max(0, min(value, stack_code.LENGTH))]
                values[a.name] = _body_of(where, a.name, code)
            else:
                values[a.name] = bool(value) if a.kind == "bool" else value
        return self.check(where, values)

    def default_blob(self) -> bytes | None:
        """Return the blob of the defaults, or None where an attribute is required."""
        if any(a.default is REQUIRED for a in self.attrs):
            return None
        return self.pack({a.name: a.default for a in self.attrs})


def _body_of(where: str, name: str, code: Sequence[int]) -> str:
    try:
        return to_text(stack_code.tree_of(code))
    except ValueError as error:
        raise InvalidArgument(where, f"attribute {name}: {error}", allowed="the program of an expression") from None


def attrs(schema: str, *fields: Attr) -> Record:
    """Return a record: `attrs("SOFT", integer("axis", -1))`."""
    return Record(schema, fields)


def integer(
    name: str, default: Any = REQUIRED, doc: str = "", *, minimum: float | None = None, maximum: float | None = None
) -> Attr:
    """Return a 64-bit integer attribute."""
    return Attr(name, "int", default, doc, minimum=minimum, maximum=maximum)


def number(
    name: str, default: Any = REQUIRED, doc: str = "", *, minimum: float | None = None, maximum: float | None = None
) -> Attr:
    """Return a float64 attribute."""
    return Attr(name, "float", default, doc, minimum=minimum, maximum=maximum)


def flag(name: str, default: Any = REQUIRED, doc: str = "") -> Attr:
    """Return a boolean attribute."""
    return Attr(name, "bool", default, doc)


def integers(name: str, default: Any = REQUIRED, doc: str = "", *, minimum: float | None = None) -> Attr:
    """Return an attribute that is a list of at most eight 64-bit integers."""
    return Attr(name, "ints", default, doc, minimum=minimum)


def choice(name: str, options: Sequence[str], default: Any = REQUIRED, doc: str = "") -> Attr:
    """Return an attribute that is one word of a fixed list; its index is packed."""
    return Attr(name, "choice", default, doc, tuple(options))


def text(name: str, default: Any = REQUIRED, doc: str = "") -> Attr:
    """Return a short text attribute, which kernels do not read: the tensors' normal form expresses it."""
    return Attr(name, "text", default, doc)


def body(name: str, default: Any = REQUIRED, doc: str = "") -> Attr:
    """Return an attribute that is a scalar expression of x0, x1, …"""
    return Attr(name, "body", default, doc)


def fourcc(code: str) -> int:
    """Return four ASCII characters as a little-endian 32-bit number."""
    return int.from_bytes(code.encode("ascii"), "little")


def unfourcc(number_: int) -> str:
    """Return the four characters of `fourcc`, or the number where they are not printable."""
    text = number_.to_bytes(4, "little").decode("latin-1")
    return repr(text) if text.isprintable() else hex(number_)
