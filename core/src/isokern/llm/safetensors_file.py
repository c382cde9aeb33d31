"""Safetensors files, mapped: names, shapes and types checked, tensors used in place.

The format: the length of a header as uint64, the header in JSON, which has for each tensor `dtype`, `shape` and
`data_offsets` from the header's end, and the tensors' bytes. Source: the format's description in the repository of
safetensors.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from typing import Any

import numpy as np

from ..arguments import regular_file
from ..status import InvalidArgument
from .gguf import FileMap, GGUFTensor, quote_name

BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}  # bytes of an element; U8 is for packed data
MAX_HEADER = 1 << 26


def parse_json(text: str) -> Any:
    """Parse JSON; ValueError if it is malformed, nests too deeply or has a key of an object twice."""

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                raise ValueError(f"it has the key {quote_name(key)} twice")
            made[key] = value
        return made

    try:
        return json.loads(text, object_pairs_hook=build)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, GGUFTensor]:
    """Return the tensors of a file by name, views of its map. InvalidArgument names the file and what is wrong."""
    name = os.path.basename(os.fspath(path))
    regular_file("safetensors", path, exists=True)

    def wrong(problem: str, allowed: str = "") -> InvalidArgument:
        return InvalidArgument("safetensors", f"{name}: {problem}", allowed=allowed)

    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < 8:
                raise wrong("it is cut off", "a header and tensors")
            held = FileMap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise wrong(f"it cannot be opened: {error.strerror}") from error
    size = int.from_bytes(held[:8], "little")
    if not 2 <= size <= min(MAX_HEADER, len(held) - 8):
        raise wrong(f"its header has {size} bytes", f"2 to {min(MAX_HEADER, len(held) - 8)}")
    try:
        header: Any = parse_json(held[8 : 8 + size].decode())
    except ValueError as error:
        raise wrong(f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise wrong("its header is not a JSON object")
    data = np.frombuffer(held, np.uint8)[8 + size :]
    found = {}
    for key, record in header.items():
        if key != "__metadata__":
            element, shape, begin, end = _record(record, len(data), wrong, f"tensor {quote_name(key)}")
            found[key] = GGUFTensor(key, shape, element, 8 + size + begin, data[begin:end])
    at = 0
    for tensor in sorted(found.values(), key=lambda t: t.offset):
        if tensor.offset != 8 + size + at:
            raise wrong(
                f"tensor {quote_name(tensor.name)} begins at {tensor.offset - 8 - size}", f"{at}, after another"
            )
        at += len(tensor.data)
    if at != len(data):
        raise wrong(f"its tensors end at {at}", f"{len(data)}, the end of the file")
    return found


def _record(record: Any, room: int, wrong: Any, tensor: str) -> tuple[str, tuple[int, ...], int, int]:
    """Return the type, the shape and the range of bytes of a tensor's record, checked."""
    try:
        element, shape, (begin, end) = record["dtype"], record["shape"], record["data_offsets"]
        whole = [*shape, begin, end]
    except (KeyError, TypeError, ValueError):
        raise wrong(f"{tensor} has no dtype, shape and data_offsets") from None
    if not isinstance(element, str) or element not in BYTES:
        raise wrong(f"{tensor} is of type {quote_name(str(element))}", ", ".join(BYTES))
    if not all(type(i) is int and i >= 0 for i in whole):
        raise wrong(f"{tensor} has a shape or data_offsets that are not integers from 0")
    if not 1 <= len(shape) <= 4 or not all(shape):
        raise wrong(f"{tensor} is {shape}", "1 to 4 dims from 1")
    size = math.prod(shape) * BYTES[element]
    if end - begin != size or end > room:
        raise wrong(f"{tensor} has the bytes {begin} to {end}", f"{size} bytes within the {room} that the file has")
    return element, tuple(shape), begin, end
