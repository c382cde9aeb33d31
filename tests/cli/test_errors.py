"""Test how the command line ends: exit codes, one line for a typed error, and plug-ins' command groups."""

import math
from pathlib import Path

import numpy as np
import pytest

from isokern.cli._output import plain

EMULATOR = (Path(__file__).parent / "numpy_backend.py").read_text()
GROUPS = """
import typer
from isokern import hookimpl

hello, taken, nameless = typer.Typer(name="hello"), typer.Typer(name="devices"), typer.Typer()

@hello.command()
def world(n: int = 1):
    print("hello" * n)

@hello.command()
def other():
    "Another."

taken.command()(world)
nameless.command()(world)

@hookimpl
def isokern_register_backends(register):
    register.setting("ISOKERN_HELLO", "a word")
    for group in (hello, taken, nameless, "no Typer at all"):
        register.command(group)
"""


def test_typed_error_is_one_line_and_two(isokern_there):
    done = isokern_there("why", "no_such_operator", env={"ISOKERN_DEBUG": "0"})
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "no_such_operator" in done.err


def test_missing_device_is_three(isokern_there):
    done = isokern_there("why", "add", "--device", "nowhere:7", "--json")
    assert (done.code, done.out) == (3, "")
    assert "nowhere:7" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("ISOKERN_CPU_LEVEL", "nonsense", "allowed: "), ("ISOKERN_NUM_THREADS", "0", "an integer from 1 to 256")],
)
def test_a_wrong_setting_of_the_default_does_not_make_an_emulator_the_default(
    isokern_there, device, name, value, allowed
):
    if device.name != "cpu:0":
        pytest.skip(f"the default is {device.name}")
    done = isokern_there("why", "add", "--json", env={name: value}, numpy=EMULATOR)
    assert (done.code, done.out) == (3, "")
    assert f"backend cpu, which would be the default, is broken: environment: {name}={value}" in done.err
    assert allowed in done.err
    assert "by ISOKERN_DEVICE: " in done.err
    assert done.err.count("\n") == 1
    asked = isokern_there("why", "add", "--json", env={name: value, "ISOKERN_DEVICE": "numpy"}, numpy=EMULATOR)
    assert asked.code == 0


def test_unknown_setting(isokern_there):
    done = isokern_there("devices", "--json", env={"ISOKERN_DEVCE": "cpu"})
    assert done.code == 2
    assert "ISOKERN_DEVICE" in done.err


@pytest.mark.parametrize("command", [["devices"], ["why", "abs", "--device", "cpu:0"], ["ops", "abs"]], ids=" ".join)
def test_a_level_that_is_no_number_is_one_line(isokern_there, command):
    done = isokern_there(*command, env={"ISOKERN_DEBUG": "zzz"})
    assert "Traceback" not in done.err
    if command[0] != "ops":  # which asks for no setting
        assert (done.code, done.err) == (2, "environment: ISOKERN_DEBUG=zzz; allowed: a level from 0 to 4\n")


def test_traceback_on_request(isokern_there):
    done = isokern_there("why", "no_such_operator", env={"ISOKERN_DEBUG": "1"})
    assert done.code == 2
    assert "Traceback" in done.err


@pytest.mark.parametrize("arguments", [["nonsense"], ["bench", "--nonsense"], ["demo", "--batch", "x"]])
def test_usage(isokern_here, arguments):
    done = isokern_here(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_help_and_version(isokern_here):
    done = isokern_here("--help")
    assert done.code == 0
    _, _, commands = done.out.partition("\nCommands:\n")
    named = {line.split()[0] for line in commands.splitlines() if line.startswith("  ") and line[2] != " "}
    assert {"bench", "demo", "devices", "explain-call", "graph", "ops", "why"} <= named
    assert isokern_here("--version").out.startswith("isokern ")


def test_groups_of_plugins(isokern_there):
    done = isokern_there("hello", "world", "--n", "2", groups=GROUPS)
    assert (done.code, done.out) == (0, "hellohello\n")
    helped = isokern_there("--help")
    assert "hello" in helped.out
    assert "'devices' is left out: its name is taken" in helped.err
    assert "its name is missing" in helped.err
    assert "'no Typer at all' is left out" in helped.err
    assert isokern_there("devices", "--json").document  # the built-in command


def test_a_narrow_ascii_terminal(isokern_there):
    done = isokern_there("ops", "--family", "normalization", env={"PYTHONIOENCODING": "ascii", "COLUMNS": "40"})
    assert done.code == 0
    assert "softmax" in done.out


def test_json_has_no_bare_nan():
    given = {
        "a": math.nan,
        "b": [math.inf, -math.inf],
        "c": np.float32(1.5),
        "d": np.int64(3),
        "e": (True, None),
        1: {"x"},
        "f": print,
    }
    assert plain(given) == {
        "a": "nan",
        "b": ["inf", "-inf"],
        "c": 1.5,
        "d": 3,
        "e": [True, None],
        "1": ["x"],
        "f": str(print),
    }
