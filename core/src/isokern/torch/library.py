"""The `torch` package, or a typed error that says how to install it."""

from __future__ import annotations

from typing import Any

from ..status import InvalidArgument

try:
    import torch
    import torch.export
    import torch.fx
    import torch.utils._pytree
except ImportError:
    raise InvalidArgument("torch", "the library is not installed", hint="pip install 'isokern[torch]'") from None

library: Any = torch  # whose own types are not where a type checker runs

__all__ = ["library"]
