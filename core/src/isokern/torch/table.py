"""The table of nodes: what each ATen operator becomes, from the modules of the families."""

from __future__ import annotations

from . import (
    nodes_elementwise,
    nodes_generators,
    nodes_images,
    nodes_indexing,
    nodes_movement,
    nodes_normalisation,
    nodes_pooling,
    nodes_products,
    nodes_recurrent,
    nodes_reductions,
)
from .node import Handler

FAMILIES = (
    nodes_elementwise,
    nodes_generators,
    nodes_images,
    nodes_indexing,
    nodes_movement,
    nodes_normalisation,
    nodes_pooling,
    nodes_products,
    nodes_recurrent,
    nodes_reductions,
)
NODES: dict[str, Handler] = {name: handler for family in FAMILIES for name, handler in family.NODES.items()}
