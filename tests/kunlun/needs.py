"""What tests need: a compiler, the emulated card, and the conformance suite's verdict on one case.

A test is skipped where the compiler or the card is missing.
"""

from __future__ import annotations

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
