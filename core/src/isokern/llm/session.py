"""Sessions: one sequence of a model each, with its caches and the programs that run over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from ..arguments import integer, is_integer
from ..backend import current_stream
from ..dtypes import dtype as dtype_of
from ..eager import calls
from ..eager.functions import cast
from ..ops import find
from ..status import InvalidArgument, quote
from ..tensors import Tensor, empty, tensor
from .architecture import Config
from .kv_cache import KVCache
from .model import Model
from .program import DecoderProgram
from .recurrent import LayerState
from .sampling import HISTORY, Sampling, check_sampling, pad_history
from .steps import SPAN, TokenStep

DRAWING = 8  # programs of a session that draw: more ways to draw than one has at a time


class Session:
    """One sequence of a model: a cache for `length` positions, and programs over it.

    `state` maps the names that the graph has for the caches' tensors to these tensors. A program is for a number of
    tokens at once; it is captured, so that running it is one call. `dtype` is the cache's; states of models without
    keys are F32. Layers with a window keep little more than it shows (`TokenStep`).
    """

    def __init__(self, model: Model, length: int | None = None, dtype: object = "F16") -> None:
        self.model, self.device, c = model, model.device, model.config
        self.length = c.context if length is None else integer("Session", "length", length, 1)
        if not (c.form.pairing or c.recurrent) and self.length > c.context:
            given = f"length={self.length}"
            raise InvalidArgument("Session", given, allowed=f"up to {c.context}, the positions that the model has")
        self.dtype = dtype_of(dtype)
        self.caches: list[KVCache | LayerState] = []
        self._step = TokenStep(self.length)
        self.state: dict[str, Tensor] = {}
        self.layers = [n for n in range(c.layers) if c.source(n) == n]
        """The layers that have caches, in the order of `caches`."""
        self._near = [self._step.count_kept(c.windows[n]) < self.length for n in self.layers]  # those of windows
        for n in self.layers:
            if c.recurrent:
                state = LayerState(c.recurrent, self.device)
                self.caches.append(state)
                held = state.tensors
            else:
                kept = self._step.count_kept(c.windows[n])
                cache = KVCache(kept, c.kv_heads, c.head_dim, dtype, value_dim=c.value_dim, device=self.device)
                self.caches.append(cache)
                held = {"keys": cache.keys, "values": cache.values}
            self.state |= {f"blk.{n}.{name}": kept for name, kept in held.items()}
        self.dropped = 0
        """How many positions of the text the caches no longer have."""
        self.base = 0
        """The first position that layers have which keep a window."""
        self._rewinds, self.clears = 0, 0
        """How often the sequence began again."""
        self._programs: dict[tuple[int, bool], TokenProgram] = {}
        self._drawing: dict[tuple[int, bool, Sampling], DrawingProgram] = {}  # those that were used last

    @property
    def position(self) -> int:
        """The number of tokens in the cache."""
        return self.caches[0].current_pos + self.base * self._near[0]

    @property
    def end(self) -> tuple[int, int, int]:
        """What stays the same while the sequence ends as it did, whatever is dropped before."""
        return self.clears, self._rewinds, self.position + self.dropped

    @property
    def cache_bytes(self) -> int:
        """The bytes of all caches."""
        return sum(c.capacity_bytes() for c in self.caches)

    @property
    def scratch_bytes(self) -> int:
        """The bytes of activations and workspaces of all programs."""
        return sum(p.nbytes for p in self._programs.values()) + sum(p.nbytes for p in self._drawing.values())

    def clear(self) -> None:
        """Begin again with an empty cache."""
        self.dropped = self.base = 0
        self.clears += 1
        for cache in self.caches:
            cache.clear()

    def fork(self) -> Session:
        """Return another session with the same tokens in its caches, which are copies: nothing is computed again."""
        made = Session(self.model, self.length, self.dtype)
        made.base, made.dropped = self.base, self.dropped
        for cache, other in zip(self.caches, made.caches, strict=True):
            other.current_pos = cache.current_pos
        for name, held in self.state.items():
            calls.call(find("copy"), [held.raw], out=made.state[name].raw)
        return made

    def take(self, n: int, room: int) -> int:
        """Count n positions as stored, for a program that writes up to `room`, and return the first one.

        Layers that keep a window forget the oldest positions if they need the space; the window and SPAN positions
        before it stay. InvalidArgument if the other layers have no space.
        """
        start, window = self.position, max(self.model.config.windows, default=0)
        near = [cache for cache, is_near in zip(self.caches, self._near, strict=True) if is_near]
        if near and start - self.base + room > self._step.count_kept(window):
            gone = start - self.base - (window + SPAN - 1)
            for cache in near:
                assert isinstance(cache, KVCache)
                cache.drop(0, gone)
            self.base += gone
        for cache in self.caches:
            cache.take(n)
        return start

    def rewind(self, position: int) -> int:
        """Forget the tokens from a position on, and return how many are left in the cache.

        All go, and 0 is left, if the state that the tokens before had produced is gone: the states of models without
        keys, and windows that have moved on by more than SPAN positions.
        """
        position = integer("Session.rewind", "position", position, 0, self.position)
        c = self.model.config
        if position == self.position:
            return position
        if c.recurrent or (self.base and position - max(c.windows) + 1 < self.base):
            self.clear()
            return 0
        self._rewinds += 1
        for cache, near in zip(self.caches, self._near, strict=True):
            cache.current_pos = position - self.base * near
        return position

    def drop(self, start: int, n: int) -> None:
        """Forget n positions from `start` on: later ones move to their places, and their keys are rotated back by n.

        What follows is computed as if they had never been, but for what values and deeper layers have seen of them, and
        for what a window shows of the positions before `start`: a layer that keeps a window has only the last of them.
        InvalidArgument if the positions are not in the cache, or the model has learned positions or states, which
        cannot be moved.
        """
        start = integer("Session.drop", "start", start, 0, self.position)
        n = integer("Session.drop", "n", n, 0, self.position - start)
        c = self.model.config
        if not c.form.pairing:
            kind = "states" if c.recurrent else "learned positions"
            raise InvalidArgument("Session.drop", f"a model with {kind}", allowed="models whose positions are rope's")
        for layer, cache, near in zip(self.layers, self.caches, self._near, strict=True):
            assert isinstance(cache, KVCache)
            first, behind = (max(at - self.base * near, 0) for at in (start, start + n))
            cache.drop(first, behind - first)
            name = c.rope(layer, self.length)
            if name is not None and n and first < cache.current_pos:
                turn_keys(cache.keys[:, first : cache.current_pos], -n, c, self.model.parameters[name])
        self.base = min(self.base, max(self.base - n, start))
        self.dropped += n

    def prune_prefix(self, n: int) -> None:
        """Forget the first n positions; as `drop`."""
        self.drop(0, n)

    @overload
    def program(self, count: int, every: bool = False, sampling: None = None) -> TokenProgram: ...

    @overload
    def program(self, count: int, every: bool = False, *, sampling: Sampling) -> DrawingProgram: ...

    def program(
        self, count: int, every: bool = False, sampling: Sampling | None = None
    ) -> TokenProgram | DrawingProgram:
        """Return the program for up to `count` tokens, with logits of the last one or of every one.

        With `sampling` it also draws the next token; the model's part is the same for all ways to draw.
        """
        most = SPAN if any(self._near) else self.length
        key = (integer("Session.program", "count", count, 1, most), bool(every))
        if key not in self._programs:
            self._programs[key] = TokenProgram(self, *key)
        if sampling is None:
            return self._programs[key]
        way = (*key, check_sampling(sampling))
        self._drawing[way] = drawing = self._drawing.pop(way, None) or DrawingProgram(self._programs[key], sampling)
        while len(self._drawing) > DRAWING:
            del self._drawing[next(iter(self._drawing))]
        return drawing

    def logits(self, tokens: Iterable[int], every: bool = False) -> npt.NDArray[np.float32]:
        """Append tokens to the sequence, and return float32 logits.

        They are [1, vocabulary], after the last token, or with `every` [tokens, vocabulary], after each.
        """
        ids, rows, at = self.check(tokens), [], 0
        for size, count in self.cut(len(ids)):
            program = self.program(size, every)
            program.run(ids[at : at + count])
            at += count
            if every or at == len(ids):
                rows.append(np.array(program.logits.numpy(), np.float32)[: count if every else 1])
        return np.concatenate(rows)

    def cut(self, count: int) -> list[tuple[int, int]]:
        """Return how `count` tokens are appended: the sizes of programs, and how many tokens each takes.

        Sizes are powers of two up to SPAN, so that there are few programs. The last may be for more tokens than are
        left, if the cache has space for these; states of models without keys have none.
        """
        sizes, at = [], self.position
        while count:
            size = min(SPAN, 1 << (count - 1).bit_length())
            if size > count and (self.model.config.recurrent or at + size > self.length):
                size //= 2
            taken = min(size, count)
            sizes.append((size, taken))
            at, count = at + taken, count - taken
        return sizes

    def check(self, tokens: Iterable[int], more: int = 0) -> list[int]:
        """Return tokens as a list; InvalidArgument unless there are some, all of the vocabulary, and they fit.

        The cache has to hold these tokens and `more` others.
        """
        ids = read_tokens(tokens, self.model.config.vocabulary)
        if self.position + len(ids) + more > self.length:
            found = f"{len(ids)} tokens" + (f" and {more} more" if more else "") + f" after {self.position}"
            raise InvalidArgument(
                "prompt", found, allowed=f"{self.length} in all, the length of the cache", hint="give it a longer cache"
            )
        return ids


def turn_keys(keys: Tensor, places: int, config: Config, frequencies: Tensor) -> None:
    """Rotate the keys [1, n, heads, dim] of a cache, in place, as if they were `places` further on."""
    wide = cast(keys, dtype="F32")
    part = wide[..., wide.shape[3] - config.rotated :] if config.latent else wide  # the rotated end of each head
    by = tensor(np.full(keys.shape[1], places), "I64", device=keys.device)
    how = {"pairing": config.form.pairing, "dims": config.rotated}
    calls.call(find("rope"), [part, by, frequencies], out=part, **how)
    cast(wide, out=keys)


def read_ends(given: Iterable[int]) -> frozenset[int]:
    """Return the tokens that end generation; InvalidArgument if they are not integers."""
    if not (isinstance(given, Iterable) and all(map(is_integer, given := list(given)))):
        raise InvalidArgument("generate", f"ends={quote(given)}", allowed="tokens, which are integers")
    return frozenset(given)


def read_tokens(given: Iterable[int], size: int) -> list[int]:
    """Return tokens as a list; InvalidArgument unless there are some, all of a vocabulary of `size`."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgument("prompt", f"it is {type(given).__name__}", allowed="tokens, which are integers")
    tokens = list(given)
    if not tokens:
        raise InvalidArgument("prompt", "it has no tokens", allowed="at least one")
    for token in tokens:
        if not is_integer(token) or not 0 <= token < size:
            raise InvalidArgument(
                "prompt", f"token {quote(token)}", allowed=f"an integer from 0 to {size - 1}, the vocabulary"
            )
    return [int(token) for token in tokens]


