"""A model of the Llama family on a device, and sessions that run it through bound and captured descriptors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backend import Device, Recording
from ..buffer import Buffer
from ..descriptor import create
from ..dtypes import DType
from ..plugins import device as find_device
from ..status import InvalidArgument
from ..tensors import Tensor, empty, from_blocks, from_numpy, tensor
from .architecture import Config, tensors_of
from .gguf import GGUF, GGUFTensor
from .kv_cache import KVCache
from .tokenizer import Tokenizer

PREFILL = 64  # tokens of a prompt that are computed at once
HISTORY = 64  # tokens that a repetition penalty looks back on
ACTIVATIONS = ("float", "q8_0")


class Model:
    """A GGUF model's weights on a device: in place on a device that uses host memory, else copied there.

    `activation` is how activations enter products with quantised weights: `float`, or `q8_0` (blocks of Q8_0, integer products); it is part of
    what is computed, the same on every device. With `prepare`, weights that a kernel would rather read in a form of its own are brought into it when
    a program first needs them (`prepared`: those so far); they take memory beside the weights as they are. Raises InvalidArgument, BadTensorShape or BadTensorDtype for a file that is not such a model.
    """

    def __init__(
        self,
        gguf: GGUF,
        *,
        device: str | Device | None = None,
        activation: str = "float",
        prepare: bool = False,
        progress: Callable[[Iterable[GGUFTensor], int], Iterable[GGUFTensor]] | None = None,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise InvalidArgument("Model", f"activation={activation!r}", allowed=", ".join(ACTIVATIONS))
        self.gguf, self.device, self.activation, self.prepare = gguf, find_device(device), activation, prepare
        self.prepared: set[Tensor] = set()
        self.config = Config.of(gguf)
        held = tensors_of(gguf, self.config)
        each: Iterable[GGUFTensor] = held.values()
        if progress is not None:
            each = progress(each, sum(t.data.nbytes for t in held.values()))
        self.weights = {t.name: _load(t, self.device) for t in each}
        self.table = self.weights["token_embd.weight"]
        self.output = self.weights.get("output.weight", self.table)
        self.frequencies = tensor(self.config.frequencies, "F32", device=self.device)

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Model:
        """The model of a GGUF file; `options` as for `Model`."""
        return cls(GGUF.open(path), **options)

    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer, whose tokens are those of the embedding table."""
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
        """Bytes of all weights."""
        return sum(t.desc.nbytes for t in self.weights.values())

    @property
    def prepared_bytes(self) -> int:
        """Bytes of the prepared weights so far."""
        return sum(t.desc.nbytes for t in self.prepared)

    @property
    def read_bytes(self) -> int:
        """Bytes of weights that a step of one token reads: all but the embedding table, unless that is the output as well."""
        return self.nbytes - (0 if self.output is self.table else self.table.desc.nbytes)


def _load(held: GGUFTensor, device: Device) -> Tensor:
    element = held.dtype
    if element.block == 1:
        vector = len(held.shape) == 1
        if device.memory.wraps and not vector:
            return from_numpy(held.array, device=device)
        return tensor(held.array, "F32" if vector else element, device=device)  # norms and biases meet F32
    raw = held.data.reshape(*held.shape[:-1], element.nbytes(held.shape[-1]))
    if device.memory.wraps:
        return from_blocks(raw, element, device=device)
    made = empty(held.shape, element, device=device)
    made.raw.copy_from(raw)
    return made


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn: the attributes of `random_sample`."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    penalty: float = 1.0
    seed: int = 0


