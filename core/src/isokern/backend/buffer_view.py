"""A layout in a buffer: the part of a tensor that backends, DLPack and descriptors work on."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from functools import lru_cache
from typing import TypeVar

from ..dtypes import DType
from ..layout import TensorDesc
from ..status import BadTensorStrides, InvalidArgument
from .memory import Buffer, Memory, Place

View = TypeVar("View", bound="BufferView")
VIEWS = 1 << 14  # the most views that are kept, of all tensors
_NONE: dict[Hashable, Facts] = {}  # shared by those that have no views
_views: deque[tuple[Facts, Hashable]] = deque()  # whose they are, and their keys, the oldest first


class Facts:
    """The facts by which a descriptor compares a tensor: its description, and the memory that it is in.

    Nearly always (`facts_of`) equal facts are one object, so that calls compare identities; `same` says it for sure.
    `extent` are the first byte of the buffer that it touches and one past the last, `views` the facts of views that
    were asked for, by what they were asked for.
    """

    __slots__ = ("desc", "extent", "memory", "views")

    def __init__(self, desc: TensorDesc, memory: Memory) -> None:
        self.desc, self.memory, self.extent = desc, memory, desc.byte_range
        self.views: dict[Hashable, Facts] = _NONE

    def add_view(self, key: Hashable, desc: TensorDesc) -> Facts:
        """Keep the description of a view under a key; the oldest are forgotten when there are many."""
        views = self.views
        if views is _NONE:
            views = self.views = {}
        found = views[key] = facts_of(desc, self.memory)
        _views.append((self, key))
        while len(_views) > VIEWS:
            of, oldest = _views.popleft()
            of.views.pop(oldest, None)
        return found

    def same(self, other: Facts | None) -> bool:
        """Return whether both say the same."""
        return self is other or (other is not None and self.memory is other.memory and self.desc == other.desc)


@lru_cache(maxsize=1 << 16)
def facts_of(desc: TensorDesc, memory: Memory) -> Facts:
    """Return the facts of a tensor: one object for equal ones, while it is among the last that were asked for."""
    return Facts(desc, memory)


class BufferView:
    """Elements of `buffer` laid out as `desc` says: all that a backend sees of a tensor.

    Immutable. `span` is the range of addresses that it touches; `facts` is what a descriptor compares a tensor by.
    """

    __slots__ = ("__weakref__", "buffer", "desc", "facts", "span")

    def __init__(self, desc: TensorDesc, buffer: Buffer) -> None:
        if desc.__class__ is not TensorDesc or not isinstance(buffer, Buffer):
            given = f"{type(desc).__name__} and {type(buffer).__name__}"
            raise InvalidArgument(type(self).__name__, f"given {given}", allowed="a TensorDesc and a Buffer")
        facts = facts_of(desc, buffer.memory)
        low, high = facts.extent
        if high > buffer.nbytes or low < 0:
            raise BadTensorStrides(
                type(self).__name__,
                f"{desc} reaches byte {high} of a buffer of {buffer.nbytes}",
                allowed=f"up to {buffer.nbytes}",
            )
        itemsize = desc.dtype.alignment
        if buffer.address % itemsize and desc.numel:
            raise BadTensorStrides(
                type(self).__name__,
                f"{desc} over an address that {itemsize} does not divide",
                hint="copy it: np.require(a, requirements='A')",
            )
        self.desc, self.buffer, self.facts = desc, buffer, facts
        self.span = (buffer.address + low, buffer.address + high)

    @classmethod
    def over(cls: type[View], buffer: Buffer, facts: Facts, nbytes: int) -> View:
        """Return the whole of new memory as the tensor that `facts` says, dense and of `nbytes`, without a check."""
        made = cls.__new__(cls)
        made.desc, made.buffer, made.facts = facts.desc, buffer, facts
        made.span = (buffer.address, buffer.address + nbytes)
        return made

    @property
    def device(self) -> Place:
        """The device that the memory is on."""
        return self.buffer.device

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.desc.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The dims."""
        return self.desc.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in elements."""
        return self.desc.strides

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return self.desc.ndim

    def __repr__(self) -> str:
        return f"<tensor {self.desc} on {self.device.name}>"
