"""The documents of answers, whole and in chunks: OpenAI API reference, completions and chat completions."""

from __future__ import annotations

import time
import uuid
from typing import Any, Protocol

from .choices import TextChoice
from .logprobs import show_chat_logprobs, show_text_logprobs


class Answer(Protocol):
    """The documents of an endpoint's answer; all of one answer have the same head."""

    def show_whole(self, texts: list[tuple[TextChoice, str]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return the answer that has complete texts."""

    def show_begin(self, choice: TextChoice) -> dict[str, Any] | None:
        """Return the first chunk of a choice, if it has one."""

    def show_piece(self, choice: TextChoice, piece: str, finish: str | None) -> dict[str, Any]:
        """Return a chunk with more text, or with none and why the text ends."""

    def show_usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the last chunk, which has the counts of tokens."""


class _Head:
    """The fields that all documents of an answer have."""

    def __init__(self, model: str, prefix: str, whole: str, chunk: str, counted: bool) -> None:
        self.common = {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self.whole, self.chunk, self.counted = whole, chunk, counted

    def show(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None, whole: bool = False) -> dict[str, Any]:
        """Return a document; a chunk has null for `usage` if the last one will have the counts."""
        found = {**self.common, "object": self.whole if whole else self.chunk, "choices": choices}
        return {**found, "usage": usage} if usage is not None or self.counted else found

    def show_usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Return a chunk with the counts of tokens and no choices."""
        return self.show([], usage)


class CompletionAnswer(_Head):
    """Documents of POST /v1/completions."""

    def __init__(self, model: str, counted: bool) -> None:
        super().__init__(model, "cmpl", "text_completion", "text_completion", counted)

    def show_whole(self, texts: list[tuple[TextChoice, str]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return the answer; a prompt that is echoed is part of the text."""
        each = [_text_choice(choice, choice.echo + text, choice.finish) for choice, text in texts]
        return self.show(each, usage, whole=True)

    def show_begin(self, choice: TextChoice) -> dict[str, Any] | None:
        """Return a chunk with the prompt, if it is echoed."""
        return self.show_piece(choice, choice.echo, None) if choice.echo else None

    def show_piece(self, choice: TextChoice, piece: str, finish: str | None) -> dict[str, Any]:
        """Return a chunk of a text."""
        return self.show([_text_choice(choice, piece, finish)], None)


class ChatAnswer(_Head):
    """Documents of POST /v1/chat/completions."""

    def __init__(self, model: str, counted: bool) -> None:
        super().__init__(model, "chatcmpl", "chat.completion", "chat.completion.chunk", counted)

    def show_whole(self, texts: list[tuple[TextChoice, str]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return the answer."""
        each = [
            {**_chat_choice(choice, choice.finish), "message": {"role": "assistant", "content": text, "refusal": None}}
            for choice, text in texts
        ]
        return self.show(each, usage, whole=True)

    def show_begin(self, choice: TextChoice) -> dict[str, Any] | None:
        """Return a chunk that says who speaks."""
        return self.show([{**_chat_choice(choice, None), "delta": {"role": "assistant", "content": ""}}], None)

    def show_piece(self, choice: TextChoice, piece: str, finish: str | None) -> dict[str, Any]:
        """Return a chunk of an answer."""
        delta = {} if finish else {"content": piece}
        return self.show([{**_chat_choice(choice, finish), "delta": delta}], None)


def _text_choice(choice: TextChoice, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": choice.index, "text": text, "logprobs": show_text_logprobs(choice), "finish_reason": finish}


def _chat_choice(choice: TextChoice, finish: str | None) -> dict[str, Any]:
    return {"index": choice.index, "logprobs": show_chat_logprobs(choice), "finish_reason": finish}
