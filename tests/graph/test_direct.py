"""Test runs whose calls read feeds, and write results, where these lie: the same results as with copies, and no copy.

The calls have their own memory again afterwards, whatever happened.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from isokern import BadTensorDtype, BadTensorShape, InvalidArgument
from isokern.graph import Builder
from isokern.runtime import compile

X, B, IDS = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([10, 20, 30], np.float32), np.array([4, 0, 1, 1])
TABLE = np.arange(10, dtype=np.float32).reshape(5, 2)


def two():
    build = Builder("two")
    x, b, ids = build.input("x", (2, 3)), build.input("b", (3,)), build.input("ids", (4,), "I64")
    table = build.parameter("table", (5, 2))
    (y,) = build.emit("add", [x, b])
    (turned,) = build.emit("transpose", [y], {"axes": (1, 0)})
    (z,) = build.emit("exp", [turned])
    (picked,) = build.emit("embedding", [table, ids], dtypes={"T": "F32"})
    build.output(y, z, picked)
    return build.graph


@pytest.fixture
def programs(devices):
    return [compile(two(), d, parameters={"table": TABLE}) for d in devices]


def unaligned(a):
    held = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    held[...] = a
    return held


FORMS = {
    "NumPy": lambda a: a.copy(),
    "strides": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "Fortran": np.asfortranarray,
    "unaligned": unaligned,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "conversion": lambda a: a.astype(np.float64 if a.dtype == np.float32 else np.int32),
    "lists": lambda a: a.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_results_are_those_of_a_run(programs, form):
    for program in programs:
        wanted = program.run([X, B, IDS])
        fed = {n: FORMS[form](a) for n, a in {"x": X + 1, "b": B, "ids": IDS[::-1].copy()}.items()}
        before = {n: np.array(a) for n, a in fed.items()}
        found = program.run_direct(fed)
        for y, w in zip(found, program.run(fed), strict=True):
            np.testing.assert_array_equal(y, w)
        for n, a in fed.items():
            np.testing.assert_array_equal(a, before[n])
        again = program.run_direct([X, B, IDS])
        for y, w in zip(again, wanted, strict=True):
            np.testing.assert_array_equal(y, w)
        assert not any(np.shares_memory(a, b) for a in found for b in (*again, X, B, IDS))
        np.testing.assert_array_equal(found[0], X + 1 + B)  # a later run writes elsewhere


def test_nothing_is_copied_where_calls_can_have_it(programs):
    program = programs[0]
    program.run([X, B, IDS])
    held = [np.array(t.numpy()) for t in (*program.inputs, *program.outputs)]
    program.run_direct([X + 7, B, IDS])
    copied = program.device.memory.copied
    program.run_direct([X + 8, B, IDS])
    assert program.device.memory.copied == copied
    for t, before in zip((*program.inputs, *program.outputs), held, strict=True):
        np.testing.assert_array_equal(t.numpy(), before)


def test_wrong_feeds_are_refused_by_name(programs):
    for program in programs:
        for feeds, error, text in [
            ([X[:1], B, IDS], BadTensorShape, "input x"),
            ([X, B.astype(np.complex64), IDS], BadTensorDtype, "input b"),
            ([X, B], InvalidArgument, "feeds"),
            ({"x": X, "b": B, "index": IDS}, InvalidArgument, "index"),
        ]:
            with pytest.raises(error, match=text):
                program.run_direct(feeds)
        program.close()
        with pytest.raises(InvalidArgument, match="closed"):
            program.run_direct([X, B, IDS])


def test_what_a_run_raises_leaves_the_calls_their_own_memory(programs):
    for program in programs:
        wanted = program.run([X, B, IDS])
        with pytest.raises(InvalidArgument):
            program.run_direct([X + 1, B, np.array([0, 1, 5, 1])])
        if program is not programs[0]:  # there the feeds were not written to its inputs
            program.feed([X, B, IDS])
        program.replay()
        program.device.synchronize()
        for t, w in zip(program.outputs, wanted, strict=True):
            np.testing.assert_array_equal(t.numpy(), w)


def test_threads_have_their_own_results(programs):
    program = programs[0]
    fed = [[X + n, B * n, (IDS + n) % 5] for n in range(6)]
    wanted = [program.run(f) for f in fed]

    def work(n):
        found = [program.run_direct(fed[n]) for _ in range(50)]
        return all(np.array_equal(y, w) for one in found for y, w in zip(one, wanted[n], strict=True))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_results_without_a_call_or_elements(device_group):
    build = Builder("odd")
    x, none = build.input("x", (2, 3)), build.input("none", (0, 3))
    (copied,) = build.emit("copy", [x])
    (nothing,) = build.emit("relu", [none])
    (y,) = build.emit("relu", [copied])
    build.output(copied, nothing, y, y)
    for device in device_group:
        program = compile(build.graph, device)
        found = program.run_direct({"x": X, "none": np.zeros((0, 3), np.float32)})
        assert [a.shape for a in found] == [(2, 3), (0, 3), (2, 3), (2, 3)]
        np.testing.assert_array_equal(found[0], X)
        np.testing.assert_array_equal(found[3], X)


def test_results_that_nothing_computes(device_group):
    """Inputs and parameters that are results, whether calls read them or not."""
    build = Builder("given")
    x, y, w = build.input("x", (2, 3)), build.input("y", (2, 3)), build.parameter("w", (2, 3))
    (z,) = build.emit("add", [x, w])
    build.output(z, x, y, w)
    for device in device_group:
        program = compile(build.graph, device, parameters={"w": X + 3})
        for n in range(3):
            got = program.run_direct({"x": X + n, "y": X - n})
            for found, wanted in zip(got, (2 * X + n + 3, X + n, X - n, X + 3), strict=True):
                np.testing.assert_array_equal(found, wanted)
