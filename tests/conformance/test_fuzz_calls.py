"""Test the tool that tries random calls: what it draws is varied and repeatable, and a false claim is found."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from runtime_saboteurs import answer_with, build_with
from threaded_device import ThreadedDevice

from isokern.backend import Declined, Device, KernelVariant
from isokern.ops import all_operators, find

TOOL = Path(__file__).parents[2] / "tools" / "fuzz_calls.py"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def decline(made: KernelVariant, plan: Any) -> Any:
    if plan.table[0].dtype.name == "F16":
        raise Declined("the compiler does not take it")
    return made.build(plan)


class DeclinesAtBuild(ThreadedDevice):
    wrap = build_with(decline)


class RefusesWithoutAReason(ThreadedDevice):
    wrap = answer_with(lambda plan, said: "" if plan.table[0].numel == 1 else said)


class RefusesWithAReason(ThreadedDevice):
    wrap = answer_with(lambda plan, said: "one is too few" if plan.table[0].numel == 1 else said)


def test_calls_are_varied_and_the_same_each_time(tool: dict[str, Any]) -> None:
    operators = all_operators()
    first, again = ([tool["draw_case"](3, n, operators, 0).id for n in range(300)] for _ in range(2))
    assert first == again
    assert len(set(first)) > 280
    assert len({i.split("/")[0] for i in first}) > 80
    known = {s.text for o in operators for s in o.samples()}
    assert len({i.split("/")[2] for i in first} - known) > 60
    assert any("/inplace:" in i for i in first) and any(i.endswith("/special") for i in first)


def test_few_programs_have_few_shapes_and_many_layouts(tool: dict[str, Any]) -> None:
    cases = [tool["draw_case"](3, n, all_operators(), 5) for n in range(60)]
    assert len({c.problem_id.rsplit("/", 1)[0] for c in cases}) == 5
    assert len({c.id for c in cases}) > 30


def test_a_sound_device_makes_no_false_claim(
    cpu: Device, tool: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool["fuzz"](cpu, all_operators(), 1, range(100), 0) == 0
    assert "0 false claims" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (DeclinesAtBuild, "supports it, and it could not be built"),
        (RefusesWithoutAReason, "refused without a reason"),
        (RefusesWithAReason, ""),
    ],
)
def test_a_false_claim_is_found(
    cpu: Device, tool: dict[str, Any], capsys: pytest.CaptureFixture[str], cls: Any, said: str
) -> None:
    failed = tool["fuzz"](cls("claims:0"), [find("neg"), find("softmax")], 1, range(120), 0)
    out = capsys.readouterr().out
    assert (failed > 0) is bool(said)
    assert said in out
    assert "--only" in out or not said
