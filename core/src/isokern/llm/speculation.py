"""Drafts of what comes next from what was there before, for steps that compute several tokens of a text at once.

A text that repeats itself or its prompt goes on as it did after the same tokens (Saxena 2023, prompt lookup decoding).
"""

from __future__ import annotations

from collections.abc import Sequence

LENGTHS = (3, 2)  # lengths of the runs of tokens that are looked up, the longest first


class Lookup:
    """The last place of each run of tokens: `find_drafts` returns the tokens that followed it."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._read = 0

    def find_drafts(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return up to `most` tokens that followed the last ones when they occurred before; none if they did not.

        `tokens` are those of the call before, and what has been added since.
        """
        for end in range(self._read, len(tokens)):
            for n in LENGTHS:
                if end >= n:
                    self._after[tuple(tokens[end - n : end])] = end
        self._read = len(tokens)
        for n in LENGTHS:
            found = self._after.get(tuple(tokens[-n:])) if len(tokens) >= n else None
            if found is not None:
                return list(tokens[found : found + most])
        return []
