"""Test descriptors: valid calls, and that every wrong call is a typed error before anything is written."""

import gc
import threading

import numpy as np
import pytest

import isokern
from isokern import BadTensorDtype, BadTensorShape, BadTensorStrides, InsufficientWorkspace, InvalidArgument, TensorDesc


@pytest.fixture
def add(device):
    x = TensorDesc("F32", (4, 5))
    return isokern.create("add", [x, x], device=device)


def tensors(device, *values):
    return [isokern.tensor(np.full((4, 5), v, np.float32), device=device) for v in values]


def test_create_size_calculate(device, add):
    a, b, y = tensors(device, 1, 2, np.nan)
    assert add.workspace_size == add.workspace.size == 0
    assert add.calculate([a, b], y) is None
    assert (y.numpy() == 3).all()
    assert add.variant in {c.variant for c in add.why() if c.reason is None and c.chosen}
    assert all(c.reason for c in add.why() if not c.chosen)


def test_bound_call_sees_new_contents(device, add):
    a, b, y = tensors(device, 1, 2, 0)
    bound = add.bind([a, b], [y])
    bound()
    a.copy_from(np.full((4, 5), 5, np.float32))
    bound()
    assert (y.numpy() == 7).all()


def test_bound_call_keeps_its_tensors_alive(device, add):
    a, b, y = tensors(device, 1, 2, 0)
    bound = add.bind([a, b], [y])
    buffer = y.buffer
    del a, b, y
    gc.collect()
    bound()
    assert (buffer.read().view(np.float32) == 3).all()


def wrong_calls(device):
    a, b, y = tensors(device, 1, 2, 9)
    other = isokern.zeros((5, 4), device=device)
    closed = isokern.zeros((4, 5), device=device)
    closed.buffer.close()
    gapped = isokern.zeros((4, 10), device=device)[:, ::2]
    return {
        "too few": (([a], [y]), InvalidArgument),
        "too many": (([a, b, b], [y]), InvalidArgument),
        "missing": (([a, None], [y]), InvalidArgument),
        "an array": (([a, np.zeros((4, 5), np.float32)], [y]), InvalidArgument),
        "dtype": (([a, isokern.zeros((4, 5), "F64", device=device)], [y]), BadTensorDtype),
        "shape": (([a, other], [y]), BadTensorShape),
        "strides": (([a, gapped], [y]), BadTensorStrides),
        "closed buffer": (([a, closed], [y]), InvalidArgument),
    }


@pytest.mark.parametrize(
    "what", ["too few", "too many", "missing", "an array", "dtype", "shape", "strides", "closed buffer"]
)
def test_wrong_calls(device, add, what):
    (inputs, outputs), error = wrong_calls(device)[what]
    before = outputs[0].numpy().copy()
    with pytest.raises(error, match="add") as caught:
        add.calculate(inputs, outputs)
    assert (outputs[0].numpy() == before).all()
    assert len(str(caught.value)) > 20
    with pytest.raises(error):
        add.bind(inputs, outputs)


def test_closed_descriptor(device, add):
    a, b, y = tensors(device, 1, 2, 0)
    bound = add.bind([a, b], y)
    add.close()
    with pytest.raises(InvalidArgument, match="closed"):
        add.calculate([a, b], y)
    bound()  # a bound call keeps what it uses


def test_partial_overlap_is_refused_and_in_place_is_not(device):
    base = isokern.tensor(np.arange(30, dtype=np.float32), device=device)
    x, shifted = base[:20], base[1:21]
    d = isokern.create("relu", [x.desc], [shifted.desc], device=device)
    with pytest.raises(InvalidArgument, match="overlap"):
        d.calculate(x, shifted)
    isokern.neg(x, out=x)
    assert (base.numpy()[:20] == -np.arange(20)).all()
    assert (base.numpy()[20:] == np.arange(20, 30)).all()


def test_interleaved_memory_is_no_overlap(device):
    base = isokern.tensor(np.arange(20, dtype=np.float32), device=device)
    isokern.neg(base[::2], out=base[1::2])
    assert (base.numpy()[1::2] == -np.arange(0, 20, 2)).all()


def test_read_only_output(device, add):
    if not device.memory.wraps:
        pytest.skip(f"{device.name} does not wrap host memory")
    a, b, _ = tensors(device, 1, 2, 0)
    frozen = np.zeros((4, 5), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InvalidArgument, match="read-only"):
        add.calculate([a, b], isokern.from_numpy(frozen, device=device))
    assert (frozen == 0).all()
    isokern.add(frozen, frozen, device=device)  # it is allowed as an input


