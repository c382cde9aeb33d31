"""RWKV's tokenizer: at each place in a text the longest token that stands there, which no library finds in a trie.

Tokens are bytes. GGUF has them as Python writes bytes, with escapes such as \\n and \\xff.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r"}
_ESCAPED = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LEAF = -1  # a key other than the bytes 0 to 255


def unescape(text: str) -> bytes:
    """Return the bytes of a token from its text in the file."""
    made, at = bytearray(), 0
    for found in _ESCAPED.finditer(text):
        code, char = found.groups()
        made += text[at : found.start()].encode()
        made += bytes([int(code, 16)]) if code is not None else _ESCAPES.get(char, char).encode()
        at = found.end()
    return bytes(made + text[at:].encode())


@dataclass(frozen=True)
class Encoded:
    """The tokens of a text."""

    ids: list[int]


class LongestMatch:
    """The tokens of a text, as the models of the library `tokenizers` give them; the vocabulary has all 256 bytes.

    Of tokens of the same bytes the last one counts.
    """

    def __init__(self, tokens: Sequence[tuple[int, bytes]]) -> None:
        self._root: dict[int, Any] = {}
        for i, token in tokens:
            node = self._root
            for byte in token:
                node = node.setdefault(byte, {})
            node[_LEAF] = i

    def encode(self, text: str, add_special_tokens: bool = False) -> Encoded:
        """Return an object whose `ids` are the tokens."""
        data, ids, at = text.encode(), [], 0
        while at < len(data):
            node, ahead = self._root[data[at]], at + 1
            found = node.get(_LEAF), ahead
            while ahead < len(data) and (node := node.get(data[ahead])) is not None:
                ahead += 1
                if _LEAF in node:
                    found = node[_LEAF], ahead
            ids.append(found[0])
            at = found[1]
        return Encoded(ids)
