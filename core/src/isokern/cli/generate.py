"""`isokern generate`: text that a GGUF model of the Llama family writes after a prompt, on any device."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..status import InvalidArgument
from ._output import Json, emit, note, quiet

if TYPE_CHECKING:
    from ..llm.gguf import GGUFTensor

Device = Annotated[str | None, typer.Option("--device", help="The device; the default one where it is not given.")]
Activations = Annotated[
    str,
    typer.Option("--activations", help="How activations meet quantised weights: float, or q8_0 for integer products."),
]
Prepack = Annotated[
    bool,
    typer.Option("--prepack", help="Bring weights into the device's own layout first, where it has one; more memory."),
]
Cache = Annotated[str, typer.Option("--cache", help="Element type of the KV cache: F32, F16, BF16, Q8_0 or Q4_0.")]


def generate(
    model: Annotated[Path, typer.Argument(help="A GGUF file.")],
    prompt: Annotated[str, typer.Option("--prompt", help="What the text begins with.")],
    device: Device = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Tokens to write at most.")] = 100,
    temperature: Annotated[float, typer.Option("--temperature", help="0 takes the likeliest token.")] = 0.8,
    top_k: Annotated[int, typer.Option("--top-k", help="Draw among that many; 0 for all.")] = 40,
    top_p: Annotated[float, typer.Option("--top-p", help="Draw among the fewest that weigh this share.")] = 0.95,
    min_p: Annotated[float, typer.Option("--min-p", help="Draw among those of this share of the likeliest.")] = 0.0,
    penalty: Annotated[float, typer.Option("--penalty", help="Repetition penalty; 1 for none.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same text on every device.")] = 0,
    context: Annotated[int | None, typer.Option("--context", help="Positions of the cache; the model's own.")] = None,
    cache: Cache = "F16",
    activations: Activations = "float",
    prepack: Prepack = False,
    json: Json = False,
) -> None:
    """Write what follows the prompt.

    Rates, memory and the share of the memory bandwidth go to stderr, or with --json to stdout.
    """
    from ..llm.decoder import Sampling
    from ..llm.generate import Generation, summary, text
    from ..llm.model import Session

    with quiet(json):
        loaded = load(model, device, activations, json, prepack)
        tokenizer, session = loaded.tokenizer(), Session(loaded, context, cache)
        sampling, report = Sampling(temperature, top_k, top_p, min_p, penalty, seed), Generation()
        pieces = []
        if not json:
            typer.echo(prompt, nl=False)
        for piece in text(session, tokenizer, prompt, max_tokens, sampling, report):
            pieces.append(piece)
            if not json:
                typer.echo(piece, nl=False)
                sys.stdout.flush()
        facts = summary(loaded, session, report)
    if json:
        emit({"model": model.name, "prompt": prompt, "text": "".join(pieces), **facts})
        return
    typer.echo()
    prepacked = f", prepacked {_mib(facts['prepacked_bytes'])}" if prepack else ""
    share = "" if facts["bandwidth_share"] is None else f", {facts['bandwidth_share']:.0%} of the memory bandwidth"
    note(
        f"{facts['device']}, activations {activations}, cache {facts['cache']}:"
        f" prefill {facts['prefill_tokens_per_s']:.1f} tokens/s,"
        f" decode {facts['decode_tokens_per_s']:.1f} tokens/s{share};"
        f" weights {_mib(facts['weights_bytes'])}{prepacked}, cache {_mib(facts['cache_bytes'])},"
        f" scratch {_mib(facts['scratch_bytes'])}"
    )


def load(path: Path, device: str | None, activations: str, silent: bool, prepack: bool = False) -> Any:
    """Load the model, with a progress bar on stderr where that is a terminal."""
    from ..llm.model import Model

    if not path.exists():
        raise InvalidArgument("generate", f"{path} does not exist", allowed="a GGUF file")
    bar = None if silent else _bar
    return Model.open(path, device=device, activations=activations, prepack=prepack, progress=bar)


def _bar(tensors: Iterable[GGUFTensor], total: int) -> Iterator[GGUFTensor]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    out = Console(stderr=True)
    with Progress(
        TextColumn("loading"), BarColumn(), DownloadColumn(), console=out, transient=True, disable=not out.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)
        for held in tensors:
            yield held
            bar.advance(task, held.data.nbytes)


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"
