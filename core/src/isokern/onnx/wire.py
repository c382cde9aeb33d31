"""The bytes of a model's file: large initialisers go from the file straight to where they stay, and are never parsed.

A message of protocol buffers is a row of fields, each with a number and a length
(https://protobuf.dev/programming-guides/encoding). A model's file is walked down to the elements of its initialisers;
what is left without these is small, whatever the model's size, and is what the library parses.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # the numbers of ModelProto.graph, GraphProto.initializer, TensorProto.raw_data
VARINT, EIGHT, LENGTH, FOUR = 0, 1, 2, 5  # how long a field is
SMALL = 1 << 12  # bytes of elements up to which they stay in the message
ALIGNED = 256  # bytes, so that a device that computes in the host's memory can have them where they are


class _Unknown(Exception):
    """The bytes are not laid out as writers lay them out."""


def split(path: str | Path) -> tuple[bytes, dict[int, Bytes]] | None:
    """Return a file's message without the elements of large initialisers, and these by the initialiser's place.

    None where the file is laid out in another way than all writers do, or is no message: then the library's parser
    says what it is.
    """
    with open(path, "rb", buffering=0) as file:
        try:
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # it is empty, or no file that can be mapped
            return None
        with held, memoryview(held) as content:
            try:
                message, places = _cut(content)
            except (_Unknown, IndexError):
                return None
        return message, _read(file, places)


def _cut(content: memoryview) -> tuple[bytes, dict[int, tuple[int, int]]]:
    """Return the message without the elements, and the first and last byte of each."""
    graphs = [(start, at, end) for number, start, at, end in _fields(content, 0, len(content)) if number == GRAPH]
    if len(graphs) != 1:
        raise _Unknown
    start, at, end = graphs[0]
    places: dict[int, tuple[int, int]] = {}
    parts, done, count = list[bytes](), at, -1
    for number, begin, inner, last in _fields(content, at, end):
        if number != INITIALIZER:
            continue
        count += 1
        if last - inner <= SMALL:
            continue
        raw = [(first, low, high) for n, first, low, high in _fields(content, inner, last) if n == RAW_DATA]
        if len(raw) > 1:
            raise _Unknown
        if not raw or raw[0][2] - raw[0][1] <= SMALL:
            continue
        first, low, high = raw[0]
        places[count] = low, high
        rest = bytes(content[inner:first]) + bytes(content[high:last])
        parts += [bytes(content[done:begin]), _tag(INITIALIZER, len(rest)), rest]
        done = last
    graph = b"".join([*parts, bytes(content[done:end])])
    return b"".join([bytes(content[:start]), _tag(GRAPH, len(graph)), graph, bytes(content[end:])]), places


def _fields(content: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, first byte, first byte of the value and end of each field."""
    while at < end:
        start = at
        tag, at = _read_varint(content, at)
        kind = tag & 7
        if kind == LENGTH:
            length, at = _read_varint(content, at)
            stop = at + length
        elif kind == VARINT:
            _, stop = _read_varint(content, at)
        elif kind in (EIGHT, FOUR):
            stop = at + (8 if kind == EIGHT else 4)
        else:
            raise _Unknown
        if stop > end:
            raise _Unknown
        yield tag >> 3, start, at, stop
        at = stop


def _read_varint(content: memoryview, at: int) -> tuple[int, int]:
    """Return a number, of which each byte has seven bits, and the place behind it."""
    byte = content[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise _Unknown
        at += 1
        byte = content[at]
        number |= (byte & 0x7F) << shift
        shift += 7
    return number, at + 1


def _tag(number: int, length: int) -> bytes:
    """Return the beginning of a field of so many bytes."""
    made = bytearray([number << 3 | LENGTH])
    while length >= 0x80:
        made.append(length & 0x7F | 0x80)
        length >>= 7
    made.append(length)
    return bytes(made)


def _read(file: FileIO, places: dict[int, tuple[int, int]]) -> dict[int, Bytes]:
    """Return bytes of a file, read-only and aligned, in one piece of memory; EOFError where it has become shorter."""
    found = dict[int, Bytes]()
    held = np.empty(sum(_align(high - low) for low, high in places.values()) + ALIGNED, np.uint8)
    at = -held.ctypes.data % ALIGNED
    for count, (low, high) in places.items():
        found[count] = part = held[at : at + high - low]
        at += _align(high - low)
        file.seek(low)
        done = 0
        while done < part.size:  # a system call reads 2 GiB at most
            taken = file.readinto(part.data[done:])
            if not taken:
                raise EOFError(f"it ends at byte {low + done}, before {high}")
            done += taken
    held.flags.writeable = False
    for part in found.values():
        part.flags.writeable = False
    return found


def _align(nbytes: int) -> int:
    return -(-nbytes // ALIGNED) * ALIGNED
