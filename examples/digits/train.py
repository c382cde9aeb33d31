"""Train the demo's digits network with NumPy alone, and write its weights as an npz file.

    python examples/digits/train.py --out core/src/isokern/demo/data/digits_weights.npz

The network and the split are those of `isokern.demo.digits`, which the demo uses too. The held-out part is used once,
after the last step: it chooses neither the epoch nor a setting. The settings below are those that three-fold
cross-validation inside the train part preferred.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from isokern.demo.digits import load_digits, reference_logits, split

SEED = 1
EPOCHS = 200
BATCH = 32
RATE = 5e-3  # Adam's initial learning rate; falls to 0 along half a cosine

Array = npt.NDArray[Any]
Weights = dict[str, Array]


def initial_weights(rng: np.random.Generator) -> Weights:
    """Return float32 weights: normal with variance 2 / fan-in (He et al., 2015), biases 0."""
    weights: Weights = {}
    for name, shape in (
        ("conv1", (16, 1, 3, 3)),
        ("conv2", (32, 16, 3, 3)),
        ("linear", (10, 128)),
    ):
        scale = np.sqrt(2.0 / np.prod(shape[1:]))
        weights[f"{name}.weight"] = (scale * rng.standard_normal(shape)).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(shape[0], dtype=np.float32)
    return weights


def im2col(x: Array) -> Array:
    """Return the zero-padded 3x3 neighbourhoods of x[n, c, h, w] as rows: [n h w, 9 c]."""
    n, c, h, w = x.shape
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    columns: Array = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)
    return columns


def col2im(columns: Array, shape: tuple[int, ...]) -> Array:
    """Return the adjoint of `im2col`: every entry of [n h w, 9 c] is added to the element that it came from."""
    n, c, h, w = shape
    windows = columns.reshape(n, h, w, c, 3, 3).transpose(0, 3, 1, 2, 4, 5)
    padded = np.zeros((n, c, h + 2, w + 2), dtype=columns.dtype)
    for u in range(3):
        for v in range(3):
            padded[:, :, u : u + h, v : v + w] += windows[..., u, v]
    return padded[:, :, 1:-1, 1:-1]


def convolve(columns: Array, weight: Array, bias: Array, shape: tuple[int, ...]) -> Array:
    """Return the convolution [n, co, h, w] of the input that `im2col` made `columns` from."""
    n, _, h, w = shape
    rows = columns @ weight.reshape(len(weight), -1).T + bias
    y: Array = rows.reshape(n, h, w, len(weight)).transpose(0, 3, 1, 2)
    return y


def loss_and_gradients(weights: Weights, x: Array, labels: Array) -> tuple[float, Weights]:
    """Return the mean cross-entropy of images x[n, 1, 8, 8] and its gradient by every weight."""
    n = len(x)

    columns1 = im2col(x)
    y1 = convolve(columns1, weights["conv1.weight"], weights["conv1.bias"], x.shape)
    blocks = np.maximum(y1, 0).reshape(n, 16, 4, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5)
    blocks = blocks.reshape(n, 16, 4, 4, 4)
    winner = blocks.argmax(axis=-1)[..., np.newaxis]
    pooled = np.take_along_axis(blocks, winner, axis=-1)[..., 0]
    columns2 = im2col(pooled)
    y2 = convolve(columns2, weights["conv2.weight"], weights["conv2.bias"], pooled.shape)
    features = np.maximum(y2, 0).reshape(n, 32, 2, 2, 2, 2).mean(axis=(3, 5)).reshape(n, 128)
    logits = features @ weights["linear.weight"].T + weights["linear.bias"]

    logits = logits - logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    loss = -float(log_p[np.arange(n), labels].mean())

    gradients: Weights = {}
    d_logits = np.exp(log_p)
    d_logits[np.arange(n), labels] -= 1
    d_logits /= n
    gradients["linear.weight"] = d_logits.T @ features
    gradients["linear.bias"] = d_logits.sum(axis=0)
    d_mean = (d_logits @ weights["linear.weight"]).reshape(n, 32, 2, 1, 2, 1) / 4
    d_y2 = np.broadcast_to(d_mean, (n, 32, 2, 2, 2, 2)).reshape(n, 32, 4, 4) * (y2 > 0)
    d_columns2 = d_y2.transpose(0, 2, 3, 1).reshape(-1, 32)
    gradients["conv2.weight"] = (d_columns2.T @ columns2).reshape(32, 16, 3, 3)
    gradients["conv2.bias"] = d_columns2.sum(axis=0)
    d_pooled = col2im(d_columns2 @ weights["conv2.weight"].reshape(32, -1), pooled.shape)
    d_blocks = np.zeros_like(blocks)
    np.put_along_axis(d_blocks, winner, d_pooled[..., np.newaxis], axis=-1)
    d_y1 = d_blocks.reshape(n, 16, 4, 4, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(y1.shape)
    d_columns1 = (d_y1 * (y1 > 0)).transpose(0, 2, 3, 1).reshape(-1, 16)
    gradients["conv1.weight"] = (d_columns1.T @ columns1).reshape(16, 1, 3, 3)
    gradients["conv1.bias"] = d_columns1.sum(axis=0)
    return loss, gradients


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Return images [n, 1, 8, 8], about half of them moved by -1..1 pixel each way over zeros."""
    n = len(images)
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (8, 8), axis=(2, 3))
    down, right = np.where(rng.random(n) < 0.5, rng.integers(0, 3, size=(2, n)), 1)
    return windows[np.arange(n), :, down, right]


