"""Explaining what becomes of a module: which operators run here, which in PyTorch, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..backend import Device
from ..backend.discovery import device as find_device
from .dynamo import CaptureReport, PlacedOperator, compile_with, make_callable, read_options
from .library import library as torch
from .programs import Options


@dataclass(frozen=True)
class Explanation:
    """Every operator of a module after decomposition: a line each, in the order of the graphs."""

    graphs: int
    lines: tuple[PlacedOperator, ...]

    @property
    def elsewhere(self) -> tuple[PlacedOperator, ...]:
        """The operators that run in PyTorch."""
        return tuple(line for line in self.lines if line.where == "PyTorch")

    def __str__(self) -> str:
        counts = Counter((line.graph, line.where) for line in self.lines)
        shown = [f"{self.graphs} graphs" if self.graphs != 1 else "1 graph"]
        for graph in range(self.graphs):
            parts = [f"{n} operators on {where}" for (g, where), n in counts.items() if g == graph]
            shown.append(f"graph {graph}: {', '.join(parts) or 'no operators'}")
        width = max((len(line.name) for line in self.elsewhere), default=0)
        shown += [f"  {line.name:<{width}}  {line.operator}: PyTorch, {line.reason}" for line in self.elsewhere]
        return "\n".join(shown)


def explain(model: Any, *inputs: Any, device: str | Device | None = None, **named: Any) -> Explanation:
    """Run a module, a function or an exported program, and return what ran where.

    A module is compiled as torch.compile does it and run once on the inputs, without gradients; the calls that
    TorchDynamo leaves to Python are in no graph.
    """
    report = CaptureReport()
    if isinstance(model, torch.export.ExportedProgram):
        from .model import decompose

        make_callable(decompose(model).graph_module, (), Options(find_device(device)), report)
    else:
        compiled = torch.compile(model, backend=compile_with(read_options({"device": device}), report))
        with torch.no_grad():
            compiled(*inputs, **named)
    return Explanation(report.graphs, tuple(report.lines))
