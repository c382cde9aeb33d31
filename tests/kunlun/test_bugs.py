"""Test that the checked mode finds kernels with one bug each, and reports nothing for their repaired twins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
BUGS = HERE.parents[1] / "examples" / "xpu" / "bugs"
KEXCEPTION, TIMEOUT = 714, 715


@dataclass(frozen=True)
class Case:
    """The rules that find a kernel's bug, and how the kernel is launched on arrays of `room` floats."""

    rules: tuple[str, ...]
    clusters: int = 1
    cores: int = 4
    n: int = 64
    room: int = 16384
    given: str = "device"  # kind of the input's memory: device, host, freed, other
    model: str = "KUNLUN3"
    code: int = KEXCEPTION
    perhaps: tuple[str, ...] = ()  # rules that also apply in some orders of the cores


def case(*rules: str, **how: Any) -> Case:
    """Return a case that the given rules find."""
    return Case(rules, **how)


CASES = {
    "barrier_in_branch": case("barrier-divergent"),
    "barrier_in_ragged_loop": case("barrier-exited", code=0),
    "barrier_never_reached": case("barrier-deadlock", cores=32, code=TIMEOUT),
    "barrier_over_clusters": case("cluster-order", clusters=3, code=TIMEOUT),
    "clusters_add_to_one_word": case("race-gm", clusters=3, perhaps=("uninitialised",)),
    "copy_fenced_by_another_core": case("race-sm"),
    "copy_count_truncated": case("copy-truncated", "copy-size", "gm-bounds", "lm-bounds"),
    "copy_of_nothing": case("copy-length", n=32),
    "copy_outlives_array": case("copy-scope"),
    "copy_overlapping_stores": case("copy-overlap"),
    "copy_slot_refilled": case("copy-overlap"),
    "copy_slot_reused": case("copy-source"),
    "copy_too_long": case("copy-size", "lm-bounds"),
    "copy_unfenced": case("copy-destination"),
    "copy_wrong_fence": case("copy-destination"),
    "copy_wrong_space": case("wrong-space"),
    "far_out_of_bounds": case("gm-bounds"),
    "freed_memory": case("gm-freed", given="freed"),
    "global_load_on_kunlun2": case("gm-scalar", model="KUNLUN2"),
    "global_uninitialised": case("uninitialised"),
    "global_variable": case("global-variable"),
    "host_memory": case("host-pointer", given="host"),
    "local_copy_too_large": case("lm-bounds"),
    "local_memory_exceeded": case("lm-overflow"),
    "local_memory_of_another_core": case("lm-private"),
    "local_store_too_far": case("lm-bounds", "exception"),
    "local_store_unfenced": case("scalar-unfenced", code=0),
    "local_uninitialised": case("uninitialised"),
    "lock_without_fence": case("race-sm"),
    "mailbox_overwritten": case("race-sm"),
    "other_device": case("other-device", given="other"),
    "partials_without_barrier": case("race-gm", perhaps=("uninitialised",)),
    "row_offset_missing": case("race-gm", clusters=3),
    "shared_copy_too_large": case("sm-bounds"),
    "shared_memory_exceeded": case("sm-overflow"),
    "shared_rewritten_early": case("race-sm"),
    "shared_source_rewritten": case("copy-source"),
    "shared_sum_not_atomic": case("race-sm"),
    "shared_unfenced": case("race-sm"),
    "shared_uninitialised": case("uninitialised"),
    "shared_without_barrier": case("race-sm", perhaps=("uninitialised",)),
    "spin_without_end": case("endless", code=TIMEOUT),
    "stack_left_by_another_function": case("uninitialised"),
    "staging_by_one_core": case("staging-by-one-core", code=0),
    "staging_unfenced": case("race-sm", "copy-destination"),
    "store_from_shared_unfenced": case("race-sm", "copy-source"),
    "store_out_of_bounds": case("gm-bounds", n=100, room=100),
    "store_then_copy": case("gm-unfenced"),
    "tail_out_of_bounds": case("gm-bounds", n=100, room=100),
    "unwritten_copied_out": case("uninitialised-copy"),
    "vector_load_unfenced": case("scalar-unfenced", code=0),
    "vector_misaligned": case("simd-alignment"),
    "vector_store_copied": case("vector-unfenced"),
    "vector_store_unfenced": case("vector-unfenced"),
    "vector_tail_reduced": case("uninitialised"),
}


def test_every_kernel_has_its_line() -> None:
    assert sorted(CASES) == sorted(p.stem for p in BUGS.glob("*.xpu"))


