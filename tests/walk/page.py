"""The code blocks of a page, and its commands."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def block(language: str, text: str) -> str:
    """Return the only code block of a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)
    return found


def run(command: str, folder: Path) -> str:
    """Return the output of a shell command, which must succeed; it does not see this test's Python environment."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ISOKERN_", "VIRTUAL_ENV"))}
    options = ["-euo", "pipefail", "-c", command]
    done = subprocess.run(["bash", *options], cwd=folder, env=inherited, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"$ {command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
