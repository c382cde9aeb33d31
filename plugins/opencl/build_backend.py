"""PEP 517 entry of this plug-in: core's build backend, from the checkout or from the copy that travels in the sdist."""

import sys
from pathlib import Path

_here = Path(__file__).resolve().parent
_core = _here.parents[1] / "core" / "src" / "isokern" / "cabi"
sys.path.insert(0, str(_core if _core.is_dir() else _here / "generated"))

from build_plugin import *  # noqa: E402, F403  # the hooks of PEP 517 and 660
