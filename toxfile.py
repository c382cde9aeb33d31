"""What tox cannot say in tox.ini: the times of environments, and which are skipped for want of a device or of room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import tox.execute.local_sub_process
from tox.config.sets import EnvConfigSet
from tox.execute.api import Outcome
from tox.plugin import impl
from tox.session.state import State
from tox.tox_env.api import ToxEnv
from tox.tox_env.errors import Skip

sys.path.insert(0, str(Path(__file__).parent / "tools"))

from calibration import Calibration

NO_DEVICE = 3  # how `isokern check` exits, and with it tools/conformance.py
PHASES = {"commands_pre": "install", "commands": "run", "commands_post": "run"}


class _Worker(threading.local):
    """What is measured in one thread; tox runs an environment in one thread, and with `-p` several at once."""

    begin = time.time()  # of the environment
    processor = 0.0  # seconds of the processes that this thread waited for


_worker = _Worker()


class _Process(subprocess.Popen[bytes]):
    """A command; it adds its processor seconds to those of the thread that waits for it.

    The system's own sum over ended children is of the whole process, and so of all environments that run at once.
    """

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None and self.returncode is None:
            try:
                _, status, usage = os.wait4(self.pid, 0)
            except ChildProcessError:  # another thread has polled for the end
                return super().wait()
            self.returncode = os.waitstatus_to_exitcode(status)
            _worker.processor += usage.ru_utime + usage.ru_stime
        return super().wait(timeout)


tox.execute.local_sub_process.Popen = _Process


class _Meter:
    """Measures the commands of one environment: their phase, text, wall seconds and processor seconds."""

    def __init__(self, tox_env: ToxEnv) -> None:
        self.create = time.time() - _worker.begin, _worker.processor
        self.commands: list[tuple[str, str, float, float]] = []
        self.calibration = Calibration()
        self._execute = tox_env.execute
        tox_env.execute = self.execute  # tox has no hook between commands

    def execute(self, *arguments: Any, run_id: str = "", **options: Any) -> Outcome:
        """Execute a command; from the first one of `commands` on, the speed of the machine is measured as well."""
        phase = PHASES.get(run_id.partition("[")[0], "create")
        if phase == "run":
            self.calibration.start()
        before = _worker.processor
        outcome = self._execute(*arguments, run_id=run_id, **options)
        self.commands.append((phase, outcome.request.shell_cmd, outcome.elapsed, _worker.processor - before))
        return outcome

    def sum_seconds(self, phase: str) -> tuple[float, float]:
        """Return the wall and processor seconds of a phase."""
        own = [command[2:] for command in self.commands if command[0] == phase]
        return sum(wall for wall, _ in own), sum(processor for _, processor in own)


_meters: dict[str, _Meter] = {}
_states: list[State] = []


@impl
def tox_add_env_config(env_conf: EnvConfigSet, state: State) -> None:
    """`room`, what an environment needs of the disk."""
    env_conf.add_config("room", of_type=int, default=400, desc="megabytes of disk without which it is skipped")
    _states[:] = [state]


@impl
def tox_on_install(tox_env: ToxEnv, arguments: object, section: str, of_type: str) -> None:
    """Before the first file is fetched: is there room for all of them?"""
    if section == "PythonRun" and of_type == "deps":
        _check_room(tox_env, tox_env.conf["room"])


@impl
def tox_before_run_commands(tox_env: ToxEnv) -> None:
    """The environment has been made, and its dependencies are in it."""
    _check_room(tox_env, tox_env.conf["room"] // 2)
    _meters[tox_env.conf.name] = _Meter(tox_env)
    for old in _times(tox_env).parent.glob(f"{tox_env.conf.name}.*"):
        old.unlink()


@impl
def tox_after_run_commands(tox_env: ToxEnv, exit_code: int, outcomes: list[Outcome]) -> None:
    """Write the times down, and turn "no such device" into tox's own skip."""
    meter = _meters.pop(tox_env.conf.name)
    seconds = {"create": meter.create, "install": meter.sum_seconds("install"), "run": meter.sum_seconds("run")}
    row = {
        "environment": tox_env.conf.name,
        # An environment of README's command or of the full run needs a budget
        "proves": bool(tox_env.conf["labels"]) or tox_env.conf.name in tox_env.core["env_list"].envs,
        "arguments": list(_states[0].conf.pos_args(None) or ()),
        "exit": exit_code,
        "wall": {phase: wall for phase, (wall, _) in seconds.items()},
        "processor": {phase: processor for phase, (_, processor) in seconds.items()},
        "calibration": meter.calibration.stop(),
        "commands": [command[1:] for command in meter.commands],
    }
    _worker.begin, _worker.processor = time.time(), 0.0
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
