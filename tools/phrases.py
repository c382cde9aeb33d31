"""Count phrases that a native reader stumbles over, by folder; the counts, tests/packaging/phrases.tsv, may only fall.

Prose is Markdown outside code, and the comments, docstrings and sentences in literals of sources: help and error texts.
Names are not prose. `python tools/regenerate.py phrases` writes lower counts, and refuses higher ones.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

HEADER = "folder\tphrase\tcount"
MADE = {"generated", "build", "dist", "__pycache__", ".tox"}
LOGS = {"CHANGELOG.md", "mutations.md", "source_documents.md", "status.md"}  # of what was; written by programs or once
C = {".c", ".cl", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".xpu"}

_DETERMINERS = "a|all|an|any|both|each|every|it|its|no|none|one|some|that|the|there|these|they|this"
_ISE = """
    canonical character color colour discret emphas equal factor final general initial linear local material maxim memor
    minim neutral normal optim organ parallel penal priorit quant random real recogn regular serial special standard
    summar symbol synchron token util vector visual
"""
# name of a phrase → its pattern and what to say. Capitals matter in a pattern that has one. A blank is any white space,
# also across the lines of a comment; `_` is one space. `re` is fast with a pattern that begins with letters.
PHRASES: dict[str, tuple[str, str]] = {
    "where": (rf"where (?:{_DETERMINERS})", "if, when, unless; `in which` of a place"),
    "What": (
        r"What (?:a|an|are|every|has|is|it|its|the|they|was)\b(?![^.?]{0,120}\?)",
        "name the thing that the sentence is about",
    ),
    "lies": (r"l(?:ies?|ying|ay(?! out))", "is stored, is at, starts at"),
    "# of": (r"(?:#|//|/\*) of", "a comment begins with a word that can begin a sentence"),
    "is no": (r"(?<!there_)(?<!may_)(?:is|are|was|were|be) no (?!longer\b|more\b|less\b)\w+", "is not a, does not"),
    "is none": (r"(?<!there_)(?:is|are|was|were|be) none(?#None)", "is not one; name what it is not"),
    "no such": (r"(?:no|none) such(?! (?:file|device or)\b)", "does not exist; name what is missing"),
    "nobody": (r"(?:nobody|no one|whoever|somebody|anybody|someone)", "nothing, the caller; name who acts"),
    "another than": (r"(?<!any_)(?<!no_)(?:another|other) (?!than)[^\s]+ than", "a different … from"),
    "beside": (r"besides?", "next to, compared with, in addition to"),
    "made of": (r"(?:made|makes?|making|consists?|consisting) of", "composed of, decomposed into"),
    "turn": (r"turn(?:s|ed|ing)?(?! (?:on|off|into|out)\b)(?<!in_turn)", "rotate; reverse; a request, a round"),
    "told": (r"t(?:old|ells?)|said", "reports, prints, distinguishes, specifies"),
    "texts": (r"(?:texts|dialogues?)", "completions, sequences, prompts; chat, conversation"),
    "processor": (r"processors?(?! time)", "CPU, core"),
    ", too": (r"(?<=,_)too(?=[.,;:)])", "also"),
    "mend": (r"mend(?:s|ed|ing)?", "fix, correct"),
    "any more": (r"any more(?! than)", "no longer"),
    "come of": (r"c(?:omes?|ame) of", "is computed from, results from"),
    "British spelling": (
        rf"(?:{'|'.join(_ISE.split())})is(?:e[drs]?|ing|ations?)"
        r"|behaviours?|colou?red|colours?|neighbour(?:s|ing)?|centred?|favour(?:s|ite)?|model(?:led|ling)|label(?:led|ling)",
        "-ize, and American words throughout",
    ),
}
_SOLID = re.compile(r"[\w`{.-]")  # next to these a word is part of a name or of code
_BLANK = r"\s+(?:(?:#|//|\*)\s*)?"
_PATTERNS = {name: re.compile(rf"(?:{p.replace(' ', _BLANK).replace('_', ' ')})\b") for name, (p, _) in PHRASES.items()}
_CASED = {name for name, (pattern, _) in PHRASES.items() if not pattern.islower()}
_PROSE_OF_PYTHON = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|\'\'\'(?:[^\'\\]|\\.|\'(?!\'\'))*\'\'\''
    r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|#[^\n]*',
    re.S,
)
_PROSE_OF_C = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"', re.S)
_CODE_OF_MARKDOWN = re.compile(r"^```.*?^```|`[^`\n]+`|\]\([^)\s]*\)|<!--.*?-->", re.M | re.S)


def _spans(text: str, suffix: str) -> list[tuple[int, int]]:
    """Return where the comments and literals of a source begin and end; a literal without a blank is a name."""
    found = []
    for match in (_PROSE_OF_PYTHON if suffix == ".py" else _PROSE_OF_C).finditer(text):
        if match[0][0] not in "\"'" or " " in match[0]:
            found.append(match.span())
    return found


def _is_prose(text: str, spans: list[tuple[int, int]], start: int, end: int) -> bool:
    """Return whether a hit is a word of its own, in one of the spans, and not in the braces of a formatted literal."""
    if start and _SOLID.match(text, start - 1):
        return False
    if _SOLID.match(text, end) and text[end : end + 1] not in ".-{":
        return False
    index = bisect_right(spans, (start, len(text))) - 1
    if index < 0 or start >= spans[index][1]:
        return False
    begin = spans[index][0]
    if text[start] in "#/":
        *before, line = text[max(0, start - 2 * 120) : start].split("\n")
        return bool(line.strip()) or not (
            before and before[-1].lstrip().startswith(("#", "//"))
        )  # or a comment goes on
    return text[begin] not in "\"'" or text.rfind("{", begin, start) <= text.rfind("}", begin, start)


@cache  # a process that checks the counts and writes them reads the same files
def find_phrases(text: str, suffix: str) -> list[tuple[int, str]]:
    """Return the line and the name of each retired phrase in a file, in no order."""
    if suffix == ".md":
        text = _CODE_OF_MARKDOWN.sub(lambda m: re.sub(r"[^\n]", "`", m[0]), text)
    lower = text.lower()
    hits = [
        (match.start(), match.end(), name)
        for name, pattern in _PATTERNS.items()
        for match in pattern.finditer(text if name in _CASED else lower)
    ]
    if not hits:
        return []
    spans = [(0, len(text))] if suffix == ".md" else _spans(text, suffix)
    return [(text.count("\n", 0, start) + 1, name) for start, end, name in hits if _is_prose(lower, spans, start, end)]


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the folder and the path of each file with prose."""
    for path in sorted(root.glob("*.md")):
        yield ".", path
    for top in ("core", "plugins", "tests", "tools", "examples", "docs"):
        for path in sorted((root / top).rglob("*")):
            parts = path.relative_to(root).parts
            if (
                path.suffix not in {".py", ".md", *C}
                or MADE & {*parts}
                or (top == "plugins" and path.stem == "isokern")
            ):
                continue
            inner = parts[3:] if parts[:3] == ("core", "src", "isokern") else parts[1:]
            yield f"{top}/{inner[0] if len(inner) > 1 else '.'}", path


