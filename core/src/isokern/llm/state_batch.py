"""Steps of an engine whose model keeps states: one token of each of many sequences, and a span of one prompt."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..tensors import Tensor
from .batch import StepRunner, count_rows, power
from .model import Model
from .program import DecoderProgram
from .state_scheduler import StateScheduler
from .state_steps import StateStep
from .turns import NO_SLOT, SequenceState

LEAST = 8  # tokens of a span: fewer cost as much


class StateRunner(StepRunner):
    """Runs the steps that a scheduler plans, of sequences of up to `context` positions, over states in its slots.

    If the scheduler reads prompts token by token, there is one program, for all steps.
    """

    def __init__(self, model: Model, context: int, scheduler: StateScheduler) -> None:
        self.context, self.scheduler, self.activations = context, scheduler, model.activations
        super().__init__(model, self._step(1, 0))
        for held in self.caches.values():  # the states of a sequence that begins
            beginning = held[scheduler.pool.count :]
            beginning.copy_from(np.zeros(beginning.shape, np.float32))

    def _compute(self, parts: Mapping[SequenceState, int]) -> Tensor:
        readers = [state for state, count in parts.items() if count > 1]
        program, texts, span = self._program(len(parts) - len(readers), sum(parts[state] for state in readers))
        arrays = {
            n: np.zeros(held.shape, np.float32 if n == "real" else np.int64) for n, held in program.inputs.items()
        }
        arrays["sources"][:], arrays["slots"][:] = self.scheduler.pool.count, -1
        wanted, text = 0, 0
        for state, count in parts.items():
            ids = state.tokens[state.computed :][:count]
            if count > 1:
                number, at = texts, texts
                ids += ids[-1:] * (span - count)  # whatever is behind leaves no trace, unless it is NaN
                arrays["last"][:], arrays["real"][:count] = count - 1, 1
            else:
                number = at = text
                text += 1
            arrays["tokens"][at : at + len(ids)] = ids
            if state.source != NO_SLOT:
                arrays["sources"][number] = state.source
            arrays["slots"][number] = state.slot
            if count_rows(state, count):
                arrays["rows"][wanted] = at + count - 1
                wanted += 1
        for name, array in arrays.items():
            program.inputs[name].copy_from(array)
        program.recording.replay()
        return program.logits[:wanted]

    def _program(self, texts: int, span: int) -> tuple[DecoderProgram, int, int]:
        """Return the program for at least so many sequences and tokens of a prompt, and the numbers that it is for."""
        most, batch = self.scheduler.tokens, self.scheduler.batch
        if self.scheduler.single:
            shape = batch, 0
        elif span:
            shape = 1 if texts < 2 else batch, min(max(power(span), LEAST), most)
        else:
            shape = min(power(texts), batch), 0
        if shape not in self.programs:
            self.programs[shape] = DecoderProgram(self.model, self._step(*shape), self.caches)
        return self.programs[shape], *shape

    def _step(self, texts: int, span: int) -> StateStep:
        return StateStep(self.context, texts, span, self.scheduler.pool.count, self.activations)
