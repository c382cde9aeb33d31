"""What the tests share is imported under its own name."""

import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parent)
)  # nvrtc and specialisations, of which the tests of CUDA's cubins are users too
