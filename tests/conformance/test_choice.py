"""Test which cases are chosen: the quick ones, shards, and how tools/conformance.py asks for them."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path
from types import ModuleType

import conformance
import environments
import pytest

import isokern
from isokern.backend import Device
from isokern.conformance.derive import OTHERS, device_cases
from isokern.conformance.suite import Choice, Part, quick
from isokern.dtypes import F32
from isokern.ops import all_operators, find
from isokern.oracle.cases import Case

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = ("abs", "add", "cast", "eye", "iota", "rms_norm", "softmax", "var")


@pytest.fixture(scope="module")
def cases(cpu: Device) -> list[Case]:
    return device_cases(cpu, [find(name) for name in OPERATORS])


def ids(cases: list[Case]) -> list[str]:
    return [c.id for c in cases]


def test_shards_together_are_all_cases_once_and_no_operator_is_divided(cases: list[Case]) -> None:
    shards = [[c for c in cases if Part(n, 3).has(c)] for n in range(1, 4)]
    assert Counter(i for shard in shards for i in ids(shard)) == Counter(ids(cases))
    owners = [{c.operator.name for c in shard} for shard in shards]
    assert sum(map(len, owners)) == len(OPERATORS), "an operator's proof is made by one machine"


def test_quick_cases_are_every_operator_in_f32_and_a_few_other_dtypes(cpu: Device) -> None:
    """The same tree has the same quick cases everywhere: nothing but the declarations and the device decides."""
    every = device_cases(cpu)
    chosen = quick(every)
    assert ids(chosen) == ids(device_cases(cpu, quick=True)), "they are the same if no others are derived"
    assert len(chosen) < 0.1 * len(every)
    called = [c for c in chosen if c.calls]
    own = {o for o in all_operators() if cpu.variants(o.stem)}
    lowered = set(all_operators()) - own
    assert {c.operator for c in called} > own, "each kernel is called"
    assert 0.2 < len({c.operator for c in called} - own) / len(lowered) < 0.5, "and some operators without one"
    claimed = {c.operator for c in chosen if c.values == "claim"}
    assert claimed == set(all_operators()), "whether each can be lowered is asked"
    for name in ("rms_norm", "softmax"):
        types = {c.types for c in called if c.operator.name == name}
        assert any(t[0] is F32 for t in types)
        assert 2 <= len(types) <= 3 + len({c.types for c in every if c.operator.name == name}) / OTHERS
    pairs = {(s.name, t.name) for s, t in {c.types for c in called if c.operator.name == "cast"}}
    assert pairs >= {(s, t) for s, t in itertools.product(("F32", "I64"), ("BF16", "F32", "I8", "U16")) if s != t}
    assert {d for c in called for d in c.types} == {d for c in every for d in c.types}, "all dtypes are met"
    for layout in ("gaps", "negative", "permuted", "broadcast", "offset"):
        assert any(c.layout == layout for c in called)
    assert {c.values for c in called} >= {"drawn", "special", "special_2", "out_of_range"}
    calls = Counter(c.operator for c in called if c.types[0] is F32)
    assert {calls[o] for o in lowered} == {0, 1}


def test_some_device_calls_each_operator_that_none_has_a_kernel_for() -> None:
    every = [d for d in isokern.devices() if d.name in ("cpu:0", "opencl:0", "cuda_sim:0", "kunlun_sim:0")]
    if len(every) < 4:
        pytest.skip("not every backend of the checkout is installed")
    called = {c.operator for d in every for c in device_cases(d, quick=True) if c.calls}
    assert called == set(all_operators())


def test_choices(cases: list[Case]) -> None:
    assert Choice().of(cases) == cases
    assert Choice(quick=True).of(cases) == quick(cases)
    small = Choice(quick=True, small=True).of(cases)
    large = {c.id for c in cases if c.sample.size in ("wide", "long", "edge")}
    assert large
    assert ids(small) == [i for i in ids(quick(cases)) if i not in large]
    assert {c.operator for c in small} == {c.operator for c in cases}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return tools/conformance.py for a checkout in `tmp_path`."""
    monkeypatch.setattr(conformance, "ROOT", tmp_path)
    return conformance


