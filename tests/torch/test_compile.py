"""Test the backend of torch.compile: results, what changes after the compile, what runs in PyTorch, and errors."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from small_modules import Convolutional, Perceptron, Transformer, difference, make  # noqa: E402
from torch import nn  # noqa: E402

import isokern  # noqa: E402
from isokern import InvalidArgument  # noqa: E402
from isokern.rewriting.target import Target  # noqa: E402
from isokern.torch import explain  # noqa: E402
from isokern.torch.dynamo import CaptureReport, compile_with, read_options  # noqa: E402
from isokern.torch.programs import CHANGES, KEPT, ModulePrograms  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's own
NEAR = 1e-5


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield


@pytest.fixture
def made(monkeypatch):
    """Return the list of the programs that are made."""
    found = []
    init = ModulePrograms.__init__

    def remember(self, *args, **named):
        init(self, *args, **named)
        found.append(self)

    monkeypatch.setattr(ModulePrograms, "__init__", remember)
    return found


def compiled(module, **options):
    return torch.compile(module, backend="isokern", options=options or None)


def images(n=2, size=16):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(n))


def test_pytorch_finds_the_backend():
    assert "isokern" in torch._dynamo.list_backends()


def test_modules_give_what_pytorch_gives_on_every_device(devices):
    tokens = torch.arange(12).view(2, 6)
    for device in devices:
        for module, x in ((make(Convolutional), images()), (make(Transformer), tokens)):
            assert difference(compiled(module, device=device.name)(x), module(x)) < 1e-4
            torch._dynamo.reset()


def test_every_operator_of_them_runs_here(cpu):
    for module, x in ((make(Convolutional), images()), (make(Transformer), torch.arange(12).view(2, 6))):
        told = explain(module, x)
        assert told.graphs == 1
        assert told.elsewhere == ()
        assert f"operators on {isokern.device().name}" in str(told)


# Semantics of PyTorch


class Updating(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 0] = 7
        y[1:] += y[:1] * 2
        y.relu_()
        return y.t()


class UpdatingInputs(nn.Module):
    def forward(self, x, y):
        x.mul_(2)
        y[0].fill_(3)
        return x + y


class Returning(nn.Module):
    def forward(self, x, n):
        y = torch.relu(x)
        return x, y, y.t(), y[0], {"n": n, "x": x.view(-1)}, (y, torch.ones(2), None)


def test_updates_in_place_and_views(cpu):
    x = torch.randn(3, 4)
    assert difference(compiled(make(Updating))(x), make(Updating)(x)) < NEAR
    ours, theirs = ([torch.arange(6.0).view(2, 3), torch.ones(2, 3)] for _ in range(2))
    assert difference(compiled(make(UpdatingInputs))(*ours), make(UpdatingInputs)(*theirs)) == 0
    assert difference(ours, theirs) == 0


def test_results_of_every_kind(cpu):
    x = torch.randn(3, 4)
    run = compiled(make(Returning))
    found = run(x, 5)
    assert difference(found, make(Returning)(x, 5)) == 0
    assert found[0] is x
    assert found[4]["x"].data_ptr() == x.data_ptr()  # a view of the input
    assert found[2].stride() == make(Returning)(x, 5)[2].stride()
    assert difference(run(x, 6), make(Returning)(x, 6)) == 0


def test_results_are_memory_of_their_own(cpu):
    run = compiled(make(Perceptron))
    x = torch.randn(2, 8)
    first = run(x)
    kept = first.clone()
    second = run(x * 3)
    assert difference(first, kept) == 0
    assert not torch.equal(first, second)
    second.zero_()
    assert difference(run(x), kept) == 0


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool", "float64", "float16", "bfloat16"])
def test_inputs_of_other_types(cpu, dtype):
    def run(x, k):
        return x == k, torch.where(x > k, x, k), (x + x).sum(), x.to(torch.float32) / 2

    kind = getattr(torch, dtype)
    x, k = (torch.arange(12).view(3, 4) % m for m in (7, 3))
    x, k = x.to(kind), k.to(kind)
    assert difference(compiled(run)(x, k), run(x, k)) < NEAR


def test_scalars_strides_and_nothing(cpu):
    def run(x, s, n, f):
        return (x * s + n).T @ x * f

    c = compiled(run)
    for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(6, 8)[::2, ::2], torch.empty(0, 4)):
        for n in (1, 2, 3):
            args = x, torch.tensor(2.5), n, 0.5 * n
            assert difference(c(*args), run(*args)) < NEAR


def test_an_image_that_has_its_channels_last_keeps_the_order(cpu):
    module, x = make(nn.Conv2d, 3, 8, 3), images(size=8).to(memory_format=torch.channels_last)
    found = compiled(module)(x)
    assert found.stride() == module(x).stride()
    assert difference(found, module(x)) < NEAR


# Dims


def test_each_batch_has_a_program_and_the_last_are_kept(cpu, made):
    module = make(Convolutional)
    run = compiled(module)
    for n in [*range(1, KEPT + 4), 2, 3]:
        assert difference(run(images(n)), module(images(n))) < NEAR
    assert len(made) <= 3  # one that is static, one of any batch, and perhaps one of a batch of 1
    assert max(len(p._programs) for p in made) == KEPT


def test_sizes_that_pytorch_is_told_to_leave_open(cpu):
    module = make(Transformer)
    run = torch.compile(module, backend="isokern", dynamic=True, fullgraph=True)
    for shape in ((2, 6), (3, 6), (3, 9), (1, 4), (2, 6)):
        tokens = torch.arange(shape[0] * shape[1]).view(shape) % 40
        assert difference(run(tokens), module(tokens)) < 1e-4


def test_parts_of_any_batch(cpu):
    module = make(Partly)
    run = compiled(module)
    for n in (6, 7, 8, 6, 1):
        x = torch.randn(n, 4)
        assert difference(run(x), module(x)) < 1e-4


# What changes after the compile


def test_weights_that_are_written_to_are_seen(cpu, made):
    module, x = make(Convolutional), images()
    run = compiled(module)
    run(x)
    module.head.weight.mul_(2)
    module.norm.running_mean.add_(1)  # which is folded into the convolution
    assert difference(run(x), module(x)) < NEAR
    module.load_state_dict({k: v * 0.5 for k, v in module.state_dict().items()})
    assert difference(run(x), module(x)) < NEAR
    module.head.weight = nn.Parameter(torch.randn(5, 8))
    assert difference(run(x), module(x)) < NEAR
    module.head.bias.data = torch.randn(5)
    assert difference(run(x), module(x)) < NEAR
    assert len(made) == 1


def test_a_weight_that_changes_again_and_again_is_fed(cpu, made):
    module, x = make(Perceptron), torch.randn(2, 8)
    run = compiled(module)
    for _ in range(CHANGES + 4):
        module.last.weight.mul_(1.1)
        assert difference(run(x), module(x)) < NEAR
    assert made[0].built_times == CHANGES + 1


def test_weights_of_inference_mode_are_fed(cpu):
    with torch.inference_mode():
        module, x = make(Perceptron), torch.randn(2, 8)
        run = compiled(module)
        for _ in range(3):
            module.last.weight.mul_(1.5)
            assert difference(run(x), module(x)) < NEAR


def test_weights_that_are_tied_or_strided(cpu):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
            self.head.weight = self.embed.weight
            self.mix = nn.Parameter(torch.randn(8, 8).t())
            self.conv = nn.Conv2d(1, 4, 3, padding=1).to(memory_format=torch.channels_last)

        def forward(self, tokens):
            x = self.embed(tokens) @ self.mix
            return self.head(x) + self.conv(x[None, None, :, :]).mean()

    module, tokens = make(Tied), torch.tensor([1, 5, 3])
    run = compiled(module)
    assert difference(run(tokens), module(tokens)) < NEAR
    module.embed.weight.mul_(2)
    assert difference(run(tokens), module(tokens)) < NEAR


def test_without_freezing_even_writes_that_pytorch_does_not_count_are_seen(cpu):
    module, x = make(Perceptron), torch.randn(2, 8)
    run = compiled(module, freeze=False)
    assert difference(run(x), module(x)) < NEAR
    module.last.weight.data.mul_(2)
    assert difference(run(x), module(x)) < NEAR


def test_a_norm_in_training_updates_its_moments(cpu):
    ours, theirs = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train() for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    run = compiled(ours)
    for n in range(1, 5):
        assert difference(run(images(n + 1)), theirs(images(n + 1))) < NEAR
    assert difference(dict(ours.state_dict()), dict(theirs.state_dict())) < NEAR


def test_parameters_lie_in_pytorchs_memory(cpu, made):
    module = make(nn.Embedding, 50, 8)
    run = compiled(module, device=cpu.name, prepack=False)
    assert difference(run(torch.tensor([3, 4])), module(torch.tensor([3, 4]))) == 0
    ((_, program),) = made[0]._programs.values()
    (parameter,) = program.parameters.values()
    assert parameter.numpy().ctypes.data == module.weight.data_ptr()


def test_graphs_of_one_module_share_what_they_make_of_its_parameters(cpu, made):
    module = make(Perceptron)
    run = compiled(module, device=cpu.name)
    for n in (2, 3):
        run(torch.randn(n, 8))
    first, second = ({id(t) for t in p.parameters.values()} for g in made for _, p in g._programs.values())
    assert first == second
    module.first.weight.mul_(2)
    for n in (2, 3):
        x = torch.randn(n, 8)
        assert difference(run(x), module(x)) < NEAR


def test_a_module_may_be_gone_while_its_programs_run(cpu):
    module = make(Perceptron)
    x = torch.randn(2, 8)
    wanted, run, gone = module(x), torch.compile(module.forward, backend="isokern"), weakref.ref(module)
    run(x)
    del module
    gc.collect()
    assert difference(run(x), wanted) < NEAR
    del run
    torch._dynamo.reset()
    gc.collect()
    assert gone() is None


def test_threads_run_one_module(cpu):
    module = make(Convolutional)
    run, start = compiled(module), threading.Barrier(4)
    batches = [images(n) for n in (1, 2, 3, 4)]
    wanted = [module(x) for x in batches]

    def work(k):
        start.wait(60)
        with torch.no_grad():
            return max(difference(run(batches[(k + n) % 4]), wanted[(k + n) % 4]) for n in range(12))

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(4))) < NEAR


# What runs in PyTorch


class Partly(nn.Module):
    """A layer, something that has no counterpart here, and a layer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        y = torch.relu(self.first(x))
        y = torch.linalg.qr(y.T @ y + torch.eye(4))[1]
        return torch.tanh(self.last(y.abs())), y


