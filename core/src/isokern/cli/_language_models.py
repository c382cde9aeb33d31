"""What commands that run language models share: options, loading, and the line on speed and memory."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..status import InvalidArgument, OutOfMemory
from ._output import console, note

if TYPE_CHECKING:
    from ..llm.gguf import GGUFTensor
    from ..llm.grammar import Grammar

T = TypeVar("T")
File = Annotated[Path, typer.Argument(help="A GGUF file; of a split one, any part.")]
Device = Annotated[str | None, typer.Option("--device", help="The device; else the default one.")]
Activations = Annotated[
    str,
    typer.Option(
        "--activations", help="Activations in products with quantized weights: float, or q8_0 for integer dot products."
    ),
]
Prepack = Annotated[
    bool,
    typer.Option("--prepack/--no-prepack", help="Convert weights once to the layout that the device's kernels prefer."),
]
Cache = Annotated[str, typer.Option("--cache", help="Element type of the KV cache: F32, F16, BF16, Q8_0 or Q4_0.")]
Drafts = Annotated[
    int,
    typer.Option("--drafts", help="At most so many draft tokens a step, copied from what followed earlier; 0: off."),
]
Context = Annotated[
    int | None, typer.Option("--context", help="Positions of the KV cache; else the model's context length.")
]
Temperature = Annotated[float, typer.Option("--temperature", help="Sampling temperature; 0 takes the likeliest token.")]
TopK = Annotated[int, typer.Option("--top-k", help="Sample from this many likeliest tokens; 0: all.")]
TopP = Annotated[
    float,
    typer.Option("--top-p", help="Sample from the fewest likeliest tokens whose probabilities sum to this; 1: all."),
]
MinP = Annotated[
    float,
    typer.Option("--min-p", help="Sample from tokens with at least this fraction of the highest probability; 0: all."),
]
Penalty = Annotated[float, typer.Option("--penalty", help="Repetition penalty; 1: none.")]
Frequency = Annotated[
    float, typer.Option("--frequency-penalty", help="Subtract this from a token's logit for each earlier occurrence.")
]
Presence = Annotated[
    float, typer.Option("--presence-penalty", help="Subtract this once from the logit of each token that occurred.")
]
Typical = Annotated[
    float,
    typer.Option("--typical", help="Sample from the most typical tokens whose probabilities sum to this; 1: all."),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--order",
        help="The order of temperature, top_k, top_p, min_p, typical, by commas; llama.cpp: as llama.cpp has it.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", help="Seed of sampling: the same logits give the same tokens, on every device.")
]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="Stop before this string; repeatable.")]
LogitBias = Annotated[
    list[str] | None,
    typer.Option("--logit-bias", help="TOKEN_ID=NUMBER: add the number to the token's logit; -inf excludes the token."),
]


GrammarFile = Annotated[
    Path | None,
    typer.Option("--grammar", help="A grammar file that the output has to match: .lark, .regex, or llama.cpp's GBNF."),
]
JsonSchema = Annotated[
    Path | None,
    typer.Option("--json-schema", help="A file with a JSON schema that the output has to match; {} is any JSON."),
]


def read_order(order: str | None) -> tuple[str, ...]:
    """Return the order in which the sampling filters are applied."""
    from ..llm.sampling import FUSED, LLAMA_CPP

    if order is None:
        return (*FUSED, "typical")
    return LLAMA_CPP if order == "llama.cpp" else tuple(rule.strip() for rule in order.split(","))


def read_grammar(grammar: Path | None, schema: Path | None) -> Grammar | None:
    """Return the grammar of the option that is given, or None."""
    from ..llm.grammar import Grammar

    if grammar is not None and schema is not None:
        raise InvalidArgument("generate", "--grammar and --json-schema", allowed="one of them")
    path = grammar or schema
    if path is None:
        return None
    kind = "json_schema" if schema else {".lark": "lark", ".regex": "regex"}.get(path.suffix, "gbnf")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument("generate", f"{path}: {error}", allowed="a text in UTF-8") from None
    return Grammar(kind, text.rstrip("\n") if kind == "regex" else text)


def load(path: Path, device: str | None, activations: str, silent: bool, prepack: bool = True) -> Any:
    """Load the model, with a progress bar on stderr if that is a terminal."""
    from ..llm.model import Model

    if not path.exists():
        raise InvalidArgument("generate", f"{path} does not exist", allowed="a GGUF file")
    bar = None if silent or not sys.stderr.isatty() else _bar
    return Model.open(path, device=device, activations=activations, prepack=prepack, progress=bar)


def read_bias(given: list[str] | None) -> dict[int, float]:
    """Return token id → bias from the values of --logit-bias."""
    found = {}
    for pair in given or []:
        token, _, value = pair.partition("=")
        try:
            found[int(token)] = float(value)
        except ValueError:
            raise InvalidArgument(
                "generate", f"--logit-bias {pair}", allowed="TOKEN=NUMBER, such as 13=-2.5 or 13=-inf"
            ) from None
    return found


def with_room(make: Callable[[], T], option: str = "--context") -> T:
    """Return what `make` returns; if memory runs out, the error names the option for the length of the cache."""
    try:
        return make()
    except OutOfMemory as error:
        hint = f"give {option} a smaller number: the cache has a place for each position"
        hint = "; ".join(part for part in (error.hint, hint) if part)
        raise OutOfMemory(error.where, error.problem, allowed=error.allowed, hint=hint) from error


def note_warnings(make: Callable[[], T]) -> T:
    """Return what `make` returns; its warnings become lines on stderr."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = make()
    for warning in told:
        note(f"warning: {warning.message}")
    return made


def mib(nbytes: int) -> str:
    """Return a number of bytes for people."""
    return f"{nbytes / 2**20:.1f} MiB"


def _bar(tensors: Iterable[GGUFTensor], total: int) -> Iterator[GGUFTensor]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = TextColumn("loading", markup=False), BarColumn(), DownloadColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        for held in tensors:
            yield held
            bar.advance(task, held.data.nbytes)
