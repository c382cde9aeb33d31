"""The order of requests in an engine's steps: those that run, those that wait, and which are preempted for others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter

from .pages import ROOT, Key
from .request import CANCELLED, FAILED, Request
from .speculation import Lookup

NO_SLOT = -1
AHEAD = 64  # steps by which one more of priority puts a request before others
BY_RANK = attrgetter("rank")


@dataclass(eq=False)
class SequenceState:
    """The state of a request in an engine: its `tokens`, the first `computed` of them in `pages` or in a slot.

    The first `full` pages are full and their content, `content`, is known to the pool; `shared` tokens were found in
    it. `near` are the pages of layers with windows, if these have their own pool: for the same positions, without the
    first `unseen`, which all windows have passed. `drafts` are tokens that may follow, which the step
    computes as well.

    `slot` has the states after `computed` tokens, or will have them after the step that is being planned, which reads
    those before from `source`; NO_SLOT if there are none. The pool knew its states after `known` tokens last.

    It is the request of this `number`, and came after `step` steps.
    """

    request: Request
    number: int
    step: int
    tokens: list[int]
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    near: list[int] = field(default_factory=list)
    unseen: int = 0
    full: int = 0
    content: int = ROOT
    shared: int = 0
    drafts: list[int] = field(default_factory=list)
    lookup: Lookup = field(default_factory=Lookup)
    slot: int = NO_SLOT
    source: int = NO_SLOT
    known: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """The order in which requests are served: as they came, each AHEAD steps earlier for one of its priority.

        So a request waits for later ones of higher priority, but not for those that come without end.
        """
        return self.step - AHEAD * self.request.priority, self.number

    @property
    def pending(self) -> int:
        """How many tokens are not computed: 1 while the text is made, more while its prompt is read."""
        return len(self.tokens) - self.computed


@dataclass
class StepParts:
    """A step that is being planned: how many tokens of whom, how many more there may be, and pages about to be full.

    `reader` has the span of a step whose model keeps states.
    """

    left: int
    parts: dict[SequenceState, int] = field(default_factory=dict)
    promised: set[Key] = field(default_factory=set)
    reader: SequenceState | None = None


class Turns(ABC):
    """Plans steps of up to `tokens` tokens, of up to `batch` requests.

    Every running request that makes its text has one token in each step, and what is left of a step reads prompts, in
    order of rank. A request waits until there is space for it; no request of lower rank starts before it, and those
    that run with a lower rank and priority make room. A text that is made has up to `drafts` more tokens in a step,
    which followed in it before; `tokens` are at least `batch` times all of these.
    """

    def __init__(self, tokens: int, batch: int, drafts: int = 0) -> None:
        self.tokens, self.batch, self.drafts = tokens, batch, drafts
        self.running: list[SequenceState] = []
        self.waiting: list[SequenceState] = []  # by rank
        self._count = self._steps = 0

    def add(self, request: Request) -> None:
        """Append a request to those that wait."""
        self._count += 1
        insort(self.waiting, SequenceState(request, self._count, self._steps, list(request.prompt)), key=BY_RANK)

    def plan(self) -> dict[SequenceState, int]:
        """Return how many tokens of each request the next step computes; none if there is nothing to do.

        Its drafts are not counted. Requests that were cancelled are finished here.
        """
        for state in [s for s in (*self.running, *self.waiting) if s.request.cancelled]:
            self.finish(state, CANCELLED)
        plan = self._fill()
        if not plan.parts:  # who waited for a page of one that then gave way, does so no more
            plan = self._fill()
        self._steps += bool(plan.parts)
        self._place(plan)
        return plan.parts

    def finish(self, state: SequenceState, reason: str, error: BaseException | None = None) -> None:
        """Take a request out; others may have what it has."""
        (self.running if state in self.running else self.waiting).remove(state)
        try:
            self._give_back(state, reason != FAILED)
        finally:
            state.request.finish(reason, error)

    @abstractmethod
    def commit(self, state: SequenceState, count: int) -> None:
        """Note that a step has computed so many tokens of a request."""

    def _fill(self) -> StepParts:
        """Return a step with tokens of running requests, and of those that wait as far as there is room."""
        plan, order = StepParts(self.tokens), sorted(self.running, key=BY_RANK)
        for reading in (False, True):
            for state in order:
                if state in self.running and (state.pending > 1) == reading:
                    self._extend(state, plan)
        while self.waiting and plan.left:
            state = self.waiting[0]
            if not self._admit(state, plan):
                break
            self._extend(state, plan)
        return plan

    def _admit(self, state: SequenceState, plan: StepParts) -> bool:
        """Let a waiting request run if there is room for it, and return whether it does.

        Running ones of lower rank and priority make room.
        """
        self._share(state)
        while not self._has_room(state) or len(self.running) == self.batch:
            worst = max(self.running, key=BY_RANK, default=state)
            if worst.request.priority >= state.request.priority or worst.rank < state.rank:
                self._give_back(state)
                return False
            self._preempt(worst, plan)
        self.waiting.remove(state)
        self.running.append(state)
        return True

    def _preempt(self, state: SequenceState, plan: StepParts) -> None:
        """Have a running request wait again."""
        if state in plan.parts:
            self._withdraw(state, plan)
            plan.left += plan.parts.pop(state) + len(state.drafts)
        self.running.remove(state)
        self._give_back(state)
        insort(self.waiting, state, key=BY_RANK)

    @abstractmethod
    def _extend(self, state: SequenceState, plan: StepParts) -> None:
        """Put as many pending tokens of a running request into the plan as there is room for."""

    @abstractmethod
    def _share(self, state: SequenceState) -> None:
        """Hold what was computed of a request's tokens already; the last token is always computed."""

    @abstractmethod
    def _has_room(self, state: SequenceState) -> bool:
        """Whether there is memory for a request that waits."""

    @abstractmethod
    def _withdraw(self, state: SequenceState, plan: StepParts) -> None:
        """Undo the plan of a request, except for its tokens."""

    @abstractmethod
    def _place(self, plan: StepParts) -> None:
        """Choose the places of a complete plan's results, if that is not done yet."""

    @abstractmethod
    def _give_back(self, state: SequenceState, right: bool = True) -> None:
        """Free what a request holds, which begins again; others may find it if it is `right`."""
