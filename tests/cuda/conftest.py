"""What the tests of the portable kernels share is imported under its own name; and how much is compiled."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "simt"))  # nvrtc and specialisations


def pytest_addoption(parser):
    parser.addoption(
        "--every-architecture",
        action="store_true",
        help="all cubins of every architecture, not of the oldest one alone: ten times as many",
    )
