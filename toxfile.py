"""What tox cannot say in tox.ini: the times of environments, and which are skipped for want of a device or of room."""

from __future__ import annotations

import json
import resource
import shutil
import time
from pathlib import Path

from tox.config.sets import EnvConfigSet
from tox.execute.api import Outcome
from tox.plugin import impl
from tox.session.state import State
from tox.tox_env.api import ToxEnv
from tox.tox_env.errors import Skip

NO_DEVICE = 3  # how `isokern check` exits, and with it tools/conformance.py


def _clock() -> tuple[float, float]:
    """Return wall seconds, and processor seconds of ended children; `tox -p` gives each environment a process."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.time(), usage.ru_utime + usage.ru_stime


_marks = {"begin": _clock()}


@impl
def tox_add_env_config(env_conf: EnvConfigSet, state: State) -> None:
    """`room`, what an environment needs of the disk."""
    env_conf.add_config("room", of_type=int, default=400, desc="megabytes of disk without which it is skipped")


@impl
def tox_on_install(tox_env: ToxEnv, arguments: object, section: str, of_type: str) -> None:
    """Before the first file is fetched: is there room for all of them?"""
    if section == "PythonRun" and of_type == "deps":
        _check_room(tox_env, tox_env.conf["room"])


@impl
def tox_before_run_commands(tox_env: ToxEnv) -> None:
    """The environment has been made, and its dependencies are in it."""
    _check_room(tox_env, tox_env.conf["room"] // 2)
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
    report = tox_env.core["work_dir"] / "reports" / f"{tox_env.conf.name.removeprefix('conformance-')}.json"
    if exit_code == NO_DEVICE and outcomes and "conformance.py" in outcomes[-1].request.shell_cmd:
        raise Skip(
            "not run: " + (json.loads(report.read_text())["reason"] if report.exists() else "no such device, see above")
        )


def _check_room(tox_env: ToxEnv, wanted: int) -> None:
    """Skip the environment where less than `wanted` megabytes are free: half a file says nothing about the code."""
    folder: Path = tox_env.core["work_dir"]
    free = shutil.disk_usage(folder if folder.exists() else folder.parent).free // 1_000_000
    if free < wanted:
        raise Skip(f"{free} MB are free in {folder.parent}, and {wanted} MB are needed")


def _times(tox_env: ToxEnv) -> Path:
    """The file for the times of an environment; tests/conftest.py leaves those of its tests beside it."""
    folder: Path = tox_env.core["work_dir"] / "times"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{tox_env.conf.name}.json"
