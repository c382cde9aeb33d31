"""A host program in a kernel file: its main() runs in a process of its own, once for each schedule."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer

from .. import EMULATOR
from ..rewriting import blank
from ..settings import SEED
from .counts import describe_findings, describe_launches, record

_MAIN = re.compile(r"\bint\s+main\s*\(")
PROGRAM = """
import ctypes, os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
try:
    program, given = ctypes.CDLL(sys.argv[2]), [os.fsencode(a) for a in sys.argv[2:]]
except OSError as error:  # it names what is missing
    missing = str(error).rpartition("undefined symbol: ")[2]
    try:
        missing = subprocess.run(["c++filt", missing], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    sys.exit(f"no file of the program has {missing}: name the file that has it, --with FILE")
sys.exit(program.main(len(given), (ctypes.c_char_p * (len(given) + 1))(*given, None)) & 255)
"""


def has_main(text: str) -> bool:
    """Return whether a file's text defines main()."""
    return _MAIN.search(blank(text)) is not None


def run_program(program: Path, arguments: Sequence[str], schedules: range, check: bool) -> int:
    """Run a library's main() under each schedule until one fails; return 1 then, else 0.

    Only the first run's output is shown, and that of a run that fails.
    """
    command = [sys.executable, "-c", PROGRAM, str(EMULATOR), str(program), *arguments]
    findings: Counter[str] = Counter()
    for seed in schedules:
        first = seed == schedules[0]
        with record() as recorded:
            pipe = None if first else subprocess.PIPE
            environment = {**os.environ, SEED: str(seed)}
            done = subprocess.run(command, env=environment, stdout=pipe, stderr=pipe, check=False)
            found, launches = recorded.findings(), recorded.launches(0)
        findings += found
        if done.returncode == 0 and not found["error"]:
            if first:
                profiles = launches
            elif found:
                sys.stderr.buffer.write(done.stderr)
            continue
        if not first:
            sys.stdout.buffer.write(done.stdout)
            sys.stderr.buffer.write(done.stderr)
        if done.returncode:
            ended = f"returned {done.returncode}" if done.returncode > 0 else signal.strsignal(-done.returncode)
            typer.secho(f"main: {ended}", fg="red", err=True)
        if len(schedules) > 1:
            typer.echo(f"This is the schedule of --seed {seed}.", err=True)
        return 1
    if not check:
        typer.echo("main returned 0; fast mode checks nothing")
        return 0
    if profiles:
        typer.echo(describe_launches(profiles))
    typer.echo(f"main returned 0; {describe_findings(findings, schedules)}")
    return 0
