"""What the tests share is imported under its own name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # float64, the reference of whole models
