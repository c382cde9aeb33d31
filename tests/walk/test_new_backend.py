"""Make a backend of each kind by `isokern new-backend`, and run the commands that it prints.

That is done outside the checkout, in an environment that has the wheel of core and nothing of the checkout.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from page import ROOT, run

from isokern.scaffold import KINDS

pytestmark = pytest.mark.full  # builds and installs, and judges whole devices


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """Return a folder with an environment in `.venv` that has the wheel of core."""
    folder = tmp_path_factory.mktemp("outside")
    assert ROOT not in folder.parents
    run(f"{sys.executable} -m build --wheel --outdir wheels {ROOT / 'core'}", folder)
    run(f"{sys.executable} -m venv .venv && .venv/bin/pip install -q wheels/*.whl", folder)
    found = run(".venv/bin/python -c 'import isokern; print(isokern.__file__)'", folder)
    assert Path(found.strip()).is_relative_to(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_backend_is_made_installed_and_passes(environment, kind):
    compiler = {"simt": "g++", "native": "cc"}.get(kind)
    if compiler and shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    path = f"PATH={environment}/.venv/bin:$PATH ISOKERN_CACHE={environment}/cache"
    printed = run(f"{path} isokern new-backend {kind}_chip --{kind}", environment)
    *installs, check, test = (line.strip() for line in printed.splitlines() if line.startswith("  "))
    for install in installs:
        run(f"{path} {install}", environment)
    folder = environment / f"isokern-{kind}_chip" / ("src" if kind == "native" else "")
    shutil.rmtree(folder / f"isokern_{kind}_chip")  # what is installed is judged
    judged = run(f"{path} {check}", environment).splitlines()[-1]
    assert judged.startswith(f"{kind}_chip:0: ")
    assert int(re.search(r"(\d+) pass", judged)[1]) > 2000
    assert "fail" not in judged
    tested = run(f"{path} {test} -q -p no:cacheprovider", environment).splitlines()[-1]
    assert int(re.search(r"(\d+) passed", tested)[1]) > 50  # the quick cases of its few kernels, and of the runtime
    assert "failed" not in tested


def test_without_a_compiler_the_reason_is_given(environment):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    path = f"PATH={environment}/.venv/bin:$PATH"
    run(f"{path} isokern new-backend lone_chip --simt && {path} pip install -q ./isokern-lone_chip", environment)
    assert "lone_chip:0" in run(f"{path} isokern devices", environment)
    told = run(f"PATH={environment}/.venv/bin {environment}/.venv/bin/isokern devices", environment)
    assert "there is no g++ on the PATH: install g++ 11 or newer" in " ".join(told.split())
