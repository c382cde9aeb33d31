"""How much larger than its blocks a prepacked form of a block type may be."""

from isokern.blocks.layouts import LAYOUTS
from isokern.dtypes import DType


def growth_of(element: DType) -> float:
    """Return the bytes of a form over those of its blocks; of types with codebooks, 3.6 or 4.4 bits for an element."""
    if element.name in LAYOUTS and LAYOUTS[element.name].values:
        return (3.6 if len(LAYOUTS[element.name].values) <= 8 else 4.4) * element.block / (8 * element.itemsize)
    return 1.23 if element.name == "TQ1_0" else 1.05
