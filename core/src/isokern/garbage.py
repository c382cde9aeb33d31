"""Python's collector of cyclic garbage, held while many objects are made that stay.

Each collection visits the objects that there are. Where nearly all of the new ones stay, it finds nothing: of the time
to import the operators and to compile a language model it takes a fifth.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hold_collections() -> Iterator[None]:
    """Collect no cyclic garbage in a block, or in a function that this decorates; afterwards it is as before."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
