"""Status codes of the C interface, and the typed exception that each becomes in Python."""

from __future__ import annotations

import enum

LONGEST = 2000  # characters of each part of a message that are shown


class Status(enum.IntEnum):
    """The result of a call: stable numbers, the same in the C header."""

    SUCCESS = 0
    INVALID_ARGUMENT = 1
    BAD_TENSOR_DTYPE = 2
    BAD_TENSOR_SHAPE = 3
    BAD_TENSOR_STRIDES = 4
    BAD_ATTR_SCHEMA = 5
    BAD_ATTR_SIZE = 6
    INSUFFICIENT_WORKSPACE = 7
    NOT_IMPLEMENTED = 8
    OUT_OF_MEMORY = 9
    DEVICE_NOT_AVAILABLE = 10
    INTERNAL_ERROR = 11


class IsokernError(Exception):
    """An error that names the operator, the problem, what was given, what is allowed, and what to do.

    `where` is the operator or function, `problem` one clause that names the argument and its value; `allowed` and
    `hint` are optional. All four are attributes in full length; in the message, the middle of a long one is left out.
    """

    status = Status.INTERNAL_ERROR

    def __init__(self, where: str, problem: str, *, allowed: str = "", hint: str = "") -> None:
        self.where, self.problem, self.allowed, self.hint = where, problem, allowed, hint
        parts = [f"{where}: {problem}", f"allowed: {allowed}" if allowed else "", hint]
        super().__init__("; ".join(shorten(part) for part in parts if part))

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.where, self.problem, self.allowed, self.hint)


def shorten(text: str, longest: int = LONGEST) -> str:
    """Return the text; if it is longer than `longest` characters, a note replaces its middle.

    >>> shorten("x" * 5000, 8)
    'xxxx … 4992 characters … xxxx'
    """
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"


def quote(value: object) -> str:
    """Return the `repr` of a user's value for a message.

    Where `repr` fails, as for integers of 5,000 digits, returns the type's name instead.
    """
    try:
        return repr(value)
    except Exception:  # a user's class may raise anything
        return f"<{type(value).__name__} that cannot be shown>"


def _restore(cls: type[IsokernError], where: str, problem: str, allowed: str, hint: str) -> IsokernError:
    return cls(where, problem, allowed=allowed, hint=hint)


class InvalidArgument(IsokernError, ValueError):
    """An argument is missing, of the wrong kind, out of range, closed, overlapping, or on another device.

    Of a bad value that a kernel found, `found` is its place and the value itself.
    """

    status = Status.INVALID_ARGUMENT
    found: tuple[int, int] | None = None


class BadTensorDtype(IsokernError, TypeError):
    """A tensor's element type is not one the operator takes there."""

    status = Status.BAD_TENSOR_DTYPE


class BadTensorShape(IsokernError, ValueError):
    """A tensor's rank or a dim does not fit the operator's signature."""

    status = Status.BAD_TENSOR_SHAPE


class BadTensorStrides(IsokernError, ValueError):
    """Strides or offset leave the buffer, overlap within an output, or split a block."""

    status = Status.BAD_TENSOR_STRIDES


class BadAttrSchema(IsokernError, ValueError):
    """An attribute blob's schema id is not the operator's."""

    status = Status.BAD_ATTR_SCHEMA


class BadAttrSize(IsokernError, ValueError):
    """An attribute blob's length is not its schema's."""

    status = Status.BAD_ATTR_SIZE


class InsufficientWorkspace(IsokernError, ValueError):
    """The workspace is missing, too small, misaligned, or of the wrong memory kind."""

    status = Status.INSUFFICIENT_WORKSPACE


class NotImplementedOnDevice(IsokernError, NotImplementedError):
    """No variant of the device takes this call; `hint` lists each and its reason."""

    status = Status.NOT_IMPLEMENTED


class OutOfMemory(IsokernError, MemoryError):
    """The device could not allocate."""

    status = Status.OUT_OF_MEMORY


class DeviceNotAvailable(IsokernError, LookupError):
    """The device does not exist, or its backend cannot work here; the reason is in the message."""

    status = Status.DEVICE_NOT_AVAILABLE


class InternalError(IsokernError, RuntimeError):
    """A kernel or driver failed in a way that no input explains: a defect of the backend."""

    status = Status.INTERNAL_ERROR


BY_STATUS: dict[Status, type[IsokernError]] = {
    cls.status: cls
    for cls in (
        InvalidArgument,
        BadTensorDtype,
        BadTensorShape,
        BadTensorStrides,
        BadAttrSchema,
        BadAttrSize,
        InsufficientWorkspace,
        NotImplementedOnDevice,
        OutOfMemory,
        DeviceNotAvailable,
        InternalError,
    )
}


def raise_for(status: int, where: str, problem: str) -> None:
    """Raise the typed error for a failed `status` that a backend returned; do nothing for SUCCESS."""
    if status == Status.SUCCESS:
        return
    known = Status(status) if status in Status._value2member_map_ else Status.INTERNAL_ERROR
    raise BY_STATUS[known](where, problem or f"the backend returned {known.name}")
