"""`isokern perplexity`: how well a GGUF model of the Llama family predicts a text."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from ..status import InvalidArgument
from ._language_models import Activations, Cache, Device, Prepack, load, with_room
from ._output import Json, emit, quiet


def perplexity(
    model: Annotated[Path, typer.Argument(help="A GGUF file.")],
    file: Annotated[Path, typer.Argument(help="A text file in UTF-8.")],
    device: Device = None,
    window: Annotated[
        int | None, typer.Option("--window", help="Tokens of a window; else the model's context length.")
    ] = None,
    cache: Cache = "F16",
    activations: Activations = "float",
    prepack: Prepack = True,
    json: Json = False,
) -> None:
    """Print the perplexity of a text: exp of the mean of -ln p of each token, given those before it in its window."""
    from ..llm.session import Session
    from ..llm.statistics import negative_log_likelihood

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument("perplexity", f"{file}: {error}", allowed="a text file in UTF-8") from None
    with quiet(json):
        loaded = load(model, device, activations, json, prepack)
        tokenizer = loaded.tokenizer()
        ids = tokenizer.encode(text, bos=False, eos=False)
        length = loaded.config.context if window is None else window
        begin = time.perf_counter()
        session = with_room(lambda: Session(loaded, length, cache), "--window")
        given = (session, ids, length, tokenizer.bos)
        total, count = with_room(lambda: negative_log_likelihood(*given), "--window")
        seconds = time.perf_counter() - begin
    found = {
        "model": model.name,
        "device": loaded.device.name,
        "activations": activations,
        "cache": cache.upper(),
        "window": length,
        "tokens": count,
        "perplexity": math.exp(total / count),
        "tokens_per_s": count / seconds,
    }
    if json:
        emit(found)
    else:
        typer.echo(
            f"perplexity {found['perplexity']:.4f} over {count} tokens in windows of {length}, on {loaded.device.name}"
            f" with activations {activations}: {found['tokens_per_s']:.0f} tokens/s"
        )
