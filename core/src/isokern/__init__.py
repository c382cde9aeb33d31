"""Isokern: an operator library whose backends are plug-ins.

Describe an operator (`create`), ask how much scratch memory it needs (`workspace_size`), and run it (`calculate`); or
call the eager function of the same name (`isokern.softmax(x)`).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .dtypes import (
    BF16,
    BOOL,
    C64,
    C128,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    TQ2_0,
    U8,
    U16,
    U32,
    U64,
    DType,
    dtype,
)
from .layout import TensorDesc
from .status import (
    BadAttrSchema,
    BadAttrSize,
    BadTensorDtype,
    BadTensorShape,
    BadTensorStrides,
    DeviceNotAvailable,
    InsufficientWorkspace,
    InternalError,
    InvalidArgument,
    IsokernError,
    NotImplementedOnDevice,
    OutOfMemory,
    Status,
)

if TYPE_CHECKING:
    from .backend import current_stream, hookimpl
    from .backend.discovery import backends, device, devices
    from .cabi.get_include import get_include
    from .call.descriptor import Descriptor
    from .eager.create import create
    from .eager.op_call import op_call
    from .tensors import Tensor, empty, from_blocks, from_dlpack, from_numpy, tensor, zeros

# Loaded on first use, so that a plug-in's build can import the declarations with only NumPy installed
_LAZY = {
    "backend": ("current_stream", "hookimpl"),
    "backend.discovery": ("backends", "device", "devices"),
    "cabi.get_include": ("get_include",),
    "call.descriptor": ("Descriptor",),
    "eager.create": ("create",),
    "eager.op_call": ("op_call",),
    "tensors": ("Tensor", "empty", "from_blocks", "from_dlpack", "from_numpy", "tensor", "zeros"),
}
_HOME = {name: module for module, names in _LAZY.items() for name in names}

__all__ = [
    "BF16",
    "BOOL",
    "C64",
    "C128",
    "F8E4M3FN",
    "F8E5M2",
    "F16",
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
    "Q2_K",
    "Q3_K",
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q5_0",
    "Q5_1",
    "Q5_K",
    "Q6_K",
    "Q8_0",
    "TQ2_0",
    "U8",
    "U16",
    "U32",
    "U64",
    "BadAttrSchema",
    "BadAttrSize",
    "BadTensorDtype",
    "BadTensorShape",
    "BadTensorStrides",
    "DType",
    "Descriptor",
    "DeviceNotAvailable",
    "InsufficientWorkspace",
    "InternalError",
    "InvalidArgument",
    "IsokernError",
    "NotImplementedOnDevice",
    "OutOfMemory",
    "Status",
    "Tensor",
    "TensorDesc",
    "backends",
    "create",
    "current_stream",
    "device",
    "devices",
    "dtype",
    "empty",
    "from_blocks",
    "from_dlpack",
    "from_numpy",
    "get_include",
    "hookimpl",
    "op_call",
    "tensor",
    "zeros",
]


def __getattr__(name: str) -> Any:
    if name in ("device", "devices"):
        # Imported now because it is called next, so that the first call does not wait for it
        import_module(".eager.create", __name__)
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    elif not _is_module(name) and _has_function(name):
        value = import_module(".eager.functions", __name__).function(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, and no operator is called that")
    globals()[name] = value
    return value


def _is_module(name: str) -> bool:
    """Return whether a name is a module of the package, which `from isokern import …` asks for before it loads it."""
    return name.isidentifier() and find_spec(f"{__name__}.{name}") is not None


def _has_function(name: str) -> bool:
    from .declare.registry import has
    from .ops.aliases import ALIASES

    return name in ALIASES or has(name)


def _eager_names() -> set[str]:
    from .ops import all_operators
    from .ops.aliases import ALIASES

    return {*ALIASES, *(o.name for o in all_operators())}


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_eager_names()})
