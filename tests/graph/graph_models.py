"""Models that only these tests use, feeds for them, and a function that runs the command line."""

import numpy as np
import pytest

from isokern.cli import main
from isokern.demo.zoo import digits, mlp, resnet18
from isokern.graph import Model, parse
from isokern.graph.layers import (
    Add,
    AvgPool2d,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    Residual,
    RMSNorm,
    Sequential,
    SiLU,
    SwiGLU,
)
from isokern.passes import run
from isokern.rewriting.rewriter import State


def text(batch=2):
    m = Model("text")
    ids = m.input("ids", (batch, 5), "I64")
    x = m.add(Embedding(11, 16), ids)
    x = m.add(Residual(Sequential(RMSNorm(), SwiGLU(24))), x, name="ffn")
    x = m.add(Add(), m.add(SiLU(), x), m.add(LayerNorm(), x))
    m.output(x, m.add(Linear(11, bias=False), x, name="head"))
    return m


def pooled(batch=2):
    m = Model("pooled")
    x = m.input("x", (batch, 3, 9, 9), "F16")
    m.output(m.add(Flatten(), m.add(AvgPool2d(3, 2, 1, count_include_pad=True), x)))
    return m


MODELS = (lambda: mlp(3), lambda: digits(2), text, pooled, lambda: resnet18(1, 32, 8, 10))


def feeds_of(graph, seed=0):
    random_ = np.random.default_rng(seed)
    return {
        v.name: random_.integers(0, 11, v.spec.shape)
        if v.spec.dtype.kind == "i"
        else random_.standard_normal(v.spec.shape)
        for v in graph.inputs
    }


def command(capsys, *words):
    """Return (status, stdout, stderr) of `isokern graph …`."""
    with pytest.raises(SystemExit) as end:
        main(["graph", *map(str, words)])
    shown = capsys.readouterr()
    return end.value.code, shown.out, shown.err


def lines(text):
    """Return the stripped lines of a graph's text, for comparing."""
    return [line.strip() for line in text.strip().splitlines()]


def after(text, name, parameters=None):
    """Return the state after passes over a graph given as text."""
    return run(State(parse(text), parameters or {}), name)
