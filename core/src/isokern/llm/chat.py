"""A chat with a model: messages by its template, history kept in the session's cache, answers streamed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from ..arguments import integer
from ..status import InvalidArgument
from .generate import Generation, check_drafts, read_stop, text
from .gguf import GGUF
from .grammar import Grammar
from .sampling import Sampling, check_sampling
from .session import Session
from .templates import find_template, render
from .tokenizer import Tokenizer

GUARD = "\ue000"  # for private use: it keeps what a user writes from becoming a control token


class Template:
    """A model's chat template: it renders messages to tokens. `stop` are the strings that end an answer.

    `name` is one of `templates.NAMED` or a file; by default it is the model file's own. `values` are further names that
    the template knows, such as `enable_thinking`. InvalidArgument if there is no template.
    """

    def __init__(
        self, gguf: GGUF, tokenizer: Tokenizer, name: str | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        self.tokenizer, self.values = tokenizer, dict(values or {})
        self.text, self.stop = find_template(gguf, name)

    def encode(self, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any] | None = None) -> list[int]:
        """Return the tokens of messages, dicts of `role` and `content`, and of what begins the answer.

        A message of the user or the model never becomes a control token. `values` are further names that the template
        knows. InvalidArgument if it refuses the messages.
        """
        guarded = [
            {**m, "content": self.tokenizer.guard_text(m["content"].replace(GUARD, ""), GUARD)}
            if m["role"] in ("user", "assistant")
            else m
            for m in messages
        ]
        names = {name: self._text_of(i) for name, i in (("bos", self.tokenizer.bos), ("eos", self.tokenizer.eos))}
        known = {"bos_token": names["bos"], "eos_token": names["eos"], "add_generation_prompt": True, "tools": None}
        rendered = render(self.text, guarded, {**known, **self.values, **(values or {})})
        has_bos = bool(names["bos"]) and rendered.startswith(names["bos"])
        ids = self.tokenizer.encode(rendered, bos=False if has_bos else None, special=True, eos=False, guard=GUARD)
        if not ids:
            raise InvalidArgument("chat", "the template made no text of the messages", allowed="at least one token")
        return ids

    def _text_of(self, token: int | None) -> str:
        return "" if token is None else self.tokenizer.tokens[token]


class Chat:
    """A chat: `messages` are those so far, as dicts of `role` and `content`, and `reports` one for each answer.

    `template` and `values` are those of `Template`, and `drafts` those of `tokens`. An answer has at most `max_tokens`
    tokens, by default what the cache has room for, ends before the first of the strings `stop`, and follows `grammar`.
    With `forget` the oldest messages except the system prompt are dropped if the cache has no space for such an answer
    (without `max_tokens`, a quarter of the cache). A user's text never becomes a control token, even if it spells one
    out. InvalidArgument if there is no template, or `system` is not text.
    """

    def __init__(
        self,
        session: Session,
        system: str | None = None,
        *,
        template: str | None = None,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop: Iterable[str] = (),
        bias: Mapping[int, float] | None = None,
        values: Mapping[str, Any] | None = None,
        grammar: Grammar | None = None,
        forget: bool = False,
        drafts: int = 0,
    ) -> None:
        self.session, self.tokenizer = session, session.model.tokenizer()
        self.template = Template(session.model.gguf, self.tokenizer, template, values)
        self.stop = (*read_stop(stop), *self.template.stop)
        self.system = None if system is None else check_text("system", system)
        self.sampling, self.bias, self.grammar = check_sampling(sampling), bias, grammar
        self.most = None if max_tokens is None else integer("chat", "max_tokens", max_tokens, 1)
        self.forget, self.drafts = forget, check_drafts(session, drafts)
        self.messages: list[dict[str, Any]] = []
        self.reports: list[Generation] = []
        self._cached: list[int] = []
        self._last: Callable[[], Generator[str, None, None] | None] = lambda: None  # the answer that was asked for last
        self.reset()

    def reset(self) -> None:
        """Forget the chat; the system prompt stays."""
        self._end_last()
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        self.session.clear()
        self._cached = []

    def say(self, text: str) -> Iterator[str]:
        """Return an iterator of the answer's text, piece by piece.

        The part of the chat that is in the cache is not computed again. The message and the answer, also one that is
        not read to its end, join the history; an unfinished answer ends when the next one is requested.
        InvalidArgument, before anything is written, if the template refuses the messages, or the chat does not fit in
        the cache: the history is then as it was.
        """
        said = {"role": "user", "content": check_text("text", text)}
        self._end_last()
        messages = [*self.messages, said]
        ids = self.template.encode(messages)
        if self.forget:
            messages, ids = self._forget(messages, ids)
        room = self.session.length - len(ids)
        if room < 0:
            raise InvalidArgument(
                "chat",
                f"the chat has {len(ids)} tokens",
                allowed=f"{self.session.length}, the length of the cache",
                hint="begin again, give it a longer cache (--context), or let it forget (--forget)",
            )
        shared = next((i for i, (a, b) in enumerate(zip(ids, self._cached, strict=False)) if a != b), len(self._cached))
        kept = self.session.rewind(min(shared, len(ids) - 1))
        self._cached = ids[:kept]
        report = Generation()
        most = room + 1 if self.most is None else min(self.most, room + 1)
        pieces = self._generate(ids, kept, most, report)
        answer = self._answer(messages, ids, report, pieces)
        self._last = weakref.ref(answer)  # who leaves an answer ends it
        return answer

    def _end_last(self) -> None:
        """End the answer before, if it still goes on."""
        last = self._last()
        if last is not None:
            last.close()

    def _forget(self, messages: list[dict[str, Any]], ids: list[int]) -> tuple[list[dict[str, Any]], list[int]]:
        """Return the messages that leave room for an answer, and their tokens; the last one stays."""
        first = 0 if self.system is None else 1
        room = self.session.length - (self.session.length // 4 if self.most is None else self.most) + 1
        while len(ids) > room and len(messages) > first + 2:
            messages = [*messages[:first], *messages[first + 2 :]]  # a message and its answer
            ids = self.template.encode(messages)
        return messages, ids

    def _generate(self, ids: list[int], kept: int, most: int, report: Generation) -> Generator[str, None, None]:
        given: dict[str, Any] = {"stop": self.stop, "before": ids[:kept], "bias": self.bias, "grammar": self.grammar}
        given["drafts"] = self.drafts
        return text(self.session, self.tokenizer, ids[kept:], most, self.sampling, report, **given)

    def _answer(
        self, messages: list[dict[str, Any]], ids: list[int], report: Generation, pieces: Generator[str, None, None]
    ) -> Generator[str, None, None]:
        """Pass the pieces on, and keep the books when they end, however that comes."""
        answer = []
        try:
            with closing(pieces):
                for piece in pieces:
                    answer.append(piece)
                    yield piece
        finally:
            self._cached = [*ids, *report.tokens][: self.session.position]
            self.reports.append(report)
            self.messages = [*messages, {"role": "assistant", "content": "".join(answer)}]


def check_text(name: str, given: object) -> str:
    """Return what was given, which has to be text."""
    if not isinstance(given, str):
        raise InvalidArgument("chat", f"{name} is {type(given).__name__}", allowed="str")
    return given
