"""Launches: which entries of a kernel file run for a call, how often, and with what.

A kernel file's launches are written in one of two places. Where a few lines say it, they are a comment at the head of
the file, in a small closed language (`launch_block.py`). All others are Python, in a file beside the kernel that is
called `<stem>_launch.py`, which may also launch entries of the files that the kernel file includes:

    def launch(call: Call) -> None:
        t = call.tensors("y", "x")
        rows = t.y.shape[0]
        if t.y.shape[-1] > 4096:
            call.refuse("rows longer than 4096")
        call.workspace(8 * rows)
        call.launch("softmax", groups=rows, local=128, UNROLL=4, rows=rows)

The functions below `Call` are what both languages know beside Python's own.
"""

from __future__ import annotations

import importlib.util
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from ..cabi.plan import Plan
from ..declare.conversion import convert
from ..declare.normal_form import coalesce as merge_dims
from ..dtypes import UNSIGNED, DType
from ..layout import TensorDesc
from .traits import Traits

PIECE = 4096  # elements of a line that a group moves (place.h)


@dataclass(frozen=True)
class LaunchRequest:
    """One launch of an entry, as the kernel file asks for it.

    `tensors` are (name, position in the plan's table, the description that the kernel is given); of those that `slim`
    names, the kernel is given offset and strides alone. `single` launches run groups of one item because the kernel
    file asks for it: an item does much.
    """

    entry: str
    groups: int
    local: int
    items: int | None
    defines: tuple[tuple[str, Any], ...]
    scalars: tuple[tuple[str, int | tuple[int, ...]], ...]
    tensors: tuple[tuple[str, int, TensorDesc], ...]
    aliased: bool | None = None
    slim: tuple[str, ...] = ()
    single: bool = False


@dataclass(frozen=True)
class LaunchList:
    """The launches of a plan in order and their workspace in bytes, or why the kernel file declines the plan."""

    launches: tuple[LaunchRequest, ...] = ()
    workspace: int = 0
    refusal: str | None = None


class Refused(Exception):
    """Raised by `Call.refuse`; the text is the reason."""


