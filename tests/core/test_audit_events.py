"""Test the audit events that say which operators and kernels a process uses, for proofs of tests (tools/prove.py)."""

from __future__ import annotations

LISTEN = """
import sys
seen = []

def listen(event, arguments):
    if event.startswith("isokern."):
        seen.append((event.partition(".")[2], *arguments))

sys.addaudithook(listen)
import numpy as np
import isokern
import isokern.ops

def since():
    found = [*dict.fromkeys(seen)]
    seen.clear()
    return found

def show(*facts):
    print(*facts, sep="\\n")

"""


def test_an_operator_is_named_when_it_is_first_looked_up(run):
    """Its module declares other operators, too: those are not used."""
    code = """
since()
isokern.ops.find("softmax")
show(since(), isokern.ops.find("softmax").stem, since())
isokern.ops.find("log_softmax")
show(since())
isokern.ops.by_kind(isokern.ops.find("exp").kind_id)
show(since())
isokern.ops.all_operators()
show(since()[0])
"""
    status, shown = run(LISTEN + code)
    assert status == 0, shown
    assert shown.splitlines() == [
        "[('operator', 'softmax')]",
        "softmax",
        "[]",
        "[('operator', 'log_softmax')]",
        "[('operator', 'exp')]",
        "('operator', '*')",
    ]


def test_a_name_that_is_not_an_operator_is_reported_too(run):
    """What asks for it depends on its absence."""
    code = """
try:
    isokern.ops.find("no_such_operator")
except isokern.InvalidArgument:
    show(since())
"""
    status, shown = run(LISTEN + code)
    assert status == 0, shown
    assert "('operator', 'no_such_operator')" in shown


def test_a_call_names_the_kernel_once_and_calls_made_before_pass_by(run, cpu):
    code = """
x = isokern.from_numpy(np.ones((4, 8), np.float32), device="cpu")
since()
isokern.softmax(x)
show([e for e in since() if "softmax" in e])
for _ in range(100):
    isokern.softmax(x)
show(since())
isokern.softmax(isokern.from_numpy(np.ones((2, 2), np.float32), device="cpu"))
show(since())
"""
    status, shown = run(LISTEN + code)
    assert status == 0, shown
    assert shown.splitlines() == [
        "[('operator', 'softmax'), ('kernel', 'cpu:0', 'softmax')]",
        "[]",
        "[('kernel', 'cpu:0', 'softmax')]",
    ]


def test_a_lowered_call_names_what_it_is_made_of(run, cpu):
    code = """
x = isokern.from_numpy(np.ones((4, 8), np.float32), device="cpu")
since()
made = isokern.create("var", [x.desc], device="cpu")
show(set(made.made_of) <= {e[2] for e in since() if e[0] == "kernel"}, made.made_of != ())
"""
    status, shown = run(LISTEN + code)
    assert status == 0, shown
    assert shown.splitlines() == ["True", "True"]
