"""Write what `zensical build` makes the site from: `python docs/generate.py site FOLDER`.

That is the pages of docs with their generated parts, pages that are generated whole, and mkdocs.yml with those in its
navigation; the site is built in FOLDER/html. A line `<!-- generated: NAME words -->` in a page is replaced by the result of the function of that name.
`python docs/generate.py support [backend …]` writes docs/support.json from the reports of conformance, and
`python docs/generate.py source_documents` writes docs/source_documents.md; both are committed.
"""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / ".tox" / "reports"
SOURCE_DOCUMENTS = ROOT / "docs" / "source_documents.md"
PAGES = {
    "README.md": "getting_started.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/architecture.md": "architecture.md",
    "docs/adding_a_dtype.md": "adding_a_dtype.md",
    "docs/debugging.md": "debugging.md",
    "docs/kunlun.md": "kunlun.md",
    "docs/cpu.md": "cpu.md",
    "docs/opencl.md": "opencl.md",
    "docs/cuda.md": "cuda.md",
    "docs/language_models.md": "language_models.md",
    "docs/native_backend.md": "native_backend.md",
    "docs/simt.md": "simt.md",
    "core/src/isokern/simt/README.md": "simt_kernels.md",
}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    body = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *body])


def page(name: str) -> str:
    """Return a page of the repository, its links turned into pages of the site, or into text where there is none."""

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        return f"[{text}]({PAGES[target]}{anchor})" if target in PAGES else text

    return re.sub(r"\[([^\]]+)\]\((?!https?:)([^)#]+)(#[^)]*|)\)", link, (ROOT / name).read_text(encoding="utf-8"))


def section(name: str, *title: str) -> str:
    """Return one section of a page."""
    match = re.search(rf"^(## {' '.join(title)}\n.*?)(?=^## |\Z)", page(name), re.S | re.M)
    if match is None:
        raise LookupError(f"{name} has no section {' '.join(title)!r}")
    return match.group(1)


def code(language: str, name: str) -> str:
    """Return a file as a code block."""
    return f"```{language}\n{(ROOT / name).read_text(encoding='utf-8').rstrip()}\n```"


def definition(name: str, path: str) -> str:
    """Return a function, class or method (`Class.method`) of a Python file as a code block."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found: Any = ast.parse(text)
    for part in path.split("."):
        found = next((n for n in found.body if getattr(n, "name", None) == part), None)
        if found is None:
            raise LookupError(f"{name} has no {path}")
    first = min([found.lineno, *(d.lineno for d in found.decorator_list)])
    lines = textwrap.dedent("\n".join(text.splitlines()[first - 1 : found.end_lineno]))
    return f"```python\n{lines}\n```"


def operators() -> str:
    """Return a description of every operator, by family."""
    from isokern.ops import all_operators

    found = all_operators()
    lines = []
    for family in sorted({op.family for op in found}):
        lines += [f"## {family.capitalize()}", ""]
        lines += [_operator(op) for op in found if op.family == family]
    return "\n".join(lines)


def _operator(op: Any) -> str:
    types = "; ".join(f"{v}: {_dtypes([d.name for d in allowed])}" for v, allowed in op.signature.types.items())
    lines = [f"### {op.name}", "", op.doc, "", f"`{op.signature}`  ", f"{types}  "]
    if op.attrs.attrs:
        from isokern.declare.attributes import REQUIRED

        attrs = [
            [f"`{a.name}`", a.allowed, "" if a.default is REQUIRED else f"`{a.default}`", a.doc] for a in op.attrs.attrs
        ]
        lines += ["", table(["attribute", "takes", "default", ""], attrs), ""]
    scale = " and a scale" if op.tolerance.scale else ""
    lines += ["", *_received(op), ""]
    lines.append("Exact.  " if op.exact else f"Error: {op.tolerance.ulps:g} ulps{scale}.  ")
    lines.append(f"`out` may be {' or '.join(f'`{a}`' for a in op.aliases)}.  " if op.aliases else "")
    return "\n".join([*lines, ""])


def _received(op: Any) -> list[str]:
    """Return what a kernel of the operator's stem receives: its tensors in normal form, and their record."""
    from isokern.cabi.received import find_siblings, say_normal_form, summarise_operands

    also = ", ".join(f"`{name}`" for name in find_siblings(op))
    rows = [
        [
            f"`{o.name}`",
            "written" if o.written else "read",
            " or ".join(map(str, o.ranks)),
            " and ".join(["may be absent"] * o.may_be_absent + ["may have stride 0"] * o.may_repeat),
        ]
        for o in summarise_operands(op)
    ]
    record = ", ".join(f"`{name}` at {offset}" for name, _, offset in op.attrs.layout)
    return [
        f"A kernel (stem `{op.stem}`{f', which also computes {also}' if also else ''}) receives, in normal form:",
        "",
        table(["tensor", "is", "rank", ""], rows),
        "",
        say_normal_form(op),
        *([f"Its attributes are a record of {op.attrs.nbytes} bytes: {record}."] if record else []),
    ]


