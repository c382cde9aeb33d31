"""Test hints: an operator's wishes for dispatch, carried from `emit` to the descriptor."""

from contextlib import closing

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument, TensorDesc
from isokern.backend.dispatch import consider
from isokern.graph import Builder, parse
from isokern.graph.resize import resize
from isokern.ops import find
from isokern.passes import DEFAULT, run
from isokern.rewriting.rewriter import State
from isokern.runtime import compile

SHAPE = (4, 33)


def graph_with(wish):
    """Return a graph of softmax(x) with a hint for a variant."""
    builder = Builder("hinted")
    x = builder.input("x", SHAPE)
    builder.output(*builder.emit("softmax", [x], name="soft", hints={"variant": wish}))
    return builder.graph


def taking(device):
    """Return the variants that support the graph's softmax, the device's own choice first."""
    desc = TensorDesc("F32", SHAPE)
    resolved = find("softmax").resolve([desc], [desc])
    names = [v.name for v in sorted(device.variants("softmax"), key=lambda v: -v.priority)]
    return [n for n in names if consider(device, resolved, n)[1] is not None]


@pytest.fixture
def device(devices):
    """Return a device with at least two variants that support it."""
    found = next((d for d in devices if len(taking(d)) > 1), None)
    if found is None:
        pytest.skip("no device has two variants of softmax that take a call")
    return found


def test_a_hint_is_followed(device):
    feeds = {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}
    own, *others = taking(device)
    for wish in (own, *others):
        with closing(compile(graph_with(wish), device)) as program:
            (descriptor,) = program.descriptors.values()
            assert descriptor.variant == wish
            (line,) = program.explain()
            assert line.variant == wish
            np.testing.assert_allclose(program.run(feeds).sum(-1), 1, rtol=1e-5)
    with closing(compile(parse(graph_with(own).dump().replace(f' hint {{variant = "{own}"}}', "")), device)) as program:
        assert [d.variant for d in program.descriptors.values()] == [own]


def test_a_hint_that_a_device_cannot_follow_is_told(device):
    desc = TensorDesc("F32", SHAPE)
    made = isokern.create("softmax", [desc], device=device, hints={"variant": "of another device"})
    assert made.variant == taking(device)[0]
    (told,) = [c for c in made.considered if c.variant == "of another device"]
    assert not told.chosen and told.reason == f"a hint names it, and {device.name} does not have this variant"
    with closing(compile(graph_with("of another device"), device)) as program:
        assert [d.variant for d in program.descriptors.values()] == [made.variant]


def test_a_hint_is_no_order(device_group):
    """A hint for a variant that declines is ignored, whereas `variant=` raises an error."""
    descs = [TensorDesc("F32", (8, 8))] * 2
    declined = 0
    for device in device_group:
        own = isokern.create("gemm", descs, device=device)
        for candidate in own.considered:
            if consider(device, find("gemm").resolve(descs, own.outputs), candidate.variant)[1] is None:
                declined += 1
                assert (
                    isokern.create("gemm", descs, device=device, hints={"variant": candidate.variant}).variant
                    == own.variant
                )
                with pytest.raises(isokern.NotImplementedOnDevice):
                    isokern.create("gemm", descs, device=device, variant=candidate.variant)
    if not declined:
        pytest.skip("every variant of gemm takes F32 here")


def test_text_copies_and_passes_keep_hints():
    graph = graph_with("portable")
    text = graph.dump()
    assert '%1 = softmax(%0) hint {variant = "portable"} "soft": F32[4, 33]' in text
    for made in (parse(text), graph.copy(), resize(graph, {"x": (9, 33)}), run(State(graph, {}), DEFAULT).graph):
        assert [op.hints for op in made.ops] == [{"variant": "portable"}]


@pytest.mark.parametrize("hints", [{"priority": "3"}, {"variant": 3}, {"variant": ""}, ["variant"], "variant", None])
def test_what_is_no_hint_is_refused(hints):
    builder = Builder("wrong")
    x = builder.input("x", SHAPE)
    with pytest.raises(InvalidArgument, match=r"softmax: hint.*allowed: .*variant: the name of a kernel variant"):
        builder.emit("softmax", [x], hints=hints)
    with pytest.raises(InvalidArgument, match=r"softmax: hint"):
        isokern.create("softmax", [TensorDesc("F32", SHAPE)], hints=hints)
    assert builder.graph.ops == []


def test_text_with_a_wrong_hint_names_the_line():
    text = graph_with("portable").dump().replace("variant =", "speed =")
    with pytest.raises(InvalidArgument, match=r"graph text, line 3: .*hint 'speed'"):
        parse(text)
