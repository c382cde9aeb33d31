"""The endpoints that generate text, as ASGI applications: body, prompts, completions, answer, and their end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from ..status import IsokernError, shorten
from .choices import Choices
from .errors import SHOWN, ApiError, Disconnected, translate, wrong_value
from .events import EventWriter
from .fields import read_document
from .limits import read_body
from .schema import ChatBody, CompletionBody, TextOptions, read_chat, read_completion
from .service import Service
from .shapes import Answer, ChatAnswer, CompletionAnswer


class TextEndpoint(ABC):
    """What both endpoints do with a request: when it ends, also because the client went away, nothing of it is left."""

    field: str

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        with self.service.read():
            body = await read_body(scope, receive, self.service.limits)
        await _run_while_connected(receive, self._answer(scope, body, send))

    @abstractmethod
    def read(self, body: bytes) -> tuple[TextOptions, int, Any]:
        """Return the options of a body, how many prompts it has, and what `prepare` wants."""

    @abstractmethod
    def prepare(self, wanted: Any, choices: Choices) -> None:
        """Make tokens of the prompts and submit them."""

    @abstractmethod
    def answer(self, counted: bool) -> Answer:
        """Return what makes the documents of an answer; `counted`: chunks announce that counts come last."""

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        with self.service.hold() as take:
            options, prompts, wanted = await self.service.run_aside(lambda: self._read(body))
            take(options.count * prompts - 1)
            choices = Choices(self.service, options)
            scope["isokern.usage"] = choices.usage  # for the log
            try:
                await self.service.run_aside(lambda: self._prepare(wanted, choices))
                if options.stream:
                    await self._stream(choices, scope, send)
                else:
                    await self._send_whole(choices, scope, send)
            finally:
                choices.cancel()

    def _read(self, body: bytes) -> tuple[TextOptions, int, Any]:
        read = self.read(body)
        model = read[0].model
        if model and model != self.service.name:
            raise no_such_model(model)
        return read

    def _prepare(self, wanted: Any, choices: Choices) -> None:
        try:
            self.prepare(wanted, choices)
        except IsokernError as error:
            raise translate(error, self.field) from error

    async def _send_whole(self, choices: Choices, scope: Scope, send: Send) -> None:
        texts = {choice.index: "" for choice in choices.made}
        async for choice, piece in choices.pieces():
            texts[choice.index] += piece
        pairs = [(choice, texts[choice.index]) for choice in choices.made]
        response = JSONResponse(self.answer(False).show_whole(pairs, choices.usage()))
        await response(scope, _never, send)

    async def _stream(self, choices: Choices, scope: Scope, send: Send) -> None:
        """Send the pieces as they come; an error after the first one is the last event, without `[DONE]`."""
        events, answer = EventWriter(scope, send), self.answer(choices.options.usage)
        for choice in choices.made:
            begin = answer.show_begin(choice)
            if begin is not None:
                await events.write(begin)
        try:
            async for choice, piece in choices.pieces():
                if piece:
                    await events.write(answer.show_piece(choice, piece, None))
                if choice.finish:
                    await events.write(answer.show_piece(choice, "", choice.finish))
        except ApiError as error:
            if not events.begun:
                raise
            await events.write(error.document)
            await events.end(done=False)
            return
        if choices.options.usage:
            await events.write(answer.show_usage(choices.usage()))
        await events.end()


class CompletionEndpoint(TextEndpoint):
    """POST /v1/completions."""

    field = "prompt"

    def read(self, body: bytes) -> tuple[TextOptions, int, CompletionBody]:
        """Return the checked body."""
        read = read_completion(read_document(body), self.service.cap, self.service.limits.priority)
        return read.options, len(read.prompts), read

    def prepare(self, wanted: CompletionBody, choices: Choices) -> None:
        """Submit the prompts; they begin as the vocabulary specifies, and control tokens in them are text."""
        tokenizer = self.service.tokenizer
        for prompt in wanted.prompts:
            self.service.check_room(prompt, self.field)
        ids = [tokenizer.encode(p, eos=False) if isinstance(p, str) else p for p in wanted.prompts]
        size = len(tokenizer)
        for i, prompt in enumerate(wanted.prompts):
            outside = [] if isinstance(prompt, str) else [token for token in prompt if not 0 <= token < size]
            if outside:
                raise wrong_value("prompt", outside[0], f"tokens from 0 to {size - 1}")
            if not ids[i]:
                raise ApiError(400, "prompt: it has no tokens; allowed: at least one", param="prompt")
        echoes = [p if isinstance(p, str) else tokenizer.decode(p) for p in wanted.prompts] if wanted.echo else []
        choices.submit(ids, echoes or [""] * len(ids), wanted.options.stop, self.field)

    def answer(self, counted: bool) -> CompletionAnswer:
        """Return what makes the documents."""
        return CompletionAnswer(self.service.name, counted)


class ChatEndpoint(TextEndpoint):
    """POST /v1/chat/completions."""

    field = "messages"

    def read(self, body: bytes) -> tuple[TextOptions, int, ChatBody]:
        """Return the checked body; ApiError 400 if the model has no chat template."""
        if self.service.template is None:
            message = "the model has no chat template; the server takes one: isokern serve --template NAME"
            raise ApiError(400, message, code="no_chat_template")
        read = read_chat(read_document(body), self.service.cap, self.service.limits.priority)
        return read.options, 1, read

    def prepare(self, wanted: ChatBody, choices: Choices) -> None:
        """Render the template, in a process of its own, and submit its text.

        A message of the user or the model never becomes a control token; the system prompt may.
        """
        template = self.service.template
        assert template is not None
        stop: Sequence[str] = (*wanted.options.stop, *template.stop)
        self.service.check_room("".join(message["content"] for message in wanted.messages), self.field)
        choices.submit([template.encode(wanted.messages)], [""], stop, self.field)

    def answer(self, counted: bool) -> ChatAnswer:
        """Return what makes the documents."""
        return ChatAnswer(self.service.name, counted)


def no_such_model(name: str) -> ApiError:
    """Return the error of a model that is not served."""
    return ApiError(404, f"there is no model {shorten(name, SHOWN)!r} here", param="model", code="model_not_found")


async def _never() -> Any:
    raise RuntimeError("the body was read already")


async def _run_while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, and cancel it when the client goes away; Disconnected then."""
    running, gone = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_gone(receive))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise Disconnected
        running.result()
    finally:
        for task in (running, gone):
            task.cancel()
        await asyncio.gather(running, gone, return_exceptions=True)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
