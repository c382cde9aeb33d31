"""The pages of a cache that many sequences share: which are free, who holds which, and what computed ones contain."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

Key = tuple[int, tuple[int, ...]]
"""The content of a full page: the number of the content before it in its sequence, and its own tokens."""
ROOT = 0  # the content before a sequence's first page


@dataclass
class PagePool:
    """`count` pages of `size` positions; those that no sequence holds keep their content until they are needed.

    A full page whose content is known is found again by it: `find` and `share`. Contents have numbers that are never
    used twice, so that a page is found by exactly the tokens that lead to it.
    """

    count: int
    size: int
    holders: list[int] = field(init=False)
    free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.holders = [0] * self.count
        self.free = list(range(self.count - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()  # pages without a holder, with content; oldest first
        self._known: dict[Key, int] = {}  # the page of a content
        self._contents: dict[int, tuple[Key, int]] = {}  # by page: its key, and the number of its content
        self._last = ROOT

    @property
    def available(self) -> int:
        """The pages without a holder."""
        return len(self.free) + len(self._idle)

    def take(self) -> int:
        """Return a page that had no holder, with one holder; its content is forgotten."""
        if self.free:
            page = self.free.pop()
        else:
            page, _ = self._idle.popitem(last=False)
            self._forget(page)
        self.holders[page] = 1
        return page

    def release(self, pages: Sequence[int]) -> None:
        """Give up one hold of each page; of those of a sequence the last ones are used again first."""
        for page in reversed(pages):
            self.holders[page] -= 1
            if self.holders[page] == 0:
                if page in self._contents:
                    self._idle[page] = None
                else:
                    self.free.append(page)

    def find(self, before: int, tokens: Sequence[int]) -> int | None:
        """Return the page with these tokens after the content `before`."""
        return self._known.get((before, tuple(tokens)))

    def content(self, page: int) -> int:
        """Return the number of the content of a page that was found."""
        return self._contents[page][1]

    def share(self, page: int) -> None:
        """Hold a page that was found."""
        self.holders[page] += 1
        self._idle.pop(page, None)

    def learn(self, page: int, before: int, tokens: Sequence[int]) -> int:
        """Note what a full page contains, and return the content's number: that of another page which has the same."""
        key = (before, tuple(tokens))
        if key in self._known:
            return self._contents[self._known[key]][1]
        self._last += 1
        self._known[key], self._contents[page] = page, (key, self._last)
        return self._last

    def forget(self, page: int) -> None:
        """Forget the content of a page that has a holder: it will contain something else."""
        if page in self._contents:
            self._forget(page)

    def knows(self, page: int) -> bool:
        """Return whether it is known what a page contains."""
        return page in self._contents

    def clear(self) -> None:
        """Forget the content of all pages; who holds them goes on holding them."""
        self.free += self._idle
        self._idle.clear()
        self._known.clear()
        self._contents.clear()

    def _forget(self, page: int) -> None:
        key, _ = self._contents.pop(page)
        del self._known[key]


class SlotPool(PagePool):
    """Slots in place of pages, each for the states of one sequence; its content is all tokens that lead to them."""

    def __init__(self, count: int) -> None:
        super().__init__(count, 1)

    def find_longest(self, tokens: Sequence[int], least: int) -> tuple[int, int] | None:
        """Return a slot with the states after the most tokens of a sequence, and how many these are.

        They are more than `least`, and not all. None if there is no slot of this kind.
        """
        best = None
        for (_, known), slot in self._known.items():
            count = len(known)
            if least < count < len(tokens) and known[-1] == tokens[count - 1] and known == tuple(tokens[:count]):
                best, least = (slot, count), count
        return best
