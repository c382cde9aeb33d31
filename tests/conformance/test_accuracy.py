"""Test the measurement of accuracy, and the table that is committed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import isokern.cli.accuracy
from isokern.backend import Device
from isokern.conformance import accuracy
from isokern.conformance.suite import Part
from isokern.dtypes import BF16, F16, F32
from isokern.ops import all_operators, find
from isokern.oracle.ulps import exact_values, ulp_errors
from isokern.status import InvalidArgument

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "accuracy.tsv"
SWEPT = [op.name for op in all_operators() if accuracy.is_swept(op)]


def test_a_number_is_as_many_ulps_off_as_there_are_steps() -> None:
    exact = np.array([1.0, 1.5, 2.0, 1e-40, 0.0, -3.0])
    got = exact.astype(np.float32)
    assert ulp_errors(got, exact, F32).max() <= 0.5
    for _ in range(3):
        got = np.nextafter(got, np.float32(np.inf))
    assert np.abs(ulp_errors(got, exact, F32) - 3).max() <= 0.5


def test_special_results_are_right_or_infinitely_far_off() -> None:
    exact = np.array([np.nan, np.inf, -np.inf, 70000.0, 65504.0, np.nan, 1.0, np.inf])
    got = np.array([np.nan, np.inf, -np.inf, np.inf, np.inf, 1.0, np.nan, -np.inf], np.float16)
    assert ulp_errors(got, exact, F16).tolist() == [0, 0, 0, 0, np.inf, np.inf, np.inf, np.inf]


def test_rounding_is_at_most_half_an_ulp_off() -> None:
    exact = np.random.default_rng(7).normal(size=10000)
    for dtype in (BF16, F16, F32):
        errors = ulp_errors(exact.astype(dtype.numpy), exact, dtype)
        assert 0.49 < errors.max() <= 0.5


@pytest.mark.parametrize("name", SWEPT)
def test_exact_functions_are_the_declared_ones(name: str) -> None:
    """Where float64 does not cancel, both definitions agree to a few ULP of it."""
    operator = find(name)
    attrs = operator.attrs.check(name, {})
    x = np.concatenate([np.linspace(-4, 4, 65), np.geomspace(1e-6, 700, 40)])
    with np.errstate(all="ignore"):
        declared = operator.reference(x, **attrs)
    exact = exact_values(name, attrs, x)
    assert np.isnan(exact[np.isnan(declared)]).all()
    known = np.isfinite(declared)
    np.testing.assert_allclose(declared[known], exact[known].astype(np.float64), rtol=1e-11, atol=0)


def test_every_part_of_all_numbers_comes_once() -> None:
    found = [np.concatenate([*accuracy.numbers(F32, Part(n, 1 << 20))]).view(np.uint32) for n in (1, 2, 1 << 20)]
    assert [int(bits[1]) - int(bits[0]) for bits in found] == [1 << 20] * 3
    assert [int(bits[0]) for bits in found] == [0, 1, (1 << 20) - 1]


def test_a_result_that_is_less_exact_is_found(cpu: Device, tmp_path: Path) -> None:
    rows = [*accuracy.measure_sweep(cpu, [find("exp")], Part(1, 1 << 16))]
    assert {r.dtype for r in rows} == {"F16", "BF16", "F32", "F64"}
    assert all(0.49 < r.largest < 2 and 0 < r.mean < 0.5 for r in rows)
    accuracy.write_table(tmp_path / "table.tsv", rows)
    known = accuracy.read_table("--against", tmp_path / "table.tsv")
    assert accuracy.find_worse(rows, known) == []
    worse = [replace(r, largest=r.largest + 0.01) for r in rows]
    assert len(accuracy.find_worse(worse, known)) == len(rows)
    assert len(accuracy.keep_reasons(worse, known, "")) == len(rows)
    assert accuracy.keep_larger(rows, known) == [known[r.key] for r in rows]
    assert accuracy.keep_larger(worse, known) == worse
    assert accuracy.keep_reasons(worse, known, "a faster polynomial") == []
    assert {r.reason for r in worse} == {"a faster polynomial"}


def test_a_result_beyond_its_bound_is_named(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = accuracy._calls

    def less_exact(device, operator, x):
        return (got * np.float32(1 + 20 * 2**-23) for got in calls(device, operator, x))

    monkeypatch.setattr(accuracy, "_calls", less_exact)
    row = next(r for r in accuracy.measure_sweep(cpu, [find("exp")], Part(1, 1 << 16)) if r.dtype == "F32")
    (line,) = accuracy.find_worse([row], {})
    assert "exp F32 on cpu" in line and "wrong, first at" in line


@pytest.mark.parametrize("text", ["", "operator\tdtype\n", "\0", "operator\tdtype\tdevice\tsource\nexp\tF32\tcpu\n"])
def test_another_file_is_no_table(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text(text)
    with pytest.raises(InvalidArgument, match="isokern accuracy"):
        accuracy.read_table("--against", tmp_path / "t.tsv")


def test_the_cpu_is_as_exact_as_the_table_says(cpu: Device) -> None:
    known = accuracy.read_table("--against", TABLE)
    operators = [find(name) for name in ("exp", "tanh", "softmax", "rms_norm")]
    rows = [*accuracy.measure_cases(cpu, operators), *accuracy.measure_sweep(cpu, operators)]
    assert {r.key for r in rows} <= known.keys()
    assert accuracy.find_worse(rows, known) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--reason", "a faster polynomial"], "--write FILE"),
        (["--merge"], "--write FILE"),
        (["--write", "absent/table.tsv"], "there is no folder 'absent'"),
        (["--against", "/dev/zero"], "--against: '/dev/zero' is not a regular file"),
        (["--slice", "2/1"], "--slice: '2/1'"),
        ([], "nothing was measured"),
    ],
)
def test_what_cannot_be_measured_is_said(cpu: Device, options: list[str], said: str) -> None:
    app = typer.Typer()
    app.command()(isokern.cli.accuracy.accuracy)
    result = CliRunner().invoke(app, ["--device", "cpu", "--op", "softmax", "--no-cases", *options])
    assert isinstance(result.exception, InvalidArgument)
    assert said in str(result.exception)
