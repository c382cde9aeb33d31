"""Test eager functions on tensors of PyTorch: what is given, in place of which device, and what is returned."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import isokern  # noqa: E402
import isokern.torch  # noqa: E402
from isokern import BadTensorDtype, InvalidArgument  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's own
KINDS = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8", "bool")


def test_a_tensor_of_pytorch_is_returned_where_one_was_given_on_every_device(devices):
    x, w = torch.randn(3, 8), torch.rand(8)
    for device in devices:
        found = isokern.rms_norm(x, w, eps=1e-5, device=device)
        assert isinstance(found, torch.Tensor)
        assert (found.dtype, found.device) == (x.dtype, x.device)
        torch.testing.assert_close(found, torch.nn.functional.rms_norm(x, (8,), w, 1e-5))


@pytest.mark.parametrize("kind", KINDS)
def test_dtypes_are_kept(cpu, kind):
    x = torch.arange(6).view(2, 3).to(getattr(torch, kind))
    for found in (isokern.where(x > 2, x, x, device=cpu), isokern.transpose(x, device=cpu), isokern.concat([x, x])):
        assert found.dtype is x.dtype
    torch.testing.assert_close(isokern.concat([x, x.flip(1)], axis=1, device=cpu), torch.cat([x, x.flip(1)], 1))
    torch.testing.assert_close(isokern.transpose(x, device=cpu), x.t())


def test_numbers_arrays_and_our_tensors_beside_one(cpu):
    x = torch.tensor([1, 2, 3], dtype=torch.int32)
    assert isokern.add(x, 1, device=cpu).dtype is torch.int32
    ours = isokern.tensor(np.ones(3, np.int32), device=cpu)
    for found in (isokern.add(ours, x), isokern.add(x, ours), isokern.add(x, np.ones(3, np.int32), device=cpu)):
        torch.testing.assert_close(found, x + 1)
    assert isinstance(isokern.add(ours, ours), isokern.Tensor)


def test_memory_is_shared_and_strides_are_kept(cpu):
    x = torch.randn(4, 6)
    torch.testing.assert_close(isokern.relu(x.t()[::2], device=cpu), torch.relu(x.t()[::2]))
    out = torch.zeros(6, 4).t()
    assert isokern.relu(x, out=out, device=cpu) is out
    torch.testing.assert_close(out, torch.relu(x))
    y = torch.ones(4, 6)
    assert isokern.add_assign(y, x, device=cpu) is y
    torch.testing.assert_close(y, x + 1)


def test_several_results_and_conveniences(cpu):
    x = torch.randn(4, 6)
    values, places = isokern.topk(x, k=2, device=cpu)
    torch.testing.assert_close((values, places), tuple(torch.topk(x, 2)))
    torch.testing.assert_close(isokern.matmul(x, x.t(), device=cpu), x @ x.t())
    torch.testing.assert_close(isokern.clip(x, min=-0.5, max=torch.tensor(0.5), device=cpu), x.clamp(-0.5, 0.5))
    torch.testing.assert_close(isokern.split(x, [1, 3], device=cpu), x.split([1, 3]))
    torch.testing.assert_close(isokern.cast(x, dtype="I64", device=cpu), x.long())
    assert isokern.relu(torch.empty(0, 3), device=cpu).shape == (0, 3)
    torch.testing.assert_close(isokern.sqrt(torch.tensor(4.0), device=cpu), torch.tensor(2.0))


def test_results_may_be_written_to_and_outlive_the_call(cpu):
    found = [isokern.add(torch.full((64,), float(n)), 1.0, device=cpu) for n in range(50)]
    for n, y in enumerate(found):
        y += 1
        assert torch.equal(y, torch.full((64,), n + 2.0))


def test_gradients_are_refused_with_the_way_out(cpu):
    w = torch.nn.Parameter(torch.ones(3))
    for call in (lambda: isokern.relu(w), lambda: isokern.matmul(torch.ones(2, 3), w), lambda: isokern.concat([w, w])):
        with pytest.raises(InvalidArgument, match=r"requires gradients; allowed: one without; give x\.detach\(\)"):
            call()
    torch.testing.assert_close(isokern.relu(w.detach(), device=cpu), torch.ones(3))


def test_types_that_are_not_here(cpu):
    with pytest.raises(BadTensorDtype, match="complex64"):
        isokern.abs(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(BadTensorDtype, match="sparse_coo"):
        isokern.abs(torch.ones(2, 2).to_sparse())


def test_an_out_that_requires_gradients_is_refused(cpu):
    out = torch.ones(3, requires_grad=True)
    with pytest.raises(isokern.IsokernError, match="require"):
        isokern.relu(torch.ones(3), out=out, device=cpu)


def test_isokern_alone_does_not_import_pytorch():
    code = "import sys, isokern; isokern.relu([1.0]); assert not {'torch', 'isokern.torch'} & {*sys.modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tensors_without_memory_are_refused(cpu):
    meta = torch.empty(3, device="meta")
    with torch._subclasses.FakeTensorMode():
        traced = torch.empty(3)
    for x in (meta, traced):
        for call in (
            lambda x=x: isokern.exp(x, device=cpu),
            lambda x=x: isokern.add(torch.ones(3), x, device=cpu),
            lambda x=x: isokern.tensor(x, device=cpu),
        ):
            with pytest.raises(InvalidArgument, match=r"memory|makes no array"):
                call()
    with pytest.raises(InvalidArgument, match="without memory"):
        isokern.from_dlpack(meta)


def test_a_module_on_the_meta_device_runs_in_pytorch_or_is_refused(cpu):
    module, x = torch.nn.Linear(3, 3, device="meta"), torch.empty(2, 3, device="meta")
    with torch.no_grad():
        y = torch.compile(module, backend="isokern", options={"device": cpu.name})(x)
        assert y.is_meta and y.shape == (2, 3)
        with pytest.raises(isokern.IsokernError, match="device meta"):
            isokern.torch.load(torch.export.export(module, (x,)), cpu)
        real = isokern.torch.load(torch.export.export(torch.nn.Linear(3, 3), (torch.ones(2, 3),)), cpu)
        with pytest.raises(isokern.IsokernError, match="device meta"):
            real(x)
        real(torch.ones(2, 3))
        with pytest.raises(InvalidArgument, match="memory"):
            real(x)