def test_what_has_no_counterpart_runs_in_pytorch(cpu, made):
    module, x = make(Partly), torch.randn(6, 4)
    assert difference(compiled(module)(x), module(x)) < 1e-4
    assert len(made) == 2
    told = explain(module, x, device=cpu)
    assert [(e.operator, e.reason) for e in told.elsewhere] == [
        ("aten.linalg_qr.default", "no counterpart here"),
        ("getitem", "no counterpart here"),
    ]
    assert "linalg_qr  aten.linalg_qr.default: PyTorch, no counterpart here" in str(told)
    assert {e.where for e in told.lines} == {cpu.name, "PyTorch"}


def test_random_numbers_and_sizes_that_depend_on_content_are_pytorchs(cpu):
    def run(x):
        y = torch.relu(x) * 2
        return y + torch.rand_like(y) * 0 + 1, y[y > 0.5] * 2

    x = torch.rand(4, 4) + 0.5
    assert difference(compiled(run)(x), run(x)) < NEAR
    torch.manual_seed(1)
    first = compiled(torch.bernoulli)(torch.full((64,), 0.5))
    assert not torch.equal(first, compiled(torch.bernoulli)(torch.full((64,), 0.5)))


def test_a_matrix_product_alone_runs_here_with_its_weight_in_place(cpu, made):
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return torch.linalg.qr(self.layer(torch.linalg.qr(x)[0]))[1]

    module, x = make(Alone), torch.randn(4, 4)
    assert difference(compiled(module)(x).abs(), module(x).abs()) < 1e-4
    (programs,) = made
    assert len(programs.graph.inputs) == 1
    assert [op.kind for op in programs.graph.ops if op.outputs[0] in programs.graph.outputs] == ["linear"]


