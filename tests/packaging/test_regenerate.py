"""Test that the derived files of this tree are up to date, and that tools/regenerate.py says of each if it is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import peer_names
import pytest
import regenerate

# name → a text of the file, what is written in its place, and what is said of it
PLANTED = {
    "index": ("\tsoftmax\t", "\thardmax\t", "lines are not of this tree, first"),
    "records": ("softmax SOFT ", "softmax SOFU ", "lines are not of this tree, first '"),
    "peer_names": ("ONNX\tAbs\tabs\t", "ONNX\tAbs\tacos\t", r"line 2 is 'ONNX\tAbs\tacos\t'; computed: "),
    "source_documents": ("# The source documents", "# Sources", "line 1 is '# Sources'; computed: '# The source doc"),
    "sizes": ("core/view\t", "core/view\t-", "core/view has "),
    "phrases": ("tests/llm\ttexts\t", "tests/llm\ttexts\t9", "; write the lower count"),
    "accuracy": ("acos\tF32\tcpu\t", "acos\tF32\tgpu\t", "it has a row for a device that does not exist: gpu"),
    "support": ('"abs": ', '"abz": ', "it has a row for an operator that does not exist: abz"),
    "c_reach": ("abs\t", "abs_of_old\t", "abs is not in the table"),
    "onnx_suite": ('"passed": ', '"past": ', "it has a row for an outcome that does not exist: past"),
    "onnx_versions": ("Abs\t6\t", "Abs\t1\t", "Abs 1 has more than one line"),
    "speed": ("abs\tF32\tx=262144\tnumpy", "abs\tF32\tx=7\tnumpy", "abs F32 x=7 numpy is not a medium sample"),
    "mutations": (
        "/kernels/convert.h:",
        "/kernels/gone.h:",
        "it has a row for a kernel file of cpu that does not exist",
    ),
    "status": ("# Status", "Status", "it does not begin with '# Status'"),
}


def copy(name: str, root: Path) -> Path:
    """Copy a derived file to a tree of its own."""
    path = root / regenerate.FILES[name].path
    path.parent.mkdir(parents=True)
    shutil.copy2(regenerate.ROOT / regenerate.FILES[name].path, path)
    return path


@pytest.mark.parametrize("name", regenerate.FILES)
def test_a_derived_file_is_up_to_date(name):
    assert regenerate.check(name, regenerate.ROOT) == [], f"python tools/regenerate.py {name}"


@pytest.mark.parametrize("name", regenerate.FILES)
def test_a_planted_fault_is_found(name, tmp_path, capsys):
    path, (before, planted, sentence) = copy(name, tmp_path), PLANTED[name]
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, planted), encoding="utf-8")
    assert regenerate.main(["--check", name], tmp_path) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"{regenerate.FILES[name].path}: ")
    assert sentence in said
    assert said.endswith(f"; run `python tools/regenerate.py {name}`\n")
    assert path.read_text(encoding="utf-8") != text, "--check writes nothing"


@pytest.mark.parametrize("name", regenerate.COMPUTED)
def test_a_computed_file_is_written(name, tmp_path, capsys):
    path = copy(name, tmp_path)
    path.write_text("")
    assert regenerate.main([name], tmp_path) == 0
    assert capsys.readouterr().out == f"{regenerate.COMPUTED[name].path} is written\n"
    assert regenerate.main(["--check", name], tmp_path) == 0
    path.unlink()
    assert regenerate.main(["--check", name], tmp_path) == 1
    assert "it does not exist" in capsys.readouterr().out


def test_a_new_operator_edits_nothing_else(tmp_path):
    for name in ("index", "records"):
        path = copy(name, tmp_path)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith("softmax")), encoding="utf-8")
        assert regenerate.main(["--check", name], tmp_path) == 0


def test_a_layout_that_changes_needs_a_new_id(tmp_path, capsys):
    path = copy("records", tmp_path)
    planted = path.read_text(encoding="utf-8").replace("topk TOPK TPK1 16: k int @0", "topk TOPK TPK1 16: k float @0")
    path.write_text(planted, encoding="utf-8")
    assert regenerate.main(["records"], tmp_path) == 1
    said = capsys.readouterr().out
    assert "the attributes of topk have another layout than TPK1 had; give the record a new schema id" in said
    assert path.read_text(encoding="utf-8") == planted


def test_what_has_no_accuracy_is_named(tmp_path, capsys):
    path = copy("accuracy", tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("exp\t")), encoding="utf-8")
    assert regenerate.main(["--check", "accuracy"], tmp_path) == 1
    assert "it has no row for opencl of exp" in capsys.readouterr().out


def test_a_budget_is_raised_only_when_it_is_named(tmp_path):
    path = copy("sizes", tmp_path)
    path.write_text("folder\tlines\n")
    for file in regenerate.FILES.values():
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
    assert regenerate.main([], tmp_path) == 0
    assert path.read_text() == "folder\tlines\n"
    made = {file.path for file in regenerate.FILES.values() if (tmp_path / file.path).exists()}
    assert made == {file.path for file in regenerate.COMPUTED.values()}


def test_another_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        regenerate.main(["speeds"])
    assert "speeds: allowed: index, records" in capsys.readouterr().err


def test_a_tool_that_fails_is_a_fault(tmp_path, monkeypatch, capsys):
    def fail(*words: str) -> str:
        raise regenerate.NotMade("ValueError: it is there twice")

    monkeypatch.setattr(regenerate, "run_tool", fail)
    copy("index", tmp_path)
    for arguments in (["index"], ["--check", "index"]):
        assert regenerate.main(arguments, tmp_path) == 1
        assert "it is there twice" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("ONNX\tAbs\tabs\t", "implies Abs; write = or no row"),
        ("ONNX\tAbs\t=\t", "or its row has no note"),
        ("ONNX\tCos\t=\tof angles", "nothing implies the operators of Cos"),
        ("ONNX\tAbs\tabs", "has not 4 fields"),
        ("ONNX\tIf\t\tflow\nONNX\tIf\t\tflow", "or is there twice"),
    ],
)
def test_a_row_by_hand_says_what_nothing_implies(row, sentence):
    header = "peer\tname\toperators\tnote\n"
    with pytest.raises(ValueError, match=sentence):
        peer_names.merge({("ONNX", "Abs"): "abs"}, peer_names.read_by_hand(f"{header}{row}\n"))
    with pytest.raises(ValueError, match="begins with"):
        peer_names.read_by_hand(f"{row}\n")


def test_rows_by_hand_replace_and_annotate():
    implied = {("ONNX", "Cos"): "cos", ("ONNX", "Abs"): "abs", ("PyTorch", "sign"): "sgn"}
    text = peer_names.merge(implied, {("PyTorch", "sign"): ("sign", "of NaN"), ("ONNX", "Cos"): ("=", "of angles")})
    assert text.splitlines()[1:] == ["ONNX\tAbs\tabs\t", "ONNX\tCos\tcos\tof angles", "PyTorch\tsign\tsign\tof NaN"]
