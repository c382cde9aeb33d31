"""Test models of torchvision and transformers with random weights: compiled, exported, and as ONNX.

Each is compared with PyTorch itself, and as ONNX with ONNX Runtime, too.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install onnxruntime")
pytest.importorskip("onnxscript", reason="PyTorch exports no ONNX without onnxscript: pip install onnxscript")

from module_zoo import LANGUAGE, SMALL, VISION, Dims, export_onnx, images, make, tensors  # noqa: E402
from small_modules import difference  # noqa: E402

from isokern import onnx  # noqa: E402
from isokern.torch import explain, load  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
BOUND = 1e-4  # of the scale, in F32


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def compare(model: Any, args: tuple[Any, ...], given: dict[str, Any], devices: list[Any]) -> None:
    """Compare a compiled model and an ONNX model with the module itself on each device, and an exported one on one."""
    wanted = tensors(model(*args, **given))
    assert wanted
    exported = torch.export.export(model, args, given)
    proto, feeds = export_onnx(exported, args, given), [t.numpy() for t in tensors([args, given])]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {i.name: x for i, x in zip(session.get_inputs(), feeds, strict=True)})
    theirs = [torch.from_numpy(y) for y in found]
    assert difference(tensors(load(exported, devices[0])(*args, **given)), wanted) < BOUND
    for device in devices:
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="isokern", options={"device": device.name})
        assert difference(tensors(compiled(*args, **given)), wanted) < BOUND
        found = onnx.load(proto, device).run(*feeds)
        ours = [torch.from_numpy(y) for y in (found if isinstance(found, tuple) else [found])]
        assert difference(ours, theirs) < BOUND
        assert difference(ours, wanted) < BOUND


@pytest.mark.parametrize("name", [name for name in VISION if name not in SMALL])
def test_vision(cpu, name):
    pytest.importorskip("PIL", reason="torchvision is not installed: pip install torchvision pillow")
    compare(make(VISION[name]), (images(),), {}, [cpu])


@pytest.mark.parametrize("name", SMALL)
def test_small_ones_on_every_device(devices, name):
    pytest.importorskip("PIL", reason="torchvision is not installed: pip install torchvision pillow")
    compare(make(VISION[name]), (images(32),), {}, devices)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(cpu, devices, name):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    build, given = LANGUAGE[name](Dims())
    model = make(build)
    compare(model, (), given, devices)
    torch._dynamo.reset()
    assert explain(model, device=cpu, **given).elsewhere == ()
