"""`isokern chat`: chat with a GGUF model on any device, in the format of its chat template."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ..status import InvalidArgument, IsokernError
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
    note_warnings,
    read_bias,
    read_grammar,
    read_order,
    with_room,
)
from ._output import complain, note

HELP = (
    "/reset begins again, /quit or the end of input ends. A line that ends with \\ goes on in the next one, and so does"
    ' everything between two lines of """.'
)


def chat(
    model: File,
    system: Annotated[str | None, typer.Option("--system", help="The system prompt.")] = None,
    template: Annotated[
        str | None,
        typer.Option("--template", help="The name of a known template, or a file with one; else the model's."),
    ] = None,
    device: Device = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", help="At most so many tokens an answer; else as many as fit in the cache."),
    ] = None,
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
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Forget the oldest messages if the cache has no space for an answer."),
    ] = False,
    cache: Cache = "F16",
    activations: Activations = "float",
    prepack: Prepack = True,
    drafts: Drafts = 0,
) -> None:
    """Answer what is typed, line by line; the answers go to stdout, all else to stderr.

    Ends with the rates of all answers. Ctrl-C ends the answer, or, at the prompt, the chat.
    """
    from ..llm.chat import Chat
    from ..llm.drawing import Drawing
    from ..llm.sampling import Sampling
    from ..llm.session import Session

    bias, rules = read_bias(logit_bias), read_grammar(grammar, json_schema)
    loaded = load(model, device, activations, False, prepack)
    session = with_room(lambda: Session(loaded, context, cache))
    plain = (temperature, top_k, top_p, min_p, penalty, seed)
    sampling = Sampling(*plain, frequency_penalty, presence_penalty, typical, read_order(order))
    options: dict[str, Any] = {
        "template": template,
        "max_tokens": max_tokens,
        "stop": stop or (),
        "forget": forget,
        "drafts": drafts,
    }
    talk = Chat(session, system, sampling=sampling, bias=bias, grammar=rules, **options)
    # Compiled, and its options checked, before anything is typed
    session.program(1, sampling=sampling if sampling.fused else None)
    Drawing(sampling, bias, loaded.config.vocabulary, loaded.device)
    note(f"{model.name} on {loaded.device.name}. {HELP}")
    for said in _messages():
        if said == "/quit":
            break
        if said == "/reset":
            talk.reset()
            note("The chat begins again.")
        elif said == "/help":
            note(HELP)
        elif said.strip():
            _answer(talk, said)
    note(_tell_speed(talk.reports))


def _answer(talk: Any, said: str) -> None:
    """Write the answer to one message; an error leaves the chat as it was."""
    try:
        for piece in note_warnings(lambda: with_room(lambda: talk.say(said))):
            typer.echo(piece, nl=False)
            sys.stdout.flush()
        typer.echo()
    except KeyboardInterrupt:
        typer.echo()
        note("The answer was cut off.")
    except IsokernError as error:
        complain(str(error))


def _messages() -> Iterator[str]:
    """Yield each message: a line, or several that are joined if they are marked so."""
    lines = _lines()
    for line in lines:
        said = line
        if line.strip() == '"""':
            block = []
            for more in lines:
                if more.strip() == '"""':
                    break
                block.append(more)
            said = "\n".join(block)
        else:
            while said.endswith("\\"):
                said = f"{said[:-1]}\n{next(lines, '')}"
        yield said


def _lines() -> Iterator[str]:
    """Yield the lines of standard input; if that is a terminal, write a prompt to stderr before each."""
    shown = sys.stdin.isatty()
    while True:
        if shown:
            typer.echo("> ", nl=False, err=True)
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            typer.echo(err=True)
            return
        except UnicodeDecodeError as error:
            raise InvalidArgument("chat", f"standard input: {error}", allowed="a text in UTF-8") from None
        if not line:
            return
        yield line.removesuffix("\n").removesuffix("\r")


def _tell_speed(reports: list[Any]) -> str:
    """Return one line on all answers."""
    prompt, written = sum(r.prompt_tokens for r in reports), sum(len(r.tokens) for r in reports)
    prefill, decode = sum(r.prefill_seconds for r in reports), sum(r.decode_seconds for r in reports)
    steps = sum(max(len(r.tokens) - 1, 0) for r in reports)
    return (
        f"{len(reports)} answers: read {prompt} tokens, {prompt / prefill if prefill else 0:.1f} tokens/s;"
        f" wrote {written} tokens, {steps / decode if decode else 0:.1f} tokens/s"
    )
