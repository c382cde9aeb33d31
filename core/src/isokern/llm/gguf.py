"""GGUF files, mapped: metadata parsed and checked, tensors used in place.

The format (little-endian; versions 2 and 3): magic, version, counts of tensors and of metadata; per metadata a key, a
value type, a value; per tensor a name, its dims (innermost first), a type and an offset; then, aligned, the tensors'
bytes. Source: the specification in ggml's repository, docs/gguf.md.

A file may say anything. Each count and length is checked against the bytes that are left before an object of that size
is made, so memory stays below a small multiple of the bytes before the tensors, and every refusal names the field and
its byte position.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arguments import open_at_once
from ..dtypes import ALL, ALL_WEIGHTS, DType, dtype, names
from ..layout import TensorDesc
from ..status import InvalidArgument

Value: TypeAlias = "bool | int | float | str | npt.NDArray[Any] | tuple[Value, ...]"

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32  # where general.alignment is missing
MAX_ALIGNMENT = 1 << 20
MAX_RANK = 4
MAX_NAME = 65_535  # bytes of a key or of a tensor's name
MAX_DEPTH = 4  # arrays within arrays
INT64_MAX = 2**63 - 1

# Value types by number; the numeric types map to their struct code, which is NumPy's too
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
BOOL, STRING, ARRAY = 7, 8, 9
LEAST = {code: struct.calcsize(f"<{c}") for code, c in NUMBERS.items()} | {BOOL: 1, STRING: 8, ARRAY: 12}

# Tensor types by number: name, elements of a block, bytes of a block. Missing numbers were withdrawn from the format.
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf")  # the end of the name of a part of a split file, counted from 1
KNOWN = tuple(d for d in ALL if d.name in {name for name, _, _ in TYPES.values()})


class FileMap(mmap.mmap):
    """A whole file, mapped from its begin, to be read only: pages that are dropped come back as they were."""


@dataclass(frozen=True, eq=False, slots=True)
class GGUFTensor:
    """One tensor of a file.

    `shape` has the innermost dim last, `type` is GGUF's name of the element type, `offset` is the position of the first
    byte in its file, and `data` are the bytes: a read-only uint8 view of the map, not a copy.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    data: npt.NDArray[np.uint8]

    @property
    def dtype(self) -> DType:
        """Isokern's element type. Raises `InvalidArgument` if it has none of that name (NVFP4, Q8_1 …)."""
        if all(self.type != d.name for d in KNOWN):
            raise InvalidArgument(
                "GGUF",
                f"tensor {quote_name(self.name)} is of type {self.type}, which Isokern does not compute with",
                allowed=names(d for d in KNOWN if d in ALL_WEIGHTS),
                hint="convert the file to one of these",
            )
        return dtype(self.type)

    @property
    def desc(self) -> TensorDesc:
        """The contiguous description of the tensor; errors as in `dtype`."""
        return TensorDesc(self.dtype, self.shape)

    @property
    def array(self) -> npt.NDArray[Any]:
        """The elements as a NumPy array of `shape`, in place; `InvalidArgument` for block types, which NumPy lacks."""
        element = self.dtype.numpy
        if element is None:
            raise InvalidArgument(
                "GGUF", f"tensor {quote_name(self.name)} is {self.type}: blocks, not elements", hint="use .data"
            )
        return self.data.view(element).reshape(self.shape)

    def drop_pages(self) -> None:
        """Let the system take back the memory of the tensor's bytes, which are read from the file again when needed.

        Does nothing unless the tensor is in a whole file that Isokern mapped (other memory could lose its content), or
        if the system does not support it.
        """
        held: Any = self.data
        while isinstance(held, (np.ndarray, memoryview)):
            held = held.base if isinstance(held, np.ndarray) else held.obj
        if isinstance(held, FileMap) and hasattr(mmap, "MADV_DONTNEED"):
            first = -(-self.offset // mmap.PAGESIZE) * mmap.PAGESIZE  # pages that are this tensor's alone
            last = (self.offset + self.data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
            if last > first:
                held.madvise(mmap.MADV_DONTNEED, first, last - first)


class GGUF:
    """A parsed file: `version`, `alignment`, `metadata` by key and `tensors` by name.

    Both mappings are read-only and in the file's order. A metadata value is a bool, int, float (a float64 value is
    NumPy's, which is a float) or str; an array of numbers or bools is a read-only NumPy array, not always aligned; an
    array of strings or of arrays is a tuple. Views keep the map alive; the file must not be shortened while one lives.

    `GGUF(buffer, name)` parses what is in memory. Raises `InvalidArgument` for whatever is not a valid file: the
    message has the field, its byte position, what stands there and what may.
    """

    def __init__(self, buffer: bytes | mmap.mmap, name: str = "buffer") -> None:
        at = _Cursor(buffer, name)
        magic = at.take(4, "magic")
        if magic != MAGIC:
            raise at.wrong("magic", f"is {magic!r}", f"{MAGIC!r}: this is not a GGUF file", 0)
        self.version = at.number("I", "version")
        if self.version not in VERSIONS:
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
            why = "a big-endian file; convert it to little-endian" if swapped in (1, *VERSIONS) else ""
            raise at.wrong("version", f"is {self.version}", "2 and 3, little-endian", 4, why)
        tensors = at.count("tensor count", 33)  # a name of one byte, rank 1, type, offset
        pairs = at.count("metadata count", 14)  # a key of one byte, type, a value of one byte
        metadata: dict[str, Value] = {}
        self.alignment = ALIGNMENT
        for _ in range(pairs):
            key = at.name("metadata key", metadata)
            begin = at.position
            kind = at.number("I", f"value type of {quote_name(key)}")
            metadata[key] = at.value(kind, f"{quote_name(key)}", begin)
            if key == "general.alignment":
                self.alignment = _alignment(at, kind, metadata[key], begin + 4)
        self.metadata: Mapping[str, Value] = MappingProxyType(metadata)
        self.tensors: Mapping[str, GGUFTensor] = MappingProxyType(_tensors(at, tensors, self.alignment))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUF:
        """Map the file read-only and parse it. Also raises `InvalidArgument` if it cannot be opened.

        Of a split file, whose parts are named `…-00001-of-00003.gguf` and have `split.no`, `split.count` and
        `split.tensors.count`, any part stands for all of them: the metadata are those of the first without these keys,
        the tensors those of all. A part that is missing, or belongs to other parts, is an error that names it.
        """
        found = cls._open_one(path)
        name = PART.search(os.path.basename(os.fspath(path)))
        if name is None or name.end() != len(os.path.basename(os.fspath(path))) or "split.count" not in found.metadata:
            return found
        return _join(os.fspath(path)[: -len(name.group())], int(name[1]), int(name[2]), found)

    @classmethod
    def from_parts(cls, metadata: Mapping[str, Value], tensors: Mapping[str, GGUFTensor]) -> GGUF:
        """Return an object of metadata and tensors that come from elsewhere."""
        made = object.__new__(cls)
        made.version, made.alignment = VERSIONS[-1], ALIGNMENT
        made.metadata, made.tensors = MappingProxyType(dict(metadata)), MappingProxyType(dict(tensors))
        return made

    @classmethod
    def _open_one(cls, path: str | os.PathLike[str]) -> GGUF:
        """Map and parse one file."""
        name = os.fspath(path)
        try:
            with open(path, "rb", opener=open_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise InvalidArgument("GGUF", f"{name} is not a regular file")
                if os.fstat(file.fileno()).st_size == 0:
                    raise InvalidArgument("GGUF", f"{name} is empty")
                mapped = FileMap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except InvalidArgument:  # which is a ValueError, too
            raise
        except OSError as error:
            raise InvalidArgument("GGUF", f"{name} cannot be opened: {error.strerror}") from error
        except ValueError as error:  # a null byte in the path
            raise InvalidArgument("GGUF", f"{name!r} cannot be opened: {error}") from error
        return cls(mapped, os.path.basename(name))


def _join(stem: str, number: int, count: int, opened: GGUF) -> GGUF:
    """Return the parts `stem`-00001-of-`count` as one; part `number` is open already."""
    if not 1 <= number <= count:
        raise InvalidArgument("GGUF", f"{os.path.basename(stem)}: part {number} of {count}", allowed=f"1 to {count}")
    parts: dict[str, GGUF] = {}
    for i in range(1, count + 1):
        path = f"{stem}-{i:05}-of-{count:05}.gguf"
        name = os.path.basename(path)
        try:
            part = parts[name] = opened if i == number else GGUF._open_one(path)
        except InvalidArgument as error:
            hint = f"all {count} parts have to be in one folder"
            raise InvalidArgument(error.where, error.problem, allowed=error.allowed, hint=hint) from error
        first = next(iter(parts.values()))
        wanted: dict[str, object] = {"split.no": i - 1, "split.count": count}
        wanted["split.tensors.count"] = first.metadata.get("split.tensors.count")
        for key, value in wanted.items():
            if part.metadata.get(key) != value:
                found = f"{name}: {key} is {quote_name(str(part.metadata.get(key)))}"
                raise InvalidArgument("GGUF", found, allowed=f"{value}", hint="it belongs to other parts")
        for key, given in part.metadata.items():
            if not key.startswith("split.") and not _equal(given, first.metadata.get(key)):
                found = f"{name}: {quote_name(key)} is not as in the first part"
                raise InvalidArgument("GGUF", found, allowed="parts of one file")
    tensors: dict[str, GGUFTensor] = {}
    for name, part in parts.items():
        for key in part.tensors.keys() & tensors.keys():
            raise InvalidArgument(
                "GGUF", f"{name}: tensor {quote_name(key)} is in an earlier part, too", allowed="each tensor once"
            )
        tensors.update(part.tensors)
    whole = next(iter(parts.values()))
    if whole.metadata.get("split.tensors.count") != len(tensors):
        found = f"{next(iter(parts))}: split.tensors.count is {whole.metadata.get('split.tensors.count')}"
        raise InvalidArgument("GGUF", found, allowed=f"{len(tensors)}, the tensors of all parts")
    own = {key: value for key, value in whole.metadata.items() if not key.startswith("split.")}
    return GGUF.from_parts(own, tensors)


def _equal(a: object, b: object) -> bool:
    """Return whether two metadata values are the same; NaN is as NaN."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return type(a) is type(b) and repr(a) == repr(b)


def quote_name(name: str) -> str:
    """Return a name as it may stand in a message: quoted, escaped and cut."""
    return ascii(name if len(name) <= 64 else f"{name[:60]}...")


class _Cursor:
    """A position in the buffer; whatever it reads it has checked to be there."""

    def __init__(self, buffer: bytes | mmap.mmap, name: str) -> None:
        self.buffer, self.file = buffer, name
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
        self.position, self.end = 0, len(buffer)

    def wrong(self, field: str, found: str, allowed: str, at: int, hint: str = "") -> InvalidArgument:
        return InvalidArgument("GGUF", f"{self.file}: {field} at byte {at} {found}", allowed=allowed, hint=hint)

    @property
    def left(self) -> int:
        return self.end - self.position

    def take(self, size: int, field: str) -> bytes:
        """Return the next `size` bytes."""
        begin = self.position
        if size > self.left:
            raise self.wrong(field, f"needs {size} bytes", f"{self.left}, which are left: the file is cut off", begin)
        self.position += size
        return self.buffer[begin : begin + size]

    def number(self, code: str, field: str) -> Any:
        """Return the next number of struct's type `code`."""
        packed = _STRUCTS[code]
        begin = self.position
        if packed.size > self.left:
            raise self.wrong(
                field, f"needs {packed.size} bytes", f"{self.left}, which are left: the file is cut off", begin
            )
        self.position += packed.size
        return packed.unpack_from(self.buffer, begin)[0]

    def count(self, field: str, least: int) -> int:
        """Return the next uint64, a count of things that take at least `least` bytes each."""
        begin = self.position
        count: int = self.number("Q", field)
        if count > self.left // least:
            most = f"at most {self.left // least}, for {self.left} bytes are left"
            raise self.wrong(field, f"is {count}", most, begin)
        return count

    def string(self, field: str) -> str:
        """Return the next string: a length, and as many bytes of UTF-8."""
        length = self.count(f"length of {field}", 1)
        begin = self.position
        try:
            return self.take(length, field).decode()
        except UnicodeDecodeError as error:
            raise self.wrong(field, f"is not UTF-8: {error.reason}", "UTF-8", begin + error.start) from None

    def name(self, field: str, taken: Mapping[str, object]) -> str:
        """Return the next string, a name that is not in `taken`."""
        begin = self.position
        if self.left >= 8:
            (length,) = _STRUCTS["Q"].unpack_from(self.buffer, begin)
            if not 1 <= length <= MAX_NAME:
                raise self.wrong(f"length of {field}", f"is {length}", f"1 to {MAX_NAME}", begin)
        name = self.string(field)
        if name in taken:
            raise self.wrong(field, f"is {quote_name(name)} once more", "each name once", begin + 8)
        return name

    def value(self, kind: int, field: str, at: int, depth: int = 0) -> Value:
        """Return the next value, of type `kind`, which stood at byte `at`."""
        if kind in NUMBERS:
            number: int | float = self.number(NUMBERS[kind], field)
            return np.float64(number) if NUMBERS[kind] == "d" else number
        if kind == STRING:
            return self.string(field)
        if kind == BOOL:
            begin = self.position
            truth = self.number("B", field)
            if truth > 1:
                raise self.wrong(field, f"is the bool {truth}", "0 and 1", begin)
            return bool(truth)
        if kind == ARRAY:
            return self.array(field, depth)
        raise self.wrong(f"value type of {field}", f"is {kind}", "0 to 12", at)

    def array(self, field: str, depth: int) -> npt.NDArray[Any] | tuple[Value, ...]:
        """Return the next array: an element type, a count and the elements."""
        begin = self.position
        if depth == MAX_DEPTH:
            raise self.wrong(field, f"nests arrays more than {MAX_DEPTH} deep", f"{MAX_DEPTH} levels", begin)
        kind = self.number("I", f"element type of {field}")
        if kind not in LEAST:
            raise self.wrong(f"element type of {field}", f"is {kind}", "0 to 12", begin)
        count = self.count(f"length of {field}", LEAST[kind])
        if kind == STRING:
            return tuple(self.string(field) for _ in range(count))
        if kind == ARRAY:
            return tuple(self.array(field, depth + 1) for _ in range(count))
        first = self.position
        self.position += count * LEAST[kind]
        raw = self.bytes[first : self.position]
        if kind != BOOL:
            return raw.view(f"<{NUMBERS[kind]}")
        if count and raw.max() > 1:
            raise self.wrong(field, f"has the bool {raw.max()}", "0 and 1", first + int(np.argmax(raw > 1)))
        return raw.view(np.bool_)


_STRUCTS = {code: struct.Struct(f"<{code}") for code in NUMBERS.values()}


def _alignment(at: _Cursor, kind: int, value: Value, begin: int) -> int:
    """Return the value of general.alignment, checked."""
    if kind != 4 or not isinstance(value, int) or not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        allowed = f"a power of two from 8 to {MAX_ALIGNMENT}, as uint32"
        found = f"is {value}" if kind in NUMBERS else f"is of value type {kind}"
        raise at.wrong("'general.alignment'", found, allowed, begin)
    return value


def _tensors(at: _Cursor, count: int, alignment: int) -> dict[str, GGUFTensor]:
    """Read the tensors' records, and return the tensors with their bytes, which follow the records."""
    records: dict[str, tuple[tuple[int, ...], str, int, int, int]] = {}
    for _ in range(count):
        name = at.name("tensor name", records)
        records[name] = _record(at, name, alignment)
    start = -(-at.position // alignment) * alignment
    room = max(0, at.end - start)
    end, before = 0, ""
    for name, (_, _, offset, size, where) in sorted(records.items(), key=lambda item: item[1][2]):
        if offset < end:
            found = f"is {offset}, inside tensor {quote_name(before)}"
            raise at.wrong(f"offset of tensor {quote_name(name)}", found, "tensors that do not overlap", where)
        if offset + size > room:
            allowed = f"at most {max(0, room - size)}, for the file has {room} bytes of tensors"
            raise at.wrong(f"offset of tensor {quote_name(name)}, {size} bytes,", f"is {offset}", allowed, where)
        end, before = offset + size, name
    tensors = {}
    for name, (shape, type_, offset, size, _) in records.items():
        begin = start + offset
        tensors[name] = GGUFTensor(name, shape, type_, begin, at.bytes[begin : begin + size])
    return tensors


def _record(at: _Cursor, name: str, alignment: int) -> tuple[tuple[int, ...], str, int, int, int]:
    """Return (shape, type, offset from the first tensor, bytes, position of the offset field) of the tensor `name`."""
    tensor = f"tensor {quote_name(name)}"
    begin = at.position
    rank = at.number("I", f"rank of {tensor}")
    if not 1 <= rank <= MAX_RANK:
        raise at.wrong(f"rank of {tensor}", f"is {rank}", f"1 to {MAX_RANK}", begin)
    first = at.position
    dims = [at.number("Q", f"dim {i} of {tensor}") for i in range(rank)]
    elements = math.prod(dims)
    if not 1 <= elements <= INT64_MAX:
        raise at.wrong(f"dims of {tensor}", f"are {dims}", "dims from 1, with a product below 2**63", first)
    begin = at.position
    number = at.number("I", f"type of {tensor}")
    if number not in TYPES:
        raise at.wrong(f"type of {tensor}", f"is {number}", ", ".join(f"{n} ({t[0]})" for n, t in TYPES.items()), begin)
    type_, block, size = TYPES[number]
    if dims[0] % block:
        raise at.wrong(f"innermost dim of {tensor}", f"is {dims[0]}", f"multiples of {block}, for {type_}", first)
    begin = at.position
    offset = at.number("Q", f"offset of {tensor}")
    if offset % alignment:
        raise at.wrong(f"offset of {tensor}", f"is {offset}", f"multiples of {alignment}, the alignment", begin)
    return tuple(reversed(dims)), type_, offset, elements // block * size, begin
