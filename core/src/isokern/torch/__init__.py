"""PyTorch modules as programs: a backend of torch.compile, and exported programs.

`torch` comes with the extra isokern[torch], and importing `isokern` alone does not import it.
"""

from __future__ import annotations

from ..importing.emission import UnsupportedModel
from .dynamo import PlacedOperator, compile_graph
from .explaining import Explanation, explain
from .model import Model, load

__all__ = ["Explanation", "Model", "PlacedOperator", "UnsupportedModel", "compile_graph", "explain", "load"]