def test_a_result_that_nothing_here_can_read_is_passed_on(cpu):
    def run(x, z):
        return torch.relu(x) + 1, z

    x, z = torch.randn(3), torch.randn(3, dtype=torch.complex64)
    found = compiled(run)(x, z)
    assert difference(found[0], run(x, z)[0]) < NEAR
    assert found[1] is z


def test_complex_numbers_are_pytorchs(cpu):
    def run(x):
        return torch.fft.rfft(torch.relu(x) + 1).abs()

    x = torch.randn(3, 16)
    assert difference(compiled(run)(x), run(x)) < NEAR
    assert any("complex" in line.reason for line in explain(run, x).elsewhere)


def test_dtypes_that_a_device_lacks_run_in_pytorch(devices, monkeypatch):
    def run(x):
        return torch.sqrt(x) + 1

    of_device = Target.of_device

    def without_doubles(device):
        target = of_device(device)
        for kind in ("sqrt", "generic"):
            target.dynamic(
                kind, lambda op, _, outputs, *__: "it has no F64" if outputs[0].dtype.name == "F64" else None
            )
        return target

    monkeypatch.setattr(Target, "of_device", without_doubles)
    for device in devices:
        for kind in (torch.float32, torch.float64):
            x = torch.rand(4, dtype=kind)
            assert difference(compiled(run, device=device.name)(x), run(x)) < NEAR
            torch._dynamo.reset()
            reasons = [(e.name, e.reason) for e in explain(run, x, device=device).elsewhere if "sqrt" in e.operator]
            assert bool(reasons) == (kind is torch.float64)
            assert all("it has no F64" in reason for _, reason in reasons)
            torch._dynamo.reset()


