"""Text from a model: prefill in chunks, then one token a step, streamed as it comes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from ..arguments import integer
from ..status import InvalidArgument, quote
from .drawing import Drawing, add_suppressed
from .grammar import Grammar, GrammarState
from .sampling import Sampling, check_sampling
from .session import DrawingProgram, Session, read_ends
from .speculation import Lookup
from .steps import SPAN
from .tokenizer import Tokenizer


@dataclass
class Generation:
    """The result of a generation, and how long it took.

    Times are seconds, by the wall clock; `ended` is whether the model itself ended the text, and `stopped` the stop
    string that did. `accepted` of the tokens were right drafts.
    """

    prompt_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    ended: bool = False
    stopped: str = ""
    accepted: int = 0

    @property
    def prefill_rate(self) -> float:
        """Tokens of the prompt a second."""
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens a second after the first, which prefill gives."""
        return (len(self.tokens) - 1) / self.decode_seconds if self.decode_seconds else 0.0


def tokens(
    session: Session,
    prompt: Iterable[int],
    most: int,
    sampling: Sampling,
    ends: Iterable[int],
    report: Generation,
    *,
    before: Sequence[int] = (),
    bias: Mapping[int, float] | None = None,
    constraint: GrammarState | None = None,
    keep: int | None = None,
    drafts: int = 0,
) -> Generator[int, None, None]:
    """Return an iterator of up to `most` tokens after `prompt`, until one of `ends`.

    `report` is filled in as they come; `before` are the tokens in the session's cache, for a repetition penalty to look
    back on; `bias` is added to the logits of its tokens, and -inf excludes one, as do the model's `suppressed`;
    `constraint` masks tokens that its grammar does not allow. With `keep` generation goes on when the cache is full: so
    many of the first positions stay, and half of the others are dropped (`Session.drop`). With `drafts` a step also
    computes up to so many tokens that followed in the text before; those that are drawn indeed take no step of their
    own, and the text is the same; models that keep states have none. Everything is checked, and what reads the prompt
    is compiled, before this returns; the step of one token is compiled when the first token is out.

    If others change the session between two tokens, generation goes on from its new state. Raises InvalidArgument if
    the prompt is empty, has tokens out of range or, with the requested tokens, does not fit the cache, or an option is
    wrong; and, from the iterator, if logits have NaN, the session was cleared or, with drafts, no longer ends with the
    generated tokens. Warns if the sequence may go beyond the context that the model was trained on.
    """
    most, ends, sampling = integer("generate", "max_tokens", most, 1), read_ends(ends), check_sampling(sampling)
    if not isinstance(report, Generation) or report.tokens:
        raise InvalidArgument("generate", f"report={quote(report)}", allowed="a Generation of no tokens yet")
    if keep is not None:
        keep = integer("generate", "keep", keep, 0, session.length - 2)
        session.drop(0, 0)  # raises now if that is impossible
    drafts, config = check_drafts(session, drafts), session.model.config
    ids = session.check(prompt, most - 1 if keep is None else 0)
    trained, last = config.context, session.position + len(ids) + most - 1
    last = last if keep is None else min(last, session.length)
    if last > trained:
        warnings.warn(
            f"{last} positions are more than the {trained} that the model was trained on: its text may get worse",
            stacklevel=2,
        )
    bias = add_suppressed(bias, session.model.suppressed)
    draw: _Recorded | _Apart
    if sampling.fused and not bias and constraint is None and not drafts:
        draw = _Recorded(session, sampling)
    else:
        drawing = Drawing(sampling, bias, config.vocabulary, session.device, constraint)
        draw = _Drafted(session, drawing, drafts, report) if drafts else _Apart(session, drawing)
    sizes = session.cut(len(ids))
    for size, _ in sizes[:-1]:
        session.program(size)
    draw.prepare(sizes[-1][0])  # compiled before the clock starts
    report.prompt_tokens = len(ids)
    each = _steps(session, sizes, draw, most, ends, report, [*before, *ids], keep)
    return _give_back(each, draw) if isinstance(draw, _Drafted) else each


def check_drafts(session: Session, drafts: int) -> int:
    """Return how many drafts a step may have; InvalidArgument if they are too many, or the model keeps states."""
    drafts = integer("generate", "drafts", drafts, 0, SPAN - 1)
    if drafts and session.model.config.recurrent:
        given, hint = f"drafts={drafts} of a model that keeps states", "a state cannot give back what a draft put in"
        raise InvalidArgument("generate", given, allowed="0", hint=hint)
    return drafts


