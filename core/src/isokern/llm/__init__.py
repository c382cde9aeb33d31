"""Language models: GGUF files, their tokenizers, and what runs them.

`pip install isokern[llm]` brings what tokenizers and chat templates need.
"""

from .chat import Chat, Template
from .engine import Engine
from .generate import Generation, text, tokens
from .gguf import GGUF, GGUFTensor
from .grammar import Grammar
from .kv_cache import KVCache
from .model import Model
from .request import Request
from .sampling import Sampling
from .session import Session
from .statistics import negative_log_likelihood
from .tokenizer import TextStream, Tokenizer

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
    "Tokenizer",
    "negative_log_likelihood",
    "text",
    "tokens",
]