_SETS = {"floats": "FLOATS", "numbers": "NUMBERS", "integers": "INTEGERS", "all plain dtypes": "PLAIN"}


def _dtypes(names: Sequence[str]) -> str:
    """Return a list of dtypes, or the name of the set that they form."""
    from isokern import dtypes

    for text, attribute in _SETS.items():
        if set(names) == {d.name for d in getattr(dtypes, attribute)}:
            return f"{text} ({', '.join(names)})" if text == "floats" else text
    return ", ".join(names) or "-"


def errors() -> str:
    """Return the table of statuses and exceptions."""
    from isokern.status import BY_STATUS, IsokernError

    rows = []
    for status, error in BY_STATUS.items():
        kin = ", ".join(f"`{b.__name__}`" for b in error.__bases__ if b is not IsokernError)
        rows.append(
            [str(int(status)), f"`IK_{status.name}`", f"`{error.__name__}`", kin, (error.__doc__ or "").strip()]
        )
    return table(
        ["", "status", "exception", "is also", "when"], [["0", "`IK_SUCCESS`", "", "", "All went well."], *rows]
    )


def settings() -> str:
    """Return the table of all declared variables; discovery declares those of the plug-ins."""
    from isokern import settings
    from isokern.backend import discovery

    discovery.registry()
    return table(["variable", "meaning"], [[f"`{name}`", doc] for name, doc in settings.table().items()])


def header() -> str:
    """Return the part of isokern.h that precedes the operators."""
    return f"```c\n{_header()[0].rstrip()}\n```"


def c_operators() -> str:
    """Return the part of isokern.h that declares the operators."""
    return f"```c\n{_header()[1].rstrip()}\n```"


def _header() -> tuple[str, str]:
    from isokern.cabi.header import header

    before, mark, after = header().partition("\n/* abs:")
    assert mark
    return before, mark + after


def reports(backends: Sequence[str]) -> list[dict[str, Any]]:
    """Return the reports of the conformance environments; one that has not been run says so."""
    names = list(dict.fromkeys([*backends, *(p.stem for p in sorted(REPORTS.glob("*.json")))]))
    found = []
    for name in names:
        path = REPORTS / f"{name}.json"
        missing = {
            "backend": name,
            "status": "not run",
            "reason": f"`tox -e conformance-{name}` has not been run",
            "check": None,
        }
        found.append(json.loads(path.read_text(encoding="utf-8")) if path.exists() else missing)
    return found


def matrix(*backends: str) -> str:
    """Return a row per backend with its verdict, and a row per operator with the dtypes that each device supports."""
    from isokern.cli.ops import claims_text

    merged = reports(backends)
    rows, devices = [], {}
    for report in merged:
        counts = ((report["check"] or {}).get("summary") or {}).items() if report["status"] != "not run" else ()
        text = "; ".join(f"{d}: " + ", ".join(f"{n} {v}" for v, n in count.items() if n) for d, count in counts)
        rows.append([report["backend"], report["status"], text or report["reason"], report.get("when", "")])
        for op in report.get("claims") or []:
            for device in op["devices"]:
                if device.split(":")[0] == report["backend"]:
                    devices.setdefault(device, {})[op["name"]] = claims_text(op, device)
    parts = (
        [table(["backend", "conformance", "cases", "when"], rows)]
        if rows
        else ["The conformance suite has not been run here."]
    )
    if devices:
        names = sorted(set().union(*devices.values()))
        body = [[f"[{n}](operators.md#{n})", *(devices[d].get(n, "-") for d in devices)] for n in names]
        parts.append(table(["operator", *devices], body))
    return "\n\n".join(parts)


def xpu_rules() -> str:
    """Return the table of rules that the checked mode of the emulated XPU enforces."""
    return rules("kunlun_sim/src/isokern_kunlun_sim/xpurt")


