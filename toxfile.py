"""What tox cannot say in tox.ini: the times of every environment, and that one whose device is missing is skipped, not a success."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

from tox.execute.api import Outcome
from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.errors import Skip

NO_DEVICE = 3  # how `isokern check` exits, and with it tools/conformance.py


def _clock() -> tuple[float, float]:
    """Wall seconds, and processor seconds of children that have ended; `tox -p` runs each environment in a process of its own."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.time(), usage.ru_utime + usage.ru_stime


_marks = {"begin": _clock()}


@impl
def tox_before_run_commands(tox_env: ToxEnv) -> None:
    """The environment has been made, and its dependencies are in it."""
    _marks["made"] = _clock()
    for old in _times(tox_env).parent.glob(f"{tox_env.conf.name}.*"):
        old.unlink()


@impl
def tox_after_run_commands(tox_env: ToxEnv, exit_code: int, outcomes: list[Outcome]) -> None:
    """Write the times down, and turn "no such device" into tox's own skip."""
    begin, made, done = _marks["begin"], _marks["made"], _clock()
    _marks["begin"] = done
    pre = len(tox_env.conf["commands_pre"])
    row = {
        "environment": tox_env.conf.name,
        "exit": exit_code,
        "wall": {
            "create": made[0] - begin[0],
            "install": sum(outcome.elapsed for outcome in outcomes[:pre]),
            "run": sum(outcome.elapsed for outcome in outcomes[pre:]),
        },
        "processor": {"create": made[1] - begin[1], "install and run": done[1] - made[1]},
        "commands": [[outcome.request.shell_cmd, outcome.elapsed] for outcome in outcomes],
    }
    _times(tox_env).write_text(json.dumps(row, indent=1))
    if tox_env.conf.name.startswith("conformance-") and exit_code == NO_DEVICE:
        backend = tox_env.conf.name.removeprefix("conformance-")
        report = json.loads((tox_env.core["work_dir"] / "reports" / f"{backend}.json").read_text())
        raise Skip(f"not run: {report['reason']}")


def _times(tox_env: ToxEnv) -> Path:
    """The file for the times of an environment; tests/conftest.py leaves those of its tests beside it."""
    folder: Path = tox_env.core["work_dir"] / "times"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{tox_env.conf.name}.json"
