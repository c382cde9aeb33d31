"""Writing GGUF files, version 3."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arguments import regular_file
from ..dtypes import dtype
from ..status import InvalidArgument
from .gguf import (
    ALIGNMENT,
    ARRAY,
    BOOL,
    GGUF,
    MAGIC,
    MAX_ALIGNMENT,
    MAX_DEPTH,
    MAX_RANK,
    NUMBERS,
    STRING,
    TYPES,
    GGUFTensor,
    quote_name,
)

Raw: TypeAlias = "tuple[str, Sequence[int], npt.NDArray[np.uint8]]"

_KINDS = {np.dtype(f"<{code}"): kind for kind, code in NUMBERS.items()} | {np.dtype(np.bool_): BOOL}
_INTEGERS = ((4, 0, 2**32), (5, -(2**31), 2**31), (10, 0, 2**64), (11, -(2**63), 2**63))
_F32_LIMIT = 2.0**128 - 2.0**103  # from here on a float32 is infinite
_NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Mapping[str, npt.NDArray[Any] | GGUFTensor | Raw],
) -> None:
    """Write a file that `GGUF.open` reads; it appears under its name only when it is complete.

    A metadata value is a bool, an int (uint32, or the first of int32, uint64 and int64 that holds it), a float
    (float32), a str, a NumPy scalar or array (its own type), or a sequence of values of one type. A tensor is a NumPy
    array of a type that GGUF has, a `GGUFTensor`, or `(type, shape, bytes)`. The alignment is `general.alignment` in
    the metadata, else 32. Raises `InvalidArgument` for anything else, with the key or the name, and `BadTensorDtype`
    for a NumPy type that is no element type.
    """
    regular_file("write_gguf", path, exists=False)
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        allowed = f"a power of two from 8 to {MAX_ALIGNMENT}, as an int"
        raise InvalidArgument("write_gguf", f"general.alignment is {alignment!r}", allowed=allowed)
    head = bytearray(MAGIC + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, value in metadata.items():
        kind, packed = _value(key, value)
        head += _string(key) + struct.pack("<I", kind) + packed
    offset, parts = 0, []
    for name, tensor in tensors.items():
        type_, shape, data = _raw(name, tensor)
        head += _string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", _NUMBERS[type_], offset)
        parts.append(data)
        offset += len(data) + -len(data) % alignment
    partial = Path(f"{os.fspath(path)}.part")
    try:
        with partial.open("wb") as file:
            file.write(head + bytes(-len(head) % alignment))
            for data in parts:
                file.write(data.data)
                file.write(bytes(-len(data) % alignment))
        GGUF.open(partial)  # the names are still unchecked
        partial.replace(path)
    except OSError as error:
        raise InvalidArgument("write_gguf", f"{os.fspath(path)}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _string(text: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument("write_gguf", f"{quote_name(text)} is not Unicode: {error.reason}") from None
    return struct.pack("<Q", len(encoded)) + encoded


def _raw(name: str, tensor: npt.NDArray[Any] | GGUFTensor | Raw) -> tuple[str, tuple[int, ...], npt.NDArray[np.uint8]]:
    """Return (type, shape, bytes) of a tensor in any of its forms, checked."""
    if isinstance(tensor, GGUFTensor):
        return tensor.type, tensor.shape, tensor.data
    if isinstance(tensor, np.ndarray):
        tensor = (dtype(tensor.dtype).name, tensor.shape, np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))
    type_, shape, data = tensor[0], tuple(int(d) for d in tensor[1]), tensor[2]
    if type_ not in _NUMBERS:
        raise InvalidArgument(
            "write_gguf", f"tensor {quote_name(name)} is of type {type_}", allowed=", ".join(_NUMBERS)
        )
    _, block, size = TYPES[_NUMBERS[type_]]
    if not 1 <= len(shape) <= MAX_RANK or min(shape) < 1 or shape[-1] % block:
        allowed = f"1 to {MAX_RANK} dims from 1, the last a multiple of {block}"
        raise InvalidArgument("write_gguf", f"tensor {quote_name(name)}, {type_}, has shape {shape}", allowed=allowed)
    needed = int(np.prod(shape, dtype=object)) // block * size
    if data.dtype != np.uint8 or data.ndim != 1 or len(data) != needed:
        found = f"tensor {quote_name(name)}, {type_} {shape}, has bytes {data.dtype}{list(data.shape)}"
        raise InvalidArgument("write_gguf", found, allowed=f"uint8[{needed}]")
    return type_, shape, data


def _value(key: str, value: Any, depth: int = 0) -> tuple[int, bytes]:
    """Return (value type, bytes) of a metadata value."""
    if isinstance(value, str):
        return STRING, _string(value)
    if isinstance(value, bool):
        return BOOL, bytes([value])
    if isinstance(value, int):
        for kind, low, high in _INTEGERS:
            if low <= value < high:
                return kind, struct.pack(f"<{NUMBERS[kind]}", value)
    if type(value) is float and not _F32_LIMIT <= abs(value) < math.inf:
        return 6, struct.pack("<f", value)
    if isinstance(value, np.generic) and value.dtype in _KINDS:
        return _KINDS[value.dtype], value.tobytes()
    if isinstance(value, np.ndarray) and value.dtype in _KINDS and value.ndim == 1 and depth < MAX_DEPTH:
        return ARRAY, struct.pack("<IQ", _KINDS[value.dtype], len(value)) + value.tobytes()
    if isinstance(value, (list, tuple)) and value and depth < MAX_DEPTH:
        packed = [_value(key, element, depth + 1) for element in value]
        if len(kinds := {kind for kind, _ in packed}) == 1:
            return ARRAY, struct.pack("<IQ", *kinds, len(packed)) + b"".join(part for _, part in packed)
    raise InvalidArgument(
        "write_gguf",
        f"metadata {quote_name(key)} is {quote_name(repr(value))}",
        allowed="bool, int of 64 bits, float, str, NumPy's, one-dimensional arrays, sequences (not empty) of one type",
    )
