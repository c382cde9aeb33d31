"""The parts that the plug-ins' commands for your own kernels share: the group, and arguments of numbers and arrays."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer
from typer.core import TyperGroup

from ..dtypes import ALL
from ..status import InvalidArgument, IsokernError
from ._output import complain

Array = np.ndarray[Any, Any]
KINDS = "a number, null, x.npy, x.npy:saved.npy, float32[8,4]:saved.npy, or zeros:float32[8,4]:saved.npy"
MAX_SEED = 2**63 - 1  # and a thousand seeds behind it are numbers of 64 bits, too
Define = Annotated[list[str] | None, typer.Option("-D", metavar="NAME[=VALUE]", help="Define a macro; repeatable.")]
Include = Annotated[list[Path] | None, typer.Option("-I", metavar="FOLDER", help="A folder with headers; repeatable.")]
_DTYPES = {d.name: d.numpy for d in ALL if d.numpy is not None and d.numpy.isbuiltin == 1} | {"BF16": np.dtype("u2")}


class KernelCommands(TyperGroup):
    """Commands that print typed errors as one line, and a compiler's messages unchanged."""

    compile_error: ClassVar[type[Exception]]  # what the plug-in raises with a compiler's messages

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; exit 2 for the caller's error. A command exits 1 if its kernel fails or breaks a rule."""
        try:
            return super().main(*args, **options)
        except self.compile_error as error:
            typer.echo(str(error), err=True)
        except IsokernError as error:
            complain(str(error))
        sys.exit(2)


@dataclass(eq=False)
class Argument:
    """One argument of a kernel: a number, an array that may be saved after the launch, or null."""

    text: str
    number: int | float | None = None
    array: Array | None = None
    written: bool = True  # False for uninitialized memory
    save: str = ""


def parse_argument(text: str, allowed: str = KINDS) -> Argument:
    """Parse an argument of the command line; raise InvalidArgument, with what is allowed, if it is malformed.

    `3`, `2.5`, `null`, `x.npy` (input), `x.npy:y.npy` (input, saved to y.npy), `float32[8,4]:y.npy` (memory that is not
    has written, saved to y.npy) or `zeros:float32[8,4]:y.npy`.
    """
    if text == "null":
        return Argument(text)
    for number in (int, float):
        try:
            return Argument(text, number=number(text))
        except ValueError:
            continue
    zeros = text.startswith("zeros:")
    source, colon, save = text.removeprefix("zeros:").partition(":")
    fresh = re.fullmatch(r"(\w+)\[([\d,]*)\]", source)
    try:
        if colon and not (save.endswith(".npy") and Path(save).parent.is_dir()):
            raise ValueError(f"{save!r} is no .npy file in a folder that exists")
        if fresh:
            shape = tuple(int(d) for d in fresh[2].split(",") if d)
            dtype = _DTYPES.get(fresh[1]) or np.dtype(fresh[1])
            array = np.zeros(shape, dtype) if zeros else np.empty(shape, dtype)
        elif zeros:
            raise ValueError("zeros: stands before a type and a shape")
        else:
            array = load_array(source)
        if array.dtype.hasobject:
            raise ValueError("its elements are Python's objects")
    except (OSError, ValueError, TypeError, MemoryError) as error:
        raise InvalidArgument("run", f"argument {text!r}: {error}", allowed=allowed) from None
    return Argument(text, array=np.asarray(array, order="C"), written=not fresh or zeros, save=save)


def load_array(path: str) -> Array:
    """Return the array of a .npy file; raise OSError, or ValueError if it holds something else."""
    try:
        array = np.load(path)
    except (EOFError, ValueError):  # what NumPy says then is about pickles
        array = None
    if not isinstance(array, np.ndarray) or array.dtype.hasobject or not array.dtype.isnative:
        raise ValueError("it is no .npy file of one array in this machine's byte order")
    return array


def save_array(path: str, array: Array) -> None:
    """Save an array, and print its path."""
    try:
        np.save(path, array)
    except OSError as error:
        raise InvalidArgument("run", f"{path}: {error.strerror}", allowed="a file that can be written") from None
    typer.echo(f"{path}: {array.dtype}{list(array.shape)}")


def compiler_options(define: Sequence[str] | None, include: Sequence[Path] | None) -> list[str]:
    """Return the compiler's options for macros and folders of headers."""
    for folder in include or []:
        if not folder.is_dir():
            raise InvalidArgument("run", f"-I {folder}: the folder does not exist", allowed="a folder with headers")
    for macro in define or []:
        if not re.fullmatch(r"[A-Za-z_]\w*(=.*)?", macro, re.S):
            raise InvalidArgument("run", f"-D {macro}", allowed="NAME or NAME=VALUE")
    return [*(f"-D{macro}" for macro in define or []), *(f"-I{folder.resolve()}" for folder in include or [])]
