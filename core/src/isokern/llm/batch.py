"""Steps of an engine on its device: the tokens of many sequences through one program, and what is drawn after each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from ..dtypes import DType
from ..status import IsokernError
from ..tensors import Tensor, empty
from .drawing import largest
from .logprobs import TokenLogprobs, find_logprobs
from .model import Model
from .places import Step
from .program import DecoderProgram
from .sampling import HISTORY
from .scheduler import Scheduler
from .steps import BatchStep
from .turns import SequenceState

PAGE = 16  # positions of a page

Drawn = dict[SequenceState, list[tuple[int, TokenLogprobs | None] | BaseException]]
"""The next tokens of each sequence, with their log probabilities if requested; an error in place of the last one."""


class StepRunner(ABC):
    """Runs the steps that an engine plans, through programs that are compiled when a step of their size comes first."""

    def __init__(self, model: Model, step: Step) -> None:
        self.model = model
        self.caches: dict[str, Tensor] = {
            f"blk.{layer}.{name}": empty(shape, kept, device=model.device)
            for layer in range(model.config.layers)
            for name, (shape, kept) in model.config.keep(step, layer).items()
        }
        self.programs: dict[tuple[int, int], DecoderProgram] = {}

    def run(self, parts: Mapping[SequenceState, int]) -> Drawn:
        """Compute a step, and return the next tokens of each text that it brings to its end."""
        return self._draw(self._compute(parts), parts)

    @abstractmethod
    def _compute(self, parts: Mapping[SequenceState, int]) -> Tensor:
        """Run a step, and return the logits after the last token of each text and after its drafts, in order."""

    def _draw(self, logits: Tensor, parts: Mapping[SequenceState, int]) -> Drawn:
        """Return the next tokens of each text: one, and one more after each draft that is what was drawn."""
        rows = {state: count_rows(state, count) for state, count in parts.items()}
        texts = [state for state, count in rows.items() if count]
        try:
            likeliest = largest(logits) if any(state.request.drawing.plain for state in texts) else []
        except IsokernError:  # which sequence is at fault is found one by one
            likeliest = []
        made, row = {}, 0
        for state in texts:
            told = likeliest[row:] if state.request.drawing.plain else []
            drawn = _draw_each(state, logits, row, rows[state], told)
            made[state] = _add_logprobs(drawn, logits[row : row + rows[state]], state.request.top)
            row += rows[state]
        return made


class BatchRunner(StepRunner):
    """Runs the steps that a scheduler plans, of sequences of up to `context` positions, over caches of its pages.

    With `exact` there is one program, for all steps.
    """

    def __init__(self, model: Model, context: int, scheduler: Scheduler, dtype: DType, *, exact: bool) -> None:
        self.context, self.scheduler, self.dtype, self.exact = context, scheduler, dtype, exact
        self.activations = model.activations
        super().__init__(model, self._step(1, 1))

    def _compute(self, parts: Mapping[SequenceState, int]) -> Tensor:
        """Run a step, and return the logits after the last token of each text and after its drafts, in order."""
        ids = {state: [*state.tokens[state.computed :][:count], *state.drafts] for state, count in parts.items()}
        wanted = sum(count_rows(state, count) for state, count in parts.items())
        program = self._program(sum(map(len, ids.values())), wanted)
        arrays = {name: np.zeros(held.shape, np.int64) for name, held in program.inputs.items()}
        for name in {"slots", "near_slots"} & arrays.keys():
            arrays[name][:] = -1
        at = span = row = 0
        for state, tokens in ids.items():
            own, places = slice(at, at + len(tokens)), np.arange(state.computed, state.computed + len(tokens))
            arrays["tokens"][own] = tokens
            arrays["positions"][own] = places
            tables = {"": np.array(state.pages)}
            if self.scheduler.near is not None:  # who are unseen have a page of the sequence in their place
                tables["near_"] = np.array([state.near[0]] * state.unseen + state.near)
            for name, pages in tables.items():
                arrays[name + "slots"][own] = pages[places // PAGE] * PAGE + places % PAGE
            for count in [1] * len(tokens) if self.exact else [len(tokens)]:
                at += count
                for name, pages in tables.items():
                    arrays[name + "table"][span, : len(pages)] = pages
                arrays["lengths"][span] = places[at - own.start - 1] + 1
                span += 1
                arrays["starts"][span:] = at
            rows = count_rows(state, parts[state])
            arrays["rows"][row : row + rows] = np.arange(at - rows, at)
            row += rows
        for name, array in arrays.items():
            program.inputs[name].copy_from(array)
        program.recording.replay()
        return program.logits[:wanted]

    def _program(self, tokens: int, rows: int) -> DecoderProgram:
        """Return the program for so many tokens and rows of logits, of the shape that is the next larger one."""
        most, texts = self.scheduler.tokens, self.scheduler.batch * (1 + self.scheduler.drafts)
        if self.exact:
            shape = most, texts
        elif tokens == rows:
            shape = (min(power(tokens), texts),) * 2
        else:
            shape = min(power(tokens), most), 1 if rows < 2 else texts
        if shape not in self.programs:
            self.programs[shape] = DecoderProgram(self.model, self._step(*shape), self.caches)
        return self.programs[shape]

    def _step(self, tokens: int, rows: int) -> BatchStep:
        activations = self.activations
        sequences = tokens if self.exact else self.scheduler.batch
        pages, near = self.scheduler.pool.count, self.scheduler.near
        return BatchStep(
            self.context, tokens, rows, sequences, pages, PAGE, self.dtype, activations, near.count if near else 0
        )


def count_rows(state: SequenceState, count: int) -> int:
    """Return after how many of the tokens of a step's part something is drawn."""
    return 1 + len(state.drafts) if count == state.pending else 0


def _draw_each(
    state: SequenceState, logits: Tensor, row: int, count: int, likeliest: Sequence[int]
) -> list[int | BaseException]:
    """Return the tokens that are drawn one after another, while they are the drafts.

    Their logits are `count` rows from `row` on; `likeliest` are the tokens of these, if the request wants them.
    """
    drawing, made = state.request.drawing, list[int | BaseException]()
    for i in range(count):
        try:
            if likeliest:
                token = likeliest[i]
            else:
                known = [*state.tokens[-HISTORY:], *state.drafts[:i]]
                token = drawing.draw(logits[row + i : row + i + 1], len(state.tokens) + i, known)
        except BaseException as error:  # whatever it is: a library's panic is not an Exception
            return [*made, error]
        made.append(token)
        if i < len(state.drafts) and token != state.drafts[i]:
            break
    return made


def _add_logprobs(
    drawn: Sequence[int | BaseException], logits: Tensor, top: int | None
) -> list[tuple[int, TokenLogprobs | None] | BaseException]:
    """Return drawn tokens with their log probabilities by the rows of `logits`, if requested."""
    tokens = [token for token in drawn if not isinstance(token, BaseException)]
    found: Sequence[TokenLogprobs | None] = [None] * len(tokens)
    if top is not None and tokens:
        found = find_logprobs(logits[: len(tokens)], tokens, top)
    return [*zip(tokens, found, strict=True), *(error for error in drawn if isinstance(error, BaseException))]


def power(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()
