"""Check docs/source_documents.tsv: `python tools/source_documents.py` prints each row whose proof does not hold.

A proof is a test (`tests/…py::name`, which must exist; the tests themselves are run elsewhere), a command
(`$ isokern …`, which must exit with 0), or an expression, which must be True on the default device. An expression may
use what `import isokern` gives, and the other names in `NAMES` below.
"""

from __future__ import annotations

import ast
import csv
import inspect
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import isokern
from isokern import backend, blocks, dtypes
from isokern.cabi import header
from isokern.declare import attributes
from isokern.graph import Builder, Graph, Model, layers, parse
from isokern.graph.ir import Constraint, Op, TensorSpec, Value
from isokern.llm.kv_cache import KVCache
from isokern.ops import all_operators, by_kind, find
from isokern.passes import run
from isokern.rewriting.conversion import Target, convert
from isokern.rewriting.rewriter import State
from isokern.runtime import Program, compile

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "docs" / "source_documents.tsv"
DOCUMENTS = ("core abstractions", "layers and IR", "lowering", "CUDA rules", "Kunlun rearrange")
VERDICTS = ("true", "different", "open")


def read_rows(path: Path = ROWS) -> list[dict[str, str]]:
    """Return the rows: document, statement, verdict (and why), here (what it is called in Isokern), proof."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def find_fault(row: dict[str, str]) -> str:
    """Return what is wrong with a row, its proof included; empty where nothing is."""
    if None in row or None in row.values() or not all(row[k].strip() for k in ("document", "statement", "here")):
        return "it has an empty field, or not five"
    if row["document"] not in DOCUMENTS:
        return f"no document is called {row['document']!r}; allowed: {', '.join(DOCUMENTS)}"
    verdict, _, why = row["verdict"].partition(": ")
    if verdict not in VERDICTS or bool(why) == (verdict == "true"):
        return f"verdict {row['verdict']!r}; allowed: {', '.join(VERDICTS)}, the last two with `: why`"
    if bool(row["proof"]) == (verdict == "open"):
        return "a row has a proof, unless it is open"
    return refute(row["proof"]) if row["proof"] else ""


def refute(proof: str) -> str:
    """Return why a proof does not hold; empty where it does."""
    if proof.startswith("tests/"):
        path, _, name = proof.partition("::")
        return "" if name in list_tests(ROOT / path) else "there is no such test"
    if proof.startswith("$ "):
        return run_command(shlex.split(proof)[1:])
    try:
        value = eval(proof, dict(NAMES))  # each with names of its own, so that no row depends on another
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if isinstance(value, (bool, np.bool_)) and value else f"it is {value!r}"


@cache
def list_tests(path: Path) -> frozenset[str]:
    """Return the names of the test functions of a file; none where there is no such file."""
    if not path.exists():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


def run_command(words: Sequence[str]) -> str:
    """Return an error with the last line that an isokern command prints if it does not exit with 0, else empty text."""
    if words[0] != "isokern":
        return "it is no command of isokern"
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, cwd=ROOT, check=False)
    return "" if done.returncode == 0 else f"exit {done.returncode}: {(done.stderr.strip() or '-').splitlines()[-1]}"


# Names for expressions


def raises(error: type[Exception], call: Callable[[], object]) -> bool:
    """Return whether a call raises exactly this error."""
    try:
        call()
    except Exception as raised:
        return type(raised) is error
    return False


def near(given: Any, expected: Any, error: float = 1e-6) -> bool:
    """Return whether a tensor has the expected shape and elements, within an error."""
    array = np.asarray(given).astype(np.float64)
    return array.shape == np.shape(expected) and np.allclose(array, expected, rtol=error, atol=error)


def bits(text: str) -> np.ndarray[Any, Any]:
    """Return bytes, written in hexadecimal, as an array."""
    return np.frombuffer(bytes.fromhex(text), np.uint8)


def ones(*shape: int) -> np.ndarray[Any, Any]:
    """Return an array of ones, in F32."""
    return np.ones(shape, np.float32)


def make_cache(*counts: int, dtype: str = "F16") -> KVCache:
    """Return a KV cache of 8 positions that has been updated with each of these numbers of ones in turn."""
    made = KVCache(8, 1, 32, dtype)
    for count in counts:
        made.update(ones(1, count, 1, 32), ones(1, count, 1, 32))
    return made


def model(layer: layers.Layer, *shape: int) -> Model:
    """Return a model of one layer on an input called x, with its parameters filled."""
    made = Model("one")
    made.output(made.add(layer, made.input("x", shape), name="layer"))
    made.initialise(seed=0)
    return made


def lower(layer: layers.Layer, *shape: int, passes: str = "to_primitives") -> Graph:
    """Return the graph that passes make of a layer."""
    made = model(layer, *shape)
    return run(State(made.graph, dict(made.parameters)), passes).graph


def kinds(layer: layers.Layer, *shape: int, passes: str = "to_primitives") -> list[str]:
    """Return the operators of that graph, in order."""
    return [op.kind for op in lower(layer, *shape, passes=passes).ops]


def program(layer: layers.Layer, *shape: int, passes: str | None = None) -> Program:
    """Return a layer compiled for the default device."""
    return compile(model(layer, *shape)) if passes is None else compile(model(layer, *shape), passes=passes)


MODULES = (isokern, backend, blocks, dtypes, header, inspect, layers, attributes)
CLASSES = (Builder, Constraint, KVCache, Model, Op, State, Target, Value)
FUNCTIONS = (
    all_operators,
    bits,
    by_kind,
    convert,
    find,
    kinds,
    lower,
    model,
    near,
    ones,
    parse,
    program,
    raises,
    make_cache,
)
NAMES: dict[str, Any] = {name: getattr(isokern, name) for name in isokern.__all__}
NAMES |= {given.__name__.rpartition(".")[2]: given for given in (*MODULES, *CLASSES, *FUNCTIONS)}
NAMES |= {"np": np, "TensorSpec": TensorSpec}  # another name of TensorDesc


def main() -> int:
    """Print every row that does not hold; return 1 where there is one."""
    rows = read_rows()
    faults = [(row, find_fault(row)) for row in rows]
    wrong = [f"{row['document']}: {row['statement']}\n    {row['proof']}\n    {why}" for row, why in faults if why]
    print("\n".join([*wrong, f"{len(rows) - len(wrong)} of {len(rows)} rows hold"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
