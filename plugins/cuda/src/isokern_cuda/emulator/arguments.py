"""The arguments of a kernel on the command line: numbers, and arrays from .npy files and into them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isokern.dtypes import ALL
from isokern.status import InvalidArgument

ALLOWED = (
    "a number, null, x.npy, x.npy:saved.npy, float32[8,4]:saved.npy, zeros:float32[8,4]:saved.npy, or the name of"
    " another argument, for the same array"
)
_DTYPES = {d.name: d.numpy for d in ALL if d.numpy is not None and d.numpy.isbuiltin == 1} | {"BF16": np.dtype("u2")}


@dataclass
class Argument:
    """One argument: a number, an array, null, or the array of another argument."""

    label: str  # the parameter's name, or "argument 1"
    text: str
    number: int | float | None = None
    array: np.ndarray[Any, Any] | None = None
    initialised: bool = True
    save: str = ""
    same: str = ""

    def line(self, folder: Path, arguments: Sequence[Argument], compared: bool) -> str:
        """Return the line of the launch's description; writes an array to a file in the folder."""
        if self.number is not None:
            kind = "int" if isinstance(self.number, int) and -(1 << 63) <= self.number < 1 << 64 else "real"
            return f"{kind}\t{self.text}\t{self.number if kind == 'int' else float(self.text)}"
        if self.same:
            return f"same\t{self.text}\t{[a.label for a in arguments].index(self.same)}"
        if self.array is None:
            return f"null\t{self.text}"
        self.file(folder).write_bytes(self.array.tobytes())
        kind = f"{self.array.dtype.kind}{self.array.dtype.itemsize}"
        flags = f"{int(self.initialised)}\t{int(bool(self.save) or compared)}"
        return f"array\t{self.text}\t{self.file(folder)}\t{kind}\t{flags}\t{self.label}"

    def file(self, folder: Path) -> Path:
        """Return the file through which the array reaches the launch, and comes back."""
        return folder / f"{re.sub(r'[^0-9A-Za-z]', '_', self.label)}.bytes"

    def result(self, folder: Path) -> np.ndarray[Any, Any]:
        """Return the array after the launch."""
        assert self.array is not None
        flat = np.frombuffer(self.file(folder).read_bytes(), self.array.dtype)
        array: np.ndarray[Any, Any] = flat.reshape(self.array.shape)
        return array


def parse(texts: Sequence[str], parameters: Sequence[str]) -> list[Argument]:
    """Return the arguments in the order of the kernel's parameters; `NAME=` names the parameter."""
    given: dict[str, Argument] = {}
    unnamed = 0
    for text in texts:
        named = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text, re.S)
        if named and parameters and named[1] not in parameters:
            raise InvalidArgument("run", f"argument {text!r}", allowed=f"the kernel's {', '.join(parameters)}")
        position = unnamed
        unnamed += not named
        label = (
            named[1] if named else parameters[position] if position < len(parameters) else f"argument {position + 1}"
        )
        if label in given:
            raise InvalidArgument("run", f"argument {text!r}: {label} is given twice", hint="give each once, in order")
        given[label] = _parse_value(label, named[2] if named else text, parameters)
    if parameters and {*given} != {*parameters}:
        missing = ", ".join(p for p in parameters if p not in given)
        given_too = ", ".join(g for g in given if g not in parameters)
        what = f"{missing} is missing" if missing else f"{given_too} is too much"
        raise InvalidArgument("run", f"{len(given)} arguments: {what}", allowed=f"the kernel's {', '.join(parameters)}")
    arguments = [given[p] for p in parameters] if parameters else list(given.values())
    for argument in arguments:
        if argument.same and (argument.same not in given or given[argument.same].array is None):
            raise InvalidArgument("run", f"argument {argument.text!r}: {argument.same} is no array", allowed=ALLOWED)
    # An argument that names another comes behind it in the description; the array's own argument must be the first
    for argument in arguments:
        if argument.same and arguments.index(given[argument.same]) > arguments.index(argument):
            hint = f"give the array to {argument.label}, and {argument.same}={argument.label}"
            raise InvalidArgument("run", f"argument {argument.text!r} names a later one", hint=hint)
    return arguments


def _parse_value(label: str, text: str, parameters: Sequence[str]) -> Argument:
    if text == "null":
        return Argument(label, text)
    for number in (int, float):
        try:
            return Argument(label, text, number=number(text))
        except ValueError:
            continue
    if text in parameters and text != label:
        return Argument(label, text, same=text)
    zeros = text.startswith("zeros:")
    source, colon, save = text.removeprefix("zeros:").partition(":")
    fresh = re.fullmatch(r"(\w+)\[([\d,]*)\]", source)
    try:
        if "\t" in text or "\n" in text:
            raise ValueError("it has a tab or a line's end")
        if colon and not (save.endswith(".npy") and Path(save).parent.is_dir()):
            raise ValueError(f"{save!r} is no .npy file in a folder that exists")
        if fresh:
            shape = tuple(int(d) for d in fresh[2].split(",") if d)
            dtype = _DTYPES.get(fresh[1]) or np.dtype(fresh[1])
            # Memory that nobody wrote reads as NaN
            content = (b"\0" if zeros else b"\xff") * (math.prod(shape) * dtype.itemsize)
            array = np.frombuffer(content, dtype).reshape(shape)
        elif zeros:
            raise ValueError("zeros: stands before a type and a shape")
        else:
            array = np.load(source)
        if not isinstance(array, np.ndarray) or array.dtype.hasobject or not array.dtype.isnative:
            raise ValueError("it is not one array of numbers in this machine's byte order")
    except (OSError, EOFError, ValueError, TypeError, MemoryError) as error:
        raise InvalidArgument("run", f"argument {text!r}: {error}", allowed=ALLOWED) from None
    return Argument(label, text, array=np.asarray(array, order="C"), initialised=not fresh or zeros, save=save)
