"""Test README: its Python blocks run, its commands exist, and its links have targets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from isokern.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.S | re.M)


@pytest.fixture(scope="module")
def devices():
    """Return the names of all devices, found in another process so that no backend stays open here."""
    code = "import isokern; print(*[d.name for d in isokern.devices()])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    if not found:
        pytest.skip("no device is available")
    return found


FOREIGN = [b for b in BLOCKS if "import torch" in b]
OWN = [b for b in BLOCKS if b not in FOREIGN]


@pytest.mark.full
@pytest.mark.parametrize("block", FOREIGN, ids=range(len(FOREIGN)))
def test_block_of_a_pytorch_module_runs(block, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    pytest.importorskip("PIL", reason="torchvision is not installed: pip install torchvision pillow")
    # Before the block: a torchvision that was built for another PyTorch can be imported, too
    before = "from module_zoo import import_torchvision\n\nimport_torchvision()\n"
    (tmp_path / "block.py").write_text(before + block, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    subprocess.run([sys.executable, "block.py"], cwd=tmp_path, env=environment, check=True)


@pytest.mark.quick(*(f"{n}-cpu:0" for n in range(len(OWN))), "0-opencl:0", "0-cuda_sim:0", "0-kunlun_sim:0")
@pytest.mark.parametrize("name", ["cpu:0", "opencl:0", "cuda_sim:0", "kunlun_sim:0"])
@pytest.mark.parametrize("block", OWN, ids=range(len(OWN)))
def test_python_block_runs_as_it_stands_on_every_device(block, name, devices, tmp_path):
    if name not in devices:
        pytest.skip(f"{name} is not available")
    (tmp_path / "block.py").write_text(block, encoding="utf-8")
    command = [sys.executable, "-W", "error", "block.py"]
    environment = {**os.environ, "ISOKERN_DEVICE": name}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^\| `isokern ([\w-]+)", README, re.M))))
def test_listed_command_exists_and_takes_json(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    out, err = capsys.readouterr()
    assert not end.value.code, err
    assert "--json" in out


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "core/README.md", "plugins/cpu/README.md"])
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (folder / link).exists()] == []


def test_ci_runs_the_two_commands_of_readme():
    """`.ci/run` runs the first two `sh` blocks: the demo, then the tests."""
    first, second = re.findall(r"^```sh\n(.*?)^```$", README, re.S | re.M)
    assert "isokern demo" in first
    assert second.splitlines()[-1] == ".venv/bin/tox -p 2"
