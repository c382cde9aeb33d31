"""The tables of nodes: what each operator of a domain becomes, from the modules of the families."""

from __future__ import annotations

from . import (
    nodes_attention,
    nodes_einsum,
    nodes_elementwise,
    nodes_features,
    nodes_fused,
    nodes_generators,
    nodes_images,
    nodes_indexing,
    nodes_linear_models,
    nodes_movement,
    nodes_normalisation,
    nodes_pooling,
    nodes_products,
    nodes_quantised,
    nodes_recurrent,
    nodes_reductions,
    nodes_sequences,
    nodes_spectra,
    nodes_svm,
    nodes_trees,
)
from .node import Handler

FAMILIES = (
    nodes_attention, nodes_einsum, nodes_elementwise, nodes_fused, nodes_generators, nodes_images, nodes_indexing,
    nodes_movement, nodes_normalisation, nodes_pooling, nodes_products, nodes_quantised, nodes_recurrent,
    nodes_reductions, nodes_sequences, nodes_spectra,
)  # fmt: skip
NODES: dict[str, Handler] = {name: handler for family in FAMILIES for name, handler in family.NODES.items()}
ML_FAMILIES = (nodes_features, nodes_linear_models, nodes_svm, nodes_trees)
ML_NODES: dict[str, Handler] = {name: handler for family in ML_FAMILIES for name, handler in family.NODES.items()}
