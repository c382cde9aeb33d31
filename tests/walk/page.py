"""The code blocks of a page, and its commands with what they print."""

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


def commands(block: str) -> list[tuple[str, str]]:
    """Return (command, what it prints) of a console block."""
    parts = re.split(r"^\$ ", block, flags=re.M)[1:]
    return [re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n(.*)", part, re.S).groups() for part in parts]


def shows(shown: str, printed: str) -> bool:
    """Return whether a text shows what was printed; `…` stands for some of a line, and as a line for some lines."""
    anything, end = r"(?:.*\n)*?", r" *\n"
    lines = [anything if x == "…" else ".*".join(map(re.escape, x.split("…"))) + end for x in shown.splitlines()]
    return re.fullmatch("".join(lines) + r"\s*", f"{printed}\n") is not None


def run_session(typed: list[str], folder: Path, environment: dict[str, str]) -> list[tuple[int, str]]:
    """Return (exit status, output) of commands that are typed into one shell."""
    script = "".join(f"{{ {command}\n}} 2>&1; printf '\\0%d\\0' $?\n" for command in typed)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    parts = done.stdout.split("\0")
    return [(int(status), printed) for printed, status in zip(parts[::2], parts[1::2], strict=False)]


def check_console(typed: list[tuple[str, str]], folder: Path, environment: dict[str, str]) -> None:
    """Check that commands print what the page shows, and succeed.

    One may fail if the page shows that: it shows something, and not only what passes. `3 pass…` stands for `3 pass, 18
    fail-value`, too.
    """
    done = run_session([command for command, _ in typed], folder, environment)
    for (command, shown), (status, printed) in zip(typed, done, strict=True):
        may_fail = shown and ("fail-" in shown or not re.search(r"\bpass", shown))
        assert (status == 0 or may_fail) and (not shown or shows(shown, printed)), f"$ {command}\n{printed}"
