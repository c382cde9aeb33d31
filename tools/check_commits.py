"""Check that a stranger can read the new commits: `python tools/check_commits.py` names each that breaks a rule.

The rules are in CONTRIBUTING.md. They began at the commit `BEGIN`; older commits are not judged. Without git, and in a
copy or a shallow clone whose history lacks that commit, there is nothing to judge: the tool says so and exits with 0.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "3bf34e0e2d75fcf7cf43197bfdf6e4d1e8f2c644"
NEWEST = 200  # commits that are judged at most
SUBJECT_LENGTH = 72
LINES_WITHOUT_BODY = 50
SENTENCE_LENGTH = 20
# Files that tools derive; what they are derived from is in the same commit, and is counted
DERIVED = frozenset(
    {
        "core/src/isokern/ops/index.tsv",
        "core/src/isokern/ops/peer_names.tsv",
        "docs/accuracy.tsv",
        "docs/ledger.tsv",
        "docs/mutations.md",
        "docs/onnx_suite.json",
        "docs/source_documents.md",
        "docs/speed.tsv",
        "docs/status.md",
        "docs/support.json",
        "tests/core/golden/records.txt",
    }
)
UNFINISHED = re.compile(r"^(?:fixup|squash|amend)!|(?<![\w/.])(?:wip|tmp)\b", re.I)
MERGES_NOTHING = re.compile(r"Merge (?:remote-tracking\b|(?:branch|branches|commit|tag) '|pull request #|\S+$)")
TRAILER = re.compile(r"^(?:[A-Z][a-z]+(?:-[A-Za-z]+)+: .*|\(cherry picked from .*\))$", re.M)


class NotJudged(Exception):
    """Why the commits cannot be judged."""


@dataclass(frozen=True)
class Commit:
    """What the rules read of a commit; `lines` are inserted or deleted, and a merge itself has none."""

    name: str
    merge: bool
    subject: str
    body: str
    lines: int


def git(root: Path, *arguments: str) -> str:
    """Return the output of a git command on the checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError as error:
        raise NotJudged(f"git does not run ({error.strerror})") from error
    if done.returncode:
        raise NotJudged(done.stderr.strip().partition("\n")[0])
    return done.stdout


def count_lines(fields: Sequence[str]) -> int:
    """Return the lines that `git log --numstat -z` counts in files that people write; binary files have "-"."""
    total, rest = 0, iter(fields)
    for field in rest:
        inserted, deleted, path = field.lstrip("\n").split("\t")
        if not path:  # a renamed file: the old path and the new one follow
            next(rest)
            path = next(rest)
        if path not in DERIVED and inserted != "-":
            total += int(inserted) + int(deleted)
    return total


def read_commits(root: Path, base: str, head: str, newest: int) -> list[Commit]:
    """Return the commits of `head` that `base` does not have, the oldest first."""
    try:
        git(root, "merge-base", "--is-ancestor", base, head)
    except NotJudged as error:
        reason = f"the history of {head} has no commit {base[:10]}"
        raise NotJudged(f"{reason} ({error})" if str(error) else reason) from error
    # Whatever the user's settings are
    plain = ["--numstat", "-z", "-M", "--no-diff-merges", "--no-show-signature", "--encoding=UTF-8", "--reverse"]
    form = ["--format=%x01%H%x00%P%x00%s%x00%b", f"--max-count={newest}"]
    found = []
    for entry in re.split("\x01(?=[0-9a-f]{40,}\0)", git(root, "log", *plain, *form, f"{base}..{head}"))[1:]:
        name, parents, subject, body, *numbers = entry.split("\0")
        fields = [field for field in numbers if field.strip("\n")]
        found.append(Commit(name, " " in parents, subject, TRAILER.sub("", body), count_lines(fields)))
    return found


def find_faults(commit: Commit) -> list[str]:
    """Return what is wrong with a commit's message."""
    subject, found = commit.subject, []
    if not subject[:1].isupper():
        found.append("the subject does not begin with a capital letter")
    if len(subject) > SUBJECT_LENGTH:
        found.append(f"the subject has {len(subject)} characters; at most {SUBJECT_LENGTH}")
    if subject.endswith("."):
        found.append("the subject ends with a period")
    if ";" in subject:
        found.append("the subject has a semicolon: two ideas are two commits")
    if UNFINISHED.search(subject):
        found.append("the subject says that the commit is unfinished (wip, tmp, fixup!, squash!)")
    if commit.merge and MERGES_NOTHING.match(subject):
        found.append("the subject of a merge says what it brings, not where from")
    sentences = re.split(r"[.!?:](?:\s+|$)", " ".join(commit.body.split()))
    if commit.lines > LINES_WITHOUT_BODY and max(map(len, sentences)) < SENTENCE_LENGTH:
        found.append(f"{commit.lines} lines change, and no body says why; over {LINES_WITHOUT_BODY} need one")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the faults of the new commits; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("base", nargs="?", default=BEGIN, help="the last commit that is not judged")
    parser.add_argument("head", nargs="?", default="HEAD", help="the newest commit that is judged; HEAD")
    parser.add_argument("--newest", type=int, default=NEWEST, metavar="N", help=f"judge at most N; {NEWEST}")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    options = parser.parse_args(arguments)
    try:
        commits = read_commits(options.root, options.base, options.head, options.newest)
    except NotJudged as reason:
        print(f"No commit's message is checked: {reason}.")
        return 0
    faults = [(commit, fault) for commit in commits for fault in find_faults(commit)]
    for commit, fault in faults:
        print(f"{commit.name[:10]} {commit.subject}: {fault}")
    guilty = len({commit.name for commit, _ in faults})
    print(f"{guilty} of {len(commits)} new commits break the rules of CONTRIBUTING.md for messages.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
