"""Test feeds and outs as NumPy arrays, by DLPack and as tensors of any device.

Wrong ones are reported by name before anything is written.
"""

import numpy as np
import pytest
from foreign import Foreign

import isokern
from isokern import BadTensorDtype, BadTensorShape, InvalidArgument
from isokern.graph import Builder
from isokern.runtime import compile


@pytest.fixture(params=["first device", "every other one"])
def program(request, devices):
    """Return a program of y = x + b and picked = table[ids], with feeds x F32 [2, 3], b F32 [3], ids I64 [4]."""
    build = Builder("two")
    x, b, ids = build.input("x", (2, 3)), build.input("b", (3,)), build.input("ids", (4,), "I64")
    table = build.parameter("table", (5, 2))
    (y,) = build.emit("add", [x, b], name="sum")
    (picked,) = build.emit("embedding", [table, ids], name="picked", dtypes={"T": "F32"})
    build.output(y, picked)
    some = devices[:1] if request.param == "first device" else devices[1:]
    made = [compile(build.graph, d, parameters={"table": np.arange(10.0).reshape(5, 2)}) for d in some]
    if not made:
        pytest.skip("there is one device only")
    return made[-1]


X, B, IDS = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([10, 20, 30], np.float32), np.array([4, 0, 1, 1])
Y, PICKED = X + B, np.arange(10, dtype=np.float32).reshape(5, 2)[IDS]


@pytest.mark.parametrize(
    "of",
    [
        lambda a, d: a,
        lambda a, d: np.asfortranarray(a)[::-1][::-1],
        lambda a, d: isokern.tensor(a, device=d),
        lambda a, d: isokern.tensor(a, device=isokern.devices()[0]),
        lambda a, d: Foreign(a),
        lambda a, d: a.tolist(),
        lambda a, d: a.astype(np.float64 if a.dtype == np.float32 else np.int32),
    ],
    ids=["NumPy", "strides", "its tensors", "another's tensors", "DLPack", "lists", "conversion"],
)
def test_feeds(program, of):
    given = [of(a, program.device) for a in (X, B, IDS)]
    for found in (program.run(given), program.run(dict(zip(("x", "b", "ids"), given, strict=True)))):
        np.testing.assert_array_equal(found[0], Y)
        np.testing.assert_array_equal(found[1], PICKED)


@pytest.mark.parametrize(
    ("of", "read"),
    [
        (lambda a, d: a, np.asarray),
        (lambda a, d: np.asfortranarray(a), np.asarray),
        (lambda a, d: isokern.tensor(a, device=d), lambda t: t.numpy()),
        (lambda a, d: isokern.tensor(a, device=isokern.devices()[0]), lambda t: t.numpy()),
        (lambda a, d: Foreign(a), lambda f: f.array),
    ],
    ids=["NumPy", "strides", "its tensors", "another's tensors", "DLPack"],
)
def test_outs(program, of, read):
    outs = [of(np.zeros((2, 3), np.float32), program.device), of(np.zeros((4, 2), np.float32), program.device)]
    found = program.run([X, B, IDS], out=outs)
    assert found[0] is outs[0] and found[1] is outs[1]
    np.testing.assert_array_equal(read(outs[0]), Y)
    np.testing.assert_array_equal(read(outs[1]), PICKED)


def test_results_stay_when_the_program_runs_again(program):
    y, _ = program.run([X, B, IDS])
    program.run([0 * X, B, IDS])
    np.testing.assert_array_equal(y, Y)
    own = program.outputs
    assert program.run([X, B, IDS], out=own) == tuple(own)
    np.testing.assert_array_equal(own[0].numpy(), Y)


def test_what_is_wrong_is_named(program):
    feeds = {"x": X, "b": B, "ids": IDS}
    closed = isokern.tensor(X, device=program.device)
    closed.buffer.close()
    frozen = np.zeros((4, 2), np.float32)
    frozen.flags.writeable = False
    outs = [np.zeros((2, 3), np.float32), np.zeros((4, 2), np.float32)]
    for change, error, message in [
        ({"b": B[:2]}, BadTensorShape, r"two, input b: shape \[2\]; allowed: F32\[3\]"),
        ({"b": isokern.tensor(B[:2])}, BadTensorShape, r"two, input b: shape \[2\]; allowed: F32\[3\]"),
        ({"ids": IDS.astype(np.float32)}, BadTensorDtype, r"two, input ids: dtype F32; allowed: I64\[4\]; convert"),
        ({"x": X.astype(complex)}, BadTensorDtype, "two, input x: dtype C128; allowed: F32"),
        ({"x": [[1, 2, 3], [4]]}, InvalidArgument, "two, input x: a list makes no array"),
        ({"x": None}, BadTensorDtype, "two, input x: None has NumPy dtype object"),
        ({"x": closed}, InvalidArgument, "two, input x: the tensor's buffer is closed"),
        ({"x": X.astype(">f4")}, BadTensorDtype, "two, input x: .*byte order"),
        ({"y": X}, InvalidArgument, "two: feeds 'x', 'b', 'ids', 'y'; allowed: x, b, ids"),
    ]:
        with pytest.raises(error, match=message):
            program.run({**feeds, **change}, out=outs)
    for out, error, message in [
        (outs[:1], InvalidArgument, "two: out has 1 tensors; allowed: 2"),
        ([outs[1], outs[0]], BadTensorShape, r"two, output 0 \(sum\): shape \[4, 2\]; allowed: F32\[2, 3\]"),
        ([outs[0], np.zeros((4, 2))], BadTensorDtype, r"two, output 1 \(picked\): dtype F64; allowed: F32\[4, 2\]"),
        ([outs[0], frozen], InvalidArgument, r"two, output 1 \(picked\): read-only memory; .*writable"),
        ([outs[0], "y"], InvalidArgument, r"two, output 1 \(picked\): out is a str"),
        ([outs[0], [0.0]], InvalidArgument, r"two, output 1 \(picked\): out is a list"),
        ([closed, outs[1]], InvalidArgument, r"two, output 0 \(sum\): the tensor's buffer is closed"),
    ]:
        with pytest.raises(error, match=message):
            program.run(feeds, out=out)
    assert not any(o.any() for o in outs)  # no output was written