class TokenProgram(DecoderProgram):
    """The model's program for up to `count` tokens at the end of a session's sequence, over its caches.

    `tokens` I64 [count] is the input, `logits` F32 [1 or count, vocabulary] the result (see `TokenStep`).
    """

    def __init__(self, session: Session, count: int, every: bool) -> None:
        step = TokenStep(session.length, count, session.dtype, session.model.activations, every)
        super().__init__(session.model, step, session.state)
        self.session, self.count, self.tokens = session, count, self.inputs["tokens"]
        self._base = -1  # what the input `base` was last

    def run(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to the sequence and compute. Asynchronous if the device is.

        The cache needs room for `count` tokens, and states of models without keys take exactly these. Raises
        InvalidArgument, before anything is counted, if there are more tokens, an invalid one, or no space.
        """
        self.feed(tokens)
        self.recording.replay()

    def feed(self, tokens: Sequence[int] | None) -> None:
        """Write the inputs for `tokens`, and count them as stored; without tokens, for what stands in the inputs."""
        session, given = self.session, 1 if tokens is None else len(tokens)
        least = self.count if tokens is None or session.model.config.recurrent else 1
        if not least <= given <= self.count:
            allowed = f"{self.count}" if least == self.count else f"from {least} to {self.count}"
            raise InvalidArgument("TokenProgram.run", f"{given} tokens", allowed=allowed)
        if session.position + self.count > session.length:
            problem = f"a program for {self.count} tokens after {session.position}"
            raise InvalidArgument("TokenProgram.run", problem, allowed=f"{session.length} in all, the cache's length")
        if tokens is not None:
            ids = read_tokens(tokens, session.model.config.vocabulary)
            self.tokens.copy_from(np.array([*ids, *[0] * (self.count - given)], np.int64))
            self.inputs["start"].copy_from(np.array([session.position]))
            if self.count > 1:
                self.inputs["last"].copy_from(np.array([given - 1]))
        session.take(given, self.count)
        if "base" in self.inputs and self._base != session.base:
            self.inputs["base"].copy_from(np.array([session.base]))
            self._base = session.base


class DrawingProgram:
    """A session's program whose recording goes on: it draws the next token from the last logits.

    The token is left in the last of `tokens`, and its position too: where `count` is 1, running the program again is
    the next step. No two steps of a text draw by the same number, whatever its caches have dropped.
    """

    def __init__(self, program: TokenProgram, sampling: Sampling) -> None:
        if not sampling.fused:
            allowed = "what `random_sample` does alone"
            raise InvalidArgument(
                "Session.program", f"{sampling}", allowed=allowed, hint="draw from the logits: `Drawing`"
            )
        self.program, self.sampling = program, sampling
        self.compiled, self.logits, self.tokens = program.compiled, program.logits, program.tokens
        device = program.session.device
        self._dropped, one = (tensor([n], "I64", device=device) for n in (0, 1))
        self._history = empty((1, HISTORY), "I64", device=device) if sampling.penalised else None
        self.left: object = None
        """The session's `end` and `dropped` after the last run: while they are so, the inputs are the next step's."""
        start, row, number = program.inputs["start"], program.logits, empty((1,), "I64", device=device)
        add, gather = find("add"), find("gather")
        with current_stream(device).capture() as self.recording:
            program.compiled.replay()
            if program.count > 1:
                last = program.inputs["last"]
                calls.call(add, [start, last], out=start)
                row = row if row.shape[0] == 1 else calls.call(gather, [row, last], axis=0)
            calls.call(add, [start, one], out=start)
            calls.call(add, [start, self._dropped], out=number)
            drawn = self.tokens[program.count - 1 :]
            calls.call(find("random_sample"), [row, self._history, number], out=drawn, **sampling.attributes)

    @property
    def nbytes(self) -> int:
        """The bytes in addition to those of the program."""
        return self._dropped.desc.nbytes + (0 if self._history is None else self._history.desc.nbytes)

    def run(self, tokens: Sequence[int] | None = None) -> None:
        """Append `tokens` to the sequence, compute and draw; without them, the token is what the last run left.

        Errors are those of `TokenProgram.run`; without tokens, InvalidArgument if the session changed since then.
        """
        session = self.program.session
        if tokens is None and self.left != (session.end, session.dropped):
            given = "no tokens, and the session has changed since the last run"
            raise InvalidArgument("DrawingProgram.run", given, allowed="the tokens that come next")
        self.program.feed(tokens)
        if tokens is not None:
            self._dropped.copy_from(np.array([session.dropped]))
        self.recording.replay()
        self.left = session.end, session.dropped

    def remember(self, tokens: Sequence[int]) -> None:
        """Store the last `HISTORY` tokens for a repetition penalty to look back on, if there is one."""
        if self._history is not None:
            self._history.copy_from(pad_history(tokens))
