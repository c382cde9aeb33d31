"""Test attention as PyTorch captures it on devices that have kernels of their own for it, without such a device."""

from __future__ import annotations

import operator

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from isokern.torch.dynamo import CaptureReport, make_callable  # noqa: E402
from isokern.torch.programs import Options  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's own
CAPTURE = FakeTensorMode()


def captured(*dims):
    """Return what a capture knows of a tensor: dims, dtype and device."""
    with CAPTURE:
        return torch.empty(dims)


def fused(target, *args, results):
    """Return the graph of one fused attention, of which the first result is read, as PyTorch captures it on a GPU."""
    graph = torch.fx.Graph()
    nodes = []
    for n, x in enumerate(args):
        nodes.append(graph.placeholder(f"x{n}") if isinstance(x, torch.Tensor) else x)
        if isinstance(x, torch.Tensor):
            nodes[n].meta["val"] = CAPTURE.from_tensor(x)
    found = graph.call_function(target.default, tuple(nodes))
    found.meta["val"] = results
    first = graph.call_function(operator.getitem, (found, 0))
    first.meta["val"] = results[0]
    graph.output((first,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("name", ["cudnn", "efficient", "flash", "fused"])
def test_attention_of_devices_with_a_kernel_for_it(cpu, name):
    q, k, v = (torch.rand(2, heads, length, 8) for heads, length in ((4, 5), (2, 7), (2, 7)))
    bias, y, other = torch.rand(2, 4, 5, 7), captured(2, 4, 5, 8), captured(0)
    aten, many = torch.ops.aten, (y, other, None, None, 5, 7, other, other, other)  # 5 and 7 are numbers
    module = {
        "cudnn": lambda: fused(aten._scaled_dot_product_cudnn_attention, q, k, v, bias, False, results=many),
        "efficient": lambda: fused(
            aten._scaled_dot_product_efficient_attention, q, k, v, bias, False, results=(y, other, other, other)
        ),
        "flash": lambda: fused(aten._scaled_dot_product_flash_attention, q, k, v, results=many),
        "fused": lambda: fused(aten._scaled_dot_product_fused_attention_overrideable, q, k, v, bias, results=many),
    }[name]()
    mask, report = None if name == "flash" else bias, CaptureReport()
    given = [q, k, v] if mask is None else [q, k, v, bias]
    (got,) = make_callable(module, [], Options(cpu), report)(list(given))
    torch.testing.assert_close(got, F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True))
    assert [line.where for line in report.lines] == [cpu.name] * 2


def test_such_attention_between_operators_of_pytorch_runs_here(cpu):
    """Numbers among its results, which nothing reads, do not keep it in PyTorch."""
    q, y = torch.rand(1, 2, 3, 8), captured(1, 2, 3, 8)
    module = fused(torch.ops.aten._scaled_dot_product_flash_attention, q, q, q, results=(y, y, None, None, 3, 3))
    (first,) = (n for n in module.graph.nodes if n.target is operator.getitem)
    with module.graph.inserting_after(first):
        last = module.graph.call_function(torch.ops.aten.special_bessel_j0.default, (first,))
    last.meta["val"] = y
    next(n for n in module.graph.nodes if n.op == "output").args = ((last,),)
    module.recompile()
    report = CaptureReport()
    (got,) = make_callable(module, [], Options(cpu), report)([q, q, q])
    torch.testing.assert_close(got, torch.special.bessel_j0(F.scaled_dot_product_attention(q, q, q)))
    assert [line.where for line in report.lines] == [cpu.name, cpu.name, "PyTorch"]
