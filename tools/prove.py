"""Run what docs/ledger.tsv does not prove for this tree: `python tools/prove.py ENVIRONMENT -- COMMAND…`.

The command of an environment of tox.ini. If it is pytest's, each test file is a subject of the ledger, called
`core-full/tests/core/test_expr.py`, and runs in a process of its own; any other command is one subject. What passes is
entered at once, what fails loses its entry, and the exit status is 1 if anything failed. A subject depends on

- the test file, the other files of its folder that are not tests, tests/conftest.py and pyproject.toml,
- the command, and the dependencies and settings of its environment in tox.ini; installed versions are in the entry,
- the files that the environment declares as `reads`,
- but of operators and kernels only on those that the test was found to use, by tools/tracing.

A subject that reads a file of the tree that is not declared fails. `--shard N/M`, or the variable PROVE_SHARD, runs a
part, and PROVE=all what is proved, too. With other options than those of tox.ini the command runs as it is.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance import find_sanitizer
from environments import Environment, Environments, is_below, list_reads

ROOT = Path(__file__).resolve().parents[1]
TRACING = Path(__file__).resolve().parent / "tracing"
TRACER = "tools/tracing/"
LEDGER = "docs/ledger.tsv"
OUTCOMES = frozenset({LEDGER, "docs/status.md"})  # nothing depends on them
ALWAYS = ("tests/conftest.py", "pyproject.toml")  # read by every test file
READS = ("core/src plugins",)
OPS = "core/src/isokern/ops/"
INDEX = f"{OPS}index.tsv"  # which every process reads; what it says of an operator is in the declaration
MANY = 100  # operators, from which on all stand for them
SEVERAL = 10  # files of one folder, from which on the folder stands for them
PYTHON = ("pytest", "python", "isokern")  # commands that run in the environment's Python
LOOKED_INTO = {("tox.ini", "iniconfig"), ("tox.ini", "_pytest")}  # by pytest, whose settings are elsewhere
NO_TESTS = 5  # exit status of pytest if all tests were deselected
ASIDE = {"ISOKERN_CACHE", "ISOKERN_DEBUG", "ISOKERN_PLUGINS"}  # settings that change no result
_PASSED = re.compile(r"\b(\d+) passed")


class Refused(Exception):
    """Why a command cannot run, or proves nothing."""


def load_module(name: str) -> ModuleType:
    """Load one of the modules of `isokern.conformance` that need no Isokern from its file."""
    path = ROOT / "core/src/isokern/conformance" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_of_proofs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


ledger_module = load_module("ledger")
source_tree = load_module("source_tree")


def digest_of(parts: Iterable[str]) -> str:
    """Return a digest of a set of texts."""
    return hashlib.sha256("\0".join(sorted(set(parts))).encode()).hexdigest()


@dataclass(frozen=True)
class Command:
    """A command of an environment. `name` is the environment's, perhaps with a part of it: `runtimes-full/opencl`."""

    name: str
    words: tuple[str, ...]
    settings: tuple[str, ...] = ()  # NAME=VALUE
    compiler: str = ""  # whose AddressSanitizer is loaded first
    reads: tuple[str, ...] = ()  # instead of those of the environment

    @property
    def environment(self) -> str:
        """The name in tox.ini."""
        return self.name.partition("/")[0]

    @property
    def options(self) -> tuple[str, ...]:
        """The options of pytest: its words without paths, and without those that ignore paths."""
        return tuple(w for w in self.words if not is_tests(w) and not w.startswith("--ignore="))

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> tuple[Command, argparse.Namespace]:
        """Return the command of a command line, and the other options; those without a command are an error."""
        parser = argparse.ArgumentParser(prog="tools/prove.py", description=(__doc__ or "").partition("\n")[0])
        parser.add_argument("environment", help="an environment of tox.ini, perhaps with /PART")
        parser.add_argument("--reads", nargs="+", default=[], metavar="FOLDER", help="instead of `reads` of tox.ini")
        parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable, repeatable")
        parser.add_argument("--asan", default="", metavar="COMPILER", help="load its AddressSanitizer first")
        parser.add_argument("--shard", metavar="N/M", help="only the N-th of M parts; else PROVE_SHARD")
        own, rest = split_at(list(arguments), "--")
        options = parser.parse_args(own)
        if not rest:
            parser.error("no command is given: prove.py ENVIRONMENT -- COMMAND…")
        return cls(options.environment, tuple(rest), tuple(options.set), options.asan, tuple(options.reads)), options