def find_all(root: Path) -> dict[tuple[str, str], list[str]]:
    """Return `path:line` of the phrases of a tree, by folder and phrase."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for folder, path in _files(root):
        if path.name not in LOGS and path.name not in {"phrases.py", "test_words.py"}:
            for line, name in sorted(find_phrases(path.read_text(encoding="utf-8"), path.suffix)):
                found[folder, name].append(f"{path.relative_to(root)}:{line}")
    return dict(found)


def write_counts(found: Mapping[tuple[str, str], list[str]]) -> str:
    """Return the text of the file of counts."""
    rows = [f"{folder}\t{name}\t{len(places)}" for (folder, name), places in sorted(found.items())]
    return "\n".join([HEADER, *rows]) + "\n"


def read_counts(text: str) -> dict[tuple[str, str], int]:
    """Return the counts that a file allows."""
    header, *rows = text.splitlines()
    if header != HEADER:
        raise ValueError(f"its first line is {header!r}; allowed: {HEADER!r}")
    return {(folder, name): int(count) for folder, name, count in (row.split("\t") for row in rows)}


def find_changes(found: Mapping[tuple[str, str], list[str]], allowed: Mapping[tuple[str, str], int]) -> list[str]:
    """Return a sentence for each folder and phrase that is counted more or less often than the file has it."""
    changes = []
    for folder, name in sorted({*found, *allowed}):
        places, limit = found.get((folder, name), []), allowed.get((folder, name), 0)
        if len(places) > limit:
            say = PHRASES[name][1]
            changes.append(f"{folder} has {len(places)} of '{name}', allowed: {limit}; say: {say}; {' '.join(places)}")
        elif len(places) < limit:
            changes.append(f"{folder} has {len(places)} of '{name}' and the file {limit}; write the lower count")
    return changes


def find_rises(committed: str, computed: str) -> list[str]:
    """Return a sentence for each count that would rise; a file without a line may be written."""
    before = read_counts(committed) if committed else read_counts(computed)
    return [
        f"'{name}' in {folder} would rise from {before.get((folder, name), 0)} to {count}; say: {PHRASES[name][1]}"
        for (folder, name), count in read_counts(computed).items()
        if count > before.get((folder, name), 0)
    ]
