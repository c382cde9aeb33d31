"""Which tokens of which requests an engine's next step computes, and where in the cache they go; knows no device."""

from __future__ import annotations

from .pages import ROOT, Key, PagePool
from .turns import BY_RANK, SequenceState, StepParts, Turns

MISSING = -1  # in place of a page


class Scheduler(Turns):
    """Plans steps over a pool of pages.

    A request waits until the pool has pages for its prompt. If a running one needs a page and there is none left, the
    one of lowest rank frees all of its pages and waits again: its tokens are computed once more, unless the pool still
    has it. Full pages are shared by all sequences that begin alike, and one that would compute what another is
    computing waits for it.

    Layers that see `window` positions may have a pool of their own, `near`, with room for one sequence at least
    (`count_near`). A sequence has pages of both, and gives those of `near` back that its window has left behind. It
    shares a beginning that `pool` has, where `near` has what the next token sees of it.
    """

    def __init__(
        self, pool: PagePool, tokens: int, batch: int, drafts: int = 0, near: PagePool | None = None, window: int = 0
    ) -> None:
        super().__init__(tokens, batch, drafts)
        self.pool, self.near, self.window = pool, near, window

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

    def _extend(self, state: SequenceState, plan: StepParts) -> None:
        """Put as many pending tokens of a running request into the plan as there is room for."""
        self._share(state)
        state.drafts = []
        key = self._next_page(state)
        if plan.left == 0 or (key in plan.promised and state.computed == len(state.pages) * self.pool.size):
            return
        count = min(state.pending, plan.left)
        while len(state.pages) * self.pool.size < state.computed + count:
            if self._available == 0:
                self._preempt(max(self.running, key=BY_RANK), plan)
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
        """Find up to `most` drafts, as far as the sequence's length and pages that no other request may need allow."""
        most = min(most, self.drafts, state.request.most - len(state.request.tokens) - 1)
        drafts = state.lookup.find_drafts(state.tokens, most) if most > 0 else []
        while (len(state.tokens) + len(drafts)) > len(state.pages) * self.pool.size and drafts:
            if self._available <= len(self.running):
                drafts.pop()
            else:
                self._take(state)
        state.drafts = drafts

    @property
    def _available(self) -> int:
        """The least number of pages without a holder, over the pools."""
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

    def _withdraw(self, state: SequenceState, plan: StepParts) -> None:
        plan.promised.discard(self._next_key(state))  # no request may wait for it

    def _place(self, plan: StepParts) -> None:
        """Do nothing: pages are taken while a step is planned."""

    def _give_back(self, state: SequenceState, right: bool = True) -> None:
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