class Call:
    """A plan on a device, as launch code sees it, and the launches that it has asked for so far.

    `op` is the operator's name, `attrs` has its attributes, `device` the traits of the device.
    """

    def __init__(self, plan: Plan, traits: Traits, entries: frozenset[str]) -> None:
        self.op, self.device = plan.operator.name, traits
        self.attrs = SimpleNamespace(**plan.attrs)
        self.launches: list[LaunchRequest] = []
        self.nbytes = 0
        self._plan, self._entries = plan, entries
        self._positions: dict[str, int] = {}
        self._variadic = ""
        self._tensors = SimpleNamespace()

    def tensors(self, *names: str) -> Any:
        """The plan's tensors as attributes, called by `names` in order, or as in the signature where none are given.

        A name with * is the list of all the rest. Absent tensors are None. An attribute that is set to another
        description, perhaps of another dtype of its size (`bits`), is given to later launches so; None leaves it out.
        """
        if not names:
            operands = (*self._plan.operator.signature.outputs, *self._plan.operator.signature.inputs)
            names = tuple(f"*{o.name}" if o.variadic else o.name for o in operands)
        table = self._plan.table
        for i, name in enumerate(names):
            if name.startswith("*"):
                self._variadic = name[1:]
                self._positions[name[1:]] = i
                setattr(self._tensors, name[1:], list(table[i:]))
                continue
            desc = table[i] if i < len(table) else None
            setattr(self._tensors, name, desc)
            if desc is not None:
                self._positions[name] = i
        return self._tensors

    def refuse(self, reason: str) -> NoReturn:
        """Decline the plan: another variant of the operator runs it."""
        raise Refused(reason)

    def workspace(self, nbytes: int) -> None:
        """Book scratch memory; of several amounts the largest counts."""
        self.nbytes = max(self.nbytes, int(nbytes))

    def launch(
        self,
        entry: str,
        *,
        items: int | None = None,
        groups: int = 0,
        local: int = 0,
        aliased: bool | None = None,
        each: tuple[str, int] | None = None,
        all: str = "",
        **values: Any,
    ) -> None:
        """Launch an entry of the kernel file, unless there is nothing to do.

        `items` are independent items without barriers, rounded up to whole groups: the kernel compares with `p.items`.
        `groups` are work-groups that may use barriers, of at most `local` items (a power of two; the device may make it
        less: IK_GROUP). With `aliased` the launch is made only where the first output shares memory with the first
        input (True), or only where it does not (False). `each` = (name, index) calls one tensor of the variadic operand
        `name`; with `all` = name the launch knows them all as name0, name1, …, which have the first one's shape, so
        that the kernel is given offset and strides alone. `values` in upper case are macros for the compiler; those
        that are called as a tensor replace its description for this launch; all others are integers, or lists of at
        most 8, among the kernel's parameters.
        """
        if entry not in self._entries:
            raise ValueError(f"{entry} is launched, which is no IK_ENTRY of the file")
        positions, known = dict(self._positions), dict(vars(self._tensors))
        slim: tuple[str, ...] = ()
        if each is not None:
            name, index = each
            positions[name] = positions.pop(self._variadic) + index
            known[name] = vars(self._tensors)[self._variadic][index]
        if all:
            first, tensors = positions.pop(self._variadic), vars(self._tensors)[self._variadic]
            slim = tuple(f"{all}{i}" for i in range(len(tensors)))
            positions |= {name: first + i for i, name in enumerate(slim)}
            known |= dict(zip(slim, tensors, strict=True))
        known |= {n: v for n, v in values.items() if n in positions}
        if items is not None:
            size = self.device.items
            count = -(-int(items) // size)
        else:
            size, count = min(int(local), self.device.group), int(groups)
        if count <= 0:
            return
        defines = tuple((n, v) for n, v in values.items() if n.isupper())
        scalars = [
            (n, int(v) if hasattr(v, "__index__") else tuple(int(i) for i in v))
            for n, v in values.items()
            if n not in positions and not n.isupper()
        ]
        if items is not None:
            scalars.append(("items", int(items)))
        present = tuple((n, i, d) for n, i in positions.items() if isinstance(d := known.get(n), TensorDesc))
        slim = tuple(n for n, _, _ in present if n in slim)
        single = items is None and int(local) == 1
        number = None if items is None else int(items)
        self.launches.append(
            LaunchRequest(entry, count, size, number, defines, tuple(scalars), present, aliased, slim, single)
        )


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def tensor(x: TensorDesc, shape: Sequence[int], strides: Sequence[int], offset: int) -> TensorDesc:
    """Another layout in the memory of x."""
    return TensorDesc(x.dtype, shape, strides, offset)


def coalesce(tensors: Sequence[TensorDesc], keep: int = 0) -> list[TensorDesc]:
    """Tensors of one shape with all dims but the last `keep` ordered and merged; see `declare/normal_form.py`."""
    return [d for d in merge_dims(tensors, keep) if d is not None]


def bits(x: TensorDesc) -> TensorDesc:
    """x as unsigned integers of its size, so that dtypes share programs."""
    unsigned = next(d for d in UNSIGNED if d.itemsize == x.dtype.itemsize)
    return TensorDesc(unsigned, x.shape, x.strides, x.offset)


def convert_bits(value: float, dtype: DType, offset: int = 0) -> int:
    """The bits of a number that is converted as `cast` does, as an integer.

    An offset is added to what integers become, and else to the number.
    """
    whole = dtype.kind in "iu"
    made = convert(np.array(value if whole or offset == 0 else value + offset, np.float64), dtype.numpy)
    bits = int.from_bytes(made.tobytes(), "little", signed=True) + (offset if whole else 0)
    half = 1 << 8 * dtype.itemsize - 1
    return (bits + half) % (2 * half) - half


def pieces(x: TensorDesc) -> int:
    """How many groups move the lines of x (`place.h`)."""
    length = x.shape[-1]
    return x.numel // max(1, length) * -(-length // PIECE)


def pack(tensors: Sequence[TensorDesc | None], most: int) -> int:
    """How many elements of the last dim may be taken at once.

    It is the largest power of two that is `most` bytes or less of each tensor, and at whose multiples the lines of all
    that are dense along that dim begin and end (a single line may end anywhere). Tensors that repeat one element along
    it count by their size alone. 1 where the last dim has another stride.
    """
    given = [t for t in tensors if t is not None]
    lines = [t for t in given if t.strides[-1] != 0]
    marks = [n for t in lines for n in (t.offset, *t.strides[:-1], *(t.shape[-1:] if t.ndim > 1 else ()))]
    count = most // max(t.dtype.itemsize for t in given)
    while count > 1 and (any(n % count for n in marks) or any(t.strides[-1] != 1 for t in lines)):
        count //= 2
    return max(1, count)


def whole_pack(tensors: Sequence[TensorDesc | None]) -> int:
    """How many elements are 16 bytes of the largest element; 0 where not all lines can be cut into that (`pack`)."""
    takes = 16 // max(t.dtype.itemsize for t in tensors if t is not None)
    return takes if pack(tensors, 16) == takes else 0


def count_parts(wanted: int, tasks: int, most: int) -> int:
    """How many parts each task is cut into, at least 1 and at most `most`, so that about `wanted` groups have work."""
    return max(1, min(ceil_div(wanted, max(1, tasks)), most))


class Launches(ABC):
    """What a kernel file launches for a plan; `books_workspace` says whether it may book scratch memory.

    `text` is the file with its includes.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.books_workspace = "workspace" in re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
        self.entries = frozenset(re.findall(r"^IK_ENTRY\((\w+)\)", text, re.M))

    @abstractmethod
    def run(self, call: Call) -> None:
        """Ask the call for its launches."""

    def choose(self, plan: Plan, traits: Traits) -> LaunchList:
        """The launches for a plan on a device with these traits."""
        call = Call(plan, traits, self.entries)
        try:
            self.run(call)
        except Refused as reason:
            return LaunchList(refusal=str(reason))
        if call.nbytes and not self.books_workspace:
            raise ValueError(f"{self.path}: scratch memory is booked, and the file never names `workspace`")
        return LaunchList(tuple(call.launches), call.nbytes)


class PythonLaunches(Launches):
    """The launches that the Python file beside a kernel file asks for."""

    def __init__(self, path: Path, text: str, module: Path) -> None:
        super().__init__(path, text)
        spec = importlib.util.spec_from_file_location(f"isokern_launches.{path.parent.name}.{module.stem}", module)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        self._launch: Callable[[Call], None] = loaded.launch

    def run(self, call: Call) -> None:
        """Ask the call for its launches."""
        self._launch(call)


def launch_file(path: Path) -> Path:
    """The Python file beside a kernel file, which may have none."""
    return path.with_name(f"{path.stem}_launch.py")
