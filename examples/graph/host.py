"""A host application that runs a model.

It loads parameters from a file, compiles, runs, replays, feeds any number of rows and DLPack, and explains the program.

pip install 'isokern[graph]'
python examples/graph/host.py [DEVICE]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from convnet import model

import isokern
from isokern.runtime import compile


def main(name: str | None = None) -> None:
    """Run everything on the device called `name`, or on the first that is available."""
    device = isokern.device(name)
    random = np.random.default_rng(0)
    images = random.standard_normal((1, 3, 32, 32), dtype=np.float32)
    print(f"device: {device.name}")

    # Parameters: by name, in a safetensors file as other frameworks write and read it
    trained, net = model(), model()
    trained.initialise(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "convnet.safetensors"
        trained.save(file)
        net.load(file)
        print(f"parameters: {len(net.parameters)} arrays from {file.stat().st_size} bytes")
    net.set({"classify.bias": np.zeros(10)})  # or one by one; each is checked, and converted to the model's dtype

    # Compile: passes, kernels, memory, parameters on the device and every call bound; errors are found here
    program = compile(net, device)
    probabilities = program.run(images)
    assert probabilities.shape == (1, 10) and np.allclose(probabilities.sum(), 1)
    print(f"run: class {probabilities.argmax()} at {probabilities.max():.3f}")

    # Capture once, then replay: no copies, new content in the same memory
    (x,), (y,) = program.inputs, program.outputs
    recording = program.capture()
    for _ in range(3):
        x.copy_from(random.standard_normal(x.shape))
        program.replay()
    print(f"replay of {len(recording)} calls: class {y.numpy().argmax()}")

    # Feeds are NumPy arrays, tensors of any device, or objects with DLPack, by name or in order; `out` is your memory
    mine = np.empty((1, 10), np.float32)
    for feed in (images, isokern.tensor(images, device=device), Exchanged(images)):
        assert program.run({"images": feed}, out=mine) is mine
        assert np.array_equal(mine, probabilities)
    print("fed by NumPy, a tensor, and DLPack: the same bits")

    # Any number of rows: a program for each, with the same parameters
    anyhow = compile(net, device, dynamic=True)
    for rows in (1, 4, 7):
        batch = np.repeat(images, rows, axis=0)
        assert np.allclose(anyhow.run(batch), probabilities, atol=1e-5)
    print(f"rows: programs for {sorted(p.graph.inputs[0].spec.shape[0] for p in anyhow.programs)}")

    # The program on this device: variants, memory, and what the memory plan saves
    for line in program.explain()[:4]:
        print(f"  {line.name:26} {line.kind:20} {line.variant:12} {line.outputs:24} {line.memory}")
    print(f"memory: {program.arena_bytes + program.workspace_bytes} bytes; {program.naive_bytes} without reuse")

    # Errors are typed, and name the input, the layer or the parameter
    for wrong in (lambda: program.run(images[:, :2]), lambda: net.set({"classify.bais": np.zeros(10)})):
        try:
            wrong()
        except isokern.IsokernError as error:
            print(f"refused: {error}")

    anyhow.close()  # frees the memory now, not when the last program that uses it is gone
    program.close()


class Exchanged:
    """An array of another library, as far as Isokern can see: it has DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        """Return the capsule."""
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return host memory as the device."""
        return self._array.__dlpack_device__()


if __name__ == "__main__":
    main(*sys.argv[1:2])
