"""Models that these tests add to those that come with Isokern."""

from isokern.graph import Model
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
from isokern.graph.zoo import digits, mlp, resnet18


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
