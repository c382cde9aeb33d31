"""Test models of torchvision and transformers with random weights, compiled and exported, next to PyTorch itself."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from module_zoo import LANGUAGE, SMALL, VISION, images, make  # noqa: E402
from small_modules import difference  # noqa: E402

from isokern.torch import explain, load  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
BOUND = 1e-4  # of the scale, in F32


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def results(found: Any) -> list[Any]:
    """Return the tensors of a result, whatever holds them."""
    held = dict(found) if hasattr(found, "items") else found
    return [t for t in torch.utils._pytree.tree_leaves(held) if isinstance(t, torch.Tensor)]


def compare(model: Any, given: dict[str, Any], args: tuple[Any, ...], device: Any) -> None:
    """Compare a compiled model, and an exported one, with the model itself."""
    wanted = results(model(*args, **given))
    assert wanted
    compiled = torch.compile(model, backend="isokern", options={"device": device.name})
    assert difference(results(compiled(*args, **given)), wanted) < BOUND
    torch._dynamo.reset()
    loaded = load(torch.export.export(model, args, given), device)
    assert difference(results(loaded(*args, **given)), wanted) < BOUND


@pytest.mark.parametrize("name", VISION)
def test_vision(cpu, name):
    pytest.importorskip("PIL", reason="torchvision is not installed: pip install torchvision pillow")
    compare(make(VISION[name]), {}, (images(),), cpu)


@pytest.mark.parametrize("name", SMALL)
def test_small_ones_on_every_device(devices, name):
    pytest.importorskip("PIL", reason="torchvision is not installed: pip install torchvision pillow")
    model = make(VISION[name])
    for device in devices:
        compare(model, {}, (images(32),), device)
        torch._dynamo.reset()


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(cpu, name):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    build, given = LANGUAGE[name]
    model = make(build)
    compare(model, given, (), cpu)
    torch._dynamo.reset()
    assert explain(model, device=cpu, **given).elsewhere == ()
