"""Test copies into views that lie between each other's elements: each writes its own elements, on every device."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import isokern

# Oclgrind crashes where several threads use it
DEVICES = [
    d.name for d in isokern.devices() if not d.name.startswith("cuda:") and d.properties.get("platform") != "Oclgrind"
]
ROUNDS = 20
VIEWS: dict[str, Callable[[isokern.Tensor], isokern.Tensor]] = {
    "steps": lambda t: t[::2],
    "columns": lambda t: t[:, 1::2],
    "transposed": lambda t: t.T,
    "backwards": lambda t: t[:, ::-1],
    "part": lambda t: t[::2, :, 1:3],
    "plane": lambda t: t[:, :, 0],
    "repeated": lambda t: t[:, :, :1].broadcast_to(6, 8, 3),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("element", ["F32", "BF16", "I64", "BOOL", "C64", "U8"])
def test_a_copy_changes_the_elements_of_a_view_alone(device: str, element: str) -> None:
    for view in VIEWS.values():
        t = isokern.zeros((6, 8, 4), element, device=device)
        wanted = np.array(t.numpy())
        if view is VIEWS["repeated"]:
            given = np.zeros((6, 8, 3), wanted.dtype)
        else:
            given = np.random.default_rng(0).integers(0, 2, view(t).shape).astype(wanted.dtype)
            view(wanted)[...] = given  # type: ignore[arg-type, index]  # an array has the same views
        view(t).copy_from(given)
        assert np.array_equal(t.numpy(), wanted)


@pytest.mark.parametrize("device", DEVICES)
def test_threads_that_write_between_each_other_lose_nothing(device: str) -> None:
    t = isokern.zeros((20_000,), "F32", device=device)
    views = t[::2], t[1::2]
    for k in range(1, ROUNDS):
        given = np.full(10_000, k, np.float32)
        threads = [threading.Thread(target=v.copy_from, args=(given,)) for v in views]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (t.numpy() == k).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_copy_while_a_stream_records_is_made_at_once(
    device: str, view: Callable[[isokern.Tensor], isokern.Tensor]
) -> None:
    """The device's kernel would be recorded: such a copy goes run by run, and no replay repeats it."""
    t, x = isokern.zeros((6, 8, 4), device=device), isokern.zeros((3,), device=device)
    wanted = np.zeros((6, 8, 4), np.float32)
    if view is not VIEWS["repeated"]:  # NumPy's copy of it is read-only
        view(wanted)[...] = 1  # type: ignore[arg-type, index]
    else:
        wanted[:, :, 0] = 1
    add = isokern.create("add", [x.desc, x.desc], device=device)
    stream = isokern.device(device).default_stream
    try:
        with stream.capture() as recording:
            add.calculate([x, x], x)
            view(t).copy_from(np.ones(view(t).shape, np.float32))
    except isokern.NotImplementedOnDevice as error:
        pytest.skip(str(error))
    assert np.array_equal(t.numpy(), wanted)
    t.copy_from(np.zeros((6, 8, 4), np.float32))
    recording.replay()
    assert not t.numpy().any()


@pytest.mark.parametrize("device", DEVICES)
def test_a_view_that_repeats_elements_leaves_the_others(device: str) -> None:
    """It has as many elements as its range, and yet not all of them."""
    t = isokern.tensor(np.arange(4, dtype=np.float32), device=device)
    repeated = t[::3].broadcast_to(2, 2)
    repeated.copy_from(np.full((2, 2), 9, np.float32))
    assert t.numpy().tolist() == [9, 1, 2, 9]
