"""Models that come with Isokern, as in `isokern graph explain resnet18`.

Their parameters are drawn from a seed, except those of the digits network, which are trained.
"""

from __future__ import annotations

from collections.abc import Callable

from ..graph.layers import (
    GELU,
    AdaptiveAvgPool2d,
    BatchNorm,
    Conv2d,
    Embedding,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    RMSNorm,
    RotaryAttention,
    Sequential,
    Softmax,
    SwiGLU,
)
from ..graph.model import Model


def mlp(batch: int = 1) -> Model:
    """Return a model of three linear layers: x F32 [batch, 20] → [batch, 10]."""
    m = Model("mlp")
    x = m.input("x", (batch, 20))
    m.output(m.add(Sequential(Linear(64), ReLU(), Linear(64), GELU(), Linear(10), Softmax()), x, name="net"))
    m.initialise()
    return m


def digits(batch: int = 1) -> Model:
    """Return the trained network of `isokern demo`: images F32 [batch, 1, 8, 8] → logits [batch, 10]."""
    from .digits import load_weights

    m = Model("digits")
    x = m.input("images", (batch, 1, 8, 8))
    x = m.add(Conv2d(16, 3, padding=1), x, name="conv1")
    x = m.add(MaxPool2d(2), m.add(ReLU(), x))
    x = m.add(Conv2d(32, 3, padding=1), x, name="conv2")
    x = m.add(AdaptiveAvgPool2d(2), m.add(ReLU(), x))
    m.output(m.add(Linear(10), m.add(Flatten(), x), name="linear"))
    m.set({name: array for name, array in load_weights().items() if name != "accuracy"})
    return m


def _block(channels: int, stride: int) -> Sequential:
    inner = Sequential(
        Conv2d(channels, 3, stride=stride, padding=1, bias=False),
        BatchNorm(),
        ReLU(),
        Conv2d(channels, 3, padding=1, bias=False),
        BatchNorm(),
    )
    shortcut = Sequential(Conv2d(channels, 1, stride=stride, bias=False), BatchNorm()) if stride > 1 else None
    return Sequential(Residual(inner, shortcut), ReLU())


def resnet18(batch: int = 1, size: int = 224, width: int = 64, classes: int = 1000) -> Model:
    """Return ResNet-18: images F32 [batch, 3, size, size] → [batch, classes].

    Source: He et al., Deep Residual Learning for Image Recognition (2015).
    """
    m = Model("resnet18")
    x = m.input("images", (batch, 3, size, size))
    x = m.add(Sequential(Conv2d(width, 7, stride=2, padding=3, bias=False), BatchNorm(), ReLU()), x, name="stem")
    x = m.add(MaxPool2d(3, 2, 1), x, name="pool")
    for stage in range(4):
        for n in range(2):
            x = m.add(_block(width << stage, 2 if stage and not n else 1), x, name=f"stage{stage + 1}.{n}")
    m.output(m.add(Linear(classes), m.add(Flatten(), m.add(AdaptiveAvgPool2d(1), x)), name="fc"))
    m.initialise()
    return m


def llama(
    batch: int = 1,
    length: int = 16,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    tokens: int = 128,
) -> Model:
    """Return a model as in Touvron et al., LLaMA (2023), with grouped queries.

    It maps tokens I64 [batch, length] to logits [batch, length, tokens].
    """
    m = Model("llama")
    x = m.add(Embedding(tokens, width), m.input("tokens", (batch, length), "I64"), name="embedding")
    for n in range(layers):
        attention = Residual(Sequential(RMSNorm(), RotaryAttention(heads, kv_heads)))
        feed_forward = Residual(Sequential(RMSNorm(), SwiGLU(width * 8 // 3)))
        x = m.add(Sequential(attention, feed_forward), x, name=f"block{n}")
    m.output(m.add(Linear(tokens, bias=False), m.add(RMSNorm(), x, name="norm"), name="output"))
    m.initialise()
    return m


MODELS: dict[str, Callable[[], Model]] = {f.__name__: f for f in (digits, llama, mlp, resnet18)}
