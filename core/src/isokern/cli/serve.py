"""`isokern serve`: a GGUF model for clients of OpenAI's API, on any device."""

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
    port: Annotated[int, typer.Option("--port", help="The port; 0 for any free one, which is printed.")] = 8080,
    key_file: Annotated[
        Path | None, typer.Option("--api-key-file", help="A file with the key that clients have to give; none.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--model-name", help="What clients call the model; the file's name.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option("--template", help="The name of a known chat template, or a file with one; the model's own."),
    ] = None,
    device: Device = None,
    context: Annotated[
        int | None, typer.Option("--context", help="Positions of a prompt and its text; the model's own.")
    ] = None,
    positions: Annotated[
        int | None, typer.Option("--positions", help="Positions of the cache, for all texts; four contexts.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Texts that are made at once.")] = 16,
    queue: Annotated[int, typer.Option("--queue", help="Texts that may wait; more are refused.")] = 64,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Tokens of one text at most; the context.")
    ] = None,
    max_priority: Annotated[
        int, typer.Option("--max-priority", help="The highest priority that a request may ask for.")
    ] = 0,
    max_body: Annotated[int, typer.Option("--max-body", help="Bytes of a request at most.")] = 4 << 20,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that a client may take for a request.")] = 30,
    grace: Annotated[
        float, typer.Option("--grace", help="Seconds that running texts have when the server is ended.")
    ] = 30,
    cache: Cache = "F16",
    activations: Activations = "float",
    prepack: Prepack = True,
    drafts: Drafts = 0,
    exact: Annotated[
        bool, typer.Option("--exact", help="A text is the same bit for bit whoever else is there; slower.")
    ] = False,
) -> None:
    """Serve a model by OpenAI's API: /v1/completions, /v1/chat/completions, /v1/models, and /health.

    Prints the address to stdout; stderr has one line for each request, and nothing of any text. Ends on Ctrl-C or
    SIGTERM, with status 0.
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
            note(f"warning: whoever reaches {address} may use the model: give --api-key-file, or --host 127.0.0.1")
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
    """Return the chat template; None, with a line on stderr, where the model has none and none is named."""
    from ..llm import Template

    if name is None and model.gguf.metadata.get("tokenizer.chat_template") is None:
        note("The model has no chat template: only completions are served. --template NAME gives it one.")
        return None
    return Template(model.gguf, tokenizer, name)


def _open_engine(model: Any, **options: Any) -> Engine:
    """Return an engine that has made a token: what does not work, or has no room, is known before anybody asks."""
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
