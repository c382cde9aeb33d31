"""The completions of one HTTP request while the engine generates them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from ..llm import Grammar, Request, Tokenizer, TokenLogprobs
from ..llm.generate import TextEnding
from ..llm.grammar import GrammarState
from ..llm.request import CANCELLED
from ..status import InvalidArgument
from .errors import ApiError, translate
from .schema import TextOptions
from .service import Service, Waker


class TextChoice:
    """A text while it is made: `finish` is empty until it is complete, then `stop` or `length`."""

    def __init__(self, index: int, request: Request, tokenizer: Tokenizer, stop: Sequence[str], echo: str) -> None:
        self.index, self.request, self.echo, self.count, self.finish = index, request, echo, 0, ""
        self.tokenizer, self._ending, self._sent = tokenizer, TextEnding(tokenizer, stop), 0
        self._begins: list[int] = []  # the place in the text of each token whose probability was not returned yet

    def advance(self) -> str:
        """Return the text that has come since the last call; raise what ended it early, as an ApiError."""
        piece = self._advance()
        self._sent += len(piece)
        return piece

    def take_logprobs(self) -> list[tuple[TokenLogprobs, int]] | None:
        """Return the log probabilities of tokens that no call returned before; None if they were not requested.

        Each has the place in the text at which its token begins. Tokens after a stop string are not part of the text.
        """
        if self.request.top is None:
            return None
        begins = list(self._begins)
        whole = self.finish and not self._ending.found
        told = len(begins) if whole else sum(begin < self._sent for begin in begins)
        first = self.count - len(begins)
        del self._begins[:told]
        return list(zip(self.request.logprobs[first : first + told], begins[:told], strict=True))

    def _advance(self) -> str:
        done = self.request.done  # read first: if it is true, the tokens are all
        pieces = []
        for token in self.request.tokens[self.count :]:
            self._begins.append(self._ending.decoded)
            pieces.append(self._ending.push(token))
            self.count += 1
            if self._ending.found:
                self.finish = "stop"
                self.request.cancel()
                return "".join(pieces)
        if done:
            if self.request.error is not None:
                raise translate(self.request.error)
            if self.request.reason == CANCELLED:
                raise ApiError(503, "the server is shutting down", code="shutting_down")
            pieces.append(self._ending.end())
            self.finish = "stop" if self._ending.found else self.request.reason
        return "".join(pieces)


class Choices:
    """All choices for the prompts of one HTTP request, in order: those of the first prompt come first."""

    def __init__(self, service: Service, options: TextOptions) -> None:
        self.service, self.options = service, options
        self.prompt_tokens = 0
        self.made: list[TextChoice] = []
        self._waker, self._cancelled = Waker(), False

    def submit(self, prompts: Sequence[Sequence[int]], echoes: Sequence[str], stop: Sequence[str], field: str) -> None:
        """Submit all prompts to the engine; not in the event loop, since it may have to wait for a step.

        ApiError 400 if a prompt, which is in `field`, is not for this model or does not fit, or an option is
        wrong.
        """
        service, options = self.service, self.options
        for ids, echo in zip(prompts, echoes, strict=True):
            self.prompt_tokens += len(ids)
            room = service.room - len(ids) + 1
            most = min(options.usual, max(room, 1)) if options.most is None else options.most
            if most > room:
                asked = "" if options.most is None else f" and {most} more are asked for"
                message = f"the prompt has {len(ids)} tokens{asked}; allowed: {service.room} in all, the context"
                raise ApiError(400, message, param=field, code="context_length_exceeded")
            self._submit_one(ids, most, echo, stop)

    def _submit_one(self, ids: Sequence[int], most: int, echo: str, stop: Sequence[str]) -> None:
        """Submit all completions of one prompt to the engine."""
        service, options = self.service, self.options
        grammar = options.grammar
        constraint = None if grammar is None else lambda: self._begin(grammar)
        try:
            requests = service.engine.samples(
                ids,
                most,
                options.count,
                options.sampling,
                ends=service.tokenizer.ends,
                bias=options.bias,
                constraint=constraint,
                priority=options.priority,
                listener=self._waker.tell,
                logprobs=options.logprobs,
            )
        except InvalidArgument:
            if service.closing:
                raise ApiError(503, "the server is shutting down", code="shutting_down") from None
            raise
        for request in requests:
            self.made.append(TextChoice(len(self.made), request, service.tokenizer, stop, echo))
            if self._cancelled:  # meanwhile
                request.cancel()

    def _begin(self, grammar: Grammar) -> GrammarState:
        """Return the constraint of a text that begins; ApiError 400 says what is wrong with the grammar."""
        try:
            return grammar.begin(self.service.tokenizer)
        except InvalidArgument as error:
            field = "grammar" if grammar.kind == "gbnf" else "response_format"
            raise ApiError(400, f"{field}: {error}", param=field, code="invalid_grammar") from None

    def cancel(self) -> None:
        """End all completions, also those that another thread is submitting."""
        self._cancelled = True
        for choice in tuple(self.made):
            choice.request.cancel()

    async def pieces(self) -> AsyncIterator[tuple[TextChoice, str]]:
        """Yield each choice with text that is new, and with what completes it, which may be nothing."""
        left = list(self.made)
        while left:
            for choice in left:
                piece = choice.advance()
                if piece or choice.finish:
                    yield choice, piece
            left = [choice for choice in left if not choice.finish]
            if left:
                await self._waker.wait()

    def usage(self) -> dict[str, Any]:
        """Return the counts of tokens, as OpenAI's `usage`; each prompt counts once, however many choices it has."""
        written = sum(choice.count for choice in self.made)
        cached = sum(choice.request.cached for choice in self.made[:: self.options.count])
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": self.prompt_tokens + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
