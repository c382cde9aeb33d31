"""The speed of a generation, and how well a model predicts a text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import integer
from ..backend import Device
from ..dtypes import U8
from ..status import InvalidArgument
from .generate import Generation
from .model import Model
from .session import Session


def negative_log_likelihood(session: Session, ids: Sequence[int], window: int, bos: int | None) -> tuple[float, int]:
    """Return the sum of -ln p over a text's tokens, in float64, and the number of tokens it covers.

    p is the probability of a token given BOS and the tokens before it in its window. The text `ids`, without a BOS of
    its own, is cut into windows of `window` tokens. If the vocabulary has no BOS, the first token of each window has
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

    It is 0 if the device offers no measure.
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


def summary(model: Model, session: Session, report: Generation, measure: bool = False) -> dict[str, Any]:
    """Return what a generation made and took, for JSON.

    Rates are in tokens/s and memory in bytes; `bandwidth_share` is the share of the memory bandwidth that decoding
    reached, which takes some copies to `measure`, else None.
    """
    limit = bandwidth(model.device) if measure and report.decode_rate else 0.0
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
