"""The times of operators next to those of other libraries, from docs/speed.tsv, as tables."""

from __future__ import annotations

from pathlib import Path

from tables import read_rows, table

TABLE = Path(__file__).with_name("speed.tsv")
NAMES = {"numpy": "NumPy", "onnxruntime": "ONNX Runtime"}


def say_operator(name: str) -> list[str]:
    """Return what was measured of an operator, and the table of it; a sentence where nothing was."""
    rows = [row for row in read_rows(TABLE) if row["operator"] == name]
    if not rows:
        return ["It has not been compared with another library."]
    product = rows[0]["unit"] == "GFLOP/s"
    yardstick = "product" if product else "copy"
    lines = [
        [
            row["dtype"],
            f"`{row['case']}`",
            f"{float(row['us']):,.4g} µs",
            f"{row['rate']} {row['unit']}"
            + (f", {float(row['share']):.0%} of NumPy's {yardstick}" if row["share"] else ""),
            f"{NAMES[row['peer']]} {row['version']}" if row["peer"] else "none",
            row["ratio"] or "-",
        ]
        for row in rows
    ]
    shown = table(["dtype", "sample", "a call", "rate", "beside", "its time / ours"], lines)
    where = f"On one machine ({rows[0]['machine']}, {rows[0]['date']}), in alternation: medians of the CPU time"
    what = "Above 1 Isokern is faster, below 1 the other library is"
    size = "of 1024 × 1024" if product else "of as many bytes"
    return [f"{where}. {what}. The rate is next to that of NumPy's {yardstick} {size}.", shown]