class Session:
    """One sequence of a model: a cache for `length` positions, and programs bound to it.

    A program is for a number of tokens at once; it is captured, so that running it is one call. `dtype` is the cache's.
    """

    def __init__(self, model: Model, length: int | None = None, dtype: object = "F16") -> None:
        self.model, self.device, c = model, model.device, model.config
        self.length = c.context if length is None else length
        self.caches = [
            KVCache(self.length, c.kv_heads, c.head_dim, dtype, value_dim=c.value_dim, device=self.device)
            for _ in range(c.layers)
        ]
        self._programs: dict[Any, Program] = {}

    @property
    def position(self) -> int:
        """Tokens that are in the cache."""
        return self.caches[0].current_pos

    @property
    def cache_bytes(self) -> int:
        """Bytes of all caches."""
        return sum(c.capacity_bytes() for c in self.caches)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of activations and workspaces of all programs."""
        return sum(p.nbytes for p in self._programs.values())

    def clear(self) -> None:
        """Begin again: the cache is empty."""
        for cache in self.caches:
            cache.clear()

    def program(self, count: int, every: bool = False, sampling: Sampling | None = None) -> Program:
        """The program for `count` tokens: logits of the last one, or of every one; with `sampling` it also draws the next token."""
        key = (count, every, sampling)
        if key not in self._programs:
            self._programs[key] = Program(self, count, every, sampling)
        return self._programs[key]

    def logits(self, tokens: Sequence[int], every: bool = False) -> npt.NDArray[np.float32]:
        """Append tokens to the sequence: float32 logits [1, vocabulary] after the last, or [tokens, vocabulary] after each."""
        self.check(tokens)
        rows = []
        for at in range(0, len(tokens), PREFILL):
            part = tokens[at : at + PREFILL]
            program = self.program(len(part), every)
            program.run(part)
            if every or at + PREFILL >= len(tokens):
                rows.append(np.array(program.logits.numpy(), np.float32))
        return np.concatenate(rows)

    def check(self, tokens: Sequence[int], more: int = 0) -> None:
        """InvalidArgument unless there are tokens, all of the vocabulary, and room for them and `more`."""
        if not len(tokens):
            raise InvalidArgument("prompt", "it has no tokens", allowed="at least one")
        size = self.model.config.vocabulary
        wrong = next((t for t in tokens if not 0 <= t < size), None)
        if wrong is not None:
            raise InvalidArgument("prompt", f"token {wrong}", allowed=f"0 to {size - 1}, the vocabulary")
        if self.position + len(tokens) + more > self.length:
            given = f"{len(tokens)} tokens" + (f" and {more} more" if more else "") + f" after {self.position}"
            raise InvalidArgument(
                "prompt", given, allowed=f"{self.length} in all, the length of the cache", hint="give it a longer cache"
            )


class Program:
    """The operators of a model for `count` tokens at the end of a session's sequence, described, bound and captured once.

    `tokens` I64 [count] goes in, `logits` F32 [1 or count, vocabulary] comes out. With sampling, `count` being 1, the token that is drawn is
    left in `tokens`, and the counters go on: running it again is the next step.
    """

    def __init__(self, session: Session, count: int, every: bool, sampling: Sampling | None) -> None:
        self.session, self.count, self.device = session, count, session.device
        self.sampling = sampling
        self.nbytes = 0
        self._calls: list[Any] = []
        self._scratch: list[tuple[Any, Sequence[Tensor | None], Sequence[Tensor]]] = []
        self.tokens = self._make((count,), "I64")
        self._positions, self._start, self._lengths = (self._make((n,), "I64") for n in (count, 1, 1))
        self._step, self._one = self._make((1,), "I64"), self._make((1,), "I64")
        self._history = self._make((1, HISTORY), "I64")
        self.logits = self._build(every)
        if sampling is not None:
            self._sample(sampling)
        self.recording = self._bind()

    def run(self, tokens: Sequence[int] | None = None) -> None:
        """Append `tokens` to the sequence and compute; without them, what the last run left is the token. Asynchronous where the device is."""
        start, *_ = [cache.take(self.count) for cache in self.session.caches]
        if tokens is not None:
            self.tokens.copy_from(np.asarray(tokens, np.int64))
            self._positions.copy_from(np.arange(start, start + self.count))
            self._start.copy_from(np.array([start]))
            self._lengths.copy_from(np.array([start + self.count]))
            self._step.copy_from(np.array([start + self.count]))
            self._one.copy_from(np.array([1]))
        self.recording.replay()

    def remember(self, tokens: Sequence[int]) -> None:
        """The tokens that a repetition penalty looks back on: the last `HISTORY`."""
        last = list(tokens)[-HISTORY:]
        self._history.copy_from(np.array([[-1] * (HISTORY - len(last)) + last]))

    # The operators

    def _make(self, shape: Sequence[int], element: object = "F32") -> Tensor:
        made = empty(shape, element, device=self.device)
        self.nbytes += made.desc.nbytes
        return made

    def _call(self, operator: str, inputs: Sequence[Tensor | None], *outputs: Tensor, **attrs: Any) -> None:
        descs = [None if t is None else t.desc for t in inputs]
        descriptor = create(operator, descs, [o.desc for o in outputs], device=self.device, **attrs)
        self._scratch.append((descriptor, inputs, outputs))

    def _product(self, x: Tensor, w: Tensor, y: Tensor) -> None:
        model = self.session.model
        activation = model.activation if w.dtype.block > 1 else "float"
        descs, names = [x.desc, w.desc], ["w"] if model.prepare else []
        made = create("matmul_transposed", descs, [y.desc], device=self.device, prepared=names, activation=activation)
        if made.forms:
            w = made.prepare("w", w)
            model.prepared.add(w)
        self._scratch.append((made, [x, w], [y]))

    def _build(self, every: bool) -> Tensor:
        session, model, n = self.session, self.session.model, self.count
        c, weights = model.config, model.weights
        held, x, delta = (self._make((n, c.width)) for _ in range(3))
        q, mixed = self._make((n, c.heads * c.head_dim)), self._make((n, c.heads * c.value_dim))
        k, v = self._make((n, c.kv_heads * c.head_dim)), self._make((n, c.kv_heads * c.value_dim))
        gate, up = (self._make((n, c.inner)) for _ in range(2))
        self._call("embedding", [model.table, self.tokens], held)
        for layer, cache in enumerate(session.caches):
            own = {name.split(".", 2)[2]: t for name, t in weights.items() if name.startswith(f"blk.{layer}.")}
            if layer == 0:
                self._call("rms_norm", [held, own["attn_norm.weight"]], x, eps=c.epsilon)
            else:
                self._call("add_rms_norm", [delta, held, own["attn_norm.weight"]], x, held, eps=c.epsilon)
            for name, to, heads in (("q", q, c.heads), ("k", k, c.kv_heads), ("v", v, c.kv_heads)):
                self._product(x, own[f"attn_{name}.weight"], to)
                if c.variant.biases:
                    self._call("bias_add", [to, own[f"attn_{name}.bias"]], to)
                if name == "v":
                    continue
                turned = to.reshape(1, n, heads, c.head_dim)
                if c.variant.head_norms:
                    self._call("rms_norm", [turned, own[f"attn_{name}_norm.weight"]], turned, eps=c.epsilon)
                self._call(
                    "rope",
                    [turned, self._positions, model.frequencies],
                    turned,
                    pairing=c.variant.pairing,
                    dims=c.rotated,
                    magnitude=c.magnitude,
                )
            keys, values = k.reshape(1, n, c.kv_heads, c.head_dim), v.reshape(1, n, c.kv_heads, c.value_dim)
            self._call("cache_update", [keys, self._start], cache.keys)
            self._call("cache_update", [values, self._start], cache.values)
            queries, y = q.reshape(1, n, c.heads, c.head_dim), mixed.reshape(1, n, c.heads, c.value_dim)
            self._call("attention", [queries, cache.keys, cache.values, None, self._lengths], y, causal=True)
            self._product(mixed, own["attn_output.weight"], delta)
            self._call("add_rms_norm", [delta, held, own["ffn_norm.weight"]], x, held, eps=c.epsilon)
            self._product(x, own["ffn_gate.weight"], gate)
            self._product(x, own["ffn_up.weight"], up)
            self._call("silu_mul", [gate, up], gate)
            self._product(gate, own["ffn_down.weight"], delta)
        self._call("add_rms_norm", [delta, held, weights["output_norm.weight"]], x, held, eps=c.epsilon)
        last = x if every else x[n - 1 :]
        logits = self._make((last.shape[0], c.vocabulary))
        self._product(last, model.output, logits)
        return logits

    def _sample(self, sampling: Sampling) -> None:
        given = [self.logits[-1:], self._history if sampling.penalty != 1 else None, self._step]
        self._call(
            "random_sample",
            given,
            self.tokens[-1:],
            seed=sampling.seed,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            penalty=sampling.penalty,
        )
        if self.count == 1:
            for counter in (self._positions, self._start, self._lengths, self._step):
                self._call("add", [counter, self._one], counter)

    def _bind(self) -> Recording:
        """All calls captured, over one workspace: they run one after the other."""
        needs = [d.workspace for d, _, _ in self._scratch if d.workspace.size]
        spaces: dict[tuple[str, int], Buffer] = {}
        for need in needs:
            key = (need.kind, need.alignment)
            size = max(n.size for n in needs if (n.kind, n.alignment) == key)
            if key not in spaces:
                spaces[key] = self.device.memory.alloc(size, kind=need.kind, alignment=need.alignment, empty=True)
                self.nbytes += size
        stream = self.device.default_stream
        with stream.capture() as recording:
            for descriptor, inputs, outputs in self._scratch:
                need = descriptor.workspace
                space = spaces[(need.kind, need.alignment)] if need.size else None
                descriptor.calculate(inputs, outputs, workspace=space, stream=stream)
        return recording


def dtype_text(model: Model) -> str:
    """The element type of most of a model's bytes, for messages."""
    sizes: dict[DType, int] = {}
    for t in model.weights.values():
        sizes[t.dtype] = sizes.get(t.dtype, 0) + t.desc.nbytes
    return max(sizes, key=lambda d: sizes[d]).name
