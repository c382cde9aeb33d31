"""What tox cannot say in tox.ini: an environment whose device is missing is skipped with the reason, never called a success."""

from __future__ import annotations

import json

from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.errors import Skip

NO_DEVICE = 3  # how `isokern check` exits, and with it tools/conformance.py


@impl
def tox_after_run_commands(tox_env: ToxEnv, exit_code: int, outcomes: object) -> None:
    """Turn "no such device" into tox's own skip."""
    if tox_env.conf.name.startswith("conformance-") and exit_code == NO_DEVICE:
        backend = tox_env.conf.name.removeprefix("conformance-")
        report = json.loads((tox_env.core["work_dir"] / "reports" / f"{backend}.json").read_text())
        raise Skip(f"not run: {report['reason']}")
