"""Test the page of contracts: it has every method that a backend of this repository defines, and no other."""

from __future__ import annotations

import ast
from pathlib import Path

import contracts

ROOT = Path(__file__).parents[2]
NARROWED = {"device"}  # defined again for its type alone
HOMES = ("plugins/*/src/**/*.py", "core/src/isokern/**/*.py", "examples/**/*.py")


def find_overrides() -> dict[str, set[str]]:
    """Return, for each class of the page, the public methods of its own that some class below it defines again."""
    classes = {}
    for pattern in HOMES:
        for path in ROOT.glob(pattern):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases = [ast.unparse(b).partition("[")[0].rpartition(".")[2] for b in node.bases]
                    methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                    classes.setdefault(node.name, []).append((bases, methods))

    def inherits(bases: list[str], root: str, seen: tuple[str, ...] = ("ABC",)) -> bool:
        above = [b for b in bases if b not in seen]  # a class may have the name of its base, in another package
        return any(b == root or any(inherits(up, root, (*seen, b)) for up, _ in classes.get(b, ())) for b in above)

    found = {}
    for cls in contracts.classes():
        below = [m for owners in classes.values() for bases, m in owners if inherits(bases, cls.__name__)]
        found[cls.__name__] = {n for n in set().union(*below) & {*vars(cls)} if not n.startswith("_")}
    return found


def test_every_method_that_a_backend_defines_has_its_contract():
    overrides = find_overrides()
    assert overrides["Buffer"] >= {"read_bytes", "write_bytes"}
    for cls in contracts.classes():
        public = {n for n in contracts.required(cls) if not n.startswith("_")}
        listed = public | {*contracts.OPTIONAL[cls.__name__]}
        assert overrides[cls.__name__] - listed - NARROWED == set(), cls.__name__
        assert listed <= {*vars(cls)}, cls.__name__
        optional = {*contracts.OPTIONAL[cls.__name__]}
        assert optional - overrides[cls.__name__] == set(), f"{cls.__name__}: no backend defines them"


def test_each_contract_says_something():
    page = contracts.contracts()
    assert "- `read_bytes(offset: int, nbytes: int) -> Bytes`  \n  Return a copy" in page
    assert [line for line in page.splitlines() if line.startswith("- `") and not line.endswith("`  ")] == []
    assert page.count("A backend implements:") == 6
