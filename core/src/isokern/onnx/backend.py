"""ONNX's backend interface: `prepare`, `run_model`, `run_node` and `supports_device`, on any device of ours.

Devices are called as ONNX calls them (CPU, CUDA), or by our names (`opencl:0`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.discovery import device as find_device
from ..status import DeviceNotAvailable, InvalidArgument
from .library import proto
from .model import Model, load

try:
    from onnx.backend.base import Backend, BackendRep, namedtupledict
except ImportError:
    raise InvalidArgument("onnx.backend", "the library is not installed", hint="pip install 'isokern[onnx]'") from None


class Prepared(BackendRep):  # type: ignore[misc]  # a class of the library, which has no types
    """A model that is ready to run."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **_options: Any) -> tuple[Any, ...]:
        """Run on arrays in the inputs' order; the results have their names, too."""
        found = self.model.run(*inputs) if isinstance(inputs, (list, tuple)) else self.model.run(inputs)
        return tuple(found) if isinstance(found, tuple) else (found,)


class IsokernBackend(Backend):  # type: ignore[misc]
    """The backend; the functions of this module are its methods."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> Prepared:
        """Load a model for a device; `rtol` and `atol` are for those who compare results."""
        options = {name: value for name, value in options.items() if name not in ("rtol", "atol")}
        return Prepared(load(model, _ours(device), **options))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Load a model and run it once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Any = None,
        *,
        opset_version: int | None = None,
        **_options: Any,
    ) -> tuple[Any, ...]:
        """Run one node on arrays; it is of the newest opset unless `opset_version` says another."""
        import numpy as np

        arrays = [np.asarray(x) for x in inputs]
        names = [n for n in node.input if n]
        helper = proto.helper
        kinds = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in zip(names, arrays, strict=True)
        ]
        outputs = [proto.ValueInfoProto(name=n) for n in node.output if n]
        opset = opset_version or proto.defs.onnx_opset_version()
        graph = helper.make_graph([node], node.name or node.op_type, kinds, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        for value in model.graph.output:  # the checker wants a type; results say their own
            value.type.tensor_type.elem_type = proto.TensorProto.UNDEFINED
        found = cls.run_model(model, dict(zip(names, arrays, strict=True)), device)
        return namedtupledict("Outputs", [n for n in node.output if n])(*found)  # type: ignore[no-any-return]

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether there is such a device."""
        try:
            find_device(_ours(device))
        except DeviceNotAvailable:
            return False
        return True


def _ours(device: str) -> str:
    """Return our name of a device: ONNX's are in capitals."""
    return device.lower()


prepare = IsokernBackend.prepare
run_model = IsokernBackend.run_model
run_node = IsokernBackend.run_node
supports_device = IsokernBackend.supports_device
