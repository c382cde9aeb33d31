"""Running the command line in this process and in another, with plug-ins made for the occasion."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

import isokern
from isokern.cli import main


@dataclass
class Done:
    """What a command left: exit code and both streams."""

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
    """Run a command in this process."""

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return Done(end.value.code or 0, out, err)

    return run


@pytest.fixture
def isokern_there(tmp_path):
    """Run `python -m isokern` in a process of its own, beside plug-ins given as name=source of their module."""

    def run(*arguments, env=None, **plugins):
        for name, source in plugins.items():
            (tmp_path / f"plugin_{name}.py").write_text(source)
            info = tmp_path / f"plugin_{name}-1.0.dist-info"
            info.mkdir(exist_ok=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin-{name}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[isokern]\n{name} = plugin_{name}\n")
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
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

    return run


@pytest.fixture(scope="session")
def device():
    """The default device; without any, the tests that need one are skipped with the reason."""
    try:
        return isokern.device()
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
