"""What tests need and are skipped without: a compiler, the device; and the conformance suite's verdict on one case."""

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
    """The C++ compiler."""
    from isokern_kunlun_sim import compiling

    found = compiling.compiler()
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


def kunlun() -> Device:
    """The first emulated card."""
    try:
        return isokern.device("kunlun_sim:0")
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))


@cache
def runner() -> Runner:
    """The suite's, on that card."""
    return Runner(kunlun())


def judge(op: str, types: DType | tuple[DType, ...], sample: Sample, layout: str, values: str = "drawn") -> None:
    """One case, of a dtype for each type variable, has to pass."""
    types = types if isinstance(types, tuple) else (types,)
    rest = [allowed[0] for allowed in find(op).signature.types.values()][len(types) :]  # of indices, mostly
    outcome = runner().run(Case(find(op), (*types, *rest), sample, layout, values))
    assert outcome.verdict.value == "pass", f"{outcome.id}: {outcome.detail}"
