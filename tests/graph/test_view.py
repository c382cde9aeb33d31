"""Test pictures of graphs: well-formed, with every operator once.

Boxes do not overlap, edges go from box to box, names may have any characters, and unsuitable files are refused.
"""

import re
import sys
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from graph_models import MODELS, command
from hypothesis import given, settings
from random_graphs import graphs

import isokern
from isokern import InvalidArgument, NotImplementedOnDevice
from isokern.demo.zoo import digits, llama, mlp, resnet18
from isokern.graph import Builder, Model
from isokern.graph.ir import op_text
from isokern.graph.layers import Linear, ReLU, Sequential
from isokern.passes import DEFAULT
from isokern.rewriting.conversion import Target
from isokern.rewriting.rewriter import State
from isokern.view.drawing import list_stages, page, save, svg

pytest.importorskip(
    "fast_sugiyama", reason="fast-sugiyama is not installed: pip install 'isokern[view]', Python 3.11 or later"
)

SVG = "{http://www.w3.org/2000/svg}"
PIPELINES = (DEFAULT, "to_primitives,common_subexpressions,fuse_elementwise,dead_code")


def shown(given, passes=DEFAULT, target=None):
    graph, parameters = (given.graph, given.parameters) if isinstance(given, Model) else (given, {})
    return list_stages(State(graph, parameters, target), passes)


def numbers(points):
    return [float(n) for n in re.findall(r"-?[\d.]+", points)]


def drawn(root):
    """Return ({box: (role, title, left, top, right, bottom)}, [(from, to, title, end points of straight pieces)])."""
    boxes, edges = {}, []
    for group in root.iter(f"{SVG}g"):
        title = group.findtext(f"{SVG}title")
        if group.get("class") == "edge":
            curves = re.split("C", group.find(f"{SVG}path").get("d"))
            pieces = [numbers(c)[-4:] for c in curves]  # straight pieces, from where the preceding curve ends
            edges.append((group.get("data-from"), group.get("data-to"), title, pieces))
            continue
        rect = group.find(f"{SVG}rect")
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert group.get("data-name") not in boxes
        boxes[group.get("data-name")] = (group.get("class"), title, x, y, x + w, y + h)
    return boxes, edges


def judge(root, graph):
    """Assert that a picture shows this graph and is legible."""
    boxes, edges = drawn(root)
    operators = [title.splitlines()[0] for role, title, *_ in boxes.values() if role.startswith("op")]
    assert operators == [op_text(op) for op in graph.ops]
    assert sum(role == "input" for role, *_ in boxes.values()) == len(graph.inputs)
    assert sum(role == "result" for role, *_ in boxes.values()) == len(graph.outputs)
    for a, b in combinations(boxes.values(), 2):
        assert a[4] < b[2] or b[4] < a[2] or a[5] < b[3] or b[5] < a[3], (a, b)
    left, top, width, height = numbers(root.get("viewBox"))
    for _, _, *(x, y, to_x, to_y) in boxes.values():
        assert left < x < to_x < left + width and top < y < to_y < top + height
    wanted = set()
    for op in graph.ops:
        for v in op.given:
            if v.role != "parameter":
                wanted.add((f"v{v.producer.outputs[0].vid if v.producer else v.vid}", f"v{op.outputs[0].vid}", repr(v)))
            else:
                assert f"parameter {v!r}" in boxes[f"v{op.outputs[0].vid}"][1]
    for n, v in enumerate(graph.outputs):
        wanted.add((f"v{v.producer.outputs[0].vid if v.producer else v.vid}", f"r{n}", repr(v)))
    assert {e[:3] for e in edges} == wanted and len(edges) == len(wanted)
    for begin, end, _, pieces in edges:
        (x, y, _, _), (_, _, to_x, to_y) = pieces[0], pieces[-1]
        _, _, x0, _, x1, bottom = boxes[begin]
        assert x0 < x < x1 and abs(y - bottom) < 0.2
        _, _, x0, top, x1, _ = boxes[end]
        assert x0 < to_x < x1 and abs(to_y - top) < 0.2
        assert [p[1::2] for p in pieces] == sorted(p[1::2] for p in pieces) and len(pieces) > 1
        for x, y, to_x, to_y in pieces:
            assert x == to_x and y <= to_y
            for _, _, x0, top, x1, bottom in boxes.values():
                assert not (x0 < x < x1 and y < bottom - 0.2 and to_y > top + 0.2), "an edge over a box"
        for (*_, above), (_, below, _, _) in pairwise(pieces):
            assert all(bottom < above + 0.2 or top > below - 0.2 for _, _, _, top, _, bottom in boxes.values())


