"""Record what a Python process reads and uses; tools/prove.py puts this file on the path of the tests that it runs.

Python imports it before anything else, in the test process and in all Python processes that it starts. It appends lines
to the file PROVE_TRACE, each once for a process: a kind, a tab and a value. The kinds are `open` and `list` (a file or
folder below PROVE_ROOT, or of an installed package of Isokern, and the package that reads it), `folder` (given to a
program with all that is in it), `operator`, `kernel`, `program` (it may call the C interface), `library` (a plug-in's,
loaded by itself), and `untraced` (a Python process without this file, of which nothing is known).
"""

from __future__ import annotations

import os
import sys
from _thread import _local

TYPE_CHECKING = False  # `typing` takes long to import
if TYPE_CHECKING:
    from typing import Any

_TO = os.environ.get("PROVE_TRACE", "")
_ROOT = os.environ.get("PROVE_ROOT", "")
_HERE = os.path.dirname(os.path.abspath(__file__))
_STANDARD = os.path.dirname(os.__file__) + os.sep
_SITE = f"{os.sep}site-packages{os.sep}"
_OWN = f"{_SITE}isokern"
_TOOLS = tuple(f"{folder}/" for folder in ("/usr", "/bin", "/sbin", "/lib", "/opt", os.path.join(sys.prefix, "bin")))
_REWRITING = os.path.join("_pytest", "assertion", "rewrite.py")  # it imports modules of plug-ins of pytest
_written: set[str] = set()
_thread = _local()


def _note(kind: str, value: str) -> None:
    line = f"{kind}\t{value}".replace("\n", " ")
    if line in _written:
        return
    _written.add(line)
    handle = os.open(_TO, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, f"{line}\n".encode("utf-8", "replace"))
    finally:
        os.close(handle)


def _locate(path: Any, folder: Any = None) -> str | None:
    """Return a path as the trace has it: below the root, or from the name of an installed package on; else None."""
    text = os.fsdecode(os.fspath(path))
    if not text.startswith(os.sep):
        text = os.path.join(folder or os.getcwd(), text)
    text = os.path.normpath(text)
    if _SITE in text:
        return f"package:{text.rpartition(_SITE)[2]}" if _OWN in text else None
    if text.startswith(_ROOT + os.sep):
        text = text[len(_ROOT) + 1 :]
    elif text == _ROOT:
        return "."
    else:
        return None
    if text.startswith((".git/", ".tox/", ".venv/")):
        return None
    return text


def _source(text: str) -> str:
    """Return the module that a file of bytecode was compiled from."""
    folder, found, name = text.rpartition("/__pycache__/")
    return f"{folder}/{name.partition('.')[0]}.py" if found else text


def _find_reader() -> str:
    """Return the package of the first frame that is not of the standard library; "isokern" for plug-ins, too."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code.co_filename
        imports = code == __file__ or code.startswith("<frozen") or code.endswith(_REWRITING)
        if not imports and (_SITE in code or not code.startswith(_STANDARD)):
            package = str(frame.f_globals.get("__name__")).partition(".")[0]
            return "isokern" if package.startswith("isokern") else package
        frame = frame.f_back
    return "-"


def _on_open(path: Any, mode: Any, flags: int) -> None:
    if isinstance(path, int) or flags & 3 == os.O_WRONLY:
        return
    where = _locate(path)
    if where is not None:
        _note("open", f"{_source(where)}\t{_find_reader()}")


def _on_list(path: Any = None) -> None:
    if isinstance(path, int) or sys._getframe(2).f_code.co_filename.startswith("<frozen importlib"):
        return  # the import system lists folders that it looks for modules in
    where = _locate(path or ".")
    if where is not None:
        _note("list", f"{where}\t{_find_reader()}")


def _on_library(name: Any) -> None:
    where = _locate(name) if name else None
    if where is not None:
        _note("library", where)


def _on_command(executable: Any, arguments: Any, folder: Any = None, environment: Any = None) -> None:
    if isinstance(arguments, (str, bytes, os.PathLike)):
        arguments = os.fsdecode(arguments).split()
    words = [os.fsdecode(word) for word in arguments]
    if os.path.basename(words[0]) == "git":
        return
    if len(words) == 3 and words[1] == "-c" and os.path.basename(words[0]) in ("sh", "bash"):
        words += words[2].split()
    python = any(os.path.basename(word).startswith(("python", "pytest", "isokern", "pip", "tox")) for word in words)
    own = _find_reader() == "isokern"  # it compiles kernels that it has named
    for word in words if executable is None else [os.fsdecode(executable), *words]:
        path = os.path.join(folder or "", word[2:] if word.startswith(("-I", "-L")) else word)
        if not os.path.exists(path):
            continue
        where = _locate(path, folder)
        if where is not None and not own:
            _note("folder" if os.path.isdir(path) else "open", f"{where}\t-")
        if os.path.isfile(path) and os.access(path, os.X_OK) and not os.path.abspath(path).startswith(_TOOLS):
            with open(path, "rb") as file:
                script = file.read(2) == b"#!"
            python |= script  # perhaps
            if not script and not own and not os.path.basename(path).startswith("python"):
                _note("program", os.path.basename(path))
    given = os.environ if environment is None else {os.fsdecode(k): os.fsdecode(v) for k, v in environment.items()}
    traced = given.get("PROVE_TRACE") == _TO and _HERE in given.get("PYTHONPATH", "").split(os.pathsep)
    if python and (not traced or _ignores_paths(words)):
        _note("untraced", " ".join(words)[:200])


def _ignores_paths(words: list[str]) -> bool:
    """Return whether Python is started with -I, -E or -S, with which it does not import this file."""
    following = False
    for word in words:
        if following and word[:1] != "-":
            return False
        if following and set(word[1:].partition("c")[0].partition("m")[0]) & set("IES"):
            return True
        following = following or os.path.basename(word).startswith("python")
    return False


def _on_spawn(path: Any, arguments: Any, environment: Any) -> None:
    _on_command(path, arguments, None, environment)


def _on_operator(name: str) -> None:
    _note("operator", name)


def _on_kernel(device: str, operator: str) -> None:
    _note("kernel", f"{device}\t{operator}")


_LISTENERS = {
    "open": _on_open,
    "os.listdir": _on_list,
    "os.scandir": _on_list,
    "ctypes.dlopen": _on_library,
    "subprocess.Popen": _on_command,
    "os.posix_spawn": _on_spawn,
    "os.exec": _on_spawn,
    "os.system": lambda command: _on_command(None, command),
    "isokern.operator": _on_operator,
    "isokern.kernel": _on_kernel,
}


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    listener = _LISTENERS.get(event)
    if listener is None or getattr(_thread, "inside", False):
        return
    _thread.inside = True  # what the listener itself opens does not count
    try:
        listener(*arguments)
    finally:
        _thread.inside = False


if _TO:
    _note("process", "python")
    sys.addaudithook(_listen)
