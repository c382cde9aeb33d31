"""A host application with single calls.

It describes, creates, sizes, allocates, calculates and reads back; binds, records and replays; and handles errors.

python examples/host_application.py [DEVICE]
"""

from __future__ import annotations

import sys

import numpy as np

import isokern
from isokern import TensorDesc


def main(name: str | None = None) -> None:
    """Run everything on the device called `name`, or on the first that is available."""
    device = isokern.device(name)
    print(f"device: {device.name}")

    # Describe and create: every error in the description of a call is found here, before there is any memory
    scores = TensorDesc("F32", (2, 3))
    softmax = isokern.create("softmax", [scores], device=device, axis=-1)
    print(f"created: {softmax}")

    # Size and allocate: the workspace belongs to the caller, and may be shared by calls that do not overlap
    x, y = isokern.empty((2, 3), device=device), isokern.empty((2, 3), device=device)
    workspace = softmax.alloc_workspace()
    print(f"workspace: {softmax.workspace_size} bytes; in use on the device: {device.memory.live} bytes")

    # Calculate with any tensors of these layouts, and read back
    x.copy_from([[0, 1, 2], [5, 5, 5]])
    softmax.calculate([x], [y], workspace=workspace)
    print(f"softmax:\n{y.numpy()}")
    assert np.allclose(y.numpy().sum(axis=1), 1)

    # With "auto", a thread's calls on a stream share a workspace: nobody sizes or allocates it
    z = isokern.empty((3, 2), device=device)
    turn = isokern.create("rearrange", [y.T.desc], [z.desc], device=device)
    turn.calculate([y.T], [z], workspace="auto")
    print(f"turned, with a workspace of {turn.workspace_size} bytes of {turn.workspace.kind} memory:\n{z.numpy()}")

    # Bind: buffers are checked once, then a call costs about one foreign call; their content may change between calls
    call = softmax.bind([x], [y], workspace=workspace)
    x.copy_from([[1, 1, 1], [0, 0, 9]])
    call()
    print(f"bound call on new contents:\n{y.numpy()}")

    # Record a list of calls once and replay it as one; a call may be in place where its operator allows that
    double = isokern.create("scale", [scores], device=device, value=2.0)
    stream = device.stream()
    with stream.capture() as recording:
        softmax.calculate([x], [y], workspace=workspace, stream=stream)
        turn.calculate([y.T], [z], workspace="auto", stream=stream)
        double.calculate([y], [y], stream=stream)
    recording.replay(stream)
    stream.synchronize()
    print(f"replay of {len(recording)} calls:\n{y.numpy()}")
    assert np.allclose(y.numpy().sum(axis=1), 2)

    # Errors are typed, and state what was given, what is allowed and what to do
    wrong = isokern.zeros((3, 2), device=device)
    try:
        softmax.calculate([wrong], [y], workspace=workspace)
    except isokern.BadTensorShape as error:
        print(f"refused: {error}")
    try:
        isokern.create("softmax", [scores], device=device, axis=2)
    except isokern.InvalidArgument as error:
        print(f"refused: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
