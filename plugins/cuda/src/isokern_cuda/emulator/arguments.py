"""The arguments of a kernel on the command line: numbers, and arrays from .npy files and into them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isokern.cli._own_kernels import KINDS, Argument, Array, parse_argument
from isokern.status import InvalidArgument

ALLOWED = f"{KINDS}, or the name of another argument, for the same array"


@dataclass(eq=False)
class KernelArgument(Argument):
    """An argument with its place among the others; it may be the array of another one."""

    label: str = ""  # the parameter's name, or "argument 1"
    same: str = ""  # the label of the argument whose array it is

    def line(self, folder: Path, arguments: Sequence[KernelArgument], compared: bool) -> str:
        """Return the line of the launch's description; writes an array to a file in the folder."""
        if self.number is not None:
            kind = "int" if isinstance(self.number, int) and -(1 << 63) <= self.number < 1 << 64 else "real"
            return f"{kind}\t{self.text}\t{self.number if kind == 'int' else float(self.text)}"
        if self.same:
            return f"same\t{self.text}\t{[a.label for a in arguments].index(self.same)}"
        if self.array is None:
            return f"null\t{self.text}"
        # Memory that nobody has written reads as NaN
        self.file(folder).write_bytes(self.array.tobytes() if self.written else b"\xff" * self.array.nbytes)
        kind = f"{self.array.dtype.kind}{self.array.dtype.itemsize}"
        flags = f"{int(self.written)}\t{int(bool(self.save) or compared)}"
        return f"array\t{self.text}\t{self.file(folder)}\t{kind}\t{flags}\t{self.label}"

    def file(self, folder: Path) -> Path:
        """Return the file through which the array reaches the launch, and comes back."""
        return folder / f"{re.sub(r'[^0-9A-Za-z]', '_', self.label)}.bytes"

    def result(self, folder: Path) -> Array:
        """Return the array after the launch."""
        assert self.array is not None
        flat = np.frombuffer(self.file(folder).read_bytes(), self.array.dtype)
        array: Array = flat.reshape(self.array.shape)
        return array


def parse(texts: Sequence[str], parameters: Sequence[str]) -> list[KernelArgument]:
    """Return the arguments in the order of the kernel's parameters; `NAME=` names the parameter."""
    given: dict[str, KernelArgument] = {}
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


def _parse_value(label: str, text: str, parameters: Sequence[str]) -> KernelArgument:
    if text in parameters and text != label:
        return KernelArgument(text, label=label, same=text)
    if "\t" in text or "\n" in text:
        raise InvalidArgument("run", f"argument {text!r}: it has a tab or a line's end", allowed=ALLOWED)
    return KernelArgument(**vars(parse_argument(text, ALLOWED)), label=label)
