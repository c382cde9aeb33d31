"""Packages of backends to start from: the templates, and how one becomes a package of another name.

Each kind of backend has a folder here, an installable package for a made-up chip called `acme`, and `every_kind` has
what is the same in all of them. The words `acme`, `Acme` and `ACME`, in the names and contents of files, stand for the
name of the backend. A name that begins with `dot_` begins with a dot in the package.
"""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from ..status import InvalidArgument, quote

HERE = Path(__file__).parent
EVERY_KIND = "every_kind"
KINDS = {  # folder → what the kind is for; a new kind is a folder and a line here
    "python": "kernels in Python on the host's memory: the shortest, a backend in one file",
    "native": "four kernels in C on the host's memory, compiled by pip; most operators are decomposed into these",
    "simt": "the portable work-group kernels, compiled by your compiler: every operator, and no kernel to write",
    "async": "a device with its own memory and queues: pointers, streams, events, captures, asynchronous errors",
}
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST = 40  # letters of a name
_WORD = re.compile("acme|Acme|ACME")


def check_name(name: str) -> None:
    """Raise InvalidArgument unless a new backend can have the name."""
    from ..backend.discovery import backends

    allowed = f"lower-case letters and digits, with single _ between them, at most {LONGEST}: my_chip"
    if not NAME.fullmatch(name) or len(name) > LONGEST:
        raise InvalidArgument("new-backend", f"the name is {quote(name)}", allowed=allowed)
    if name == "isokern" or keyword.iskeyword(name):
        owner = "the library itself" if name == "isokern" else "Python"
        raise InvalidArgument("new-backend", f"{name!r} is a word of {owner}", hint="choose another name")
    if name in {known for b in backends() for known in (b.name, b.plugin)}:
        raise InvalidArgument(
            "new-backend", f"a plug-in that is installed here is called {name!r}", hint="choose another name"
        )


def write_package(kind: str, name: str, folder: Path) -> list[Path]:
    """Write the package of a new backend into a folder, which is empty or does not exist; return its files.

    Raises InvalidArgument for a kind, a name or a folder that cannot be; then nothing is written. `kind` is one of
    `KINDS`.
    """
    if kind not in KINDS:
        raise InvalidArgument("new-backend", f"the kind is {quote(kind)}", allowed=", ".join(KINDS))
    check_name(name)
    texts = {_rename(path, name): _replace(text, name) for path, text in read_template(kind).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidArgument("new-backend", f"{folder} is not empty", hint="name a new folder by --into")
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        allowed = "a folder that can be written to, new or empty"
        raise InvalidArgument("new-backend", f"{folder}: {error.strerror or error}", allowed=allowed) from None
    return [folder / path for path in sorted(texts)]


def read_template(kind: str) -> dict[str, str]:
    """Return path → text of a kind's files as they stand here; its own take the place of those of every kind."""
    found = {}
    for home in (HERE / EVERY_KIND, HERE / kind):
        for path in sorted(home.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:  # pip compiles what it installs
                found[path.relative_to(home).as_posix()] = path.read_text(encoding="utf-8")
    return found


def _replace(text: str, name: str) -> str:
    camel = "".join(part.capitalize() for part in name.split("_"))
    spelt = {"acme": name, "Acme": camel, "ACME": name.upper()}
    return _WORD.sub(lambda match: spelt[match[0]], text)


def _rename(path: str, name: str) -> str:
    return re.sub(r"(^|/)dot_", r"\1.", _replace(path, name))
