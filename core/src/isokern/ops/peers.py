"""What the operators of other libraries are called here: the table in `peer_names.tsv`, read when it is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PEERS = {
    "ONNX": "its default domain",
    "ggml": "ops, unary ops and gated units",
    "InfiniCore": "operator folders",
    "PyTorch": "core ATen operators, and others that are one operator here",
}
PREFIX = re.compile(r"(?:torch\.ops\.)?aten(?:\.|::)")  # of PyTorch's names in its graphs


@dataclass(frozen=True)
class PeerName:
    """One operator of another library: the operators here that do the same, and what is to be said about it.

    Where there are several each does a part of it, by the node's attributes or rank, or one after the other. Where
    there are none the note says why.
    """

    peer: str
    name: str
    operators: tuple[str, ...]
    note: str


@cache
def peer_names() -> tuple[PeerName, ...]:
    """Return the whole table, ordered by peer and name."""
    text = Path(__file__).with_name("peer_names.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return tuple(PeerName(peer, name, tuple(operators.split()), note) for peer, name, operators, note in rows)


def find_peer_names(name: str) -> list[PeerName]:
    """Return the rows of that name, however it is spelled: `GatherElements`, `gather_elements`, `GATHERELEMENTS`.

    A name with PyTorch's prefix is one of PyTorch, with an overload or without: `aten.addmm`, `aten::add.Tensor`.
    """
    prefix = PREFIX.match(name)
    if prefix is not None:
        wanted = name[prefix.end() :].partition(".")[0]
        return [row for row in peer_names() if row.peer == "PyTorch" and row.name == wanted]
    wanted = _spell(name)
    return [row for row in peer_names() if _spell(row.name) == wanted]


def _spell(name: str) -> str:
    return name.replace("_", "").lower()