def train(images: Array, labels: Array, epochs: int = EPOCHS) -> Weights:
    """Return weights fitted to the images with Adam (Kingma and Ba, 2015); prints its progress."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    weights = initial_weights(rng)
    first = {name: np.zeros_like(array) for name, array in weights.items()}
    second = {name: np.zeros_like(array) for name, array in weights.items()}
    starts = range(0, len(images), BATCH)
    step = 0
    for epoch in range(1, epochs + 1):
        order = rng.permutation(len(images))
        losses = []
        for start in starts:
            batch = order[start : start + BATCH]
            x = shifted(images[batch], rng)
            loss, gradients = loss_and_gradients(weights, x, labels[batch])
            losses.append(loss)
            rate = RATE * 0.5 * (1 + np.cos(np.pi * step / (epochs * len(starts))))
            step += 1
            for name, g in gradients.items():
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * g * g
                mean = first[name] / (1 - 0.9**step)
                root = np.sqrt(second[name] / (1 - 0.999**step))
                weights[name] -= np.float32(rate) * mean / (root + np.float32(1e-8))
        if epoch % 20 == 0 or epoch == epochs:
            print(f"epoch {epoch:3d} of {epochs}: mean loss {np.mean(losses):.4f}", flush=True)
    return weights


def main() -> None:
    """Train on the train part, measure on the held-out part with the float64 oracle, and write the weights."""
    parser = argparse.ArgumentParser(description="Train the digits network with NumPy alone.")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("digits_weights.npz"),
        metavar="FILE",
        help="where the weights go (default: %(default)s in the current folder)",
    )
    out: Path = parser.parse_args().out

    images, labels = load_digits()
    train_part, heldout = split()
    began = time.perf_counter()
    weights = train(images[train_part], labels[train_part])
    print(f"trained on {len(train_part)} images in {time.perf_counter() - began:.0f} s")

    right = reference_logits(images[heldout], weights).argmax(axis=1) == labels[heldout]
    accuracy = float(right.mean())
    print(f"held-out accuracy: {accuracy:.2%} ({right.sum()} of {len(heldout)})")
    arrays: dict[str, Any] = {"accuracy": np.float64(accuracy), **weights}
    with out.open("wb") as file:
        np.savez_compressed(file, **arrays)
    print(f"wrote {out} ({out.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
