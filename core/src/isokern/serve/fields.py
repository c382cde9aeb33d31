"""A request's JSON document, read strictly: no value is ignored, changed, or taken for something else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ..status import quote, shorten
from .errors import SHOWN, ApiError, wrong_value

D = TypeVar("D", int, None)
MISSING = object()


def read_document(body: bytes) -> dict[str, Any]:
    """Return the JSON object that is a body.

    ApiError 400 if it is not UTF-8, not JSON (in RFC 8259 NaN and infinities are not) or not an object, an object has a
    key twice, a number is not a finite float, a string has half of a surrogate pair, or it is nested too deeply.
    """
    try:
        text = body.decode()
        found = json.loads(
            text, object_pairs_hook=_read_object, parse_constant=_refuse_constant, parse_float=_read_float
        )
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()  # fails if a string cannot be UTF-8
    except UnicodeDecodeError as error:
        raise _bad_json(f"byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise _bad_json("a string has half of a surrogate pair") from None
    except RecursionError:
        raise _bad_json("it is nested too deeply") from None
    except ValueError as error:
        raise _bad_json(str(error)) from None
    if not isinstance(found, dict):
        raise wrong_value("body", found, "a JSON object")
    return found


def _bad_json(why: str) -> ApiError:
    return ApiError(400, f"the body is not valid JSON: {shorten(why, SHOWN)}", code="invalid_json")


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"an object has the key {quote(twice)} twice")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _read_float(text: str) -> float:
    if abs(value := float(text)) == float("inf"):
        raise ValueError(f"{text} is too large")
    return value


class Fields:
    """The fields of a JSON object; each is taken once, and one that is null is as if it were not there.

    A field that is left at the end is refused. `where` is the path of the object in the body, for messages. All methods
    raise ApiError 400, which names the field.
    """

    def __init__(self, given: object, where: str = "") -> None:
        if not isinstance(given, dict):
            raise wrong_value(where or "body", given, "a JSON object")
        self.where, self.left = where, {name: value for name, value in given.items() if value is not None}

    def name(self, field: str) -> str:
        """Return the path of a field in the body."""
        return f"{self.where}.{field}" if self.where else field

    def wrong(self, field: str, given: object, allowed: str) -> ApiError:
        """Return the error of a field of this object."""
        return wrong_value(self.name(field), given, allowed)

    def take(self, field: str) -> Any:
        """Return the value of a field, or None if it is missing."""
        return self.left.pop(field, None)

    def require(self, field: str) -> Any:
        """Return the value of a field that has to be there."""
        if field not in self.left:
            raise ApiError(400, f"{self.name(field)} is missing", param=self.name(field), code="missing_parameter")
        return self.left.pop(field)

    def integer(self, field: str, default: D, low: int, high: int) -> int | D:
        """Return an integer from `low` to `high`."""
        given = self.take(field)
        if given is None:
            return default
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            raise self.wrong(field, given, f"an integer from {low} to {high}")
        return given

    def number(self, field: str, default: float, low: float, high: float, above: bool = False) -> float:
        """Return a number from `low` to `high`; with `above`, `low` itself is not allowed."""
        given = self.take(field)
        if given is None:
            return default
        number = isinstance(given, (int, float)) and not isinstance(given, bool)
        if not number or not low <= given <= high or (above and given == low):
            raise self.wrong(field, given, f"a number {'above' if above else 'from'} {low:g} to {high:g}")
        return float(given)

    def flag(self, field: str) -> bool:
        """Return true or false; false if it is missing."""
        given = self.take(field)
        if given is not None and not isinstance(given, bool):
            raise self.wrong(field, given, "true or false")
        return bool(given)

    def text(self, field: str, default: str = "") -> str:
        """Return a string."""
        given = self.take(field)
        if given is not None and not isinstance(given, str):
            raise self.wrong(field, given, "a string")
        return default if given is None else given

    def refuse_unsupported(self, neutral: Mapping[str, Sequence[object]]) -> None:
        """Refuse what is not supported here: a field of `neutral` that has none of the values it may have."""
        for field, values in neutral.items():
            given = self.left.pop(field, MISSING)
            if given is MISSING or any(_is_same(given, value) for value in values):
                continue
            allowed = " or ".join([*map(json.dumps, values), "null"])
            name = self.name(field)
            message = f"{name}: {shorten(quote(given), SHOWN)} is not supported; allowed: {allowed}"
            raise ApiError(400, message, param=name, code="unsupported_value")

    def end(self) -> None:
        """Refuse what was not taken."""
        for field in self.left:
            name = self.name(shorten(field, SHOWN))
            raise ApiError(400, f"{name}: the field does not exist", param=name, code="unknown_parameter")


def _is_same(given: object, value: object) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    return given == value and isinstance(given, bool) == isinstance(value, bool)