def test_each_backend_is_checked_with_the_options_and_a_report_is_kept_on_request(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(tool, "KEPT", tmp_path / "reports")
    monkeypatch.setattr(tool, "isokern", lambda *arguments, **more: (asked.append(arguments), (0, {}))[1])
    assert tool.main(["cpu", "kunlun_sim", "--claimed", "--quick"]) == 0
    assert asked == [
        ("check", "--device", "cpu", "--claimed", "--quick"),
        ("check", "--device", "kunlun_sim", "--claimed", "--quick"),
    ]
    assert not (tmp_path / "reports").exists()
    tool.main(["cpu", "--keep", "--claimed"])
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["cpu.json"]


def ask(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the options of the last check that a command makes, and the variables it sets."""
    asked: list[tuple[list[str], dict[str, str]]] = []

    def record(*arguments: str, settings: dict[str, str] | None = None) -> tuple[int, dict[str, object]]:
        asked.append(([*arguments], dict(settings or {})))
        return 0, {}

    monkeypatch.setattr(tool, "isokern", record)
    assert tool.main(words) == 0
    return asked[-1]


def test_a_proof_sets_the_device_its_options_and_its_settings(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "KEPT", tmp_path / "reports")
    for name in [n for n in os.environ if n.startswith(("ISOKERN_", "PROVE"))]:
        monkeypatch.delenv(name)
    name = "kunlun_sim-checked-1"
    words, settings = ask(tool, monkeypatch, "--proof", name, "--ledger", "docs/ledger.tsv")
    findings = str(tmp_path / "findings" / name)
    assert settings == {
        "ISOKERN_XPU_CHECK": "1",
        "ISOKERN_XPU_SEED": "1",
        "XPU_NUM_CLUSTER": "1",
        "ISOKERN_XPU_REPORT": findings,
    }
    start = ["check", "--device", "kunlun_sim", "--quick", "--ledger", "docs/ledger.tsv", "--proof", name]
    conditions = ["ISOKERN_XPU_CHECK=1", "ISOKERN_XPU_SEED=1", "XPU_NUM_CLUSTER=1"]
    assert words == [*start, *(w for c in conditions for w in ("--condition", c)), "--findings", findings]
    assert ask(tool, monkeypatch, "--proof", name, "-x")[0] == ["check", "--device", "kunlun_sim", "--quick", "-x"]
    monkeypatch.setenv("PROVE", "all")
    monkeypatch.setenv("PROVE_SHARD", "2/3")
    words, _ = ask(tool, monkeypatch, "--proof", "cpu", "--ledger", "docs/ledger.tsv")
    assert words[-4:] == ["--recheck", "100", "--shard", "2/3"]
    with pytest.raises(SystemExit, match="allowed: cpu, cpu-levels"):
        tool.main(["--proof", "cpu-fast"])


def test_what_is_built_or_set_otherwise_proves_something_else(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that is named with a ledger is judged as the proof of its name, in any environment."""
    for name in [n for n in os.environ if n.startswith(("ISOKERN_", "PROVE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ISOKERN_CUDA_SIM_SEED", "1")  # the proof decides about this one
    words, _ = ask(tool, monkeypatch, "cuda_sim", "--claimed", "--ledger", "L")
    assert words == ["check", "--device", "cuda_sim", "--claimed", "--ledger", "L", "--proof", "cuda_sim"]
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    monkeypatch.setenv("ISOKERN_CACHE", "/tmp/cache")
    assert ask(tool, monkeypatch, "cpu", "--ledger", "L")[0][-2:] == ["--condition", "ISOKERN_ON_MISSING=error"]
    monkeypatch.setenv("ISOKERN_CPU_LEVELS", "all")
    assert "ISOKERN_CPU_LEVELS=all" in ask(tool, monkeypatch, "cpu", "--ledger", "L")[0]
    assert tool.PROOFS["cpu-levels"].conditions == ["ISOKERN_CPU_LEVELS=all"], "as its environment builds it"


def test_each_proof_runs_in_its_environment_which_builds_what_it_says() -> None:
    known = environments.Environments(ROOT)
    for name, proof in conformance.PROOFS.items():
        environment = known.get(proof.environment)
        commands = [words for words in environment.split_commands() if "tools/conformance.py" in words]
        proofs = [words[i + 1] for words in commands for i, word in enumerate(words) if word == "--proof"]
        assert proofs.count(name) == 1, name
        assert all("--ledger docs/ledger.tsv" in " ".join(words) for words in commands)
        assert proof.built.items() <= environment.split_settings().items()
        assert "full" in environment.labels
    asked = [e.name for e in known for words in e.split_commands() if "tools/conformance.py" in words]
    assert {*asked} == {p.environment for p in conformance.PROOFS.values()} | {"devices", "cuda", "ledger"}
