"""A small network for images 32 pixels wide, with a layer of its own.

The command line accepts this file in place of a model's name:

isokern graph summary examples/graph/convnet.py
isokern graph explain examples/graph/convnet.py --time --check
isokern graph view examples/graph/convnet.py -o convnet.html
"""

from __future__ import annotations

from isokern.graph import Context, Model, Value
from isokern.graph.layers import (
    AdaptiveAvgPool2d,
    BatchNorm,
    Conv2d,
    Flatten,
    Layer,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Softmax,
)


class SqueezeExcite(Layer):
    """Each channel times a weight that is computed from the means of all channels.

    See Hu et al., Squeeze-and-Excitation Networks, 2018.
    """

    def __init__(self, reduction: int = 4) -> None:
        self.reduction = reduction

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a tensor of the shape of x [n, c, h, w]."""
        # `ctx` gives a layer what it needs: checked dims, nested layers, operators, parameters. Errors name the layer.
        (x,) = ctx.expect(inputs, 1)
        channels = ctx.dim(x, 1, rank=4)
        means = ctx.add(AdaptiveAvgPool2d(1), x, name="squeeze")
        inner = Sequential(Conv2d(max(1, channels // self.reduction), 1), ReLU(), Conv2d(channels, 1))
        weights = ctx.emit("sigmoid", [ctx.add(inner, means, name="excite")])
        gain = ctx.parameter("gain", (channels, 1, 1), x.spec.dtype, scale=0, shift=1)
        return ctx.emit("mul", [ctx.emit("mul", [x, weights]), gain])  # both broadcast


def block(channels: int) -> Sequential:
    """Return a convolution, followed by another one with a shortcut."""
    once = Sequential(Conv2d(channels, 3, padding=1, bias=False), BatchNorm(), ReLU())
    again = Sequential(Conv2d(channels, 3, padding=1, bias=False), BatchNorm(), SqueezeExcite())
    return Sequential(once, Residual(again), ReLU())


def model(batch: int = 1) -> Model:
    """Return the model: images F32 [batch, 3, 32, 32] → probabilities [batch, 10].

    Its parameters are random numbers from a seed until others are loaded.
    """
    m = Model("convnet")
    x = m.input("images", (batch, 3, 32, 32))
    x = m.add(MaxPool2d(2), m.add(block(16), x, name="block1"))
    x = m.add(MaxPool2d(2), m.add(block(32), x, name="block2"))
    x = m.add(Linear(10), m.add(Flatten(), m.add(AdaptiveAvgPool2d(1), x)), name="classify")
    m.output(m.add(Softmax(), x, name="probabilities"))
    m.initialise(seed=0)
    return m