def test_what_is_no_stream_of_the_device_is_refused(device, add):
    """An object that merely has a stream's attributes is refused, too."""
    a, b, y = tensors(device, 1, 2, 0)
    for wrong in (type("Other", (), {"device": device, "recording": None})(), device, 0.5, "0"):
        with pytest.raises(InvalidArgument, match=f"allowed: a stream of {device.name}"):
            add.calculate([a, b], y, stream=wrong)


def needs_workspace(device):
    for op, shapes, attrs in (
        ("gemm", [(96, 200), (200, 96)], {}),
        ("conv2d", [(1, 16, 20, 20), (16, 16, 3, 3)], {}),
        ("reduce_sum", [(1 << 20,)], {}),
    ):
        d = isokern.create(op, [TensorDesc("F32", s) for s in shapes], device=device, **attrs)
        if d.workspace_size:
            return d
    pytest.skip(f"nothing on {device.name} needs a workspace")
    return None


def test_workspace_is_checked(device):
    d = needs_workspace(device)
    need = d.workspace
    inputs = [isokern.zeros(x.shape, device=device) for x in d.inputs if x is not None]
    y = isokern.tensor(np.full(d.outputs[0].shape, 7, np.float32), device=device)
    exact = device.memory.alloc(need.size, alignment=need.alignment, kind=need.kind)
    closed = device.memory.alloc(need.size)
    closed.close()
    for given in (
        None,
        device.memory.alloc(need.size - 1),
        closed,
        y,
        inputs[0].buffer if inputs[0].buffer.nbytes >= need.size else None,
    ):
        with pytest.raises((InsufficientWorkspace, InvalidArgument), match="workspace"):
            d.calculate(inputs, y, workspace=given)
        assert (y.numpy() == 7).all()
    d.calculate(inputs, y, workspace=exact)
    assert (y.numpy() == 0).all()


def test_zero_size_computes_nothing(device):
    x = isokern.zeros((0, 3), device=device)
    d = isokern.create("softmax", [x.desc], device=device)
    y = isokern.zeros((0, 3), device=device)
    d.calculate(x, y)
    d.bind(x, y)()


@pytest.mark.parametrize(
    ("arguments", "attrs", "error", "words"),
    [
        (("softmax", [TensorDesc("F32", (4, 7))]), {"axis": 2}, InvalidArgument, "axis 2 is out of range"),
        (("softmax", [TensorDesc("I32", (4, 7))]), {}, BadTensorDtype, "F32, F16"),
        (("sofmax", [TensorDesc("F32", (4, 7))]), {}, InvalidArgument, "softmax"),
        (("softmax", []), {}, InvalidArgument, "x is missing"),
        (("softmax", [TensorDesc("F32", (4, 7))]), {"axes": 1}, InvalidArgument, "axis"),
        (("relu", [TensorDesc("F32", (4,))], [TensorDesc("F32", (4,), (0,))]), {}, BadTensorStrides, "share memory"),
        (("cast", [TensorDesc("F32", (4,))]), {}, InvalidArgument, "dtype T"),
    ],
)
def test_create_refuses(device, arguments, attrs, error, words):
    with pytest.raises(error, match=words):
        isokern.create(*arguments, device=device, **attrs)


def test_unknown_variant_lists_the_known(device):
    with pytest.raises(InvalidArgument, match="allowed"):
        isokern.create("add", [TensorDesc("F32", (4,))] * 2, device=device, variant="nonsense")


