"""Test the marker `quick`: the named cases run, the others are marked `full`, and a name without a case is an error."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import pytest

@pytest.mark.quick({})
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_case(dtype, size):
    pass
"""


@pytest.fixture
def collect(tmp_path):
    """Return a function that collects the tests above with these quick cases, and gives pytest's output."""
    root = Path(__file__).parents[2]
    shutil.copy(root / "tests" / "conftest.py", tmp_path)
    shutil.copy(root / "pyproject.toml", tmp_path)

    def run(quick, *options):
        (tmp_path / "test_cases.py").write_text(CASES.format(quick))
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *options, str(tmp_path / "test_cases.py")]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    return run


def test_the_named_cases_are_quick(collect):
    found = collect('"F32-2", "F16-1"')
    assert "2/4 tests collected" in found
    assert "test_case[F32-2]" in found and "test_case[F16-1]" in found
    assert "4 tests collected" in collect('"F32-2", "F16-1"', "-m", "")


def test_a_name_without_a_case_is_an_error(collect):
    assert "test_case: no case is called F32-3" in collect('"F32-2", "F32-3"')
