"""Drawing a token from logits outside of a program: with a bias, or for one request among others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..arguments import is_integer
from ..backend import Device
from ..eager import calls
from ..ops import find
from ..status import InvalidArgument, quote
from ..tensors import Tensor, tensor
from .grammar import GrammarState
from .sampling import HISTORY, LARGEST, Sampling, check_sampling, is_number, pad_history


def bias_row(bias: Mapping[int, float], size: int) -> npt.NDArray[np.float32]:
    """Return what is added to the logits [1, size]; InvalidArgument names a token or a number that is invalid."""
    row = np.zeros((1, size), np.float32)
    for token, value in bias.items():
        if not is_integer(token) or not 0 <= token < size:
            allowed = f"an integer from 0 to {size - 1}"
            raise InvalidArgument("generate", f"logit bias of token {quote(token)}", allowed=allowed)
        if not is_number(value) and value != -np.inf:
            given = f"logit bias {quote(value)} of token {token}"
            raise InvalidArgument("generate", given, allowed=f"a number up to {LARGEST:g}, or -inf")
        row[0, token] = value
    if np.isneginf(row).all():
        raise InvalidArgument("generate", "the logit bias rules out every token", allowed="at least one left")
    return row


def add_suppressed(bias: Mapping[int, float] | None, suppressed: Mapping[int, float]) -> dict[int, float]:
    """Return a bias with the tokens that the model's file suppresses; InvalidArgument if it is not a mapping."""
    if not isinstance(bias, Mapping | None):
        raise InvalidArgument("generate", f"bias={quote(bias)}", allowed="a mapping from tokens to numbers")
    return {**(bias or {}), **suppressed}


class Drawing:
    """How one text's tokens are drawn, as the program of a `TokenStep` draws them, from F32 logits.

    `bias` is added to the logits of its tokens, and `constraint` masks tokens that its grammar does not allow next.
    Raises InvalidArgument if one of them or the sampling is wrong.
    """

    def __init__(
        self,
        sampling: Sampling,
        bias: Mapping[int, float] | None,
        size: int,
        device: Device,
        constraint: GrammarState | None = None,
    ) -> None:
        if not isinstance(constraint, GrammarState | None):
            raise InvalidArgument("generate", f"constraint={quote(constraint)}", allowed="what Grammar.begin returns")
        if constraint is not None and constraint.size != size:
            given = f"a constraint for a vocabulary of {constraint.size} tokens"
            raise InvalidArgument("generate", given, allowed=f"one for that of the model, of {size}")
        bias = add_suppressed(bias, {})
        self.sampling, self.device, self.constraint = check_sampling(sampling), device, None
        self.plain = sampling.temperature == 0 and not sampling.penalised and not bias and constraint is None
        """Whether the token is that of the largest logit."""
        self._row = bias_row(bias, size) if bias else np.zeros((1, size), np.float32)
        self._bias = tensor(self._row, "F32", device=device) if bias else None
        # Where nothing is multiplied before, what is subtracted is one row more to add
        self._subtracts = sampling.penalty == 1 and sampling.penalised
        self._rest = replace(sampling, frequency=0.0, presence=0.0) if self._subtracts else sampling
        even = tensor(np.zeros((1, size), np.float32), "F32", device=device)
        calls.call(find("random_sample"), [even, None, None], **sampling.attributes)  # says what is wrong with them
        self.draw(even, 0, [])
        self.constraint = constraint

    def draw(self, logits: Tensor, position: int, history: Sequence[int]) -> int:
        """Return the token drawn from logits [1, vocabulary]; it will be at `position`, after all of `history`.

        The constraint goes on after it.
        """
        added, seen = self._add(history), None
        if added is not None:
            logits = calls.call(find("add"), [added, logits])
        if self._rest.penalised:
            seen = tensor(pad_history(history), "I64", device=self.device)
        at = tensor(np.array([position]), "I64", device=self.device)
        token = int(self._rest.draw(logits, seen, at).numpy()[0])
        if self.constraint is not None:
            self.constraint.add(token)
        return token

    def _add(self, history: Sequence[int]) -> Tensor | None:
        """Return what is added to the logits: the bias, less the penalties, and -inf for what the grammar rules out."""
        if self.constraint is None and not self._subtracts:
            return self._bias
        row = self._row.copy()
        if self._subtracts:
            for token, count in Counter(history[-HISTORY:]).items():
                row[0, token] -= self.sampling.frequency * count + self.sampling.presence
        if self.constraint is not None:
            row[0, ~self.constraint.mask()] = -np.inf
        return tensor(row, "F32", device=self.device)


def largest(logits: Tensor) -> list[int]:
    """Return the token of each row of logits [n, vocabulary] that `Drawing` draws if it is plain."""
    drawn = calls.call(find("random_sample"), [logits, None, None], **Sampling().attributes)
    return [int(token) for token in drawn.numpy()]
