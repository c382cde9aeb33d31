"""Test the words of the house: functions are verbs, a word has one meaning, and lines end at 120 columns.

The retired phrases of this tree are compared with their counts in test_regenerate.py; here, how they are found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import phrases
import pytest
import regenerate

ROOT = Path(__file__).parents[2]
COLUMNS = 120
FOLDERS = ("core", "plugins", "tests", "tools", "examples", "docs")
MADE = {"generated", "build", "__pycache__", ".tox", "dist"}
SOURCES = {".py", ".c", ".h", ".hpp", ".cpp", ".cl", ".xpu"}
# Participles that do not end in -ed
IRREGULAR = frozenset(
    """
    bound broken built caught chosen cut done drawn found given gone grown heard held hidden kept laid left lost
    made met paid put read ridden run seen sent set shown shut sold spilt split spoilt spun stuck sunk taken
    taught thought thrown told understood worn wound written
    """.split()  # noqa: SIM905  # as a text it is a paragraph, as a list it is a page
)
VERBS = {"cut", "embed", "exceed", "feed", "need", "proceed", "put", "read", "run", "seed", "set", "shut", "split"}
ALLOWED = {
    "searchsorted": "the name that the array API standard has",
    "supported": "the field's word for whether a kernel takes a call; a field of KernelVariant and a macro in C",
}
# Words that the glossary retired, where they are unambiguous; in names, as parts between underscores
RETIRED = {"astray", "flight", "preflight", "spilt", "told_of"}
# The same for the names of C and kernels
RETIRED_IN_C = {
    *("ahead", "astray", "beside", "broken", "heard", "least", "most"),
    *("room", "spilt", "strip", "strips", "tell", "told", "turn"),
}

LONG = {
    "check_rules.h": "a rule's text is one literal, which docs/generate.py reads",
    "cluster_primitive.h": "the text of an #error cannot be broken",
}


def files(*suffixes: str) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            made = MADE & {*path.relative_to(ROOT).parts} or (folder == "plugins" and path.stem == "isokern")
            if path.suffix in suffixes and not made:
                yield path


@cache
def nodes(source: str) -> list[ast.AST]:
    """Return all nodes of a module, which several tests go over."""
    return list(ast.walk(ast.parse(source)))


def participles(source: str) -> list[str]:
    """Return the functions whose name is a participle alone; properties name states, and fixtures what they give."""
    found = []
    for node in nodes(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            named = {ast.unparse(d).rpartition(".")[2].partition("(")[0] for d in node.decorator_list}
            word = node.name.strip("_")
            past = word in IRREGULAR or (word.endswith("ed") and len(word) > 3 and "_" not in word)
            if past and not named & {"property", "cached_property", "fixture"} and word not in {*VERBS, *ALLOWED}:
                found.append(f"{node.lineno}: {node.name}")
    return found


def test_functions_are_verbs():
    homes = ("core", "plugins", "tools")
    sources = [p for p in files(".py") if p.relative_to(ROOT).parts[0] in homes]
    assert len(sources) > 200
    guilty = {str(p.relative_to(ROOT)): names for p in sources if (names := participles(p.read_text(encoding="utf-8")))}
    assert guilty == {}


@pytest.mark.parametrize("name", ["taken", "_made", "resized", "_chosen"])
def test_a_participle_is_seen(name):
    assert participles(f"class A:\n    def {name}(self):\n        def inner(): ...") == [f"2: {name}"]
    assert participles(f"@property\ndef {name}(self): ...") == []


def test_retired_words_are_in_no_name():
    parts = re.compile(rf"(?:^|_)(?:{'|'.join(sorted(RETIRED))})(?:_|$)")
    guilty = []
    for path in files(".py"):
        source = path.read_text(encoding="utf-8")
        for node in nodes(source) if any(word in source for word in RETIRED) else []:
            name = getattr(node, "name", None) or getattr(node, "attr", None) or getattr(node, "id", None)
            if isinstance(name, str) and parts.search(name) and not name.startswith("test_"):
                guilty.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert guilty == []


def named_twice(modules: dict[str, str], private: bool) -> dict[str, list[str]]:
    """Return the names of more than one class in modules (path → source), each with its places."""
    found: dict[str, list[str]] = {}
    for path, source in modules.items():
        for node in nodes(source):
            if isinstance(node, ast.ClassDef) and (private or not node.name.startswith("_")):
                found.setdefault(node.name.strip("_"), []).append(f"{path}:{node.lineno}")
    return {name: places for name, places in found.items() if len(places) > 1}


def sources_of(package: str) -> dict[str, str]:
    """Return path → text of the Python files of a package."""
    paths = [p for p in files(".py") if f"{p.relative_to(ROOT)}".startswith(f"{package}/")]
    template = ROOT / "core/src/isokern/scaffold"  # has packages that are installed without each other
    paths = [p for p in paths if not p.is_relative_to(template) or p.parent == template]
    return {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in paths}


def test_a_word_of_the_glossary_names_one_class():
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M)
    terms = {term.strip() for row in rows for term in row.split(",")} - {"word"}
    words = {"".join(part.capitalize() for part in re.split("[ -]", term)) for term in terms}
    assert {"Plan", "Program", "Step", "Block", "Row", "Prepack", "MemoryPlan"} <= words
    twice = named_twice({**sources_of("core"), **sources_of("plugins")}, private=True)
    assert {word: places for word, places in twice.items() if word in words} == {}
    assert named_twice({"a": "class Plan: ...", "b": "x = 1\nclass _Plan: ..."}, private=True) == {
        "Plan": ["a:1", "b:2"]
    }


@pytest.mark.parametrize("package", ["core", *(f"plugins/{p.name}" for p in sorted((ROOT / "plugins").iterdir()))])
def test_no_two_classes_of_a_package_have_one_name(package):
    assert named_twice(sources_of(package), private=False).keys() <= {
        "Model"
    }  # of layers, and of a language: each the field's word


def retired_in_c(source: str) -> list[str]:
    """Return the identifiers outside comments and strings that have a retired word between underscores."""
    blank = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
    bare = blank.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source)
    return [
        f"{number}: {name}"
        for number, line in enumerate(bare.splitlines(), 1)
        for name in re.findall(r"[A-Za-z_]\w*", line)
        if RETIRED_IN_C & {*name.lower().split("_")}
    ]


def test_retired_words_are_in_no_name_of_c():
    sources = [p for p in files(*(SOURCES - {".py"})) if p.relative_to(ROOT).parts[0] in ("core", "plugins")]
    assert len(sources) > 200
    found = {str(p.relative_to(ROOT)): retired_in_c(p.read_text(encoding="utf-8")) for p in sources}
    assert {path: names for path, names in found.items() if names} == {}
    planted = 'int ik_Most_rows; /* most */\nint almost = 1; // room\nfail("told");\nint room;'
    assert retired_in_c(planted) == ["1: ik_Most_rows", "4: room"]


def test_no_line_of_a_source_is_longer_than_120_columns():
    long = []
    for path in files(*SOURCES):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > COLUMNS and path.suffix != ".py" and path.name not in LONG:  # ruff checks Python
                long.append(f"{path.relative_to(ROOT)}:{number}: {len(line)}")
    assert long == []


# A sentence with each retired phrase, and one with the same words that is good English
SENTENCES = {
    "where": ("It stops where there is one.", "The file where x and y are; nowhere it; that is where."),
    "What": ("What is left is dropped.", "It prints what is left. What is left?"),
    "lies": ("The tensor lies in one buffer.", "Kernels lay out a believed row."),
    "is no": ("A view is no copy.", "There is no copy, and it is no longer and no more than one."),
    "is none": ("A value that is none of them.", "It is None, or there is none."),
    "no such": ("There is no such operator.", "There is no such file."),
    "nobody": ("Whoever calls it frees it.", "The caller frees it."),
    "another than": ("It has another dtype than y.", "Any other dtype than y, and another dtype."),
    "beside": ("It is beside the file.", "The bedside file."),
    "made of": ("It is made of others.", "The list has been made by others."),
    "turn": ("Each pair is turned.", "We turn off each, in turn; it returned."),
    "told": ("It is told what failed.", "The untold sail."),
    "texts": ("Two texts of a batch.", "The text of a batch, in contexts."),
    "processor": ("A processor core.", "A coprocessor and processor time."),
    ", too": ("A view, too.", "A view, too small."),
    "mend": ("It was mended.", "It was amended."),
    "any more": ("It is not there any more.", "It has not any more than one."),
    "come of": ("They come of one row.", "They become often."),
    "British spelling": ("A quantised tensor.", "A quantized behavior, otherwise precise."),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_retired_phrase_is_found(name):
    bad, good = SENTENCES[name]
    for suffix, before, after in [
        (".md", "", ""),
        (".py", "x = 1  # ", ""),
        (".py", '"""', '"""'),
        (".c", "/* ", " */"),
    ]:
        assert phrases.find_phrases(f"{before}{bad}{after}\n", suffix) == [(1, name)]
        assert phrases.find_phrases(f"{before}{good}{after}\n", suffix) == []
    assert phrases.find_phrases(f"```text\n{bad}\n```\n`{bad}`\n", ".md") == []
    assert phrases.find_phrases(f"x = {name.replace(' ', '_').strip('#, ')}\n", ".py") == []


def test_every_phrase_has_a_sentence():
    assert {*phrases.PHRASES} - {*SENTENCES} == {"# of"}


def test_a_comment_begins_with_a_word_that_begins_a_sentence():
    assert phrases.find_phrases("x = 1  # of both\n# of both\nint x; // of both\n", ".py") == [(1, "# of"), (2, "# of")]
    assert phrases.find_phrases("int x; /* of both */\n// of both\n", ".c") == [(1, "# of"), (2, "# of")]
    assert phrases.find_phrases("# The sum\n# of both\nx = 1\n", ".py") == []


def test_a_phrase_is_found_across_lines_and_in_messages_alone():
    assert phrases.find_phrases("# stops where\n# it is\n", ".py") == [(1, "where")]
    assert phrases.find_phrases('f(help="stops where it is", told="told", texts=f"the {texts} of")', ".py") == [
        (1, "where")
    ]
    assert phrases.find_phrases("texts = told(lies, turn=beside)", ".py") == []


def test_a_phrase_more_is_an_error_with_its_places_and_one_less_with_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "tests/packaging").mkdir(parents=True)
    (tmp_path / "core/src/isokern/llm").mkdir(parents=True)
    page, module = tmp_path / "README.md", tmp_path / "core/src/isokern/llm/a.py"
    page.write_text("It lies here.\n")
    module.write_text('"""Stop where it is."""\n\nX = 1  # of both\n')
    monkeypatch.setattr(regenerate, "ROOT", tmp_path)
    run = [["phrases"], ["--check", "phrases"]]
    assert [regenerate.main(words, tmp_path) for words in run] == [0, 0]
    counts = (tmp_path / "tests/packaging/phrases.tsv").read_text()
    assert counts.splitlines()[1:] == [".\tlies\t1", "core/llm\t# of\t1", "core/llm\twhere\t1"]

    module.write_text(module.read_text() + "# Stop where there is none\n")
    capsys.readouterr()
    assert regenerate.main(["--check", "phrases"], tmp_path) == 1
    places = "core/src/isokern/llm/a.py:1 core/src/isokern/llm/a.py:4"
    assert f"core/llm has 2 of 'where', allowed: 1; say: if, when, unless; `in which` of a place; {places}" in (
        capsys.readouterr().out
    )
    assert regenerate.main(["phrases"], tmp_path) == 1
    assert "'where' in core/llm would rise from 1 to 2; say: if, when" in capsys.readouterr().out
    assert (tmp_path / "tests/packaging/phrases.tsv").read_text() == counts

    module.write_text('"""Stop if it is."""\n')
    assert regenerate.main(["--check", "phrases"], tmp_path) == 1
    said = capsys.readouterr().out
    assert "core/llm has 0 of 'where' and the file 1; write the lower count; run `python tools/regenerate.py ph" in said
    assert [regenerate.main(words, tmp_path) for words in run] == [0, 0]
    assert (tmp_path / "tests/packaging/phrases.tsv").read_text() == f"{phrases.HEADER}\n.\tlies\t1\n"
