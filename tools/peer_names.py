"""Print core/src/isokern/ops/peer_names.tsv: what the operators of other libraries are called here.

The tables of nodes of `isokern.onnx` and `isokern.torch` imply a row for each handler that was made for one operator,
or for a choice of them: the `kind` or `kinds` that its factory was called with. All other rows are written by hand, in
tools/peer_names_by_hand.tsv. A row there replaces the implied one; `=` for its operators keeps them and adds a note.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

BY_HAND = Path(__file__).with_name("peer_names_by_hand.tsv")
HEADER = ("peer", "name", "operators", "note")
IMPLIED = "="

Key = tuple[str, str]  # the other library, and its name of an operator


def read_tables() -> dict[str, Mapping[str, Callable[..., Any]]]:
    """Return the tables of nodes by library. Neither library is used, so neither has to be installed."""
    for module, name in (("isokern.onnx.library", "proto"), ("isokern.torch.library", "library")):
        sys.modules[module] = SimpleNamespace(**{name: MagicMock()})  # type: ignore[assignment]
    from isokern.onnx.table import NODES as ONNX_NODES
    from isokern.torch.table import NODES as TORCH_NODES

    return {"ONNX": ONNX_NODES, "PyTorch": TORCH_NODES}


def find_operators(handler: Callable[..., Any]) -> list[str]:
    """Return the operators that a handler was made for, empty if its factory names none."""
    from isokern.ops import all_operators

    given = inspect.getclosurevars(inspect.unwrap(handler)).nonlocals
    kinds = given["kinds"].values() if "kinds" in given else [given["kind"]] if "kind" in given else []
    declared = {op.name for op in all_operators()}
    return list(kinds) if declared.issuperset(kinds) else []  # `conv` is the beginning of conv1d, conv2d, …


def find_implied(tables: Mapping[str, Mapping[str, Callable[..., Any]]]) -> dict[Key, str]:
    """Return the operators that the tables imply, separated by spaces."""
    found = {}
    for peer, nodes in tables.items():
        for name, handler in nodes.items():
            if operators := find_operators(handler):
                found[peer, name] = " ".join(operators)
    return found


def read_by_hand(text: str) -> dict[Key, tuple[str, str]]:
    """Return the operators and the note of each row that is written by hand."""
    header, *lines = (tuple(line.split("\t")) for line in text.splitlines())
    if header != HEADER:
        raise ValueError(f"{BY_HAND.name} begins with {header}; allowed: {HEADER}")
    found: dict[Key, tuple[str, str]] = {}
    for line in lines:
        if len(line) != len(HEADER) or line[:2] in found:
            raise ValueError(f"{BY_HAND.name}: {line} has not {len(HEADER)} fields, or is there twice")
        found[line[0], line[1]] = (line[2], line[3])
    return found


def merge(implied: Mapping[Key, str], by_hand: Mapping[Key, tuple[str, str]]) -> str:
    """Return the text of the table; raise ValueError if a row by hand repeats what is implied."""
    from isokern.ops.peers import PEERS

    rows = {key: (operators, "") for key, operators in implied.items()}
    for key, (operators, note) in by_hand.items():
        if operators == IMPLIED and (key not in implied or not note):
            raise ValueError(f"{BY_HAND.name}: nothing implies the operators of {key[1]}, or its row has no note")
        if operators and operators == implied.get(key):
            raise ValueError(f"{BY_HAND.name}: the table of nodes implies {key[1]}; write {IMPLIED} or no row")
        rows[key] = (implied[key] if operators == IMPLIED else operators, note)
    order = sorted(rows, key=lambda key: ([*PEERS].index(key[0]), key[1].lower()))
    return "".join("\t".join(row) + "\n" for row in [HEADER, *((*key, *rows[key]) for key in order)])


if __name__ == "__main__":
    print(merge(find_implied(read_tables()), read_by_hand(BY_HAND.read_text(encoding="utf-8"))), end="")
