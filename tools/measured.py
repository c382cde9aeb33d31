"""Check the committed measurements without measuring: that they can be read, and are of what is in this tree.

Each function returns a sentence for each fault. tools/regenerate.py names the files and says how they are made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import onnx_suite
import onnx_versions
import speed
import status
import support
from mutation_targets import KINDS
from mutations import RULES
from tables import read_rows

from isokern.cabi.inference import find_refused
from isokern.conformance import accuracy
from isokern.declare.operator import Operator
from isokern.dtypes import dtype
from isokern.measure.sizes import samples
from isokern.ops import all_operators
from isokern.status import InvalidArgument

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ("cpu", "cuda_sim", "kunlun_sim", "opencl")  # those that are measured on every machine
POSITIVE = re.compile(r"(?=.*[1-9])\d+(\.\d+)?(e[+-]?\d+)?")
EXCEPTIONS = ROOT / "tests" / "onnx" / "backend_exceptions.tsv"


def list_some(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    found = sorted(names)
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def compare_names(what: str, given: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return a sentence about the names that do not exist in the tree."""
    unknown = {*given} - {*known}
    return [f"it has a row for {what} that does not exist: {list_some(unknown)}"] if unknown else []


def demand_names(what: str, given: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Return a sentence about the names that are missing."""
    missing = {*wanted} - {*given}
    return [f"it has no row for {what} {list_some(missing)}"] if missing else []


def find_declared() -> dict[str, Operator]:
    """Return the operators by name."""
    return {op.name: op for op in all_operators()}


def dtypes_of(operator: Operator) -> set[str]:
    """Return the names of the dtypes that an operator is declared for."""
    return {d.name for allowed in operator.signature.types.values() for d in allowed}


def gives_floats(operator: Operator) -> bool:
    """Return whether some result is of floats."""
    return any(d.kind == "f" for o in operator.signature.outputs for d in operator.signature.dtypes_of(o))


def check_c_reach(path: Path) -> list[str]:
    """Return the operators that the table lacks or that there are no more, and those that C refuses but should not."""
    rows = {row["operator"]: row for row in read_rows(path)}
    known = {op.name for op in all_operators()}
    faults = [f"{name} is not in the table" for name in sorted(known - rows.keys())]
    faults += [f"{name} is no operator" for name in sorted(rows.keys() - known)]
    refused = find_refused()
    lost = [name for name, row in rows.items() if row.get("cpu") == "-" and name not in refused]
    return faults + [f"{name} is not reached on the CPU, though its decomposition is compiled" for name in lost]


def check_accuracy(path: Path) -> list[str]:
    """Check that every operator that rounds has an error on every device."""
    try:
        keys = accuracy.read_table("it", path).keys()
    except InvalidArgument as error:
        return [str(error)]
    operators = find_declared()
    found = compare_names("an operator", (name for name, *_ in keys), operators)
    found += compare_names("a device", (device for _, _, device, _ in keys), BACKENDS)
    for name, element, _, source in keys:
        if name in operators and element not in dtypes_of(operators[name]):
            found.append(f"{name} is not declared for {element}")
        if source.split()[0] not in ("cases", "numbers"):
            found.append(f"{name} was measured over {source!r}; allowed: cases, numbers")
    rounding = {op.name for op in operators.values() if not op.exact and gives_floats(op)}
    for device in BACKENDS:
        measured = {name for name, _, on, _ in keys if on == device}
        found += demand_names(f"{device} of", measured, rounding)
    return list(dict.fromkeys(found))


def check_support(path: Path) -> list[str]:
    """Check that every device has an answer for each operator of the last full run, and that this passed."""
    try:
        text = path.read_text(encoding="utf-8")
        kept = json.loads(text)
        if support.dump(kept) != text:
            return ["its lines are not those that docs/support.py writes"]
        backends = {run["backend"]: run["status"] for run in kept["runs"]}
        claims = kept["operators"]
    except (ValueError, KeyError, TypeError) as error:
        return [f"it cannot be read: {type(error).__name__}: {error}"]
    found = compare_names("a backend", backends, BACKENDS) + demand_names("the backend", backends, BACKENDS)
    found += [f"the run of {name} is {verdict}" for name, verdict in backends.items() if verdict != "passed"]
    found += compare_names("an operator", claims, find_declared())
    devices = [f"{backend}:0" for backend in BACKENDS]
    for name, answers in claims.items():
        found += compare_names(f"{name} on a device", answers, devices)
        found += demand_names(f"{name} on the device", answers, devices)
    return found


def check_onnx_suite(path: Path) -> list[str]:
    """Check that every device has outcomes, none of them wrong, and that each exception is one of the list."""
    try:
        text = path.read_text(encoding="utf-8")
        kept = json.loads(text)
        if onnx_suite.dump(kept) != text:
            return ["its lines are not those that docs/onnx_suite.py writes"]
        found = []
        for device, run in kept.items():
            outcomes = [outcome for counts in run["outcomes"].values() for outcome in counts]
            found += compare_names("an outcome", outcomes, onnx_suite.OUTCOMES)
            found += compare_names("an exception", run["sentences"], read_exceptions())
            found += [f"{device}: {wrong}" for wrong in run["wrong"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"it cannot be read: {type(error).__name__}: {error}"]
    devices = [f"{backend}:0" for backend in BACKENDS]
    return found + compare_names("a device", kept, devices) + demand_names("the device", kept, devices)


def check_onnx_versions(path: Path) -> list[str]:
    """Check that each line is of an operator that is read, with who computes the same, or of a refusal with its words.

    That every version of every operator has a line is for a test beside the library, which is not installed everywhere.
    """
    rows = read_rows(path)
    if not rows or tuple(rows[0]) != onnx_versions.COLUMNS:
        return [f"its columns are not {', '.join(onnx_versions.COLUMNS)}"]
    if any(None in row or None in row.values() for row in rows):
        return [f"it has a line that has not {len(onnx_versions.COLUMNS)} fields"]
    keys = [(row["operator"], row["version"]) for row in rows]
    found = [f"{name} {version} has more than one line" for name, version in {k for k in keys if keys.count(k) > 1}]
    return found + [
        f"{k} says nothing" for k, row in zip(keys, rows, strict=True) if not (row["compared with"] or row["refused"])
    ]


def read_exceptions() -> set[str]:
    """Return the sentences of the list of ONNX's tests that do not pass."""
    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    return {line.split("\t")[-1] for line in lines if not line.startswith("#")}


def check_speed(path: Path) -> list[str]:
    """Check that each row is of a sample of the size, and has a time. Operators may be missing: their pages say so."""
    rows = read_rows(path)
    if not rows or tuple(rows[0]) != speed.COLUMNS:
        return [f"its columns are not {', '.join(speed.COLUMNS)}"]
    if any(None in row or None in row.values() for row in rows):
        return [f"it has a line that has not {len(speed.COLUMNS)} fields"]
    operators, found, keys = find_declared(), [], []
    found += compare_names("an operator", (row["operator"] for row in rows), operators)
    found += compare_names("a library", (row["peer"] for row in rows), ("", *speed.PACKAGES))
    for row in rows:
        name = f"{row['operator']} {row['dtype']} {row['case']} {row['peer']}".rstrip()
        keys.append(name)
        operator = operators.get(row["operator"])
        if operator is not None:
            known = row["dtype"] in dtypes_of(operator)
            if not known or row["case"] not in {s.text for s in samples(operator, speed.SIZE, dtype(row["dtype"]))}:
                found.append(f"{name} is not a {speed.SIZE} sample")
        if not bool(row["peer"]) == bool(row["version"]) == bool(row["ratio"]):
            found.append(f"{name} needs a library, its version and a ratio, or none of them")
        if not (POSITIVE.fullmatch(row["us"]) and POSITIVE.fullmatch(row["ratio"] or "1")):
            found.append(f"{name} has a time or a ratio that is not a positive number")
    return found + [f"{name} is there twice" for name in dict.fromkeys(keys) if keys.count(name) > 1]


def check_mutations(path: Path) -> list[str]:
    """Check that every backend has a section, and that its mutants are of kernel files of this tree."""
    first, *sections = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.M)
    named = {section.partition("\n")[0]: section for section in sections}
    found = [] if first.startswith("# ") else ["it does not begin with a heading"]
    found += compare_names("a backend", named, KINDS) + demand_names("the backend", named, KINDS)
    for backend in named.keys() & KINDS.keys():
        if not re.search(r"^\| share that quick cases kill \| \d+\.\d% \|$", named[backend], re.M):
            found.append(f"{backend} has no share that quick cases kill")
        mutants = re.findall(r"`([\w/.]+):\d+:(\w[\w ,]*)(?::\d+)?`", named[backend])
        files = {str(file.relative_to(ROOT)) for file in KINDS[backend].files()}
        found += compare_names(f"a kernel file of {backend}", (file for file, _ in mutants), files)
        found += compare_names("a rule", (rule for _, rule in mutants), RULES)
        short = {file.rpartition("/kernels/")[2] for file in files}
        counted = re.findall(r"^\| ([\w/]+\.(?:c|h|xpu)) \|", named[backend], re.M)
        found += compare_names(f"a kernel file of {backend}", counted, short)
    return found


def check_status(path: Path) -> list[str]:
    """Check that the page does not contradict itself; `python tools/status.py --check` compares it with the tree."""
    return status.faults(path.read_text(encoding="utf-8"))