def test_one_descriptor_in_two_threads(device):
    """100,000 calls from two threads with their own tensors give the right results."""
    shape = (3,)
    d = isokern.create("mul", [TensorDesc("F32", shape)] * 2, device=device)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        sets = []
        for _ in range(50):
            a, b = (rng.integers(1, 1000, shape).astype(np.float32) for _ in range(2))
            sets.append(
                (
                    isokern.tensor(a, device=device),
                    isokern.tensor(b, device=device),
                    isokern.zeros(shape, device=device),
                    a * b,
                )
            )
        for i in range(50_000):
            a, b, y, _ = sets[i % 50]
            d.calculate((a, b), (y,))
            if i % 50 == 49:
                wrong.extend(1 for *_, t, e in sets if not (t.numpy() == e).all())
                for *_, t, _ in sets:
                    t.copy_from(np.zeros(shape, np.float32))

    threads = [threading.Thread(target=work, args=(s,)) for s in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": None}, "inputs is a NoneType"),
        ({"inputs": 3}, "inputs is a int"),
        ({"outputs": None}, "outputs is a NoneType"),
        ({"stream": 0}, "stream is a int"),
        ({"stream": "s"}, "stream is a str"),
        ({"workspace": 3}, "workspace is a int"),
    ],
)
def test_arguments_of_another_kind(device, add, change, words):
    a, b, y = tensors(device, 1, 2, 0)
    for call in (add.calculate, add.bind):
        with pytest.raises((InvalidArgument, InsufficientWorkspace), match=f"add: .*{words}"):
            call(**{"inputs": [a, b], "outputs": y, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operator": 5}, "no operator is called 5"),
        ({"inputs": TensorDesc("F32", (3,))}, "add: inputs is a TensorDesc; allowed: a list"),
        ({"inputs": None}, "inputs is a NoneType"),
        ({"inputs": [3, 3]}, "inputs.0. is a int"),
        ({"outputs": TensorDesc("F32", (3,))}, "outputs is a TensorDesc"),
        ({"outputs": [None]}, "outputs.0. is a NoneType"),
        ({"device": 5}, "device: 5 is a int"),
        ({"device": [1]}, "is a list"),
        ({"variant": [1]}, "variant"),
        ({"dtypes": {"Z": "F16"}}, "dtypes"),
        ({"dtypes": "F16"}, "dtypes"),
    ],
)
def test_create_with_arguments_of_another_kind(change, words, device):
    x = TensorDesc("F32", (3,))
    with pytest.raises(InvalidArgument, match=words):
        isokern.create(**{"operator": "add", "inputs": [x, x], "device": device, **change})


def test_create_with_tensors_says_what_to_do(device):
    x = isokern.zeros((3,), device=device)
    with pytest.raises(InvalidArgument, match=r"inputs\[0\] is a Tensor.*tensor\.desc"):
        isokern.create("add", [x, x], device=device)


def test_in_place_by_another_name_for_the_same_memory(device):
    if not device.memory.wraps:
        pytest.skip(f"{device.name} does not wrap host memory")
    base = isokern.tensor(np.arange(6, dtype=np.float32), device=device)
    isokern.neg(base[2:5], out=base.numpy()[2:5])
    assert base.numpy().tolist() == [0, 1, -2, -3, -4, 5]


def test_strides_too_odd_for_an_exact_overlap_test_are_refused_soon(device, monkeypatch):
    """An exact overlap test solves a bounded Diophantine equation, which can take minutes with eight odd strides."""
    monkeypatch.setattr(isokern.call.descriptor, "OVERLAP_WORK", 1)
    steps = (7, 22, 67, 203), (11, 34, 103, 311)
    x, y = (TensorDesc("U8", (3,) * 4, s, o) for s, o in zip(steps, (0, 5), strict=True))
    buffer = device.memory.alloc(2000)
    with pytest.raises(InvalidArgument, match="overlap"):
        isokern.rearrange(isokern.Tensor(x, buffer), out=isokern.Tensor(y, buffer))


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("max_pool2d", [(1, 1, 4, 4)], {"kernel": (1 << 40,), "padding": ((1 << 40) - 1,), "stride": (1 << 40,)}),
        ("avg_pool2d", [(1, 1, 4, 4)], {"kernel": (3,), "dilation": (1 << 62,), "padding": (1 << 62,)}),
        ("conv2d", [(1, 1, 4, 4), (1, 1, 3, 3)], {"dilation": (1 << 62,), "padding": (1 << 62,)}),
        ("conv2d", [(1, 1, 4, 4), (1, 1, 1, 1)], {"padding": (1 << 62, 0), "stride": (1 << 62, 1)}),
    ],
)
def test_windows_beyond_index_arithmetic(device, op, shapes, attrs):
    with pytest.raises(BadTensorShape, match=f"{op}: height 4 with padding"):
        isokern.create(op, [TensorDesc("F32", s) for s in shapes], device=device, **attrs)


def test_a_slice_step_beyond_64_bits_of_stride(device):
    x = isokern.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)
    for step, row in ((2**63 - 1, 0), (-(2**63), 2)):
        start, end = (0, 3) if step > 0 else (2, -(2**63))
        y = isokern.slice(x, starts=(start,), ends=(end,), steps=(step,))
        assert y.numpy().tolist() == [x.numpy()[row].tolist()]
