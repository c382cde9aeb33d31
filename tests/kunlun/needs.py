"""What tests need: a compiler, the emulated card, and the conformance suite's verdict on one case.

A test is skipped where the compiler or the card is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

import isokern
from isokern.backend import Device
from isokern.conformance.run import Runner
from isokern.declare.operator import Sample
from isokern.dtypes import DType
from isokern.ops import find
from isokern.oracle.cases import Case


def cxx() -> str:
    """Return the C++ compiler; skip the test without one."""
    from isokern_kunlun_sim import compiling

    found = compiling.compiler()
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


def kunlun() -> Device:
    """Return the first emulated card; skip the test without one."""
    try:
        return isokern.device("kunlun_sim:0")
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))


@cache
def runner() -> Runner:
    """Return the conformance suite's runner for that card."""
    return Runner(kunlun())


def judge(op: str, types: DType | tuple[DType, ...], sample: Sample, layout: str, values: str = "drawn") -> None:
    """Assert that one case passes; `types` gives the dtypes of the first type variables."""
    types = types if isinstance(types, tuple) else (types,)
    rest = [allowed[0] for allowed in find(op).signature.types.values()][len(types) :]  # mostly dtypes of indices
    outcome = runner().run(Case(find(op), (*types, *rest), sample, layout, values))
    assert outcome.verdict.value == "pass", f"{outcome.id}: {outcome.detail}"


def assert_same_on_clusters(code: str) -> None:
    """Assert that Python code prints the same on cards of 1, 3 and 12 clusters."""
    kunlun()
    found = set()
    for clusters in ("1", "3", "12"):
        environment = {**os.environ, "ISOKERN_PLUGINS": "kunlun_sim", "XPU_NUM_CLUSTER": clusters}
        command = [sys.executable, "-c", code]
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1
