"""The page of the source documents' statements, docs/source_documents.md, from source_documents.tsv."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from tables import table

ROWS = Path(__file__).with_name("source_documents.tsv")
VERDICTS = ("true", "different", "open")


def write_page() -> str:
    """Return the page: how many statements have each verdict, and a table for each document."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    counts = Counter((row["document"], row["verdict"].partition(":")[0]) for row in rows)
    documents = list(dict.fromkeys(row["document"] for row in rows))
    summary = [[d, *(str(counts[d, v]) for v in VERDICTS)] for d in documents]
    total = {v: sum(counts[d, v] for d in documents) for v in VERDICTS}
    parts = [
        "# The source documents",
        "<!-- Made by `python tools/regenerate.py source_documents` from source_documents.tsv; edit that. -->",
        "Isokern began with five documents about parts of other systems: the core abstractions of a framework for"
        " language models; layers that emit an IR, and its execution; the lowering of operators to primitives; rules"
        " of a CUDA backend; and a Kunlun operator that rearranges tensors. Each statement of theirs about what a"
        " system is or does has a row here.",
        "*true*: it is so here. *different*: it is not so on purpose, with the reason. *open*: it is not there yet. A"
        " proof is a test, a command, or an expression that is `True`, with the names that `tools/source_documents.py`"
        " gives it. `python tools/source_documents.py` goes through all of them, and so does a test.",
        f"{len(rows)} statements: " + ", ".join(f"{n} {v}" for v, n in total.items()) + ".",
        table(["document", *VERDICTS], summary),
    ]
    for document in documents:
        own = [
            [row["statement"], row["verdict"], row["here"], f"`{row['proof']}`" if row["proof"] else "-"]
            for row in rows
            if row["document"] == document
        ]
        parts += [f"## {document[0].upper()}{document[1:]}", table(["statement", "verdict", "here", "proof"], own)]
    return "\n\n".join(parts) + "\n"
