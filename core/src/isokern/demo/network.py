"""The digits network through the descriptor API.

It describes, creates, sizes, allocates and binds once; then it runs any number of batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backend import Device
from ..eager.create import create
from ..tensors import Tensor, empty, tensor
from .digits import load_digits, load_weights, reference_logits, split

Float32 = npt.NDArray[np.float32]


class DigitsNetwork:
    """The network of `digits` for batches of exactly `batch` images on one device.

    `images` [batch, 1, 8, 8] and `logits` [batch, 10] are F32 tensors of that device; every operator between them is a
    descriptor bound to its tensors and to a workspace of the size that it asked for. One that the device has no kernel
    for is decomposed; NotImplementedOnDevice is raised where it lacks those, too.
    """

    def __init__(self, device: Device, batch: int, weights: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        self.device, self.batch = device, batch
        arrays = load_weights() if weights is None else weights
        w = {name: tensor(array, "F32", device=device) for name, array in arrays.items() if name != "accuracy"}
        self._calls: list[Callable[[], None]] = []
        self.images = x = empty((batch, 1, 8, 8), "F32", device=device)
        x = self._layer("conv2d", x, w["conv1.weight"], w["conv1.bias"], padding=(1, 1))
        x = self._layer("relu", x)
        x = self._layer("max_pool2d", x, kernel=(2, 2))
        x = self._layer("conv2d", x, w["conv2.weight"], w["conv2.bias"], padding=(1, 1))
        x = self._layer("relu", x)
        x = self._layer("adaptive_avg_pool2d", x, output_size=(2, 2))
        x = self._layer("flatten", x)
        self.logits = self._layer("linear", x, w["linear.weight"], w["linear.bias"])

    def _layer(self, operator: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """Append one operator and return its output."""
        descriptor = create(operator, [t.desc for t in inputs], device=self.device, **attrs)
        (desc,) = descriptor.outputs
        output = empty(desc.shape, desc.dtype, device=self.device)
        self._calls.append(descriptor.bind(inputs, [output], workspace=descriptor.alloc_workspace()))
        return output

    def run(self) -> None:
        """Compute `logits` from what `images` holds, and wait for it."""
        for call in self._calls:
            call()
        self.device.synchronize()

    def __call__(self, images: npt.ArrayLike) -> Float32:
        """Return the logits, float32 [batch, 10], of images [batch, 1, 8, 8]."""
        self.images.copy_from(images)
        self.run()
        logits: Float32 = self.logits.numpy().copy()
        return logits


@dataclass(frozen=True)
class Classification:
    """What a device computed for the held-out images, and how long it took.

    `logits` are float32 [images, 10]; `seconds` is the median time of a pass over all images; `max_abs_diff` is the
    largest |logit difference| from the float64 reference.
    """

    device: str
    logits: Float32
    accuracy: float
    seconds: float
    max_abs_diff: float

    @property
    def images(self) -> int:
        """The number of images."""
        return len(self.logits)


def classify(device: Device, batch: int | None = None, passes: int = 5) -> Classification:
    """Run all held-out images on `device`, `batch` at a time (None: all at once), and compare with the reference."""
    images, labels = load_digits()
    held_out = split()[1]
    images, labels = images[held_out], labels[held_out]
    step = len(images) if batch is None else min(batch, len(images))
    starts = range(0, len(images), step)
    networks = {size: DigitsNetwork(device, size) for size in {len(images[s : s + step]) for s in starts}}
    parts = [(networks[len(images[s : s + step])], images[s : s + step]) for s in starts]
    logits = np.concatenate([network(part) for network, part in parts])
    times = []
    for _ in range(passes):
        begin = time.perf_counter()
        for network, _ in parts:
            network.run()
        times.append(time.perf_counter() - begin)
    accuracy = float(np.mean(logits.argmax(axis=1) == labels))
    return Classification(device.name, logits, accuracy, median(times), difference(logits, reference_logits(images)))


def difference(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the largest |a - b|, NaN if there is one."""
    return float(np.max(np.abs(a.astype(np.float64) - b)))
