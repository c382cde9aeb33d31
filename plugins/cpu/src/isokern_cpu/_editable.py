"""Rebuilding an editable install: ninja, which tracks the sources, runs before the library is loaded."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path


def rebuild(settings: Path) -> None:
    """Rebuild what was edited; raise RuntimeError where it does not compile, so that the library is not loaded."""
    given = json.loads(settings.read_text(encoding="utf-8"))
    root, folder = Path(given["root"]), given["folder"]
    beside = Path(sys.executable).with_name("ninja")  # a process less than by way of Python
    start = [str(beside)] if beside.is_file() else [sys.executable, "-m", "ninja"]
    command = [*start, "-C", str(root), "-f", f"{folder}/build.ninja"]
    with open(root / folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # against processes that start at the same time
        environment = {**os.environ, "PYTHON": sys.executable}  # runs the steps of the ninja file
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"an edited source of isokern-cpu does not compile:\n{done.stdout}{done.stderr}")
