"""The recipes of draws for every operator of ONNX's default domain, from the modules of the families."""

from __future__ import annotations

import draws_control
import draws_elementwise
import draws_generators
import draws_layers
import draws_movement
import draws_windows
from draws import Recipe

FAMILIES = (
    draws_control, draws_elementwise, draws_generators, draws_layers, draws_movement, draws_windows,
)  # fmt: skip
RECIPES: dict[str, Recipe] = {name: recipe for family in FAMILIES for name, recipe in family.RECIPES.items()}
