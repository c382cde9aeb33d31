"""Compare models that PyTorch exports with what PyTorch computes, for two sizes of the batch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")
pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn

from isokern.onnx import load

pytestmark = pytest.mark.full


class Recurrent(nn.Module):
    """Layers with states, and a resize."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(16, 5, batch_first=True)
        self.up = nn.Upsample(scale_factor=1.5, mode="linear")

    def forward(self, x):
        y, (h, _) = self.lstm(x)
        y, _ = self.gru(y)
        return self.up(y), h


class Attention(nn.Module):
    """Scaled products as exporters write them, a causal mask, and shapes that are computed."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + y.transpose(1, 2).reshape(batch, length, width)


class Images(nn.Module):
    """Convolutions of every kind, pools and norms."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.MaxPool2d(3, 2, 1, ceil_mode=True),
            nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
            nn.PReLU(4),
        )

    def forward(self, x):
        y = self.body(x)
        low = nn.functional.interpolate(y, scale_factor=0.5, mode="bilinear", align_corners=False)
        return torch.cat([nn.functional.adaptive_avg_pool2d(z, 1).flatten(1) for z in (y, low)], 1).softmax(-1)


@pytest.mark.parametrize(
    ("make", "dims"),
    [
        (Recurrent, (7, 6)),
        (Attention, (5, 16)),
        (Images, (3, 16, 20)),
    ],
    ids=["recurrent", "attention", "images"],
)
def test_an_exported_model_says_what_pytorch_says(cpu, tmp_path, make, dims):
    torch.manual_seed(0)
    module, path = make().eval(), tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, of its own age and of constants that it makes
        axes = {"x": {0: "batch"}}
        torch.onnx.export(
            module, (torch.randn(2, *dims),), path, input_names=["x"], dynamic_axes=axes, opset_version=17, dynamo=False
        )
    model = load(path, cpu)
    for batch in (2, 3):
        x = torch.randn(batch, *dims)
        with torch.no_grad():
            wanted = module(x)
        found = model.run(x.numpy())
        for y, z in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)), strict=True):
            np.testing.assert_allclose(y, z.numpy(), 1e-4, 1e-5)
