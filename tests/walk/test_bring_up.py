"""Follow docs/bring_up.md: its commands print what it shows, with the kernel and the claims that it adds."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from page import ROOT, block, check_console, commands, run

PAGE = (ROOT / "docs" / "bring_up.md").read_text(encoding="utf-8")
STEPS = re.split(r"^## \d+\. ", PAGE, flags=re.M)[1:]


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Return the variables of an environment outside the checkout that has the wheel of core; `HOME` is its folder."""
    folder = tmp_path_factory.mktemp("bring_up")
    run(f"{sys.executable} -m build --wheel --outdir wheels {ROOT / 'core'}", folder)
    run(f"{sys.executable} -m venv .venv && .venv/bin/pip install -q wheels/*.whl build", folder)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ISOKERN_", "VIRTUAL_ENV"))}
    path = os.pathsep.join([str(folder / ".venv" / "bin"), os.environ["PATH"]])
    return {**inherited, "PATH": path, "HOME": str(folder), "ISOKERN_CACHE": str(folder / "cache"), "COLUMNS": "120"}


@pytest.mark.full  # makes an environment, and judges a whole device
def test_every_step_does_what_it_says(environment):
    folder = Path(environment["HOME"])
    package = folder / "isokern-acme" / "isokern_acme"
    for step in STEPS:
        for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", step, re.S | re.M):
            if language == "console":
                check_console(commands(text), folder, environment)
            else:
                file = package / {"python": "kernels.py", "text": "claims.txt"}[language]
                gap = "\n\n" if language == "python" else ""
                file.write_text(file.read_text(encoding="utf-8") + gap + text, encoding="utf-8")


def test_the_page_has_every_step():
    titles = [step.partition("\n")[0] for step in STEPS]
    assert len(titles) == 8
    assert [title for title, step in zip(titles, STEPS, strict=True) if "```console" not in step] == []
    assert 'KERNELS["fill"]' in block("python", PAGE)
