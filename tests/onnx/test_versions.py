"""Test that each version of each operator of ONNX is read as its definition says, on drawn nodes.

In quick runs there is one draw of each version, beside onnx.reference and, if it is installed, ONNX Runtime. Full runs
draw more, and compare the lines of docs/onnx_versions.tsv.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from operator_draws import RECIPES
from versions import FAULTS, differ, draw, is_read, judge, list_versions, row, run_here

from isokern.onnx.table import NODES

KEPT = Path(__file__).parents[2] / "docs" / "onnx_versions.tsv"
NAMES = sorted({name for name, _ in list_versions()})


def read_lines():
    with KEPT.open(encoding="utf-8", newline="") as file:
        return [list(line.values()) for line in csv.DictReader(file, delimiter="\t")]


def test_every_operator_is_drawn_or_has_no_counterpart():
    lacking = {name for name in NAMES if name not in RECIPES}
    assert lacking == {name for name in NAMES if not is_read(name)}
    assert set(RECIPES) <= set(NAMES)


def test_the_page_has_a_line_for_every_version():
    assert [(name, int(version)) for name, version, *_ in read_lines()] == list(list_versions())


def test_one_draw_of_each_version(cpu):
    read = [pair for pair in list_versions() if pair[0] in RECIPES]
    verdicts = [judge(pair, 0, cpu.name) for pair in read]
    assert [v.wrong for v in verdicts if v.wrong] == []
    compared = [v for v in verdicts if v.same]
    assert len(compared) > 0.85 * len(read)  # by onnx.reference alone


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_drawn_nodes_of_every_version(cpu, name):
    pytest.importorskip("onnxruntime")
    found = [row(pair, cpu.name) for pair in list_versions() if pair[0] == name]
    assert [text for _, wrong in found for text in wrong] == []
    assert [fields for fields, _ in found] == [line for line in read_lines() if line[0] == name]


@pytest.mark.parametrize("name", ["Softmax", "Hardmax"])
def test_a_version_that_is_read_as_another_is_seen(cpu, monkeypatch, name):
    """A handler that reads version 11 as version 13, as a version converter may do in silence."""
    samples = [draw((name, 11), seed) for seed in range(6)]
    before, handler = [run_here(sample, cpu.name) for sample in samples], NODES[name]

    def read_as_13(node):
        node.version = 13
        return handler(node)

    monkeypatch.setitem(NODES, name, read_as_13)
    after = [run_here(sample, cpu.name) for sample in samples]
    assert any(differ(a, b, sample.drawn) for a, b, sample in zip(after, before, samples, strict=True))


def test_a_known_fault_is_of_an_operator_and_says_what():
    names = [name for fault in FAULTS for name in fault.operators.split()]
    assert set(names) <= set(NAMES)
    assert all(fault.why for fault in FAULTS)


def test_draws_are_the_same_each_time():
    for pair in (("Conv", 11), ("Resize", 19), ("Loop", 13)):
        one, two = draw(pair, 5), draw(pair, 5)
        assert one.model == two.model
        assert all(np.array_equal(one.feeds[n], two.feeds[n]) for n in one.feeds)
