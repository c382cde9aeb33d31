"""Lets the tests import their shared modules as top-level modules."""

import sys
from pathlib import Path

# nvrtc and specialisations, which the tests of CUDA's cubins also use
sys.path.insert(0, str(Path(__file__).parent))
