"""A git checkout of Isokern: its files, and which of them differ from a commit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from ..status import InvalidArgument

CORE = "core/src/isokern/"  # core's package in a checkout


class Checkout:
    """The checkout that holds the folder `where`, compared with the commit `ref`; paths are relative to its root.

    Paths have slashes. The working tree counts as it is, with uncommitted and untracked files, but without ignored
    ones.
    """

    def __init__(self, ref: str, where: Path | None = None) -> None:
        self.ref = ref
        top = self._git(where or Path.cwd(), "rev-parse", "--show-toplevel")
        if top is None or not Path(top.strip(), CORE, "__init__.py").exists():
            raise InvalidArgument(
                "--since",
                f"{where or Path.cwd()} is not in a git checkout of Isokern",
                allowed="a folder of a checkout, where git can say what has changed",
                hint="leave --since out, or go to the checkout",
            )
        self.root = Path(top.strip())
        commit = self._git(self.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        if commit is None:
            raise InvalidArgument(
                "--since",
                f"git knows no commit {ref!r}",
                allowed="a commit, branch or tag of this checkout",
                hint="see `git log`; a shallow clone gets its past by `git fetch --unshallow`",
            )
        self.commit = commit.strip()

    @staticmethod
    def _git(where: Path, *arguments: str) -> str | None:
        """Return git's output; None where it fails."""
        try:
            done = subprocess.run(["git", "-C", str(where), *arguments], capture_output=True, check=False)
        except FileNotFoundError:
            raise InvalidArgument(
                "--since", "there is no git on this machine", hint="install git, or leave --since out"
            ) from None
        return None if done.returncode else done.stdout.decode("utf-8", "surrogateescape")

    def _paths(self, *arguments: str) -> frozenset[str]:
        answer = self._git(self.root, *arguments)
        if answer is None:
            raise InvalidArgument("--since", f"`git {' '.join(arguments)}` fails in {self.root}")
        return frozenset(p for p in answer.split("\0") if p)

    @cached_property
    def files(self) -> frozenset[str]:
        """Every file of the working tree that git tracks or does not ignore."""
        known = self._paths("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return frozenset(p for p in known if (self.root / p).is_file())

    @cached_property
    def changed(self) -> frozenset[str]:
        """The files that differ from the commit, including those that only one of the two has."""
        differing = self._paths("diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", self.commit, "--")
        return differing | self._paths("ls-files", "-z", "--others", "--exclude-standard")

    def now(self, path: str) -> str:
        """Return the text of a file in the working tree; empty where it does not exist."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, IsADirectoryError):
            return ""

    def before(self, path: str) -> str:
        """Return the text of a file in the commit; empty where it did not exist."""
        return self._git(self.root, "show", f"{self.commit}:{path}") or ""

    def below(self, folder: str, matches: Callable[[str], bool] = lambda path: True) -> list[str]:
        """Return the files of a folder (`""` or `a/b/`) that match."""
        return sorted(p for p in self.files if p.startswith(folder) and matches(p))
