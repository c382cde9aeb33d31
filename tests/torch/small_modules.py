"""Small PyTorch modules for the tests, with random weights that are always the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Perceptron(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, 16), nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.last(torch.relu(self.first(x)))


class Convolutional(nn.Module):
    """Convolutions with norms, a depthwise one among them, pools and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = functional.hardswish(self.norm(self.stem(x)))
        y = functional.max_pool2d(y + self.depthwise(y), 2, ceil_mode=True)
        return self.head(functional.adaptive_avg_pool2d(y, 1).flatten(1))


class Block(nn.Module):
    """A block of a transformer, written by hand."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        heads = self.qkv(self.before(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(functional.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    """A small language model: tokens in, scores out."""

    def __init__(self, tokens: int = 40, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(tokens, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Recurrent(nn.Module):
    """Recurrent layers in both directions."""

    def __init__(self, kind: type[Any] = nn.LSTM, batch_first: bool = True, **more: Any) -> None:
        super().__init__()
        self.layers = kind(6, 7, 2, bidirectional=True, batch_first=batch_first, **more)

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def make(kind: Any, *args: Any, **named: Any) -> Any:
    """Return a module for inference, with weights that are always the same."""
    torch.manual_seed(0)
    made = kind(*args, **named).eval()
    for name, buffer in made.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 1.5)
    return made


def difference(found: Any, wanted: Any) -> float:
    """Return the largest difference of two results, in parts of the scale; shapes and dtypes have to be equal."""
    ours, theirs = (torch.utils._pytree.tree_leaves(x) for x in (found, wanted))
    assert len(ours) == len(theirs)
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.numel() and b.is_floating_point():
            assert torch.isfinite(b).all()
            error = (a.double() - b.double()).abs().max() / max(float(b.abs().max()), 1e-6)
            worst = max(worst, float(error))
        else:
            assert torch.equal(a, b)
    return worst