@pytest.fixture(scope="session")
def bugs(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile all kernels to one checked library, with a function to launch each."""
    from isokern_kunlun_sim import compiling

    cxx = compiling.compiler()
    if cxx is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("bugs")

    # In one file: the compiler takes longer for the language's headers than for a kernel
    sources, launch = (
        sorted(BUGS.glob("*.xpu")),
        '::xpusim::kernel({0}<{1}>, "{0}").on(clusters, cores, stream)(in, out, n)',
    )
    (folder / "bugs.xpu").write_text("".join(f'#include "{path}"\n' for path in sources), encoding="utf-8")
    behind = "".join(
        f'\nextern "C" int run_{stem}(int repaired, int clusters, int cores, XPUStream stream,'
        " float *in, float *out, int n)"
        f"\n{{ return repaired ? {launch.format(stem, 'true')} : {launch.format(stem, 'false')}; }}\n"
        for stem in (path.stem for path in sources)
    )
    made = compiling.kernel_object(cxx, folder / "bugs.xpu", "checked", folder, [], behind=behind)
    compiling.library(cxx, folder / "bugs.so", [made], "checked")
    return folder / "bugs.so"


def launch(
    runtime: Path, bugs: Path, folder: Path, stem: str, which: str, **settings: str
) -> tuple[int, list[dict[str, Any]], str]:
    """Return (code of xpu_wait, findings, what was printed about them)."""
    c = CASES[stem]
    report = folder / "findings.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ISOKERN", "XPU"))}
    environment |= {
        "ISOKERN_XPU_CHECK": "1",
        "ISOKERN_XPU_DEVICES": "2",
        "ISOKERN_XPU_REPORT": str(report),
        "ISOKERN_XPU_TIMEOUT_MS": "5000",
        "XPUSIM_DEVICE_MODEL": c.model,
    }
    arguments = [str(runtime), str(bugs), stem, which, json.dumps(asdict(c))]
    done = subprocess.run(
        [sys.executable, str(HERE / "launch_bug.py"), *arguments],
        env=environment | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = report.read_text().splitlines() if report.exists() else []
    return int(done.stdout), [json.loads(line) for line in lines], done.stderr


@pytest.mark.parametrize(
    "seed", [pytest.param("0", marks=pytest.mark.full), "1", pytest.param("2", marks=pytest.mark.full)]
)
@pytest.mark.parametrize("stem", sorted(CASES))
def test_the_bug_is_found(runtime: Path, bugs: Path, tmp_path: Path, stem: str, seed: str) -> None:
    code, findings, text = launch(runtime, bugs, tmp_path, stem, "planted", ISOKERN_XPU_SEED=seed)
    assert {f["rule"] for f in findings} - set(CASES[stem].perhaps) == set(CASES[stem].rules), text
    assert code == CASES[stem].code
    for f in findings:
        assert f["kernel"] == stem
        assert f["says"] and f["remedy"] and f["seed"] == int(seed)
        for place in (f["place"], *([f["other"]] if "other" in f else [])):
            file, line = place["where"].rsplit(":", 1)
            assert Path(file).name == f"{stem}.xpu" and int(line) > 0, text
    assert f"ISOKERN_XPU_SEED={seed}" in text


def masked(text: str) -> str:
    """Replace numbers, which depend on schedules and compilers, by #; numbers of source lines stay."""
    return re.sub(r"(?<!\.xpu:)(?<![\w.])(0x[0-9a-f]+|\d+)", "#", text)


@pytest.mark.parametrize("stem", sorted(CASES))
def test_what_is_printed_lies_beside_the_kernel(runtime: Path, bugs: Path, tmp_path: Path, stem: str) -> None:
    """The text beside the kernel is what is printed; a missing file is written, and the test fails for review."""
    text = launch(runtime, bugs, tmp_path, stem, "planted", ISOKERN_XPU_SEED="0")[2]
    text = re.sub(r"\S*/(\w+\.xpu:)", r"\1", text)
    beside = BUGS / f"{stem}.txt"
    if not beside.exists():
        beside.write_text(text, encoding="utf-8")
        pytest.fail(f"{beside} is written anew: look at it")
    assert masked(text) == masked(beside.read_text(encoding="utf-8"))


@pytest.mark.parametrize("seed", ["0", pytest.param("1", marks=pytest.mark.full)])
@pytest.mark.parametrize("stem", sorted(CASES))
def test_the_repaired_twin_is_in_order(runtime: Path, bugs: Path, tmp_path: Path, stem: str, seed: str) -> None:
    code, findings, text = launch(runtime, bugs, tmp_path, stem, "repaired", ISOKERN_XPU_SEED=seed)
    assert findings == [], text
    assert code == 0


def test_a_race_names_both_sides(runtime: Path, bugs: Path, tmp_path: Path) -> None:
    _, (found,), text = launch(runtime, bugs, tmp_path, "shared_unfenced", "planted")
    source = (BUGS / "shared_unfenced.xpu").read_text().splitlines()
    here, there = (int(found[p]["where"].rsplit(":", 1)[1]) for p in ("place", "other"))
    assert "x = slots[" in source[here - 1] and "slots[core_id()] =" in source[there - 1]
    assert found["place"]["core"] != found["other"]["core"]
    assert "slots + " in found["bytes"]
    assert "mfence_sm() on core" in found["remedy"]
    assert found["remedy"] in text


def test_a_suppressed_finding_is_no_error(runtime: Path, bugs: Path, tmp_path: Path) -> None:
    listed = tmp_path / "suppress"
    listed.write_text("# known\nrace-*:shared_unfenced\n")
    code, findings, _ = launch(runtime, bugs, tmp_path, "shared_unfenced", "planted", ISOKERN_XPU_SUPPRESS=str(listed))
    assert (code, findings) == (0, [])
    listed.write_text("race-*:another\n")
    code, findings, _ = launch(runtime, bugs, tmp_path, "shared_unfenced", "planted", ISOKERN_XPU_SUPPRESS=str(listed))
    assert code == KEXCEPTION and len(findings) == 1


def test_counts_of_a_launch(runtime: Path, bugs: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    launch(runtime, bugs, tmp_path, "copy_unfenced", "repaired", ISOKERN_XPU_PROFILE=str(profile))
    (found,) = [json.loads(line) for line in profile.read_text().splitlines()]
    assert (found["kernel"], found["clusters"], found["cores"]) == ("copy_unfenced", 1, 4)
    assert len(found["per_core"]) == 4
    for core in found["per_core"]:
        assert core["GM2LM"] == core["LM2GM"] == {"copies": 1, "bytes": 256, "lines": 4}
        assert core["fences"] == 2 and 256 <= core["lm"] < 1024