def judge_page(document, stages):
    root = ElementTree.fromstring(document.removeprefix("<!DOCTYPE html>"))
    pictures = list(root.iter(f"{SVG}svg"))
    for picture, step in zip(pictures, stages, strict=True):
        judge(picture, step.graph)
    assert not re.search(r"https?://(?!www\.w3\.org/)|<script|<link|url\(|@import|src=", document)
    return root


@pytest.mark.parametrize("model", [*MODELS, llama, resnet18], ids=lambda m: m().graph.name)
@pytest.mark.parametrize("passes", PIPELINES)
def test_every_model_pass_by_pass(model, passes):
    made = model()
    if not made.parameters:
        made.initialise()
    stages = shown(made, passes)
    assert (len(stages) > 1) == (passes != DEFAULT or made.graph.name != "pooled")
    judge_page(page(made.graph.name, stages), stages)


@settings(max_examples=40)
@given(graphs())
def test_random_graphs(drawn):
    for passes in PIPELINES:
        stages = shown(drawn.graph, passes)
        judge_page(page("random", stages), stages)


def test_what_a_pass_changes_is_highlighted():
    model = Model("small")
    x = model.input("x", (2, 4))
    model.output(model.add(Sequential(Linear(8), ReLU(), Linear(3)), x, name="net"))
    model.initialise()
    stages = shown(model)
    assert [s.title for s in stages] == ["as built", "fuse_epilogue"]
    (op,) = stages[1].changed
    assert (op.kind, stages[1].gone, stages[0].changed) == ("gemm", 2, frozenset())
    boxes, _ = drawn(ElementTree.fromstring(svg(stages[1])))
    assert [title.split(" = ")[1].split("(")[0] for role, title, *_ in boxes.values() if "changed" in role] == ["gemm"]
    root = judge_page(page("small", stages), stages)
    words = " ".join(root.itertext())
    assert "After fuse_epilogue: 2 operators, 1 made or changed, 2 gone." in words
    buttons = [e for e in root.iter() if e.get("type") == "radio"]
    assert [b.get("checked") for b in buttons] == ["checked", None]


def test_a_pass_that_only_numbers_values_anew_is_no_step():
    b = Builder("order")
    w = b.parameter("w", (3,))
    b.parameter("unread", (3,))
    (y,) = b.emit("add", [b.input("x", (3,)), w])
    b.output(y)
    assert len(shown(b.graph)) == 1


def test_folded_parameters_are_news():
    stages = shown(resnet18(1, 32, 8, 10), "fold_batch_norm")
    assert len(stages) == 2 and {op.kind for op in stages[1].changed} == {"conv2d"} and len(stages[1].changed) == 20


def test_a_target_has_a_step_of_its_own():
    target = Target.of_primitives()
    stages = shown(mlp(2), "", target)
    assert [s.title for s in stages] == ["as built", "for the device"]
    judge_page(page("mlp", stages), stages)
    with pytest.raises(NotImplementedOnDevice, match=r"generic of net\.1: no"):
        shown(mlp(2), "", Target(lambda op, *_: "no" if op.name in ("relu", "generic") else None))


def test_results_that_are_fed_and_parameters_that_nobody_reads():
    b = Builder("ends")
    x, w, unread = b.input("x", (2,)), b.parameter("w", (2,)), b.parameter("unread", ())
    unfed = b.input("unfed", (0, 3))
    (y,) = b.emit("add", [x, x], name="twice")
    b.output(x, w, y, y)
    root = ElementTree.fromstring(svg(shown(b.graph, "")[0]))
    judge(root, b.graph)
    boxes, edges = drawn(root)
    assert boxes[f"v{unread.vid}"][0] == boxes[f"v{w.vid}"][0] == "parameter" and boxes[f"v{unfed.vid}"][0] == "input"
    assert len([e for e in edges if e[1] == f"v{y.vid}"]) == 1


