"""Test the site as it is built, and the HTML report: links, and what a real browser shows at two widths.

The browser is a Chromium of this machine, driven by Playwright; where one of them is missing the tests are skipped.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import posixpath
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import generate
import pytest

from isokern.conformance.derive import operator_cases
from isokern.conformance.report_files import write_report
from isokern.conformance.suite import Report
from isokern.ops import all_operators
from isokern.oracle.verdicts import Outcome, Verdict

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (1280, 390)
ELSEWHERE = re.compile(r"^[a-z]+:|^//")

pytestmark = pytest.mark.full  # builds the site, and opens its pages


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {"", "__skip"}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value:
                is_page = tag == "a" or (tag == "link" and ("rel", "canonical") in attributes)
                (self.links if is_page else self.loaded).append(value)


def find_broken_links(folder: Path) -> list[str]:
    """Return the links between the pages of a folder that lead nowhere, and what a page loads from elsewhere."""
    pages = {
        p.relative_to(folder).as_posix(): Page(p.read_text(encoding="utf-8")) for p in sorted(folder.rglob("*.html"))
    }
    broken = []
    for name, page in pages.items():
        if name == "404.html":  # shown at any address, so its links begin at the site's root
            continue
        broken += [f"{name} loads {url}" for url in page.loaded if ELSEWHERE.match(url) and not url.startswith("data:")]
        here = [url for url in page.links + page.loaded if not ELSEWHERE.match(url)]
        for url in here:
            target, anchor = urldefrag(unquote(urlparse(url)._replace(query="").geturl()))
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else name
            path = path + "/index.html" if (folder / path).is_dir() else path
            if not (folder / path).exists():
                broken.append(f"{name}: {url}")
            elif path in pages and anchor not in pages[path].anchors:
                broken.append(f"{name}: {url} has no such anchor")
    return broken


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="x"></h1><a href="b.html#y"></a><a href="#x"></a><a href="c.html"></a>')
    (tmp_path / "b.html").write_text('<a href="a.html#x"></a><script src="https://cdn.example/x.js"></script>')
    assert find_broken_links(tmp_path) == [
        "a.html: b.html#y has no such anchor",
        "a.html: c.html",
        "b.html loads https://cdn.example/x.js",
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Return the folder of the built site."""
    for module in ("zensical", "mermaidx", "mkdocstrings_handlers"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    folder = tmp_path_factory.mktemp("site")
    generate.site(str(folder))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def make_report(path: Path) -> None:
    """Write a report with everything in it: failures, refusals, errors of every size, the runtime, and times."""
    report = Report("mine:0")
    kinds = [Verdict.PASS, Verdict.PASS, Verdict.PASS, Verdict.FAIL_VALUE, Verdict.UNSUPPORTED]
    for n, op in enumerate(all_operators()):
        for k, case in enumerate([c for c in operator_cases(op) if c.quick]):
            verdict = kinds[(n + k) % len(kinds)] if n % 3 == 0 else Verdict.PASS
            detail = "" if verdict is Verdict.PASS else "y: 3 of 15 wrong, first at [0, 2]: 0.25 instead of 0.649"
            trace = "Traceback (most recent call last):\n  a very long line " + "x" * 300 if k == 3 else ""
            report.add(case, Outcome(case.id, "mine:0", verdict, detail, 0.1, 0.2, trace, float(k % 7)))
    times = [{"op": "gemm", "device": "mine:0", "dtype": "F32", "case": "a=256x256,b=256x256", "time_us": 165.8}]
    times[0] |= {"rate": 202.3, "rate_unit": "GFLOP/s", "share_of_limit": 0.9, "peers": {"numpy": 399.0}}
    write_report(str(path), [report], times)


@pytest.fixture(scope="module")
def browser():
    """Return a browser without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser is installed: {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def served(request):
    """Return a function that serves a folder, and returns its address."""
    servers = []

    def serve(folder: Path) -> str:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def open_tab(browser):
    """Return a function that opens a tab and notes what goes wrong in it."""
    contexts = []

    def make(width: int, scheme: str = "light", home: str = ""):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        tab, wrong = context.new_page(), []

        def note_request(request) -> None:
            if not request.url.startswith((home or "file:", "data:", "blob:")):
                wrong.append(f"asks elsewhere: {request.url}")

        tab.on("request", note_request)
        tab.on("console", lambda m: m.type in ("error", "warning") and wrong.append(f"{m.type}: {m.text}"))
        tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        tab.on("response", lambda r: r.status >= 400 and wrong.append(f"{r.status}: {r.url}"))
        return tab, wrong

    yield make
    for context in contexts:
        context.close()


def scrolls(tab) -> bool:
    """Return whether a page is wider than the window."""
    return tab.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def brightness(tab, selector: str, of: str) -> float:
    """Return the brightness of a colour of an element, from 0 to 1; one that is transparent is the page's."""
    script = f"getComputedStyle(document.querySelector({json.dumps(selector)})).{of}"
    numbers = [float(n) for n in re.findall(r"[\d.]+", tab.evaluate(script))]
    return sum(numbers[:3]) / 3 / 255


def test_every_link_leads_somewhere(site):
    assert len(list(site.glob("operators/*.html"))) == len(all_operators())
    assert find_broken_links(site) == []


def test_every_page_fits_and_asks_nothing_elsewhere(site, served, open_tab):
    home = served(site)
    tab, wrong = open_tab(WIDTHS[0], home=home)
    pages = sorted(p.relative_to(site).as_posix() for p in site.rglob("*.html"))
    assert len(pages) > 150
    wide = []
    for page in pages:
        tab.goto(home + page, wait_until="load")
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 800})
            wide += [f"{page} at {width} px"] * scrolls(tab)
    assert (wide, wrong) == ([], [])


