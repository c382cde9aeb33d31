"""In an editable install: what is compiled follows its sources. ninja, which tracks them, runs before the library is loaded."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path


def rebuild(settings: Path) -> None:
    """Build what was edited; the library is not loaded where that does not compile."""
    given = json.loads(settings.read_text(encoding="utf-8"))
    root, folder = Path(given["root"]), given["folder"]
    command = [sys.executable, "-m", "ninja", "-C", str(root), "-f", f"{folder}/build.ninja"]
    with open(root / folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of processes that start at once
        environment = {**os.environ, "PYTHON": sys.executable}  # what steps of ninja's file run by
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"an edited source of isokern-cpu does not compile:\n{done.stdout}{done.stderr}")
