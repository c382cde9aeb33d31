"""`isokern generate`: continue a prompt with a language model, on any device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..process.garbage import hold_collections
from ..status import InvalidArgument
from ._language_models import (
    Activations,
    Cache,
    Context,
    Device,
    Drafts,
    File,
    Frequency,
    GrammarFile,
    JsonSchema,
    LogitBias,
    MinP,
    Order,
    Penalty,
    Prepack,
    Presence,
    Seed,
    Stop,
    Temperature,
    TopK,
    TopP,
    Typical,
    load,
    mib,
    note_warnings,
    read_bias,
    read_grammar,
    read_order,
    with_room,
)
from ._output import Json, emit, note, quiet


def generate(
    model: File,
    prompt: Annotated[str | None, typer.Option("--prompt", help="The text to continue.")] = None,
    prompt_file: Annotated[
        Path | None, typer.Option("--prompt-file", help="A UTF-8 file with the prompt; - is standard input.")
    ] = None,
    special: Annotated[
        bool, typer.Option("--special", help="Read control tokens in the prompt, such as <s>, as tokens.")
    ] = False,
    device: Device = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Generate at most so many tokens.")] = 100,
    temperature: Temperature = 0.8,
    top_k: TopK = 40,
    top_p: TopP = 0.95,
    min_p: MinP = 0.0,
    penalty: Penalty = 1.0,
    frequency_penalty: Frequency = 0.0,
    presence_penalty: Presence = 0.0,
    typical: Typical = 1.0,
    order: Order = None,
    seed: Seed = 0,
    stop: Stop = None,
    logit_bias: LogitBias = None,
    grammar: GrammarFile = None,
    json_schema: JsonSchema = None,
    context: Context = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", help="When the cache is full, keep this many first tokens, drop half of the others, and go on."
        ),
    ] = None,
    cache: Cache = "F16",
    activations: Activations = "float",
    prepack: Prepack = True,
    drafts: Drafts = 0,
    bandwidth: Annotated[
        bool, typer.Option("--bandwidth", help="Measure the memory bandwidth, and print the share that decoding uses.")
    ] = False,
    json: Json = False,
) -> None:
    """Continue a prompt, from --prompt, --prompt-file, or standard input.

    Rates and memory go to stderr, or with --json to stdout.
    """
    with hold_collections():
        from ..llm.generate import Generation, text
        from ..llm.sampling import Sampling
        from ..llm.session import Session

    begin, bias = read_prompt(prompt, prompt_file), read_bias(logit_bias)
    rules = read_grammar(grammar, json_schema)
    plain = (temperature, top_k, top_p, min_p, penalty, seed)
    sampling = Sampling(*plain, frequency_penalty, presence_penalty, typical, read_order(order))
    with quiet(json):
        with hold_collections():  # the first token waits for this
            loaded = load(model, device, activations, json, prepack)
            tokenizer, session = loaded.tokenizer(), with_room(lambda: Session(loaded, context, cache))
            report = Generation()
            given = (session, tokenizer, begin, max_tokens, sampling, report)
            each = note_warnings(
                lambda: with_room(
                    lambda: text(
                        *given, stop=stop or (), special=special, bias=bias, grammar=rules, keep=keep, drafts=drafts
                    )
                )
            )  # everything is checked here
        pieces = []
        if not json:
            typer.echo(begin, nl=False)
        for piece in each:
            pieces.append(piece)
            if not json:
                typer.echo(piece, nl=False)
                sys.stdout.flush()
        from ..llm.statistics import summary

        facts = summary(loaded, session, report, bandwidth)
    if json:
        emit({"model": model.name, "prompt": begin, "text": "".join(pieces), **facts})
        return
    typer.echo()
    prepacked = f", prepacked {mib(facts['prepacked_bytes'])}" if facts["prepacked_bytes"] else ""
    share = "" if facts["bandwidth_share"] is None else f", {facts['bandwidth_share']:.0%} of the memory bandwidth"
    note(
        f"{facts['device']}, activations {activations}, cache {facts['cache']}:"
        f" prefill {facts['prefill_tokens_per_s']:.1f} tokens/s,"
        f" decode {facts['decode_tokens_per_s']:.1f} tokens/s{share};"
        f" weights {mib(facts['weights_bytes'])}{prepacked}, cache {mib(facts['cache_bytes'])},"
        f" scratch {mib(facts['scratch_bytes'])}"
    )


def read_prompt(prompt: str | None, file: Path | None) -> str:
    """Return the prompt, from the option, the file, or standard input."""
    if prompt is not None and file is not None:
        raise InvalidArgument("generate", "--prompt and --prompt-file", allowed="one of them")
    if prompt is not None:
        return prompt
    if file is None and sys.stdin.isatty():
        raise InvalidArgument("generate", "no prompt", allowed="--prompt, --prompt-file, or text on standard input")
    try:
        if file is None or str(file) == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        name = "standard input" if file is None else str(file)
        raise InvalidArgument("generate", f"{name}: {error}", allowed="a text in UTF-8") from None