# Errors


def test_a_graph_that_is_differentiated_is_refused_with_the_way_out(cpu):
    module, x = make(Perceptron), torch.randn(2, 8)
    with torch.enable_grad():
        with pytest.raises(
            Exception, match=r"require gradients.*torch\.no_grad\(\).*requires_grad_\(False\)"
        ) as caught:
            compiled(module)(x)
        assert isinstance(caught.value, torch._dynamo.exc.BackendCompilerFailed)
        assert isinstance(caught.value.inner_exception, InvalidArgument)
        torch._dynamo.reset()
        module.requires_grad_(False)
        assert difference(compiled(module)(x), module(x)) < NEAR


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 1}, "options 'speed'; allowed: device, freeze, passes, prepack"),
        ({"device": "nothing:0"}, "nothing"),
        ({"freeze": "no"}, "freeze is 'no'; allowed: True or False"),
    ],
)
def test_options_that_there_are_not(cpu, options, message):
    with pytest.raises(Exception, match=message):
        compiled(make(Perceptron), **options)(torch.randn(2, 8))
    with pytest.raises(isokern.IsokernError, match=message):
        read_options(options)


def test_a_mode_of_inductor_is_refused(cpu):
    with pytest.raises(Exception, match="mode 'reduce-overhead'; allowed: default"):
        torch.compile(make(Perceptron), backend="isokern", mode="reduce-overhead")(torch.randn(2, 8))


def test_a_report_has_every_operator(cpu):
    report = CaptureReport()
    torch.compile(make(Perceptron), backend=compile_with(read_options({"device": "cpu:0"}), report))(torch.randn(2, 8))
    kinds = [line.operator.split(".")[1] for line in report.lines]
    assert kinds.count("addmm") == 2 and "relu" in kinds
    assert {line.where for line in report.lines} == {"cpu:0"}


def test_numpy_is_not_asked_for_what_it_lacks(cpu):
    module = make(Perceptron).to(torch.bfloat16)
    x = torch.randn(2, 8).to(torch.bfloat16)
    found = compiled(module)(x)
    assert found.dtype is torch.bfloat16
    np.testing.assert_allclose(found.float().numpy(), module(x).float().numpy(), 0.05, 0.05)


def test_results_are_on_the_device_on_which_pytorch_has_them(cpu):
    def call(x):
        return x + 1, torch.arange(3, device="meta"), torch.arange(3)

    with torch.no_grad():
        got = torch.compile(call, backend="isokern", options={"device": cpu.name})(torch.ones(2))
    assert [y.device.type for y in got] == ["cpu", "meta", "cpu"]
