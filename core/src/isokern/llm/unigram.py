"""SentencePiece's unigram model and its table of normal forms, token for token.

The library `tokenizers` adds scores in float64, and SentencePiece rounds to float32, so of segmentations with the same
sum it may choose a different one; it takes `<0x0A>` in a text for the byte; and it normalizes whole graphemes, of which
it may lose a part, but SentencePiece replaces the longest key of its table at each place.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .longest_match import Encoded

_LEAF = ""  # a key other than characters
_PENALTY = 10  # how far unknown characters score below the lowest score


class NormalForms:
    """SentencePiece's `precompiled_charsmap`: a trie of bytes, as Darts packs it, and what its keys become.

    ValueError if the bytes are not such a table.
    """

    def __init__(self, table: bytes) -> None:
        size = int.from_bytes(table[:4], "little")
        if size % 4 or not 4 <= size <= len(table) - 4:
            raise ValueError(f"its trie has {size} bytes of {len(table)}")
        self._units: list[int] = np.frombuffer(table, "<u4", size // 4, 4).tolist()
        self._texts = table[4 + size :]

    def apply(self, text: str) -> str:
        """Return the text with the longest key at each place replaced."""
        data, made, at = text.encode(), bytearray(), 0
        while at < len(data):
            end, found = self._find(data, at)
            made += data[at:end] if found is None else self._texts[found : self._texts.find(b"\0", found)]
            at = end
        return made.decode(errors="replace")

    def _find(self, data: bytes, begin: int) -> tuple[int, int | None]:
        """Return the end of the longest key from `begin` on and the place of its text, else of a character and None."""
        units, node, end, found = self._units, 0, begin + 1, None
        for at in range(begin, len(data)):
            node ^= (units[node] >> 10) << ((units[node] & 512) >> 6) ^ data[at]
            if node >= len(units) or units[node] & 0x800000FF != data[at]:
                break
            if units[node] & 256:
                leaf = node ^ (units[node] >> 10) << ((units[node] & 512) >> 6)
                end, found = at + 1, units[leaf] & 0x7FFFFFFF if leaf < len(units) else None
        while found is None and end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        return end, found


class Unigram:
    """Of all ways to cut a text, the one with the highest sum of scores, as the models of `tokenizers` give it.

    `ids` are the tokens that may occur in a text. With `prefix`, a space comes before it; with `single`, spaces are
    single, and there are none at either end. A character without a token becomes those of its bytes, or without these
    `unknown`, once for several.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: Sequence[float],
        unknown: int,
        of_bytes: Mapping[int, int],
        forms: NormalForms | None,
        prefix: bool,
        single: bool,
    ) -> None:
        self._scores, self._unknown, self._bytes, self._forms = scores, unknown, of_bytes, forms
        self._prefix, self._single, self._root = "\u2581" * prefix, single, dict[str, Any]()
        self._least = min((scores[i] for i in ids.values()), default=0.0) - _PENALTY
        for text, i in ids.items():
            node = self._root
            for char in text:
                node = node.setdefault(char, {})
            node[_LEAF] = i

    def encode(self, text: str, add_special_tokens: bool = False) -> Encoded:
        """Return an object whose `ids` are the tokens."""
        text = self._forms.apply(text) if self._forms else text
        text = " ".join(filter(None, text.split(" "))) if self._single else text
        made: list[int] = []
        for token, part in self._cut(self._prefix + text.replace(" ", "\u2581") if text else ""):
            if token != self._unknown:
                made.append(token)
            elif self._bytes:
                made += [self._bytes[byte] for byte in part.encode()]
            elif made[-1:] != [token]:
                made.append(token)
        return Encoded(made)

    def _cut(self, text: str) -> list[tuple[int, str]]:
        """Return the tokens of the best way to cut a text, each with its part; of equal ways the first one found."""
        best, back = array("f", [0]) * (len(text) + 1), [(-1, self._unknown)] * (len(text) + 1)
        least, total = array("f", [self._least])[0], array("f", [0])  # these round to float32
        for begin in range(len(text)):
            node: Any = self._root
            end = begin
            while end < len(text) and (node := node.get(text[end])) is not None:
                end += 1
                if _LEAF in node:
                    total[0] = best[begin] + self._scores[node[_LEAF]]
                    if back[end][0] < 0 or total[0] > best[end]:
                        best[end], back[end] = total[0], (begin, node[_LEAF])
            total[0], end = best[begin] + least, begin + 1
            if back[end][0] < 0 or total[0] > best[end]:
                best[end], back[end] = total[0], (begin, self._unknown)
        found, end = [], len(text)
        while end:
            begin, token = back[end]
            found.append((token, text[begin:end]))
            end = begin
        return found[::-1]
