"""Handwritten digits: the data, the fixed split, the trained weights and the float64 oracle.

The network, NCHW throughout (n images, every convolution 3x3 with stride 1 and padding 1):

    images                       [n,  1, 8, 8]
    conv2d, relu                 [n, 16, 8, 8]   conv1.weight [16, 1, 3, 3], conv1.bias [16]
    max_pool2d 2x2, stride 2     [n, 16, 4, 4]
    conv2d, relu                 [n, 32, 4, 4]   conv2.weight [32, 16, 3, 3], conv2.bias [32]
    adaptive_avg_pool2d (2, 2)   [n, 32, 2, 2]
    flatten                      [n, 128]
    linear                       [n, 10]         linear.weight [10, 128], linear.bias [10]

Where the data and the weights come from is written in data/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

_COUNT = 1797
_TRAIN_COUNT = 1347
_SPLIT_SEED = 1998  # the year the data were published; never chosen for its accuracy

_Float64 = npt.NDArray[np.float64]


def _load(name: str) -> dict[str, npt.NDArray[Any]]:
    with (files(__package__) / "data" / name).open("rb") as file, np.load(file) as arrays:
        return {key: arrays[key] for key in arrays.files}


def load_digits() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return (images, labels): float32 [1797, 1, 8, 8] in 0..1 and int64 [1797] in 0..9.

    A pixel is the count 0..16 of inked points in a 4x4 block, divided by 16 (exact in float32).

    >>> images, labels = load_digits()
    >>> images.shape, labels[:10].tolist()
    ((1797, 1, 8, 8), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    arrays = _load("digits.npz")
    images = arrays["images"].astype(np.float32)[:, np.newaxis] / np.float32(16)
    return images, arrays["labels"].astype(np.int64)


def split() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (train indices, held-out indices) into `load_digits()`: int64 [1347] and [450].

    A seeded permutation of 0..1796, cut after 1,347. The stored accuracy holds for these indices alone, and NumPy may
    change a Generator's stream between releases (NEP 19): a test pins them.

    >>> train, heldout = split()
    >>> len(train), len(heldout), len(set(train) | set(heldout))
    (1347, 450, 1797)
    """
    order = np.random.Generator(np.random.PCG64(_SPLIT_SEED)).permutation(_COUNT).astype(np.int64)
    return order[:_TRAIN_COUNT], order[_TRAIN_COUNT:]


def load_weights() -> dict[str, npt.NDArray[Any]]:
    """Return the trained arrays by name: float32, shapes as in the module's table.

    One more entry, `accuracy` (float64, rank 0), is the share of the held-out images that `reference_logits` classifies
    correctly with these weights, as the training run measured it.

    >>> load_weights()["conv2.weight"].shape
    (32, 16, 3, 3)
    """
    return _load("digits_weights.npz")


def reference_logits(images: npt.ArrayLike, weights: Mapping[str, npt.NDArray[Any]] | None = None) -> _Float64:
    """Return the network's logits, float64 [n, 10], for images [n, 1, 8, 8]: the demo's oracle.

    Every step is computed in float64 by its formula. Without `weights`, those of `load_weights()`. Raises ValueError
    for images of another shape.

    >>> images, labels = load_digits()
    >>> reference_logits(images[:3]).argmax(axis=1).tolist()
    [0, 1, 2]
    """
    x = np.asarray(images, dtype=np.float64)
    if x.shape[1:] != (1, 8, 8):
        shape = list(x.shape)
        raise ValueError(f"reference_logits: images has shape {shape}; give it as [n, 1, 8, 8]")
    w = {
        name: np.asarray(array, dtype=np.float64)
        for name, array in (load_weights() if weights is None else weights).items()
    }
    x = np.maximum(_conv2d(x, w["conv1.weight"], w["conv1.bias"]), 0.0)
    x = _max_pool2d(x)
    x = np.maximum(_conv2d(x, w["conv2.weight"], w["conv2.bias"]), 0.0)
    x = _adaptive_avg_pool2d(x, (2, 2)).reshape(len(x), -1)
    logits: _Float64 = x @ w["linear.weight"].T + w["linear.bias"]
    return logits


def _conv2d(x: _Float64, weight: _Float64, bias: _Float64) -> _Float64:
    # y[n, o, i, j] = bias[o] + sum over c, u, v of weight[o, c, u, v] x[n, c, i + u - 1, j + v - 1]
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros((x.shape[0], weight.shape[0], height, width)) + bias[:, np.newaxis, np.newaxis]
    for u in range(3):
        for v in range(3):
            window = padded[:, :, u : u + height, v : v + width]
            y += np.einsum("ncij,oc->noij", window, weight[:, :, u, v])
    return y


def _max_pool2d(x: _Float64) -> _Float64:
    # y[n, c, i, j] = max over u, v in {0, 1} of x[n, c, 2 i + u, 2 j + v]
    n, c, height, width = x.shape
    y: _Float64 = x.reshape(n, c, height // 2, 2, width // 2, 2).max(axis=(3, 5))
    return y


def _adaptive_avg_pool2d(x: _Float64, size: tuple[int, int]) -> _Float64:
    # y[n, c, i, j] = mean of x[n, c, rows, columns], with rows i of m taken from an input of h rows from floor(i h / m)
    # up to, not including, ceil((i + 1) h / m); columns alike.
    n, c, height, width = x.shape
    y = np.empty((n, c, *size))
    for i in range(size[0]):
        rows = slice(i * height // size[0], -(-(i + 1) * height // size[0]))
        for j in range(size[1]):
            columns = slice(j * width // size[1], -(-(j + 1) * width // size[1]))
            y[:, :, i, j] = x[:, :, rows, columns].mean(axis=(2, 3))
    return y
