"""Shared by the tests that follow a page."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # import page as a top-level module