def split_at(words: list[str], mark: str) -> tuple[list[str], list[str]]:
    """Return the words before and after the first mark."""
    at = words.index(mark) if mark in words else len(words)
    return words[:at], words[at + 1 :]


def list_commands(environment: Environment) -> list[Command]:
    """Return the commands of an environment that run by this tool."""
    found = []
    for words in environment.split_commands():
        if words[:2] == ["python", "tools/prove.py"]:
            found.append(Command.parse(words[2:])[0])
    return found


@dataclass(frozen=True)
class Subject:
    """What is proved as a whole: a test file, or a command."""

    command: Command
    test: str = ""

    @property
    def name(self) -> str:
        """Its name in the ledger."""
        return f"{self.command.name}/{self.test or ' '.join(self.command.words)}"

    @property
    def words(self) -> tuple[str, ...]:
        """The command that proves it."""
        return (*self.command.options, self.test) if self.test else self.command.words


class Declarations:
    """The finely counted part of a tree: its operators' declarations and kernels, by the plug-ins' folders."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self._known: dict[str, Any] = {}
        folders = {p.split("/")[1]: p.split("/")[3] for p in sorted(tree.files) if re.fullmatch(_PACKAGE, p)}
        self.packages: Mapping[str, str] = folders
        modules = ((p, tree.text(p)) for p in sorted(tree.files) if re.fullmatch(_MODULE, p))
        self._backends = {name: p.split("/")[1] for p, text in modules for name in _BACKEND.findall(text)}

    def of(self, plugin: str) -> Any:
        """Return the dependencies of a plug-in's devices, or those of core with ""."""
        if plugin not in self._known:
            from isokern.conformance.dependencies import Dependencies

            self._known[plugin] = Dependencies(self.packages.get(plugin, "isokern"), self.tree)
        return self._known[plugin]

    def find_plugin(self, device: str) -> str:
        """Return the folder of the plug-in that registers a device's backend; `*` if none is seen to."""
        return self._backends.get(device.partition(":")[0], "*")

    @cached_property
    def files(self) -> frozenset[str]:
        """The files that count by what is used of them."""
        fine = {p for p in self.tree.below(OPS) if not p.endswith((".md", "/__init__.py"))}
        whole: set[str] = set()
        for plugin in self.packages:
            for path, stems in self.of(plugin).kernel_files.items():
                (whole if stems is None else fine).add(path)
        return frozenset(fine - whole)

    @cached_property
    def shared(self) -> str:
        """A digest of the statements of core's `ops` that modules outside it import."""
        outside = self.tree.below("", lambda p: p.endswith(".py") and p.startswith(("core/src/", "plugins/")))
        mentions = [p for p in outside if not p.startswith(OPS) and _MENTIONS_OPS.search(self.tree.text(p))]
        return digest_of(self.of("").declarations_for(mentions))

    def digest(self, use: str) -> str:
        """Return a digest of an operator (`softmax`), of one on a plug-in's devices (`cpu:softmax`), or of all, `*`."""
        plugin, colon, operator = use.rpartition(":")
        if use == "*":
            return digest_of(map(self.tree.digest, self.tree.below(OPS)))
        if not colon:
            return str(self.of("").declaration_of(use))
        plugins = sorted(self.packages) if plugin == "*" else [plugin]
        return digest_of([use, *(self.of(p).kernels_of(operator) for p in plugins if p in self.packages)])


_MODULE = r"plugins/\w+/src/\w+/\w+\.py"
_BACKEND = re.compile(r'register\.backend\(\s*"(\w+)"')
_PACKAGE = r"plugins/\w+/src/\w+/__init__\.py"
_MENTIONS_OPS = re.compile(r"\bops\b[.\w]* import\b|\bimport\b.*\bops\b")


