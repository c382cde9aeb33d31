"""Choose the tokens of each step of an engine whose model keeps states, and the slots of these states; no device.

A state summarizes all of its tokens: if a sequence has a prefix in common with another one, it continues from the
states after that prefix, if a slot still has them.
"""

from __future__ import annotations

from .pages import ROOT, SlotPool
from .steps import SPAN
from .turns import NO_SLOT, SequenceState, StepParts, Turns

SHARE = 4  # the part of a prompt's length after which its states are worth a slot


class StateScheduler(Turns):
    """Plans steps over a pool of slots, of which there are at least `batch`.

    A running request holds the slot of its states. A step has one token of every text, and a span of the prompt of one
    request that reads; with `single` prompts are read like completions, token by token. A step may write to a different
    slot from the one that it reads. So states after a beginning that others may have, of a prompt and of a text that is
    complete, stay in their slot until it is needed, and cost no copy.
    """

    def __init__(self, pool: SlotPool, tokens: int, batch: int, single: bool = False) -> None:
        super().__init__(tokens, batch)
        self.pool, self.single = pool, single

    def commit(self, state: SequenceState, count: int) -> None:
        """Note that a step has computed so many tokens of a request."""
        state.computed += count
        far = state.computed - state.known >= max(SPAN, len(state.request.prompt) // SHARE)
        if state.pending == 1 or (state.pending and far):  # within the prompt: of a text the next token comes later
            self._learn(state)

    def _learn(self, state: SequenceState) -> None:
        self.pool.learn(state.slot, ROOT, state.tokens[: state.computed])
        state.known = state.computed

    def _extend(self, state: SequenceState, plan: StepParts) -> None:
        """Put pending tokens of a running request into the plan: one, or a span if no other request has one."""
        self._share(state)
        count = min(state.pending, 1 if self.single else plan.left)
        if count == state.pending > 1 and self._is_awaited(state):
            count -= 1
        if count == 0 or (count > 1 and plan.reader is not None):
            return
        if count > 1:
            plan.reader = state
        plan.parts[state] = count
        plan.left -= count

    def _is_awaited(self, state: SequenceState) -> bool:
        """Whether another request begins with all but the last token of one, and has not read them."""
        most = len(state.tokens) - 1
        return any(
            other is not state and other.computed < most < len(other.tokens) and _begin_alike(state, other, most)
            for other in (*self.running, *self.waiting)
        )

    def _share(self, state: SequenceState) -> None:
        """Hold the slot with the states after most of a request's tokens, but not all, if that is more than it has."""
        found = self.pool.find_longest(state.tokens, state.computed) if state.pending > 1 else None
        if found is None:
            return
        slot, count = found
        self.pool.share(slot)
        if state.slot != NO_SLOT:
            self.pool.release([state.slot])
        state.shared += count - state.computed
        state.slot, state.computed, state.known = slot, count, count
        if not state.request.tokens:
            state.request.cached = state.shared

    def _has_room(self, state: SequenceState) -> bool:
        """Whether there is a slot: there is one for each of the batch."""
        return True

    def _withdraw(self, state: SequenceState, plan: StepParts) -> None:
        if plan.reader is state:
            plan.reader = None

    def _place(self, plan: StepParts) -> None:
        """Choose the slots that a step writes: those that it reads, unless others hold them or may want them.

        Several hold a slot only if it is known, and then fewer than the batch are held: there is another one. A slot
        that has no holder left is read before a step writes.
        """
        for state in plan.parts:
            state.source = state.slot
            if state.slot == NO_SLOT:
                state.slot = self.pool.take()
            elif self.pool.knows(state.slot) and self.pool.available:
                state.slot = self.pool.take()
                self.pool.release([state.source])
            else:
                self.pool.forget(state.slot)

    def _give_back(self, state: SequenceState, right: bool = True) -> None:
        if state.slot != NO_SLOT:
            if right and state.computed:
                self._learn(state)
            self.pool.release([state.slot])
        state.slot, state.computed, state.shared, state.known = NO_SLOT, 0, 0, 0


def _begin_alike(one: SequenceState, other: SequenceState, count: int) -> bool:
    return one.tokens[count - 1] == other.tokens[count - 1] and one.tokens[:count] == other.tokens[:count]
