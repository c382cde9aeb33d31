"""Language models: GGUF files, their tokenizers, and what runs them.

`pip install isokern[llm]` brings what tokenizers and chat templates need.
"""

from .chat import Chat
from .generate import Generation, negative_log_likelihood, text, tokens
from .gguf import GGUF, GGUFTensor
from .kv_cache import KVCache
from .model import Model, Session
from .steps import Sampling
from .tokenizer import TextStream, Tokenizer

__all__ = [
    "GGUF",
    "Chat",
    "GGUFTensor",
    "Generation",
    "KVCache",
    "Model",
    "Sampling",
    "Session",
    "TextStream",
    "Tokenizer",
    "negative_log_likelihood",
    "text",
    "tokens",
]
