"""Settings of the graph tests.

How many random graphs are drawn depends on the profile, and by default every run draws the same ones.
`--hypothesis-profile=thorough` draws 5,000 for each property, from the seed that `--hypothesis-seed` gives. Nothing is
written to the checkout.
"""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "isokern-hypothesis")
settings.register_profile(
    "quick",
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=5000, derandomize=False)
settings.load_profile("quick")


def pytest_addoption(parser):
    parser.addoption(
        "--thread-seconds",
        type=float,
        default=8.0,
        help="how long eight threads do everything at once on each device (8); 120 takes eight minutes",
    )