def test_navigation_is_one_row(site, served, open_tab):
    home = served(site)
    tab, _ = open_tab(1280, home=home)
    tab.goto(home + "index.html")
    items = tab.locator(".md-tabs__item")
    boxes = [items.nth(i).bounding_box() for i in range(items.count())]
    assert len(boxes) >= 6 and len({box["y"] for box in boxes}) == 1
    assert boxes[-1]["x"] + boxes[-1]["width"] <= 1280  # the row does not scroll either


@pytest.mark.parametrize("width", WIDTHS)
def test_search_finds_an_operator(site, served, open_tab, width):
    home = served(site)
    tab, wrong = open_tab(width, home=home)
    tab.goto(home + "index.html")
    tab.keyboard.press("/")
    tab.keyboard.type("softmax", delay=20)
    tab.get_by_text("results").wait_for(state="visible", timeout=10_000)
    tab.keyboard.press("Enter")  # opens the first
    tab.wait_for_url("**/operators/softmax.html*")
    assert tab.locator("h1").inner_text().startswith("softmax")
    assert wrong == []


@pytest.mark.parametrize("page", ["index.html", "operators/softmax.html", "api/isokern.html"])
def test_light_and_dark(site, served, open_tab, page):
    home = served(site)
    for scheme in ("light", "dark"):
        tab, wrong = open_tab(1280, scheme, home)
        tab.goto(home + page)
        ground, text = brightness(tab, "body", "backgroundColor"), brightness(tab, "p", "color")
        assert (ground > 0.85 and text < 0.4) if scheme == "light" else (ground < 0.15 and text > 0.6), (scheme, page)
        assert wrong == []


def test_the_reader_can_choose_dark(site, served, open_tab):
    home = served(site)
    tab, _ = open_tab(1280, "light", home)
    tab.goto(home + "index.html")
    for _ in range(2):  # follow the system, light, dark
        tab.locator("form[data-md-component=palette] label:visible").click()
    assert brightness(tab, "body", "backgroundColor") < 0.15
    tab.goto(home + "glossary.html")
    assert brightness(tab, "body", "backgroundColor") < 0.15


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report(open_tab, tmp_path, width, scheme):
    make_report(tmp_path / "report.html")
    tab, wrong = open_tab(width, scheme)
    tab.goto((tmp_path / "report.html").as_uri())
    assert not scrolls(tab)
    rows = tab.locator(".matrix > details")
    assert rows.count() == len(all_operators())
    row = rows.filter(has_text="gemm").first
    row.locator("> summary").click()
    panel = row.locator("> .panel")
    assert panel.is_visible() and panel.bounding_box()["width"] <= width
    failing = tab.locator(".matrix > details.notable:has(.failed)").first
    failing.locator("> summary").click()
    assert failing.locator("pre").first.is_visible()
    assert "isokern check --device mine:0 --case" in failing.locator("pre").first.inner_text()
    tab.locator("#only").check()
    assert rows.locator("visible=true").count() > 0
    assert tab.locator(".matrix > details:visible").count() == tab.locator(".matrix > details.notable").count()
    for each in tab.locator(".matrix > details.notable > summary").all()[:10]:
        each.click()
    assert not scrolls(tab)
    ground, text = brightness(tab, ".row > :first-child", "backgroundColor"), brightness(tab, "body", "color")
    assert (ground > 0.85 and text < 0.4) if scheme == "light" else (ground < 0.15 and text > 0.6)
    assert wrong == []