def cuda_rules() -> str:
    """Return the table of rules that `isokern-gpu check` enforces."""
    return rules("cuda/src/isokern_cuda/emulator")


def rules(folder: str) -> str:
    """Return the table of the rules in the check_rules.h of a folder of a plug-in."""
    text = (ROOT / "plugins" / folder / "check_rules.h").read_text(encoding="utf-8")
    found = re.findall(r'Rule \w+\{\s*"([\w-]+)", Severity::(\w+),\s*"(.*?)( \[[\w ]+\])?",\s*"(.*?)"\s*\}', text, re.S)
    if len(found) != text.count("inline constexpr Rule "):
        raise LookupError(f"check_rules.h of {folder} has rules that are not read")
    return table(
        ["rule", "", "what holds", "remedy"], [[f"`{i}`", kind, rule, remedy] for i, kind, rule, _, remedy in found]
    )


def source_documents() -> str:
    """Return the page of the source documents' statements: counts, and a table for each document."""
    with SOURCE_DOCUMENTS.with_suffix(".tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    verdicts = ("true", "different", "open")
    counts = Counter((row["document"], row["verdict"].partition(":")[0]) for row in rows)
    documents = list(dict.fromkeys(row["document"] for row in rows))
    summary = [[d, *(str(counts[d, v]) for v in verdicts)] for d in documents]
    total = {v: sum(counts[d, v] for d in documents) for v in verdicts}
    parts = [
        "# The source documents",
        "<!-- Made by `python docs/generate.py source_documents` from source_documents.tsv; edit that. -->",
        "Isokern began with five documents about parts of other systems: the core abstractions of a framework for"
        " language models; layers that emit an IR, and its execution; the lowering of operators to primitives; rules"
        " of a CUDA backend; and a Kunlun operator that rearranges tensors. Each statement of theirs about what a"
        " system is or does has a row here.",
        "*true*: it is so here. *different*: it is not so on purpose, with the reason. *open*: it is not there yet. A"
        " proof is a test, a command, or an expression that is `True`, with the names that `tools/source_documents.py`"
        " gives it. `python tools/source_documents.py` goes through all of them, and so does a test.",
        f"{len(rows)} statements: " + ", ".join(f"{n} {v}" for v, n in total.items()) + ".",
        table(["document", *verdicts], summary),
    ]
    for document in documents:
        own = [
            [row["statement"], row["verdict"], row["here"], f"`{row['proof']}`" if row["proof"] else "-"]
            for row in rows
            if row["document"] == document
        ]
        parts += [f"## {document[0].upper()}{document[1:]}", table(["statement", "verdict", "here", "proof"], own)]
    return "\n\n".join(parts)


PARTS: dict[str, Callable[..., str]] = {
    f.__name__: f
    for f in (
        page,
        section,
        code,
        definition,
        operators,
        errors,
        settings,
        header,
        c_operators,
        matrix,
        xpu_rules,
        cuda_rules,
        source_documents,
    )
}


def draw(markdown: str) -> str:
    """Replace each Mermaid block by its SVG, so that a reader's browser fetches and runs nothing."""
    import mermaidx

    def svg(match: re.Match[str]) -> str:
        drawn = mermaidx.render(match.group(1), theme="neutral").svg()
        return f'<div class="drawing">{drawn.replace("my-svg", f"picture-{match.start()}")}</div>'

    return re.sub(r"^```mermaid\n(.*?)^```$", svg, markdown, flags=re.S | re.M)


def fill(markdown: str) -> str:
    """Return a page with its generated parts and its pictures."""

    def generate(match: re.Match[str]) -> str:
        name, *words = match.group(1).split()
        return PARTS[name](*words)

    return draw(re.sub(r"^<!-- generated: (.*?) -->$", generate, markdown, flags=re.M))


def site(folder: str) -> None:
    """Write the sources of the site into a folder, which is emptied first."""
    import yaml

    pages = Path(folder) / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "assets", pages / "assets")
    for path in sorted((ROOT / "docs").glob("*.md")):
        (pages / path.name).write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    config |= {"docs_dir": "pages", "site_dir": "html"}
    (Path(folder) / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "site":
        site(*words)
    else:
        text = PARTS[command](*words)
        kept = SOURCE_DOCUMENTS if command == "source_documents" else REPORTS / "matrix.md"
        os.makedirs(kept.parent, exist_ok=True)
        kept.write_text(text + "\n", encoding="utf-8")
        print(text)
