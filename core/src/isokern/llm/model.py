"""A language model on a device: the weights of a file, which all of its sessions share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..backend import Device
from ..backend.discovery import device as find_device
from ..dtypes import DType
from ..layout import TensorDesc
from ..process.garbage import hold_collections
from ..status import InvalidArgument
from ..tensors import Tensor, empty, from_blocks, from_numpy, tensor
from .architecture import Config
from .decoder import decoder
from .folder import open_folder
from .gguf import GGUF, GGUFTensor
from .steps import TokenStep
from .tokenizer import Tokenizer

ACTIVATIONS = ("float", "q8_0")


class Model:
    """A GGUF model's weights on a device: in place on a device that uses host memory, else copied there.

    `activations` is the dtype of activations in products with quantized weights: `float`, or `q8_0` (blocks of Q8_0,
    integer products); it is part of what is computed, the same on every device. With `prepack`, weights that a kernel
    prefers in a packed layout are packed when a program first needs them (`prepacked`: those so far). Where weights are
    used in place, the system may then take back the memory of the file's own bytes; elsewhere both are there.
    `suppressed` are the tokens that a text never has, as a bias of minus infinity. Raises InvalidArgument,
    BadTensorShape or BadTensorDtype for a file that is not such a model.
    """

    @hold_collections()
    def __init__(
        self,
        gguf: GGUF,
        *,
        device: str | Device | None = None,
        activations: str = "float",
        prepack: bool = True,
        progress: Callable[[Iterable[GGUFTensor], int], Iterable[GGUFTensor]] | None = None,
    ) -> None:
        if activations not in ACTIVATIONS:
            raise InvalidArgument("Model", f"activations={activations!r}", allowed=", ".join(ACTIVATIONS))
        self.gguf, self.device, self.activations, self.prepack = gguf, find_device(device), activations, prepack
        self.prepacked: set[Tensor] = set()
        self.config = Config.of(gguf)
        self.suppressed = _read_suppressed(gguf, self.config.vocabulary)
        graph = decoder(gguf, self.config, TokenStep(self.config.context, activations=activations)).graph
        dtypes = {v.name: v.spec.dtype for v in graph.parameters if v.name not in self.config.ropes}
        held = [gguf.tensors[name] for name in dtypes]
        each: Iterable[GGUFTensor] = held
        if progress is not None:
            each = progress(held, sum(t.data.nbytes for t in held))
        self.weights = {t.name: _load(t, dtypes[t.name], self.device) for t in each}
        ropes = {n: tensor(r.frequencies, "F32", device=self.device) for n, r in self.config.ropes.items()}
        self.parameters: dict[str, Tensor] = {**ropes, **self.weights}

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Model:
        """Return the model of a GGUF file, or of a Hugging Face folder; `options` as for `Model`."""
        return cls(open_folder(path) if os.path.isdir(path) else GGUF.open(path), **options)

    def tokenizer(self) -> Tokenizer:
        """Return the file's tokenizer, whose tokens are those of the embedding table."""
        found = Tokenizer.from_gguf(self.gguf)
        if len(found) != self.config.vocabulary:
            raise InvalidArgument(
                "GGUF",
                f"the tokenizer has {len(found)} tokens",
                allowed=f"{self.config.vocabulary}, the rows of token_embd.weight",
            )
        return found

    @property
    def nbytes(self) -> int:
        """The bytes of all weights."""
        return sum(t.desc.nbytes for t in self.weights.values())

    @property
    def prepacked_bytes(self) -> int:
        """The bytes of the prepacked weights so far."""
        return sum(t.desc.nbytes for t in self.prepacked)

    @property
    def read_bytes(self) -> int:
        """The bytes of weights that a step of one token reads.

        That is all of them except tables of embeddings, unless one is the output matrix as well, and of experts those
        that a token uses.
        """
        experts, total = self.config.experts, 0.0
        for name, weight in self.weights.items():
            if name == "position_embd.weight" or (name == "token_embd.weight" and "output.weight" in self.weights):
                continue
            share = experts.used / experts.count if experts and "_exps." in name else 1
            total += weight.desc.nbytes * share
        return int(total)


def _read_suppressed(gguf: GGUF, vocabulary: int) -> dict[int, float]:
    """Return the bias of the tokens that the file suppresses; those that the vocabulary has not are passed over."""
    key = "tokenizer.ggml.suppress_tokens"
    tokens = gguf.metadata.get(key, np.zeros(0, np.int32))
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu":
        raise InvalidArgument("GGUF", f"{key} is of type {type(tokens).__name__}", allowed="an array of integers")
    return {int(token): -np.inf for token in tokens if 0 <= token < vocabulary}


def _load(held: GGUFTensor, dtype: DType, device: Device) -> Tensor:
    """Return a tensor of the file as a parameter of a dtype; norms and biases are computed in F32."""
    element = held.dtype
    if element.block == 1:
        if device.memory.wraps and element is dtype and len(held.shape) > 1:
            return Tensor(TensorDesc(element, held.shape), from_numpy(held.array, device=device).buffer)
        return tensor(held.array, dtype, device=device)
    raw = held.data.reshape(*held.shape[:-1], element.nbytes(held.shape[-1]))
    if device.memory.wraps:
        made = Tensor(TensorDesc(element, held.shape), from_blocks(raw, element, device=device).buffer)
        made.buffer.when_packed = held.drop_pages
        return made
    made = empty(held.shape, element, device=device)
    made.raw.copy_from(raw)
    return made
