"""`isokern serve`: serve a GGUF model to clients of OpenAI's API, on any device."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arguments import integer, read_text
from ..status import InvalidArgument, OutOfMemory
from ._language_models import Activations, Cache, Device, Drafts, File, Prepack, load, note_warnings
from ._output import note

if TYPE_CHECKING:
    from ..llm import Engine, Template, Tokenizer

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def serve(
    model: File,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0: any free one, which is printed.")] = 8080,
    key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", help="A file with the API key that clients have to send; else none is needed."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--model-name", help="The model's name in the API; else the file's name.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option("--template", help="The name of a known chat template, or a file with one; else the model's."),
    ] = None,
    device: Device = None,
    context: Annotated[
        int | None,
        typer.Option("--context", help="Positions of a prompt and its completion; else the model's context."),
    ] = None,
    positions: Annotated[
        int | None,
        typer.Option("--positions", help="Positions of the KV cache that all requests share; else four contexts."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Sequences that are decoded in one batch.")] = 16,
    queue: Annotated[int, typer.Option("--queue", help="Sequences that may wait; more requests are refused.")] = 64,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="At most so many tokens a completion; else the context.")
    ] = None,
    max_priority: Annotated[
        int, typer.Option("--max-priority", help="The highest priority that a request may ask for.")
    ] = 0,
    max_body: Annotated[int, typer.Option("--max-body", help="The largest request body, in bytes.")] = 4 << 20,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that a client may take to send a request.")] = 30,
    grace: Annotated[
        float, typer.Option("--grace", help="Seconds that running requests have to finish when the server stops.")
    ] = 30,
    cache: Cache = "F16",
    activations: Activations = "float",
    prepack: Prepack = True,
    drafts: Drafts = 0,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Results do not depend on the other requests of a batch, bit for bit; slower."),
    ] = False,
) -> None:
    """Serve a model by OpenAI's API: /v1/completions, /v1/chat/completions, /v1/models, and /health.

    Prints the address to stdout; stderr has one line for each request, and nothing of prompts or completions. Ends on
    Ctrl-C or SIGTERM, with status 0.
    """
    serving, server = _import_server()
    key = None if key_file is None else read_text("serve", str(key_file), allowed="a file in UTF-8 with a key").strip()
    integer("serve", "--port", port, 0, 65535)
    if not 0 <= grace < 1e6:
        raise InvalidArgument("serve", f"--grace {grace}", allowed="seconds, 0 or more")
    limits = serving.Limits(max_body, timeout, max_tokens, queue, max_priority)
    loaded = load(model, device, activations, False, prepack)
    tokenizer = loaded.tokenizer()
    chat = _find_template(loaded, tokenizer, template)
    with (
        server.bind(host, port) as socket,
        _open_engine(
            loaded, context=context, positions=positions, batch=batch, dtype=cache, exact=exact, drafts=drafts
        ) as engine,
    ):
        address, port = socket.getsockname()[:2]
        local = server.is_loopback(address)
        if not local and key is None:
            note(f"warning: everyone who reaches {address} may use the model: give --api-key-file, or --host 127.0.0.1")
        hosts = LOOPBACK if local and key is None else None
        called = name or (model.resolve().name if model.is_dir() else model.stem)
        app = serving.application(engine, tokenizer, chat, limits, name=called, key=key, hosts=hosts)
        _log_to_stderr()
        shown = f"[{address}]" if ":" in address else address

        def tell_address() -> None:
            typer.echo(f"{called} on {loaded.device.name}: http://{shown}:{port}/v1")
            sys.stdout.flush()

        serving.Server(app, grace, tell_address).run([socket])
        note("The server has ended.")


def _import_server() -> tuple[Any, Any]:
    try:
        from .. import serve as serving
        from ..serve import server
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "isokern":
            raise
        hint = "pip install 'isokern[serve]'"
        raise InvalidArgument("serve", f"a package cannot be imported: {error}", hint=hint) from error
    return serving, server


def _find_template(model: Any, tokenizer: Tokenizer, name: str | None) -> Template | None:
    """Return the chat template; None, with a line on stderr, if the model has none and none is named."""
    from ..llm import Template

    if name is None and model.gguf.metadata.get("tokenizer.chat_template") is None:
        note("The model has no chat template: only completions are served. --template NAME gives it one.")
        return None
    return Template(model.gguf, tokenizer, name)


def _open_engine(model: Any, **options: Any) -> Engine:
    """Return an engine that has generated a token, so that missing memory is an error before the first request."""
    from ..llm import Engine
    from ..llm.steps import SPAN

    try:
        tokens = max(options["batch"] * (1 + options["drafts"]), SPAN)
        engine = note_warnings(lambda: Engine(model, tokens=tokens, **options))
        engine.submit([0], 1 if engine.context == 1 else 2).result()
    except OutOfMemory as error:
        sizes = "--batch or --context" if model.config.recurrent else "--batch, --context or --positions"
        smaller = f"give {sizes} a smaller number"
        hint = "; ".join(part for part in (error.hint, smaller) if part)
        raise OutOfMemory(error.where, error.problem, allowed=error.allowed, hint=hint) from error
    return engine


def _log_to_stderr() -> None:
    """Have the log of requests written to stderr, with the time."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("isokern.serve")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
