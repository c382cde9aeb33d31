"""Run the command line in this process or in another one, with plug-ins written for the test."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import pytest

from isokern.cli import main


@dataclass
class Done:
    """What a command left behind: its exit code and both output streams."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        def refuse(token):
            raise AssertionError(f"bare {token} in JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def isokern_here(capsys):
    """Return a function that runs a command in this process."""

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return Done(end.value.code or 0, out, err)

    return run


def start(folder, *arguments, env=None, **plugins):
    """Run `python -m isokern` in a new process; plug-ins, name=source of the module, are written to the folder."""
    for name, source in plugins.items():
        (folder / f"plugin_{name}.py").write_text(source)
        info = folder / f"plugin_{name}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[isokern]\n{name} = plugin_{name}\n")
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    variables = {k: v for k, v in os.environ.items() if not k.startswith("ISOKERN_")}
    done = subprocess.run(
        [sys.executable, "-m", "isokern", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**variables, "PYTHONPATH": path, **(env or {})},
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def isokern_there(tmp_path):
    """Return a function that runs a command in a new process, with the plug-ins of this test."""
    return partial(start, tmp_path)


@pytest.fixture(scope="module")
def start_in():
    """Return the same with a folder as its first argument, for what the tests of a module share."""
    return start
