"""Test that the checked mode finds hosts whose work is not in order, and reports nothing for their repaired twins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOSTS = Path(__file__).with_name("hosts.xpu")
RACE, FREED, COPIED, CHANGED = "race-streams", "free-in-flight", "copy-in-flight", "host-changed-in-flight"
RULES = {
    "vector_freed": FREED,
    "result_freed": FREED,
    "result_moved": FREED,
    "free_by_accident": FREED,
    "read_by_accident": COPIED,
    "unmapped": CHANGED,
    "result_unmapped": CHANGED,
    "array_of_a_function": CHANGED,
    "result_overwritten": CHANGED,
    "ring": CHANGED,
}
NAMES = re.findall(r"^HOST\((\w+)\)", HOSTS.read_text(encoding="utf-8"), re.M)
RUN = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
sys.exit(getattr(ctypes.CDLL(sys.argv[2]), "run_" + sys.argv[3])(sys.argv[4] == "wrong"))
"""


@pytest.fixture(scope="session")
def hosts(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the hosts and their kernels to one checked library."""
    from needs import cxx

    from isokern_kunlun_sim import compiling

    folder = tmp_path_factory.mktemp("hosts")
    made = [compiling.kernel_object(cxx(), HOSTS, "checked", folder, [])]
    compiling.library(cxx(), folder / "hosts.so", made, "checked")
    return folder / "hosts.so"


def find(runtime: Path, hosts: Path, folder: Path, name: str, which: str, seed: int) -> list[dict[str, Any]]:
    """Run one host in a process of its own, and return the findings."""
    report = folder / "findings.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ISOKERN", "XPU"))}
    environment |= {"ISOKERN_XPU_CHECK": "1", "ISOKERN_XPU_REPORT": str(report), "ISOKERN_XPU_SEED": str(seed)}
    command = [sys.executable, "-c", RUN, str(runtime), str(hosts), name, which]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []


def test_the_rules_name_hosts() -> None:
    assert NAMES and set(RULES) < set(NAMES)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_the_mistake_is_found(runtime: Path, hosts: Path, tmp_path: Path, name: str, seed: int) -> None:
    found = find(runtime, hosts, tmp_path, name, "wrong", seed)
    assert {f["rule"] for f in found} == {RULES.get(name, RACE)}, found
    for f in found:
        assert f["severity"] == "error" and f["remedy"]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_the_repaired_host_is_in_order(runtime: Path, hosts: Path, tmp_path: Path, name: str, seed: int) -> None:
    assert find(runtime, hosts, tmp_path, name, "right", seed) == []


def test_a_race_of_streams_names_both_lines(runtime: Path, hosts: Path, tmp_path: Path) -> None:
    (found,) = find(runtime, hosts, tmp_path, "two_launches", "wrong", 0)
    lines = HOSTS.read_text(encoding="utf-8").splitlines()
    told = {int(found[p]["where"].rsplit(":", 1)[1]): found[p]["what"] for p in ("place", "other")}
    assert {lines[line - 1].split("// ")[-1] for line in told} == {"fill writes", "add reads"}
    assert any("in kernel " in what and "on another stream" in what for what in told.values())
    assert "16384 bytes at offset 0" in found["bytes"]
