"""Text from a model: prefill in chunks, then one token a step, streamed as it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arguments import integer
from ..backend import Device
from ..dtypes import U8
from ..status import InvalidArgument
from .decoder import Sampling
from .model import PREFILL, Model, Session
from .tokenizer import Tokenizer


@dataclass
class Generation:
    """What a generation made and how long it took.

    Times are seconds, by the wall clock; `ended` is whether the model itself ended the text.
    """

    prompt_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    ended: bool = False

    @property
    def prefill_rate(self) -> float:
        """Tokens of the prompt a second."""
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens a second after the first, which prefill gives."""
        return (len(self.tokens) - 1) / self.decode_seconds if self.decode_seconds else 0.0


def tokens(
    session: Session, prompt: Sequence[int], most: int, sampling: Sampling, ends: frozenset[int], report: Generation
) -> Iterator[int]:
    """Yield up to `most` tokens after `prompt`, until one of `ends`; `report` is filled in as they come.

    Raises InvalidArgument where the prompt is empty, has tokens out of range or, with the tokens asked for, does not
    fit the cache; and where logits hold NaN.
    """
    most = integer("generate", "max_tokens", most, 1)
    session.check(prompt, most - 1)
    report.prompt_tokens = len(prompt)
    history = list(prompt)
    step = session.program(1, sampling=sampling)  # compiled before the clock starts
    parts = [prompt[at : at + PREFILL] for at in range(0, len(prompt), PREFILL)]
    last = session.program(len(parts[-1]), sampling=sampling)
    for part in parts[:-1]:
        session.program(len(part))
    begin = time.perf_counter()
    for part in parts[:-1]:
        session.program(len(part)).run(part)
    last.remember(history)
    last.run(parts[-1])
    token = int(last.tokens.numpy()[-1])
    report.prefill_seconds = time.perf_counter() - begin
    given: list[int] | None = [token]
    while True:
        if token in ends:
            report.ended = True
            return
        report.tokens.append(token)
        history.append(token)
        yield token
        if len(report.tokens) == most:
            return
        begin = time.perf_counter()
        if sampling.penalty != 1:
            step.remember(history)
        step.run(given)
        token, given = int(step.tokens.numpy()[0]), None
        report.decode_seconds += time.perf_counter() - begin


def text(
    session: Session,
    tokenizer: Tokenizer,
    prompt: str,
    most: int,
    sampling: Sampling | None = None,
    report: Generation | None = None,
) -> Iterator[str]:
    """Yield the text that follows `prompt` piece by piece, each of whole characters."""
    stream = tokenizer.stream()
    for token in tokens(
        session, tokenizer.encode(prompt), most, sampling or Sampling(), tokenizer.ends, report or Generation()
    ):
        piece = stream.push(token)
        if piece:
            yield piece
    rest = stream.end()
    if rest:
        yield rest


def negative_log_likelihood(session: Session, ids: Sequence[int], window: int, bos: int | None) -> tuple[float, int]:
    """Return the sum of -ln p over a text's tokens, in float64, and the number of tokens it covers.

    p is the probability of a token given BOS and the tokens before it in its window. The text `ids`, without a BOS of
    its own, is cut into windows of `window` tokens. Where the vocabulary has no BOS, the first token of each window has
    nothing before it and is not counted.
    """
    window = integer("perplexity", "window", window, 2, session.length)
    total, count = 0.0, 0
    for at in range(0, len(ids), window):
        part = list(ids[at : at + window])
        given, wanted = (part[:-1], part[1:]) if bos is None else ([bos, *part[:-1]], part)
        if not wanted:
            break
        session.clear()
        logits = session.logits(given, every=True).astype(np.float64)
        top = logits.max(-1)
        own = logits[np.arange(len(wanted)), wanted]
        total += float((top + np.log(np.exp(logits - top[:, None]).sum(-1)) - own).sum())
        count += len(wanted)
    if not count:
        raise InvalidArgument("perplexity", f"a text of {len(ids)} tokens", allowed="at least two")
    return total, count


def bandwidth(device: Device, nbytes: int = 1 << 27) -> float:
    """Return the bytes a second that a copy on the device reads and writes, the best of a few runs.

    It is 0 where the device offers no measure.
    """
    best = 0.0
    for limit in device.limits(nbytes, U8):
        if limit.kind != "copy":
            continue
        for _ in range(5):
            begin = time.perf_counter()
            limit.run()
            device.synchronize()
            best = max(best, limit.work / (time.perf_counter() - begin))
    return best


def summary(model: Model, session: Session, report: Generation) -> dict[str, Any]:
    """Return what a generation made and took, for JSON.

    Rates are in tokens/s and memory in bytes; `bandwidth_share` is the share of the memory bandwidth that decoding
    reached.
    """
    limit = bandwidth(model.device)
    middle = report.prompt_tokens + len(report.tokens) // 2
    read = model.read_bytes + session.cache_bytes // session.length * middle
    return {
        "device": model.device.name,
        "architecture": model.config.architecture,
        "activations": model.activations,
        "cache": session.dtype.name,
        "prompt_tokens": report.prompt_tokens,
        "tokens": len(report.tokens),
        "ended": report.ended,
        "prefill_tokens_per_s": report.prefill_rate,
        "decode_tokens_per_s": report.decode_rate,
        "weights_bytes": model.nbytes,
        "prepacked_bytes": model.prepacked_bytes,
        "cache_bytes": session.cache_bytes,
        "scratch_bytes": session.scratch_bytes,
        "bandwidth_share": report.decode_rate * read / limit if limit else None,
    }
