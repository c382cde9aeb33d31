"""Test exported programs: dims, parameters, updates, and errors that list everything at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from small_modules import Convolutional, Perceptron, Recurrent, Transformer, difference, make  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim, export  # noqa: E402

from isokern import BadTensorDtype, BadTensorShape, InvalidArgument  # noqa: E402
from isokern.torch import UnsupportedModel, explain, load  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's own
NEAR = 1e-5


@pytest.fixture(autouse=True)
def fresh():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield


def images(n=2, size=16):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(n))


CASES = {
    "convolutional": lambda: (make(Convolutional), images()),
    "transformer": lambda: (make(Transformer), torch.arange(12).view(2, 6)),
    "lstm": lambda: (make(Recurrent), torch.randn(3, 5, 6)),
    "gru": lambda: (make(Recurrent, nn.GRU, batch_first=False, bias=False), torch.randn(5, 3, 6)),
    "rnn": lambda: (make(Recurrent, nn.RNN, nonlinearity="relu"), torch.randn(3, 5, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_programs_give_what_modules_give_on_every_device(devices, name):
    module, x = CASES[name]()
    program = export(module, (x,))
    for device in devices:
        assert difference(load(program, device).run(x), module(x)) < 1e-4


def test_linear_layers_and_attention_stay_whole(cpu):
    module, x = make(Transformer), torch.arange(12).view(2, 6)
    loaded = load(export(module, (x,)), cpu, passes="")
    loaded(x)
    kinds = [op.kind for op in loaded.programs.graph.ops]
    assert kinds.count("attention") == 2
    assert kinds.count("linear") == 9
    assert kinds.count("gelu") == kinds.count("layer_norm") == kinds.count("rms_norm") == 2


def test_dims_that_are_free_have_a_program_each(cpu):
    module = make(Convolutional)
    loaded = load(export(module, (images(2),), dynamic_shapes=({0: Dim("batch")},)), cpu)
    for n in (1, 2, 5):
        assert difference(loaded(images(n)), module(images(n))) < NEAR
    assert loaded.programs.built_times == 3
    loaded(images(5))
    assert loaded.programs.built_times == 3


class Named(nn.Module):
    def forward(self, x, *, scale, bias=None):
        return {"y": x["a"] * scale + (0 if bias is None else bias), "x": x["a"]}


def test_trees_of_arguments_and_results(cpu):
    a, b = torch.randn(2, 3), torch.randn(3)
    loaded = load(export(make(Named), ({"a": a},), {"scale": 3, "bias": b}), cpu)
    found = loaded({"a": a}, scale=3, bias=b)
    assert difference(found, make(Named)({"a": a}, scale=3, bias=b)) < NEAR
    assert found["x"] is a
    with pytest.raises(InvalidArgument, match="4; allowed: 3, as it was exported"):
        loaded({"a": a}, scale=4, bias=b)
    with pytest.raises(
        InvalidArgument, match="inputs 1 by position, and scale; allowed: 1 by position, and scale, bias"
    ):
        loaded({"a": a}, scale=3)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.count.add_(x)
        self.weight.mul_(1.5)
        x.mul_(2)
        return self.count * x * self.weight


def test_what_a_module_updates_is_updated(cpu):
    ours, theirs = make(Counting), make(Counting)
    program = export(ours, (torch.ones(3),))
    loaded = load(program, cpu)
    for n in range(1, 6):
        x, y = torch.full((3,), float(n)), torch.full((3,), float(n))
        assert difference(loaded(x), theirs(y)) < NEAR
        assert torch.equal(x, y)
    assert difference(dict(program.state_dict), dict(theirs.state_dict())) < NEAR
    assert loaded.programs.built_times == 1


def test_weights_are_shared_with_the_exported_program(cpu):
    module, x = make(Perceptron), torch.randn(2, 8)
    loaded = load(export(module, (x,)), cpu)
    assert difference(loaded(x), module(x)) < NEAR
    module.last.weight.mul_(2)
    assert difference(loaded(x), module(x)) < NEAR


def test_half_floats_and_integers(cpu):
    for kind in (torch.float16, torch.bfloat16):
        module, x = make(Perceptron).to(kind), torch.randn(2, 8).to(kind)
        found = load(export(module, (x,)), cpu)(x)
        assert found.dtype is kind
        assert (found.float() - module(x).float()).abs().max() < 0.02


def test_a_batch_of_nothing(cpu):
    module = make(Perceptron)
    loaded = load(export(module, (torch.randn(2, 8),), dynamic_shapes=({0: Dim("batch", min=0)},)), cpu)
    assert loaded(torch.empty(0, 8)).shape == (0, 5)


def test_threads_run_one_program(cpu):
    module = make(Convolutional)
    loaded = load(export(module, (images(2),), dynamic_shapes=({0: Dim("batch")},)), cpu)
    batches = [images(n) for n in (1, 2, 3, 4)]
    wanted, start = [module(x) for x in batches], threading.Barrier(4)

    def work(k):
        start.wait(60)
        with torch.no_grad():
            return max(difference(loaded(batches[(k + n) % 4]), wanted[(k + n) % 4]) for n in range(12))

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(4))) < NEAR


class Unknown(nn.Module):
    def forward(self, x):
        y = torch.linalg.qr(x)[0]
        return torch.special.i0(y) + torch.rand_like(x)


def test_all_unknown_operators_are_listed_with_their_nodes(cpu):
    program = export(make(Unknown), (torch.randn(3, 3),))
    with pytest.raises(UnsupportedModel) as caught:
        load(program, cpu)
    text = str(caught.value)
    assert "nodes do not run here" in text
    for part in ("linalg_qr, aten.linalg_qr.default", "aten.i0.default", "aten.rand"):
        assert part in text
    assert "torch.compile(…, backend='isokern')" in text
    assert len(explain(program).elsewhere) >= 3


def test_inputs_that_do_not_fit(cpu):
    module, x = make(Perceptron), torch.randn(2, 8)
    loaded = load(export(module, (x,)), cpu)
    with pytest.raises(BadTensorShape, match=r"input x: shape \[3, 8\]; allowed: \[2, 8\]"):
        loaded(torch.randn(3, 8))
    with pytest.raises(BadTensorDtype, match=r"torch.float64; allowed: torch.float32; x.to\(torch.float32\)"):
        loaded(x.double())
    with pytest.raises(InvalidArgument, match="inputs 1 by position"):
        loaded([1.0])
    with torch.enable_grad(), pytest.raises(InvalidArgument, match=r"requires gradients.*x\.detach\(\)"):
        loaded(x.clone().requires_grad_())
    with pytest.raises(InvalidArgument, match=r"a Perceptron; allowed: an ExportedProgram; torch\.export\.export"):
        load(module, cpu)
