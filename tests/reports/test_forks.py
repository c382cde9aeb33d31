"""Test forks while other threads work: no lock is left that a child waits for without end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
from forked import WAYS

from isokern.process.forks import own_lock, tell_in_child
from isokern.process.imports import wait_before_forks

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")


@pytest.mark.quick("10-onnx", "10-eager", "10-engine")
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("forks", [10, pytest.param(250, marks=pytest.mark.full)])
def test_children_of_a_process_that_builds_programs_end(name: str, forks: int) -> None:
    if name == "onnx":
        pytest.importorskip("onnx")
    script = Path(__file__).with_name("forked.py")
    done = subprocess.run(
        [sys.executable, script, name, str(forks)], capture_output=True, text=True, check=False, timeout=60 + 2 * forks
    )
    assert done.stdout.splitlines()[-1:] == [str({0: forks})], f"{done.stdout}{done.stderr}"


def test_every_lock_is_one_that_a_child_renews() -> None:
    packages = [ROOT / "core" / "src", *(ROOT / "plugins").glob("*/src")]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for package in packages
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"(?<!: )(threading|multiprocessing)\.R?(Lock|Condition|Semaphore)\(", line)
    ]
    assert found == [], "isokern.process.forks.own_lock makes them"


class Owner:
    def __init__(self) -> None:
        self.told = 0
        self.lock = own_lock(self, "lock", threading.Lock)
        self.done = own_lock(self, "done", threading.Event)
        tell_in_child(self, "tell")

    def tell(self) -> None:
        with self.lock:
            self.told += 1


def in_child(owner: Owner) -> int:
    """Return 1 if a child finds the owner as it should be, and another number if not."""
    child = os.fork()
    if child == 0:
        free = owner.lock.acquire(blocking=False)
        os._exit(1 if free and not owner.done.is_set() and owner.told == 1 else 2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_that_is_held_is_free_in_the_child() -> None:
    owner = Owner()
    owner.done.set()
    with owner.lock:
        assert in_child(owner) == 1
    assert owner.told == 0
    assert owner.done.is_set(), "the parent's are as before"
    gone = weakref.ref(owner)
    del owner
    assert gone() is None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_waits_for_the_imports_of_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_before_forks()
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.5)\nDONE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    thread = threading.Thread(target=lambda: __import__("slow_to_import"))
    thread.start()
    while "slow_to_import" not in sys.modules:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        import slow_to_import  # type: ignore[import-not-found]

        os._exit(slow_to_import.DONE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    thread.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_module_that_forks_while_it_is_imported_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os\nchild = os.fork()\nif not child:\n    os._exit(1)\nCODE = os.waitpid(child, 0)[1] >> 8\n"
    (tmp_path / "forks_when_imported.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    begin = time.monotonic()
    import forks_when_imported  # type: ignore[import-not-found]

    assert forks_when_imported.CODE == 1
    assert time.monotonic() - begin < 2