def _give_back(each: Iterator[int], draw: _Drafted) -> Generator[int, None, None]:
    """Yield tokens; remove from the cache those that were not taken, unless others have changed it since."""
    try:
        yield from each
    finally:
        if draw.session.end == draw.end:
            draw.session.rewind(draw.session.position - len(draw.ahead))


def _steps(
    session: Session,
    sizes: Sequence[tuple[int, int]],
    draw: _Recorded | _Apart,
    most: int,
    ends: frozenset[int],
    report: Generation,
    history: list[int],
    keep: int | None,
) -> Generator[int, None, None]:
    """Run programs of these sizes for the end of `history`, the prompt; then one token a step."""
    begin, at = time.perf_counter(), len(history) - report.prompt_tokens
    for size, count in sizes[:-1]:
        session.program(size).run(history[at : at + count])
        at += count
    token = draw.after(sizes[-1][0], history[at:], history)
    report.prefill_seconds = time.perf_counter() - begin
    while True:
        draw.end = session.end
        if token in ends:
            report.ended = True
            return
        report.tokens.append(token)
        history.append(token)
        yield token
        if len(report.tokens) == most:
            return
        if session.end != draw.end and (session.clears != draw.end[0] or isinstance(draw, _Drafted)):
            given = "the session was cleared, rewound or written to since the last token"
            raise InvalidArgument("generate", given, allowed="dropping positions, and without drafts all but clear()")
        draw.prepare(1)
        begin = time.perf_counter()
        if keep is not None and session.position == session.length:
            session.drop(keep, (session.length - keep + 1) // 2)
        token = draw.after(1, [token], history)
        report.decode_seconds += time.perf_counter() - begin


class _Recorded:
    """Draws tokens within the programs of the model: a step whose token the last step left there is one replay."""

    def __init__(self, session: Session, sampling: Sampling) -> None:
        self.session, self.sampling = session, sampling
        self.step: DrawingProgram | None = None  # the program for one token, when it is compiled
        self.left: object = None  # what `DrawingProgram.left` was when it left this text's token in its input
        self.end = session.end

    def prepare(self, count: int) -> None:
        """Compile the program for up to `count` tokens."""
        if count > 1:
            self.session.program(count, sampling=self.sampling)
        elif self.step is None:
            self.step = self.session.program(1, sampling=self.sampling)

    def after(self, size: int, part: Sequence[int], history: list[int]) -> int:
        """Append the last part of `history`, by the program for `size` tokens, and return the token drawn after it."""
        self.prepare(size)
        program = self.step if size == 1 else self.session.program(size, sampling=self.sampling)
        assert program is not None
        if self.sampling.penalised:
            program.remember(history)
        goes_on = program is self.step and self.left == (self.session.end, self.session.dropped)
        program.run(None if goes_on else part)
        self.left = program.left if program is self.step else None
        return int(program.tokens.numpy()[-1])


class _Apart:
    """Draws tokens from a program's logits by calls of operators after each run, for what a program does not do."""

    def __init__(self, session: Session, drawing: Drawing) -> None:
        self.session, self.drawing, self.end = session, drawing, session.end

    def prepare(self, count: int) -> None:
        """Compile the program for up to `count` tokens."""
        self.session.program(count)

    def after(self, size: int, part: Sequence[int], history: list[int]) -> int:
        """Append the last part of `history`, by the program for `size` tokens, and return the token drawn after it."""
        program = self.session.program(size)
        program.run(part)
        return self.drawing.draw(program.logits, self.session.position + self.session.dropped, history)


class _Drafted(_Apart):
    """Draws several tokens from the logits of one run, while they are those that followed in the text before.

    `ahead` are those that come next; the cache has as many tokens more than the text that was taken.
    """

    def __init__(self, session: Session, drawing: Drawing, drafts: int, report: Generation) -> None:
        super().__init__(session, drawing)
        self.drafts, self.report, self.lookup, self.ahead = drafts, report, Lookup(), list[int]()

    def after(self, size: int, part: Sequence[int], history: list[int]) -> int:
        """Append the last part of `history`, unless that was a right draft, and return the token drawn after it."""
        if self.ahead:
            self.report.accepted += 1
            return self.ahead.pop(0)
        session = self.session
        found = self.lookup.find_drafts(history, self.drafts) if len(part) == 1 else []
        while found and session.position + (size := 1 << len(found).bit_length()) > session.length:
            found = found[: size // 2 - 1]
        if not found:
            return super().after(size if len(part) > 1 else 1, part, history)
        at, drawn = session.position + 1, list[int]()
        program = session.program(size, every=True)
        program.run([*part, *found])
        for i in range(1 + len(found)):
            row, known = program.logits[i : i + 1], [*history, *found[:i]]
            drawn.append(self.drawing.draw(row, at + i + session.dropped, known))
            if found[i : i + 1] != drawn[-1:]:
                break
        session.rewind(at + len(drawn) - 1)
        self.ahead = drawn[1:]
        return drawn[0]


def text(
    session: Session,
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    most: int,
    sampling: Sampling | None = None,
    report: Generation | None = None,
    *,
    stop: Iterable[str] = (),
    special: bool = False,
    before: Sequence[int] = (),
    bias: Mapping[int, float] | None = None,
    grammar: Grammar | None = None,
    keep: int | None = None,
    drafts: int = 0,
) -> Generator[str, None, None]:
    """Return an iterator of the text that follows `prompt`, each piece of whole characters.

    The completion ends before the first of the strings `stop`, even if it begins within a token. With `special`,
    control tokens that `prompt` spells out are read as tokens; a prompt may also be tokens. With `grammar` the
    completion matches it, in full if the model ends it. Checks and errors are as for `tokens`.
    """
    ending = TextEnding(tokenizer, stop)
    ids = tokenizer.encode(prompt, special=special, eos=False) if isinstance(prompt, str) else prompt
    report = Generation() if report is None else report
    options: dict[str, Any] = {"before": before, "bias": bias, "keep": keep, "drafts": drafts}
    options["constraint"] = None if grammar is None else grammar.begin(tokenizer)
    each = tokens(session, ids, most, check_sampling(sampling), tokenizer.ends, report, **options)
    return _pieces(each, ending, report)


def _pieces(each: Generator[int, None, None], ending: TextEnding, report: Generation) -> Generator[str, None, None]:
    with closing(each):
        for token in each:
            piece = ending.push(token)
            if piece:
                yield piece
            if ending.found:
                break
    piece = ending.end()
    report.stopped = ending.found
    if piece:
        yield piece


class TextEnding:
    """The text of tokens that come one by one, up to the first of some strings, in pieces of whole characters.

    `found` is the string that ended the text, `count` how many tokens came, and `decoded` how many
    characters they have.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Iterable[str]) -> None:
        self._stream, self._strings = tokenizer.stream(), StopStrings(stop)
        self.count = self.decoded = 0

    @property
    def found(self) -> str:
        """The string that ended the text, or nothing."""
        return self._strings.found

    def push(self, token: int) -> str:
        """Add a token, and return the text that is final now."""
        piece = self._stream.push(token)
        self.count += 1
        self.decoded += len(piece)
        return self._strings.push(piece)

    def end(self) -> str:
        """Return the text that was held back, if generation ends without a stop string."""
        return "" if self.found else self._strings.push(self._stream.end()) + self._strings.end()


def read_stop(given: Iterable[str]) -> tuple[str, ...]:
    """Return stop strings, which may come from a generator; InvalidArgument if they are not strings, or empty."""
    stop = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if stop is None or not all(isinstance(s, str) and s for s in stop):
        told = quote(given if stop is None else stop)
        raise InvalidArgument("generate", f"stop={told}", allowed="a sequence of strings that are not empty")
    return stop


class StopStrings:
    """Text up to the first of some strings, in pieces; what may begin one of them is held back until that is known."""

    def __init__(self, stop: Iterable[str]) -> None:
        self.stop = read_stop(stop)
        self.held, self.found = "", ""

    def push(self, piece: str) -> str:
        """Add text, and return the text that is final now."""
        self.held += piece
        places = [(at, s) for s in self.stop if (at := self.held.find(s)) >= 0]
        if places:
            at, self.found = min(places, key=lambda place: place[0])
        else:
            longest = min(len(self.held), max(map(len, self.stop), default=1) - 1)
            tails = (len(self.held) - k for k in range(longest, 0, -1))
            at = next((t for t in tails if any(s.startswith(self.held[t:]) for s in self.stop)), len(self.held))
        told, self.held = self.held[:at], self.held[at:]
        return told

    def end(self) -> str:
        """Return the text that was held back, if generation ends without a stop string."""
        told, self.held = "" if self.found else self.held, ""
        return told
