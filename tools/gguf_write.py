"""Write GGUF files, version 3: for the tests, and for the model in examples/models."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from isokern.dtypes import dtype
from isokern.llm import GGUFTensor
from isokern.llm.gguf import ALIGNMENT, ARRAY, BOOL, MAGIC, NUMBERS, STRING, TYPES

Raw: TypeAlias = "tuple[str, Sequence[int], npt.NDArray[np.uint8]]"

_KINDS = {np.dtype(f"<{code}"): kind for kind, code in NUMBERS.items()} | {np.dtype(np.bool_): BOOL}
_INTEGERS = ((4, 0, 2**32), (5, -(2**31), 2**31), (10, 0, 2**64), (11, -(2**63), 2**63))
_NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, npt.NDArray[Any] | GGUFTensor | Raw]
) -> None:
    """Write a file that `GGUF.open` reads.

    A metadata value is a bool, an int (uint32, or the first of int32, uint64 and int64 that holds it), a float
    (float32), a str, a NumPy scalar or array (its own type), or a sequence of values of one type. A tensor is a NumPy
    array of a type that GGUF has, a `GGUFTensor`, or `(type, shape, bytes)`. The alignment is `general.alignment` in
    the metadata, else 32.
    """
    alignment = metadata.get("general.alignment", ALIGNMENT)
    head, body = bytearray(MAGIC + struct.pack("<IQQ", 3, len(tensors), len(metadata))), bytearray()
    for key, value in metadata.items():
        kind, packed = _value(value)
        head += _string(key) + struct.pack("<I", kind) + packed
    for name, tensor in tensors.items():
        type_, shape, data = _raw(tensor)
        head += _string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", _NUMBERS[type_], len(body))
        body += data.tobytes() + bytes(-data.size % alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + body)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _raw(tensor: npt.NDArray[Any] | GGUFTensor | Raw) -> Raw:
    if isinstance(tensor, GGUFTensor):
        return tensor.type, tensor.shape, tensor.data
    if isinstance(tensor, np.ndarray):
        return dtype(tensor.dtype).name, tensor.shape, np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    return tensor


def _value(value: Any) -> tuple[int, bytes]:
    """Return (value type, bytes) of a metadata value."""
    match value:
        case str():
            return STRING, _string(value)
        case bool():
            return BOOL, bytes([value])
        case int():
            kind = next(kind for kind, low, high in _INTEGERS if low <= value < high)
            return kind, struct.pack(f"<{NUMBERS[kind]}", value)
        case np.generic():
            return _KINDS[value.dtype], value.tobytes()
        case float():
            return 6, struct.pack("<f", value)
        case np.ndarray():
            return ARRAY, struct.pack("<IQ", _KINDS[value.dtype], len(value)) + value.tobytes()
    packed = [_value(element) for element in value]
    (kind,) = {kind for kind, _ in packed}
    return ARRAY, struct.pack("<IQ", kind, len(packed)) + b"".join(part for _, part in packed)
