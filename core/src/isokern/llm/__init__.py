"""Language models: GGUF files, their tokenizers, and what runs them.

`pip install isokern[llm]` brings what tokenizers and chat templates need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..process.garbage import hold_collections

if TYPE_CHECKING:
    from .chat import Chat, Template
    from .engine import Engine
    from .generate import Generation, text, tokens
    from .gguf import GGUF, GGUFTensor
    from .grammar import Grammar
    from .kv_cache import KVCache
    from .logprobs import TokenLogprobs
    from .model import Model
    from .request import Request
    from .sampling import Sampling
    from .session import Session
    from .statistics import negative_log_likelihood
    from .tokenizer import TextStream, Tokenizer

# Loaded on first use: a first token waits for what it needs, and not for engines and templates
_LAZY = {
    "chat": ("Chat", "Template"),
    "engine": ("Engine",),
    "generate": ("Generation", "text", "tokens"),
    "gguf": ("GGUF", "GGUFTensor"),
    "grammar": ("Grammar",),
    "kv_cache": ("KVCache",),
    "logprobs": ("TokenLogprobs",),
    "model": ("Model",),
    "request": ("Request",),
    "sampling": ("Sampling",),
    "session": ("Session",),
    "statistics": ("negative_log_likelihood",),
    "tokenizer": ("TextStream", "Tokenizer"),
}
_HOME = {name: module for module, names in _LAZY.items() for name in names}

__all__ = [
    "GGUF",
    "Chat",
    "Engine",
    "GGUFTensor",
    "Generation",
    "Grammar",
    "KVCache",
    "Model",
    "Request",
    "Sampling",
    "Session",
    "Template",
    "TextStream",
    "TokenLogprobs",
    "Tokenizer",
    "negative_log_likelihood",
    "text",
    "tokens",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with hold_collections(staying=True):
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
