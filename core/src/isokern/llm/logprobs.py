"""How likely drawn tokens were, and which were the likeliest: logarithms of probabilities by the model's own logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..eager import calls
from ..ops import find
from ..tensors import Tensor


@dataclass(frozen=True)
class TokenLogprobs:
    """The natural logarithm of a token's probability, and the likeliest tokens with theirs, the likeliest first.

    Probabilities are the softmax of the logits that the model gave: before temperature, penalties, biases and whatever
    else says how a token is drawn.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def find_logprobs(logits: Tensor, tokens: Sequence[int], top: int) -> list[TokenLogprobs]:
    """Return those of tokens that were drawn from logits [tokens, vocabulary], with the `top` likeliest of each."""
    total, top = calls.call(find("logsumexp"), [logits], axes=(1,)).numpy(), min(top, logits.shape[1])
    values, ids = (y.numpy() for y in calls.call(find("topk"), [logits], k=top)) if top else ([[]] * len(tokens),) * 2
    made = []
    for i, token in enumerate(tokens):
        own = float(logits[i, token : token + 1].numpy()[0])
        best = tuple((int(n), float(x) - float(total[i])) for n, x in zip(ids[i], values[i], strict=True))
        made.append(TokenLogprobs(token, own - float(total[i]), best))
    return made
