"""Write what `zensical build` makes the site from: `python docs/generate.py site FOLDER`.

That is the pages of docs with their generated parts, pages that are generated whole, and mkdocs.yml with those in its
navigation; the site is built in FOLDER/html. A line `<!-- generated: NAME words -->` in a page is replaced by the
result of the function of that name. `python docs/generate.py support BACKEND …` writes docs/support.json from the
reports of conformance, and `python docs/generate.py onnx_suite DEVICE …` docs/onnx_suite.json from a run of ONNX's
backend suite; both are committed (tools/regenerate.py has the list of such files).
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import accuracies
import contracts as backend_contracts
import onnx_suite as onnx_backend_suite
import onnx_versions as versions_of_onnx
import operator_pages
import support
from tables import read_rows, table

ROOT = Path(__file__).resolve().parents[1]
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


def page(name: str) -> str:
    """Return a page of the repository, its links changed to pages of the site, or into text if there is none."""

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
    """Return a table of operators for each family, with links to their pages."""
    return operator_pages.index()


def primitives() -> str:
    """Return a table of the operators that every backend should have."""
    return operator_pages.primitives()


def other_names() -> str:
    """Return a table for each other library of what its operators are called here."""
    return operator_pages.other_names()


def contracts() -> str:
    """Return the methods that a backend implements, with their contracts."""
    return backend_contracts.contracts()


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


def c_reach() -> str:
    """Return how many operators a host in C reaches on each device, and a table of those without a kernel."""
    rows = read_rows(ROOT / "docs" / "c_reach.tsv")
    devices = [name for name in rows[0] if name != "operator"]
    counts = [[d, *(str(sum(row[d] == way for row in rows)) for way in ("kernel", "parts", "-"))] for d in devices]
    lowered = [
        [f"[{row['operator']}](operators/{row['operator']}.md)", *(row[d] for d in devices)]
        for row in rows
        if any(row[d] != "kernel" for d in devices)
    ]
    head = table(["device", "by a kernel", "by its parts", "not from C"], counts)
    return "\n\n".join([head, table(["operator", *devices], lowered)])


def _header() -> tuple[str, str]:
    from isokern.cabi.header import header

    before, mark, after = header().partition("\n/* abs:")
    assert mark
    return before, mark + after


def matrix() -> str:
    """Return a row per backend with its verdict, and a row per operator with the dtypes that each device supports."""
    kept = support.read()
    runs = [
        [run["backend"], run["status"], run["cases"], support.say_part(run), run["when"], run["commit"][:7]]
        for run in kept["runs"]
    ]
    devices = support.devices(kept)
    body = [
        [f"[{name}](operators/{name}.md)", *(claims.get(d, "-") for d in devices)]
        for name, claims in kept["operators"].items()
    ]
    parts = [
        table(["backend", "conformance", "outcomes", "cases run", "when", "commit"], runs),
        table(["operator", *devices], body),
    ]
    return "\n\n".join(parts)


def onnx_suite() -> str:
    """Return a row for each device with what ONNX's backend suite says of it."""
    return onnx_backend_suite.tabulate()


def onnx_versions() -> str:
    """Return how each version of each operator of ONNX is read."""
    return versions_of_onnx.tabulate()


def accuracy() -> str:
    """Return the table of the operators' largest errors."""
    return accuracies.tabulate_all()


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


# The pages of the API reference, and the modules on each, which mkdocstrings describes from their docstrings
API = {
    "isokern": ["isokern"],
    "isokern.status": ["isokern.status"],
    "isokern.array_api": ["isokern.array_api", "isokern.array_api.linalg"],
    "isokern.backend": ["isokern.backend", "isokern.backend.native"],
    "isokern.simt": ["isokern.simt"],
    "isokern.declare": ["isokern.declare", "isokern.declare.attributes", "isokern.declare.normal_form"],
    "isokern.graph": ["isokern.graph", "isokern.graph.layers"],
    "isokern.passes": ["isokern.passes"],
    "isokern.runtime": ["isokern.runtime"],
    "isokern.llm": ["isokern.llm"],
    "isokern.conformance": ["isokern.conformance.suite", "isokern.conformance.report_files"],
}


PARTS: dict[str, Callable[..., str]] = {
    f.__name__: f
    for f in (
        page,
        section,
        code,
        definition,
        operators,
        primitives,
        other_names,
        contracts,
        errors,
        settings,
        header,
        c_operators,
        c_reach,
        matrix,
        onnx_suite,
        onnx_versions,
        accuracy,
        xpu_rules,
        cuda_rules,
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
    _write_report(pages / "assets" / "report.html")
    (pages / "operators").mkdir()
    for name, text in operator_pages.pages().items():
        (pages / "operators" / f"{name}.md").write_text(text, encoding="utf-8")
    (pages / "api").mkdir()
    for name, modules in API.items():
        parts = [f"# {name}", *(part for module in modules for part in _describe_module(module, modules))]
        (pages / "api" / f"{name}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    config |= {"docs_dir": "pages", "site_dir": "html"}
    families = operator_pages.families().items()
    made = {
        "Operators": [{family.capitalize(): [f"operators/{op.name}.md" for op in ops]} for family, ops in families],
        "API reference": [f"api/{name}.md" for name in API],
    }
    for entry in config["nav"]:
        if isinstance(entry, dict):
            for title, more in made.items():
                if title in entry:
                    entry[title] = [*entry[title], *more]
    python = next(p["mkdocstrings"] for p in config["plugins"] if "mkdocstrings" in p)["handlers"]["python"]
    python["paths"] = [str(ROOT / "core" / "src")]
    (Path(folder) / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def _write_report(path: Path) -> None:
    """Write the report of a few operators and of streams, on the CPU."""
    patterns = ("add/F32/*", "gather/F32-I64/*", "softmax/*", "runtime/streams/*")
    chosen = [word for pattern in patterns for word in ("--case", pattern)]
    command = [sys.executable, "-m", "isokern", "check", "--device", "cpu:0", *chosen]
    done = subprocess.run([*command, "--report", str(path)], capture_output=True, text=True, check=False)
    if not path.exists():
        raise SystemExit(f"no report of cpu:0 was written: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _describe_module(module: str, beside: Sequence[str]) -> list[str]:
    """Return the part of a page that mkdocstrings fills; a heading if the page has several modules."""
    if len(beside) == 1:
        return [f"::: {module}"]
    return [f"## {module}", f"::: {module}\n    options:\n      heading_level: 3"]


def main(arguments: Sequence[str]) -> None:
    """Run one of the commands."""
    match arguments:
        case ["site", folder]:
            site(folder)
        case ["support", *backends]:
            support.write(backends)
        case ["onnx_suite", *devices]:
            onnx_backend_suite.write(devices)
        case ["onnx_versions", device]:
            versions_of_onnx.write(device)
        case _:
            raise SystemExit(
                "give one of these: site FOLDER, support BACKEND …, onnx_suite DEVICE …, onnx_versions DEVICE"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
