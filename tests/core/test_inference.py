"""Test the C code generated from declarations' functions; unsupported Python is refused by name and line at build."""

import os
import subprocess
import sys

import pytest

from isokern.cabi.inference import Unsupported, attribute_tables, inference_tables
from isokern.cabi.inference.compiler import Compiler
from isokern.ops import all_operators


def looks_up(values):
    import os

    return os.environ[values]


def tries(values):
    try:
        return values[0]
    except IndexError:
        return None


def shapes(values):
    return values @ values


def formats(values):
    return f"{values:>3}"


def calls(values):
    return print(values)


def raises(values):
    raise ValueError(values)


def selects(values):
    def chosen(**named):
        return named

    return chosen(first=values)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (looks_up, r"test_inference.looks_up, line 2: Import: import os"),
        (tries, r"test_inference.tries, line 2: Try: "),
        (shapes, r"test_inference.shapes, line 2: BinOp: values @ values"),
        (formats, r"test_inference.formats, line 2: FormattedValue"),
        (calls, r"test_inference.calls, line 2: Call: print\(values\)"),
        (raises, r"test_inference.raises, line 2: Raise: raise ValueError\(values\)"),
        (selects, r"test_inference.selects, line 5: Call: chosen\(first=values\)"),
        (sum, "is not a function of Python"),
    ],
)
def test_what_the_machine_does_not_have_is_named(function, problem):
    with pytest.raises(Unsupported, match=problem):
        Compiler().function(function)


def test_the_tables_are_the_same_every_time():
    assert inference_tables() == inference_tables()
    assert attribute_tables() == attribute_tables()


def test_every_operator_has_its_record_and_attributes():
    text = inference_tables()
    for op in all_operators():
        assert f'"{op.name}"' in text


def test_tables_are_the_same_in_every_process():
    """The generated tables do not depend on the process's hash seed, so builds are reproducible."""
    code = (
        "import hashlib; from isokern.cabi.inference import inference_tables;"
        " print(hashlib.sha1(inference_tables().encode()).hexdigest())"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(2)
    }
    assert len(made) == 1