def test_an_empty_graph():
    judge(ElementTree.fromstring(svg(shown(Builder("nothing").graph)[0])), Builder("nothing").graph)


HARD = '<b>&amp; "quoted" \' ]]> \x00\x1b\ud800\ufffe größe 尺寸 🙂'


def test_names_are_only_names(tmp_path):
    b = Builder(HARD)
    x = b.input(HARD, (2,))
    b.output(*b.emit("relu", [x], name="</svg><script>alert(1)</script>"))
    stages = shown(b.graph)
    for file in ("hard.html", "hard.svg"):
        save(tmp_path / file, HARD, stages)
        written = (tmp_path / file).read_text(encoding="utf-8")
        words = " ".join(ElementTree.fromstring(written.partition("\n")[2]).itertext())
        assert "<script" not in written and "</svg><script>alert(1)</script>" in words
        assert '<b>&amp; "quot' in words and "größe 尺寸 🙂" in words
        assert file.endswith("svg") or '<b>&amp; "quoted" \' ]]> \ufffd\ufffd\ufffd\ufffd größe 尺寸 🙂' in words


def test_long_names_are_cut_and_whole_on_hover():
    b = Builder("long")
    name = "a" * 30 + "b" * 30
    b.output(*b.emit("relu", [b.input("x", (2,))], name=name))
    root = ElementTree.fromstring(svg(shown(b.graph)[0]))
    lines = [t.text for t in root.iter(f"{SVG}text")]
    (cut,) = [line for line in lines if line.startswith("aaa")]
    assert (len(cut), cut.count("…"), cut[-1]) == (36, 1, "b")
    assert any(name in t.text for t in root.iter(f"{SVG}title"))


def test_without_the_layout_library(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    with pytest.raises(InvalidArgument, match=r"fast-sugiyama.*not installed.*isokern\[view\]"):
        page("mlp", shown(mlp()))
    code, out, err = command(capsys, "view", "mlp")
    assert (code, out) == (2, "") and "isokern[view]" in err


def test_the_command(capsys, tmp_path):
    code, out, _ = command(capsys, "view", "mlp")
    assert code == 0 and out == page("mlp", shown(mlp()))
    assert command(capsys, "view", "mlp", "-o", tmp_path / "mlp.html") == (0, "", "")
    assert (tmp_path / "mlp.html").read_text(encoding="utf-8") == out
    assert command(capsys, "view", "digits", "--passes", "to_primitives", "-o", tmp_path / "d.SVG")[0] == 0
    last = shown(digits(), "to_primitives")[-1]
    judge(ElementTree.parse(tmp_path / "d.SVG").getroot(), last.graph)


def test_the_command_with_a_device(capsys, devices):
    name = devices[0].name
    code, out, _ = command(capsys, "view", "mlp", "--device", name)
    stages = shown(mlp(), DEFAULT, Target.of_device(isokern.device(name)))
    assert code == 0 and out == page(f"mlp on {name}", stages)


def test_the_command_with_a_file(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from isokern.graph import Model\nfrom isokern.graph.layers import Linear\n"
        "def model():\n    m = Model('mine')\n"
        "    m.output(m.add(Linear(3), m.input('x', (2, 4)), name='last'))\n    return m\n"
    )
    code, out, _ = command(capsys, "view", file)
    assert code == 0 and "last" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing"], "model 'nothing'"),
        (["mlp", "--passes", "canonicalize"], "no pass is called 'canonicalize'"),
        (["mlp", "--device", "cpu:99"], "cpu:99"),
        (["mlp", "-o", "mlp.png"], "ends in '.png'; allowed: .html or .svg"),
        (["mlp", "-o", "mlp"], "allowed: .html or .svg"),
        (["mlp", "-o", "nowhere/mlp.svg"], "nowhere/mlp.svg: No such file or directory"),
    ],
)
def test_what_is_refused(capsys, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(capsys, "view", *words)
    assert code and not out and told in err
    assert list(tmp_path.iterdir()) == []
