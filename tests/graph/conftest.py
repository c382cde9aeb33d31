"""The models of these tests can be imported from beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
