"""Test tools/check_commits.py: of a small history exactly the commits that break a rule are named, with the reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import check_commits
import pytest

BODY = "A reader of the history learns from this sentence why the lines change."
LONG = "".join(f"line {i}\n" for i in range(51))


class History:
    """A repository whose first commit is the last one that is not judged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.base = self.commit("old and unreadable; wip.", **{"old.py": LONG * 3})

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.root), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, message: str, **files: str | bytes) -> str:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def merge(self, subject: str) -> None:
        self.git("checkout", "-q", "-b", "side", "HEAD~1")
        self.commit("Work on the side", **{f"side{len(subject)}.py": "1\n"})
        self.git("checkout", "-q", "main")
        self.git("merge", "-q", "--no-ff", "-m", subject, "side")
        self.git("branch", "-q", "-D", "side")

    def judge(self, *more: str) -> int:
        return check_commits.main([self.base, "--root", str(self.root), *more])


@pytest.fixture
def history(tmp_path: Path) -> History:
    folder = tmp_path / "repository"
    folder.mkdir()
    return History(folder)


def faults(printed: str) -> list[str]:
    """Return the lines without the names of the commits, and without the sum."""
    return [line.partition(" ")[2] for line in printed.splitlines()[:-1]]


def test_exactly_the_bad_commits_are_named(history, capsys):
    history.commit("Add a file of fifty lines", a="".join(f"{i}\n" for i in range(50)))
    history.commit("Add a longer file", b=LONG)
    history.commit(f"Add a longer file with a reason\n\n{BODY}", c=LONG)
    history.commit("Add a file with an excuse\n\nSee above.\n\nCo-authored-by: A Reader <reader@example.org>", d=LONG)
    history.commit("add a lower letter")
    history.commit("End with a period.")
    history.commit("Do one thing; do another")
    history.commit("WIP of something")
    history.commit("Store what is there (wip)")
    history.commit("fixup! Add a longer file")
    history.commit("x" * 73)
    history.commit("X" * 72)
    history.commit("Read paths below /tmp and tmp_path, and the tool wipe")
    history.commit(f"Quote a separator\n\n\x01 {BODY}")
    assert history.judge() == 1
    reason = "51 lines change, and no body says why; over 50 need one"
    printed = capsys.readouterr().out
    unfinished = "the subject says that the commit is unfinished (wip, tmp, fixup!, squash!)"
    assert faults(printed) == [
        f"Add a longer file: {reason}",
        f"Add a file with an excuse: {reason}",
        "add a lower letter: the subject does not begin with a capital letter",
        "End with a period.: the subject ends with a period",
        "Do one thing; do another: the subject has a semicolon: two ideas are two commits",
        f"WIP of something: {unfinished}",
        f"Store what is there (wip): {unfinished}",
        "fixup! Add a longer file: the subject does not begin with a capital letter",
        f"fixup! Add a longer file: {unfinished}",
        f"{'x' * 73}: the subject does not begin with a capital letter",
        f"{'x' * 73}: the subject has 73 characters; at most 72",
    ]
    assert printed.splitlines()[-1].startswith("9 of 14 new commits break the rules")


def test_derived_lines_and_moves_need_no_reason(history, capsys):
    history.commit("Derive a table", **{"docs/accuracy.tsv": LONG})
    history.commit("Add a picture", **{"a.png": b"\0\n" * 60})
    (history.root / "old.py").rename(history.root / "new.py")
    history.commit("Move a file")
    history.commit("Derive a table and write a file", **{"docs/speed.tsv": LONG, "own.py": LONG})
    assert history.judge() == 1
    assert faults(capsys.readouterr().out) == [
        "Derive a table and write a file: 51 lines change, and no body says why; over 50 need one"
    ]


@pytest.mark.parametrize(
    ("subject", "good"),
    [
        ("Merge kernels that sum in pairs", True),
        ("Merge branch predictors of the emulated XPU", True),
        ("Merge branch 'pairs'", False),
        ("Merge branch 'pairs' into main", False),
        ("Merge remote-tracking branch 'origin/main'", False),
        ("Merge commit '3bf34e0e'", False),
        ("Merge main", False),
    ],
)
def test_a_merge_says_what_it_brings(history, capsys, subject, good):
    history.commit("Begin")
    history.merge(subject)
    assert history.judge() == (not good)
    expected = [] if good else [f"{subject}: the subject of a merge says what it brings, not where from"]
    assert faults(capsys.readouterr().out) == expected


def test_only_the_newest_are_judged(history):
    history.commit("add a lower letter")
    history.commit("Say something")
    assert history.judge() == 1
    assert history.judge("--newest", "1") == 0
    assert check_commits.main([history.base, "HEAD~1", "--root", str(history.root)]) == 1


def test_settings_of_the_user_change_nothing(history):
    for setting in ("log.showSignature=true", "log.diffMerges=first-parent", "diff.renames=false"):
        history.git("config", *setting.split("="))
    (history.root / "old.py").rename(history.root / "new.py")
    history.commit("Move a file")
    history.commit(f"Write a file\n\n{BODY}", own=LONG)
    history.merge("Merge work on the side")
    assert history.judge() == 0


def skipped(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("No commit's message is checked: ")
    return line


def test_a_shallow_clone_is_not_judged(history, tmp_path, capsys):
    history.commit("add a lower letter")
    shallow = tmp_path / "shallow"
    history.git("clone", "-q", "--depth", "1", history.root.as_uri(), str(shallow))
    assert check_commits.main([history.base, "--root", str(shallow)]) == 0
    assert f"has no commit {history.base[:10]}" in skipped(capsys)


def test_a_history_from_before_the_rule_is_not_judged(history, capsys):
    newer = history.commit("Begin the rule")
    history.git("checkout", "-q", "--detach", history.base)
    history.commit("add a lower letter")
    assert check_commits.main([newer, "--root", str(history.root)]) == 0
    assert f"the history of HEAD has no commit {newer[:10]}." in skipped(capsys)


def test_an_exported_tree_is_not_judged(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert check_commits.main(["--root", str(tmp_path)]) == 0
    assert "not a git repository" in skipped(capsys)


def test_without_git_nothing_is_judged(history, tmp_path, monkeypatch, capsys):
    history.commit("add a lower letter")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert history.judge() == 0
    assert "git does not run" in skipped(capsys)


def test_derived_files_exist():
    assert [path for path in sorted(check_commits.DERIVED) if not (check_commits.ROOT / path).exists()] == []
