"""Test `isokern compare`."""

import json

import pytest


def report(path, **verdicts):
    lines = [
        {"id": name, "device": "cpu:0", "verdict": verdict, "detail": "d", "share": share}
        for name, (verdict, share) in verdicts.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def old(tmp_path):
    return report(
        tmp_path / "old.jsonl", a=("pass", 0.1), b=("fail-value", 0), c=("pass", 0.2), d=("pass", 0), e=("pass", 0.1)
    )


def test_differences_are_named(isokern_here, tmp_path, old):
    new = report(
        tmp_path / "new.jsonl",
        a=("fail-value", 0),
        b=("pass", 0.1),
        c=("pass", 0.9),
        e=("unsupported", 0),
        f=("pass", 0),
    )
    done = isokern_here("compare", old, new, "--json")
    assert done.code == 1
    told = done.document
    assert [c["case"] for c in told["worse"]] == ["cpu:0 a", "cpu:0 e"]
    assert [c["case"] for c in told["better"]] == ["cpu:0 b"]
    assert [c["case"] for c in told["less_exact"]] == ["cpu:0 c"]
    assert (told["gone"], told["added"]) == (["cpu:0 d"], ["cpu:0 f"])
    assert "cpu:0 a: pass -> fail-value: d" in isokern_here("compare", old, new).out


def test_a_report_does_not_differ_from_itself(isokern_here, old):
    done = isokern_here("compare", old, old)
    assert (done.code, done.out.strip()) == (0, "0 worse, 0 better, 0 less exact, 0 gone, 0 added")


@pytest.mark.parametrize(
    "text", ["[]", "{}", "not json", '{"id": 1}', '{"id": "a", "device": "b", "share": 0}', "[" * 100000]
)
def test_another_file_is_refused(isokern_here, tmp_path, old, text):
    (tmp_path / "wrong").write_text(text)
    done = isokern_here("compare", old, tmp_path / "wrong")
    assert done.code == 2
    assert done.err.count("\n") == 1 and "allowed: a report of check --report" in done.err


def test_what_a_backend_says_may_have_any_end_of_a_line(isokern_here, tmp_path):
    path = tmp_path / "report.jsonl"
    outcome = {"id": "a", "device": "cpu:0", "verdict": "pass", "detail": "one\u2028two\x85three", "share": 0}
    path.write_text(json.dumps(outcome, ensure_ascii=False) + "\n", encoding="utf-8")
    assert isokern_here("compare", path, path).code == 0
