"""Which tokens of which requests an engine's next step computes, and where in the cache they go; knows no device."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from .pages import ROOT, Key, PagePool
from .request import CANCELLED, Request
from .speculation import Lookup

MISSING = -1  # in place of a page


@dataclass(eq=False)
class SequenceState:
    """What the cache has of a request: the first `computed` of its `tokens`, prompt and text, in `pages`.

    The first `full` pages are full and their content, `content`, is known to the pool; `shared` tokens were found in
    it. `near` are the pages of layers with windows, where these have a pool of their own: for the same positions,
    without the first `unseen`, which no window shows any more. `drafts` are tokens that may follow, which the step
    computes as well.
    """

    request: Request
    number: int
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

    @property
    def rank(self) -> tuple[int, int]:
        """The order in which requests are served: by priority, then as they came."""
        return -self.request.priority, self.number

    @property
    def pending(self) -> int:
        """How many tokens are not computed: 1 while the text is made, more while its prompt is read."""
        return len(self.tokens) - self.computed


@dataclass
class _Batch:
    """A step that is being planned: how many tokens of whom, how many more there may be, and pages about to be full."""

    left: int
    parts: dict[SequenceState, int] = field(default_factory=dict)
    promised: set[Key] = field(default_factory=set)


class Scheduler:
    """Plans steps of up to `tokens` tokens, of up to `batch` requests, over a pool of pages.

    Every running request that makes its text has one token in each step, and what is left of a step reads prompts, in
    order of rank. A request waits until the pool has room for its prompt; nobody of lower rank overtakes it. Where a
    running one needs a page and there is none, the one of lowest rank gives all of its pages back and waits again: what
    it computed is computed once more, unless the pool still has it. Full pages are shared by all sequences that begin
    alike, and one that would compute what another is computing waits for it. A text that is made has up to `drafts`
    more tokens in a step, which followed in it before; `tokens` are at least `batch` times all of these.

    Layers that see `window` positions may have a pool of their own, `near`, with room for one sequence at least
    (`count_near`). A sequence has pages of both, and gives those of `near` back that its window has left behind. It
    shares a beginning that `pool` has, where `near` has what the next token sees of it.
    """

    def __init__(
        self, pool: PagePool, tokens: int, batch: int, drafts: int = 0, near: PagePool | None = None, window: int = 0
    ) -> None:
        self.pool, self.tokens, self.batch, self.drafts, self.near = pool, tokens, batch, drafts, near
        self.window = window
        self.running: list[SequenceState] = []
        self.waiting: list[SequenceState] = []  # by rank
        self._count = 0

    def add(self, request: Request) -> None:
        """Have a request wait for its turn."""
        self._count += 1
        insort(self.waiting, SequenceState(request, self._count, list(request.prompt)), key=_rank)

    def plan(self) -> dict[SequenceState, int]:
        """Return how many tokens of each request the next step computes; none where there is nothing to do.

        Its drafts are not counted. Requests that were cancelled are finished here.
        """
        for state in [s for s in (*self.running, *self.waiting) if s.request.cancelled]:
            self.finish(state, CANCELLED)
        plan = self._fill()
        if not plan.parts:  # who waited for a page of one that then gave way, does so no more
            plan = self._fill()
        return plan.parts

    def _fill(self) -> _Batch:
        """Return a step with tokens of running requests, and of those that wait as far as there is room."""
        plan, order = _Batch(self.tokens), sorted(self.running, key=_rank)
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

    def commit(self, state: SequenceState, count: int) -> None:
        """Note that a step has computed so many tokens of a request."""
        state.computed += count
        while (state.full + 1) * self.pool.size <= state.computed:
            key = self._next_key(state)
            if self.near is not None:
                self.near.learn(state.near[state.full - state.unseen], *key)
            state.content = self.pool.learn(state.pages[state.full], *key)
            state.full += 1
        self._release_unseen(state)

    def finish(self, state: SequenceState, reason: str, error: BaseException | None = None) -> None:
        """Take a request out and give its pages back."""
        (self.running if state in self.running else self.waiting).remove(state)
        self._give_back(state)
        state.request.finish(reason, error)

    def _extend(self, state: SequenceState, plan: _Batch) -> None:
        """Put as many pending tokens of a running request into the plan as there is room for."""
        self._share(state)
        state.drafts = []
        key = self._next_page(state)
        if plan.left == 0 or (key in plan.promised and state.computed == len(state.pages) * self.pool.size):
            return
        count = min(state.pending, plan.left)
        while len(state.pages) * self.pool.size < state.computed + count:
            if self._available == 0:
                self._preempt(max(self.running, key=_rank), plan)
                if state not in self.running:
                    return
            else:
                self._take(state)
        if count == state.pending == 1 and self.drafts:
            self._find_drafts(state, plan.left - 1)
        plan.parts[state] = count
        plan.left -= count + len(state.drafts)
        if key is not None:
            plan.promised.add(key)

    def _find_drafts(self, state: SequenceState, most: int) -> None:
        """Find up to `most` drafts for a text, as far as its length and pages that nobody else may need allow."""
        most = min(most, self.drafts, state.request.most - len(state.request.tokens) - 1)
        drafts = state.lookup.find_drafts(state.tokens, most) if most > 0 else []
        while (len(state.tokens) + len(drafts)) > len(state.pages) * self.pool.size and drafts:
            if self._available <= len(self.running):
                drafts.pop()
            else:
                self._take(state)
        state.drafts = drafts

    def _admit(self, state: SequenceState, plan: _Batch) -> bool:
        """Let a waiting request run if there is room for its tokens and one more, and return whether it does.

        Running ones of lower priority make room.
        """
        self._share(state)
        while not self._has_room(state) or len(self.running) == self.batch:
            worst = max(self.running, key=_rank, default=state)
            if worst.request.priority >= state.request.priority:
                self._give_back(state)
                return False
            self._preempt(worst, plan)
        self.waiting.remove(state)
        self.running.append(state)
        return True

    @property
    def _available(self) -> int:
        """How many pages of each pool nobody holds, at least."""
        return self.pool.available if self.near is None else min(self.pool.available, self.near.available)

    def _has_room(self, state: SequenceState) -> bool:
        """Whether there are pages for the tokens of a request and one more; of `near`, as many as it has at once."""
        pages = len(state.tokens) // self.pool.size + 1
        if self.near is not None:
            most = min(count_near(self.window, self.tokens, self.near.size), self.near.count)
            if self.near.available < min(pages - state.unseen, most) - len(state.near):
                return False
        return self.pool.available >= min(pages, self.pool.count) - len(state.pages)

    def _take(self, state: SequenceState) -> None:
        """Give a sequence its next page, of each pool."""
        state.pages.append(self.pool.take())
        if self.near is not None:
            state.near.append(self.near.take())

    def _release_unseen(self, state: SequenceState) -> None:
        """Give the pages back that the window of a sequence's next token has left behind."""
        if self.near is not None:
            left = self._first_seen(state.computed) - state.unseen
            self.near.release(state.near[:left])
            del state.near[:left]
            state.unseen += left

    def _first_seen(self, position: int) -> int:
        """Return the first page that the window of a position shows a part of."""
        return max(position - self.window + 1, 0) // self.pool.size

    def _share(self, state: SequenceState) -> None:
        """Hold the pages that contain what comes next, without computing it; the last token is always computed."""
        start, size = len(state.pages), self.pool.size
        if state.computed < start * size:
            return
        found, near = self._find(state)
        for page in found:
            state.content = self.pool.content(page)
            self.pool.share(page)
            state.pages.append(page)
        count = len(found)
        state.full += count
        state.computed += count * size
        state.shared += count * size
        self._release_unseen(state)
        if self.near is not None:
            for page in near[max(state.unseen - start, 0) :]:
                self.near.share(page)
                state.near.append(page)
        if count and not state.request.tokens:
            state.request.cached = state.shared

    def _find(self, state: SequenceState) -> tuple[list[int], list[int]]:
        """Return the pages of each pool that contain what comes next, as far as a token behind them has what it sees.

        Of `near`, those that it does not see may be MISSING.
        """
        start, size, content = len(state.pages), self.pool.size, state.content
        found, near = list[int](), list[int]()
        for at in range(start * size, len(state.tokens) - size, size):
            key = content, tuple(state.tokens[at : at + size])
            page = self.pool.find(*key)
            if page is None:
                break
            found.append(page)
            content = self.pool.content(page)
            if self.near is not None:
                other = self.near.find(*key)
                near.append(MISSING if other is None else other)
        if self.near is None:
            return found, near
        while near:
            first = max(self._first_seen((start + len(near)) * size) - start, 0)
            if MISSING not in near[first:]:
                break
            del near[near.index(MISSING, first) :]
        return found[: len(near)], near

    def _next_key(self, state: SequenceState) -> Key:
        at = state.full * self.pool.size
        return state.content, tuple(state.tokens[at : at + self.pool.size])

    def _next_page(self, state: SequenceState) -> Key | None:
        """Return what the page will contain that is written next; None where not all of its tokens are known."""
        return self._next_key(state) if (state.full + 1) * self.pool.size <= len(state.tokens) else None

    def _preempt(self, state: SequenceState, plan: _Batch) -> None:
        """Have a running request wait again."""
        if state in plan.parts:
            plan.promised.discard(self._next_key(state))  # nobody may wait for it
            plan.left += plan.parts.pop(state) + len(state.drafts)
        self.running.remove(state)
        self._give_back(state)
        insort(self.waiting, state, key=_rank)

    def _give_back(self, state: SequenceState) -> None:
        self.pool.release(state.pages)
        if self.near is not None:
            self.near.release(state.near)
        state.pages, state.computed, state.full, state.content, state.shared = [], 0, 0, ROOT, 0
        state.near, state.unseen = [], 0


def count_near(window: int, tokens: int, size: int) -> int:
    """Return how many pages of `size` positions a sequence has at most in layers with a window, in steps of `tokens`.

    These are pages of window - 1 + tokens positions in a row, wherever they begin.
    """
    return (window + tokens - 3 + size) // size + 1


def _rank(state: SequenceState) -> tuple[int, int]:
    return state.rank