class Tree:
    """A checkout: what its subjects depend on."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.tree = source_tree.SourceTree(self.root)
        self.environments = Environments(self.root)
        self.declarations = Declarations(self.tree)
        self._by_package = {p.partition("/src/")[2]: p for p in sorted(self.tree.files) if "/src/" in p}

    def is_fine(self, command: Command) -> bool:
        """Whether operators and kernels count finely: if the command runs where Isokern is."""
        known = command.environment in self.environments
        return command.words[0] in PYTHON and (not known or self.environments.get(command.environment).has_isokern)

    def list_subjects(self, command: Command) -> list[Subject]:
        """Return the subjects of a command: one for each test file below pytest's paths, or the command."""
        if command.words[0] != "pytest":
            return [Subject(command)]
        ignored = {w.partition("=")[2] for w in command.words if w.startswith("--ignore=")}
        found: dict[str, None] = {}
        for word in command.words:
            if is_tests(word):
                below = self.tree.below("", lambda p, word=word: is_below(p, word.rstrip("/")))
                tests = [p for p in below if is_test(p) and p not in ignored]
                if not tests:
                    raise Refused(f"{word} has no test file")
                found.update(dict.fromkeys(tests))
        if not found:
            raise Refused(f"{' '.join(command.words)} names no tests: give folders or files below tests/")
        return [Subject(command, path) for path in found]

    def reads(self, subject: Subject) -> list[str]:
        """Return the patterns of what a subject may read: those of its command, of its environment, or of every one."""
        command = subject.command
        lines = command.reads
        if not lines and command.environment in self.environments:
            lines = self.environments.get(command.environment).reads
        return list_reads(lines or READS, subject.test or command.words[0])

    def own_files(self, subject: Subject) -> list[str]:
        """Return the test file and what belongs to it."""
        if not subject.test:
            return []
        folder = subject.test.rpartition("/")[0] + "/"
        beside = self.tree.below(folder, lambda p: not is_test(p))
        return [subject.test, *beside, *(p for p in ALWAYS if p in self.tree.files)]

    def conditions(self, command: Command) -> list[str]:
        """Return what an environment says in tox.ini, and the settings that differ from it."""
        texts = [*(f"set {s}" for s in command.settings), f"asan {command.compiler}"]
        stated = dict(s.partition("=")[::2] for s in command.settings)
        if command.environment in self.environments:
            environment = self.environments.get(command.environment)
            texts += [f"needs {d}" for d in environment.deps] + [f"sets {s}" for s in environment.settings]
            stated = {**environment.split_settings(), **stated}
        for name, value in os.environ.items():
            if name.startswith("ISOKERN_") and name not in ASIDE and "{" not in stated.get(name, ""):
                texts += [f"also {name}={value}"] if value != stated.get(name) else []
        return texts

    def state(self, subject: Subject) -> Any:
        """Return the function from what an entry names as used to a digest of all that the subject depends on."""
        fine = self.is_fine(subject.command)
        own = self.own_files(subject)
        whole = self._list_read(tuple(self.reads(subject)), fine)
        parts = [*map(self.tree.digest, own), whole, f"runs {subject.words}", *self.conditions(subject.command)]
        if fine:
            parts += [self.declarations.shared, *map(self.tree.digest, self._find_imported(own))]
        return lambda uses: digest_of([*parts, *map(self._digest_use, uses)])

    def _list_read(self, reads: tuple[str, ...], fine: bool) -> str:
        """Return a digest of the files that count as a whole."""
        if (reads, fine) not in self._read:
            without = OUTCOMES | (self.declarations.files if fine else frozenset())
            files = [p for p in self.tree.files if p not in without and any(is_below(p, r) for r in reads)]
            self._read[reads, fine] = digest_of(map(self.tree.digest, files))
        return self._read[reads, fine]

    @cached_property
    def _read(self) -> dict[tuple[tuple[str, ...], bool], str]:
        return {}

    def _find_imported(self, own: Iterable[str]) -> Iterator[str]:
        """Yield the finely counted modules that test files import by themselves: these count as a whole."""
        for path in own:
            if path.endswith(".py"):
                for name in list_imports(self.tree.text(path)):
                    if self._by_package.get(f"{name.replace('.', '/')}.py", "") in self.declarations.files:
                        yield self._by_package[f"{name.replace('.', '/')}.py"]

    def _digest_use(self, use: str) -> str:
        if "/" not in use:
            return self.declarations.digest(use)
        if use.endswith("/"):
            files = self.tree.below(use.removeprefix("./"))
            return digest_of([use, *(self.tree.digest(p) for p in files if p not in OUTCOMES)])
        return str(self.tree.digest(use)) if use in self.tree.files else use

    @cached_property
    def _fine_folders(self) -> frozenset[str]:
        return frozenset(p.rpartition("/")[0] + "/" for p in self.declarations.files)

    # What was traced

    def find_uses(self, subject: Subject, trace: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return what an entry names as used, and the files that were read and are not declared."""
        used = Used(self.declarations.packages)
        undeclared: set[str] = set()
        own, fine = {*self.own_files(subject)}, self.is_fine(subject.command)
        folder, reads = subject.test.rpartition("/")[0], self.reads(subject)
        counted = self.tree.files - own - OUTCOMES
        for line in trace:
            kind, _, value = line.rstrip("\n").partition("\t")
            where, _, by = value.partition("\t")
            path = self._by_package.get(where[len("package:") :], "") if where.startswith("package:") else where
            if kind == "operator" and fine:
                used.operators.add(where)
            elif kind == "kernel" and fine:
                used.add_kernel(self.declarations.find_plugin(where), by)
            elif kind in ("program", "untraced") and fine:
                used.add_all()
            elif fine and (kind == "library" or (where.endswith(".so") and by != "isokern")):
                used.add_library(where.removeprefix("package:").rpartition("/src/")[2])
            elif kind == "list" and fine and by not in ("isokern", "_pytest") and f"{path}/" in self._fine_folders:
                used.files.add(f"{path}/")
            elif kind == "folder" and fine and any(p.startswith(f"{path}/") or path == "." for p in self._fine_folders):
                used.files.add("./" if path == "." else f"{path}/")
            elif kind == "open" and path in counted and not path.startswith(TRACER):
                if fine and path in self.declarations.files:
                    # What Isokern itself opens is of the operators and kernels that it names
                    if by != "isokern" or not (path.endswith(".py") or "/kernels/" in path or path == INDEX):
                        used.files.add(path)
                elif folder and path.startswith(f"{folder}/"):
                    used.files.add(path)  # another test file of its folder
                elif not any(is_below(path, r) for r in reads) and (path, by) not in LOOKED_INTO:
                    undeclared.add(path)
        return used.summarize(), sorted(undeclared)


@dataclass
class Used:
    """What a subject was found to use."""

    packages: Mapping[str, str]
    operators: set[str] = field(default_factory=set)
    kernels: dict[str, set[str]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)

    def add_kernel(self, plugin: str, operator: str) -> None:
        """Add an operator on the devices of a plug-in, or of all with `*`."""
        self.kernels.setdefault(plugin, set()).add(operator)

    def add_all(self) -> None:
        """Add everything: a program may call any operator."""
        self.operators.add("*")
        self.add_kernel("*", "*")

    def add_library(self, path: str) -> None:
        """Add all kernels of the plug-in that a library is of."""
        package = path.partition("/")[0]
        self.operators.add("*")
        self.add_kernel(next((f for f, p in self.packages.items() if p == package), "*"), "*")

    def summarize(self) -> list[str]:
        """Return what an entry has: all stands for many."""
        kernels = {p: {"*"} if "*" in names or len(names) > MANY else names for p, names in self.kernels.items()}
        if "*" in kernels:
            kernels = {p: names - kernels["*"] for p, names in kernels.items() if p == "*" or "*" not in kernels["*"]}
            kernels["*"] = self.kernels["*"] if "*" not in self.kernels["*"] else {"*"}
        on_devices = set().union(*kernels.values()) if kernels else set()
        operators = {"*"} if "*" in self.operators or len(self.operators) > MANY else self.operators - on_devices
        folders = [path for path in self.files if path.endswith("/")]
        count: dict[str, int] = {}
        for path in self.files:
            count[path.rpartition("/")[0] + "/"] = count.get(path.rpartition("/")[0] + "/", 0) + 1
        folders += [folder for folder, n in count.items() if n > SEVERAL]
        files = {p for p in self.files if not any(p.startswith(f) and p != f for f in folders)} | {*folders}
        files = {p for p in files if not any(p.startswith(f) and p != f for f in folders)}
        return sorted([*operators, *files, *(f"{p}:{name}" for p, names in kernels.items() for name in names)])


def is_tests(word: str) -> bool:
    """Return whether a word of pytest's command names tests."""
    return word == "tests" or word.startswith("tests/")


def is_test(path: str) -> bool:
    """Return whether a file has tests that pytest collects."""
    return bool(re.fullmatch(r"(.*/)?test_\w+\.py", path))


def list_imports(source: str) -> list[str]:
    """Return the dotted names that a module imports, as modules or as names of modules."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def list_tools() -> str:
    """Return Python's version, NumPy's, and a digest of the versions of all distributions but Isokern's."""
    versions = {str(d.metadata["Name"]).lower(): d.version for d in distributions()}
    others = sorted(f"{name} {v}" for name, v in versions.items() if not name.startswith("isokern"))
    digest = hashlib.sha256("\n".join(others).encode()).hexdigest()[:8]
    numpy = f"NumPy {versions['numpy']}, " if "numpy" in versions else ""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]}, {numpy}{len(others)} distributions {digest}"


