"""Test what needs no ONNX: isokern alone does not import it, and without it the error says how to install it."""

from __future__ import annotations

import subprocess
import sys


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_isokern_alone_does_not_import_onnx():
    done = run(
        "import sys, isokern, isokern.cli.run; isokern.relu; assert not {'onnx', 'isokern.onnx'} & {*sys.modules}"
    )
    assert done.returncode == 0, done.stderr


def test_without_onnx_the_command_says_how_to_install_it(tmp_path):
    done = run(
        f"import sys; sys.modules['onnx'] = None; from isokern.cli import main; main(['run', {str(tmp_path)!r}])"
    )
    assert done.returncode == 2
    assert "pip install 'isokern[onnx]'" in done.stderr
    assert "Traceback" not in done.stderr