def check_installed(tree: Tree) -> None:
    """Raise Refused if the installed packages differ from the checkout."""
    from isokern.conformance.proofs import check_installed as check
    from isokern.status import InvalidArgument

    try:
        for package in ("isokern", *tree.declarations.packages.values()):
            if importlib.util.find_spec(package) is not None:
                check(tree.tree, package)
    except InvalidArgument as error:
        raise Refused(str(error).partition(": ")[2]) from error


def parse_shard(text: str | None) -> tuple[int, int]:
    """Return N and M of `N/M`; 1 and 1 without a text."""
    found = re.fullmatch("([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text or "1/1")
    if found is None or int(found[1]) > int(found[2]):
        raise Refused(f"{text!r} is not a part: write N/M, such as 1/2")
    return int(found[1]), int(found[2])


class Run:
    """The subjects of one command, run in turn."""

    def __init__(self, tree: Tree, command: Command) -> None:
        self.tree, self.command = tree, command
        self.ledger = ledger_module.Ledger(tree.root / LEDGER)
        for complaint in self.ledger.complaints:
            print(complaint)
        self.tools = list_tools()

    def select(self, subjects: Sequence[Subject], everything: bool) -> list[Subject]:
        """Return the subjects that are not proved for this tree and these tools."""
        open_ = [s for s in subjects if everything or not self._is_proved(s)]
        print(
            f"{self.command.name}: {len(subjects) - len(open_)} of {len(subjects)} subjects need no run"
            f"{'' if everything else ', since they are proved for this tree; PROVE=all runs all'}",
            flush=True,
        )
        return open_

    def _is_proved(self, subject: Subject) -> bool:
        state = self.tree.state(subject)
        return self.ledger.proof(subject.name, state, self.tools) is not None

    def prove(self, subject: Subject) -> bool:
        """Run a subject, and write down what that proves; return whether it passed."""
        print(f"\n$ {' '.join(subject.words)}", flush=True)
        status, passed, trace = self._execute(subject)
        faults = [f"it ends with {status}"] if status not in (0, NO_TESTS if subject.test else 0) else []
        uses, undeclared = self.tree.find_uses(subject, trace)
        if undeclared:
            shown = ", ".join(undeclared[:5]) + (f" and {len(undeclared) - 5} more" if len(undeclared) > 5 else "")
            scope = f"{subject.test.rpartition('/')[0]}: " if subject.test else ""
            faults.append(f"it reads {shown}; declare that in tox.ini: reads = … {scope}{undeclared[0]}")
        if not trace and self.command.words[0] in PYTHON:
            faults.append("it was not traced: Python does not read PYTHONPATH")
        for fault in faults:
            print(f"{subject.name} proves nothing: {fault}", flush=True)
        if faults:
            self.ledger.update(failed=[subject.name])
            return False
        state = self.tree.state(subject)
        others = [e for e in self.ledger.entries(subject.name) if e.proves(state(e.uses))]
        entry = ledger_module.Entry(
            subject.name, passed, ledger_module.today(), self.tools, ledger_module.machine(), tuple(uses)
        )
        self.ledger.update([*others, entry.seal(state(uses))], [subject.name])
        return True

    def _execute(self, subject: Subject) -> tuple[int, int, list[str]]:
        """Return the exit status, how many tests passed, and the lines of the trace."""
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder, "trace")
            trace.touch()
            trace.chmod(0o666)
            Path(folder).chmod(0o755)  # a test may run as another user
            given = {**list_settings(self.tree, self.command), **os.environ}
            given |= dict(s.partition("=")[::2] for s in self.command.settings)
            if self.command.compiler:
                given["LD_PRELOAD"] = find_sanitizer(self.command.compiler)
            given |= {"PROVE_TRACE": str(trace), "PROVE_ROOT": str(self.tree.root)}
            given["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TRACING), os.environ.get("PYTHONPATH")]))
            status, last = run_process(find_command(subject.words), self.tree.root, given)
            counted = _PASSED.search(last)
            passed = int(counted[1]) if counted else int(not subject.test)
            return status, passed, trace.read_text(encoding="utf-8", errors="replace").splitlines()


def list_settings(tree: Tree, command: Command) -> dict[str, str]:
    """Return the variables that tox.ini sets for an environment, without those that name folders of tox."""
    if command.environment not in tree.environments:
        return {}
    return {n: v for n, v in tree.environments.get(command.environment).split_settings().items() if "{" not in v}


def find_command(words: Sequence[str]) -> list[str]:
    """Return the words with the path of a program that is installed with this Python."""
    beside = Path(sys.executable).with_name(words[0])
    first = sys.executable if words[0] == "python" else str(beside) if beside.exists() else words[0]
    return [first, *words[1:]]


def run_process(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command and print its output; return its exit status and the last line that is not empty."""
    last = ""
    try:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        print(f"{words[0]} does not run: {error.strerror}")
        return 127, ""
    with process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                last = line if line.strip() else last
        except BaseException:
            process.terminate()
            raise
    return process.returncode, last


def run_as_it_is(command: Command, tree: Tree) -> int:
    """Run a command of other options than those of tox.ini: it proves nothing."""
    print("with these options nothing is proved, and everything runs", flush=True)
    given = {**list_settings(tree, command), **os.environ, **dict(s.partition("=")[::2] for s in command.settings)}
    if command.compiler:
        given["LD_PRELOAD"] = find_sanitizer(command.compiler)
    return subprocess.run(find_command(command.words), cwd=tree.root, env=given, check=False).returncode


def is_partial(command: Command, known: Collection[Command]) -> bool:
    """Return whether a command runs a part of test files, or with other options than tox.ini says."""
    if any("::" in word for word in command.words):
        return True
    same = [k for k in known if k.name == command.name]
    if command.words[0] == "pytest":
        return bool(same) and command.options not in [k.options for k in same]
    return bool(same) and command.words not in [k.words for k in same]


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Run a command as far as the ledger does not prove it; return 1 if anything failed, and 2 if it cannot run."""
    command, options = Command.parse(arguments)
    tree = Tree(root)
    try:
        known = []
        if command.environment in tree.environments:
            known = list_commands(tree.environments.get(command.environment))
        if is_partial(command, known):
            return run_as_it_is(command, tree)
        part, parts = parse_shard(options.shard or os.environ.get("PROVE_SHARD"))
        if tree.is_fine(command):
            check_installed(tree)
        run = Run(tree, command)
        subjects = [s for s in tree.list_subjects(command) if zlib.crc32(s.name.encode()) % parts == part - 1]
        chosen = run.select(subjects, os.environ.get("PROVE") == "all")
        failed = [subject.name for subject in chosen if not run.prove(subject)]
    except Refused as error:
        print(f"prove.py: {error}", file=sys.stderr)
        return 2
    if failed:
        print(f"\n{len(failed)} of {len(chosen)} failed:", *failed, sep="\n  ")
    return int(bool(failed))


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("stopped; what has passed is in the ledger", file=sys.stderr)
        sys.exit(130)
