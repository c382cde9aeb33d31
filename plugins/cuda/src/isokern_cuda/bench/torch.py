"""PyTorch as a peer of an operator, on tensors that share our memory by DLPack."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from isokern.backend import Peer, Stream
from isokern.declare.operator import Operator
from isokern.ops.conv2d import sides
from isokern.tensors import Tensor

Call = Callable[[], object]
Attrs = Mapping[str, Any]
Maker = Callable[[Any, Sequence[Any], Any, Attrs], Call | None]  # takes (torch, inputs, output, attributes)

# operator → torch's function of the same inputs that takes out=
INTO: dict[str, str] = {
    **{name: name for name in (
        "neg", "abs", "sign", "square", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10",
        "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
        "sigmoid",
        "floor", "ceil", "trunc", "round", "logical_not", "bitwise_not",
        "add", "sub", "mul", "div", "floor_divide", "pow", "minimum", "maximum", "copysign",
        "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "matmul", "where",
    )},
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}  # fmt: skip
# operator → torch's function of the same inputs that returns a new result
NEW = {"isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite", "relu": "relu"}
# operator → the function of torch.nn.functional that returns a new result
FUNCTIONAL = {n: n for n in ("silu", "gelu", "softplus", "softsign", "mish", "hardsigmoid", "hardswish", "linear")}


def _gemm(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call | None:
    if len(ins) != 2 or attrs["alpha"] != 1 or attrs["activation"] != "none":
        return None
    a, b = (ins[0].mT if attrs["trans_a"] else ins[0]), (ins[1].mT if attrs["trans_b"] else ins[1])
    return lambda: torch.matmul(a, b, out=y)


def _conv2d(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call | None:
    top, left, bottom, right = sides("conv2d", attrs["padding"])
    if (top, left) != (bottom, right):
        return None
    x, w, bias, residual = [*ins, None, None][:4]
    stride, dilation, groups, after = attrs["stride"], attrs["dilation"], attrs["groups"], attrs["activation"]
    if after not in ("none", "relu"):
        return None

    def call() -> object:
        made = torch.nn.functional.conv2d(x, w, bias, stride, (top, left), dilation, groups)
        made = made if residual is None else made.add_(residual)
        return made if after == "none" else made.relu_()

    return call


def _pool(name: str, *more: str) -> Maker:
    def maker(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call | None:
        top, left, bottom, right = sides(name, attrs["padding"])
        if (top, left) != (bottom, right) or ("dilation" not in more and set(attrs["dilation"]) != {1}):
            return None
        function, values = getattr(torch.nn.functional, name), {n: attrs[n] for n in more}
        kernel, stride = attrs["kernel"], attrs["stride"] or attrs["kernel"]
        return lambda: function(ins[0], kernel, stride, (top, left), **values)

    return maker


def _norm(name: str) -> Maker:
    def maker(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call:
        function, eps = getattr(torch.nn.functional, name), attrs["eps"]
        return lambda: function(ins[0], ins[0].shape[-1:], *ins[1:], eps=eps)

    return maker


def _batch_norm(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call:
    x, mean, var, w, bias = [*ins, None, None][:5]
    return lambda: torch.nn.functional.batch_norm(x, mean, var, w, bias, False, 0.0, attrs["eps"])


def _softmax(name: str) -> Maker:
    return lambda torch, ins, y, attrs: lambda: getattr(torch, name)(ins[0], attrs["axis"])


def _reduction(name: str) -> Maker:
    def maker(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call:
        function, axes, keepdims = getattr(torch, name), attrs["axes"] or tuple(range(ins[0].ndim)), attrs["keepdims"]
        return lambda: function(ins[0], axes, keepdims)

    return maker


def _bias_add(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call:
    x, bias = ins
    lifted = bias.reshape(-1, *[1] * (x.ndim - attrs["axis"] % x.ndim - 1))
    return lambda: torch.add(x, lifted, out=y)


def _slice(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call | None:
    steps = attrs["steps"] or [1] * len(attrs["starts"])
    if min(steps, default=1) < 1:
        return None
    view = ins[0]
    axes = attrs["axes"] or range(len(attrs["starts"]))
    for axis, start, end, step in zip(axes, attrs["starts"], attrs["ends"], steps, strict=True):
        view = view[(slice(None),) * (axis % view.ndim) + (slice(start, end, step),)]
    return lambda: y.copy_(view)


def _copy_slice(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call:
    count = attrs["count"]
    source, target = ins[0][attrs["x_offset"] :][:count], y[attrs["y_offset"] :][:count]
    return lambda: target.copy_(source)


def _pad(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call:
    widths = [n for pair in zip(reversed(attrs["low"]), reversed(attrs["high"]), strict=True) for n in pair]
    return lambda: torch.nn.functional.pad(ins[0], widths, value=attrs["value"])


def _gather(torch: Any, ins: Sequence[Any], y: Any, attrs: Attrs) -> Call:
    x, indices = ins
    index = (*[slice(None)] * (attrs["axis"] % x.ndim), indices)
    return lambda: x[index]  # unlike index_select it accepts negative indices, of any shape


OTHERS: dict[str, Maker] = {
    "gelu_tanh": lambda torch, ins, y, attrs: lambda: torch.nn.functional.gelu(ins[0], approximate="tanh"),
    "elu": lambda torch, ins, y, attrs: lambda: torch.nn.functional.elu(ins[0], attrs["alpha"]),
    "leaky_relu": lambda torch, ins, y, attrs: lambda: torch.nn.functional.leaky_relu(ins[0], attrs["alpha"]),
    "clip": lambda torch, ins, y, attrs: lambda: torch.clamp(ins[0], attrs["min"], attrs["max"], out=y),
    "scale": lambda torch, ins, y, attrs: lambda: torch.mul(ins[0], attrs["value"], out=y),
    "silu_mul": lambda torch, ins, y, attrs: lambda: torch.mul(torch.nn.functional.silu(ins[0]), ins[1], out=y),
    "bias_add": _bias_add,
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "layer_norm": _norm("layer_norm"),
    "rms_norm": _norm("rms_norm"),
    "batch_norm": _batch_norm,
    "reduce_sum": _reduction("sum"),
    "reduce_mean": _reduction("mean"),
    "reduce_max": _reduction("amax"),
    "reduce_min": _reduction("amin"),
    "argmax": lambda torch, ins, y, attrs: lambda: torch.argmax(ins[0], attrs["axis"], attrs["keepdims"]),
    "gemm": _gemm,
    "conv2d": _conv2d,
    "max_pool2d": _pool("max_pool2d", "dilation"),
    "avg_pool2d": _pool("avg_pool2d", "count_include_pad"),
    "adaptive_avg_pool2d": lambda torch, ins, y, attrs: (
        lambda: torch.nn.functional.adaptive_avg_pool2d(ins[0], tuple(y.shape[2:]))
    ),
    "cast": lambda torch, ins, y, attrs: lambda: y.copy_(ins[0]),
    "copy": lambda torch, ins, y, attrs: lambda: y.copy_(ins[0]),
    "rearrange": lambda torch, ins, y, attrs: lambda: y.copy_(ins[0]),
    "flatten": lambda torch, ins, y, attrs: lambda: y.copy_(ins[0].reshape(y.shape)),
    "slice": _slice,
    "copy_slice": _copy_slice,
    "fill": lambda torch, ins, y, attrs: lambda: y.fill_(attrs["value"]),
    "pad": _pad,
    "concat": lambda torch, ins, y, attrs: lambda: torch.cat(ins, attrs["axis"], out=y),
    "gather": _gather,
}


def torch_call(torch: Any, op: Operator, inputs: Sequence[Any], output: Any, attrs: Attrs) -> Call | None:
    """Return PyTorch's call for the same work, or None where PyTorch has none for the operator or these attributes.

    The call writes into `output` where it can.
    """
    if op.name in OTHERS:
        return OTHERS[op.name](torch, inputs, output, attrs)
    if op.name in INTO:
        into = getattr(torch, INTO[op.name])
        return lambda: into(*inputs, out=output)
    home, names = (torch, NEW) if op.name in NEW else (torch.nn.functional, FUNCTIONAL)
    if op.name not in names:
        return None
    function = getattr(home, names[op.name])
    return lambda: function(*inputs)


class Torch(Peer):
    """PyTorch, eager, with the stream of the bench as its current one."""

    name = "torch"

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Make the stream PyTorch's current one; F32 is not rounded to TF32, and cuDNN picks its fastest algorithm."""
        torch = importlib.import_module("torch")
        place = stream.device.dlpack_device
        assert place is not None
        products, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        kept = products.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
        products.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = False, False, True
        try:
            with torch.cuda.device(place[1]), torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
                yield
        finally:
            products.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = kept

    def make(
        self, op: Operator, inputs: Sequence[Tensor], output: Tensor, attrs: Attrs
    ) -> tuple[Call, np.ndarray[Any, Any]] | None:
        """Return a call by `torch_call`; a new result is copied into `output`, which is compared."""
        torch = importlib.import_module("torch")
        y = torch.from_dlpack(output)
        call = torch_call(torch, op, [torch.from_dlpack(t) for t in inputs], y, attrs)
        if call is None:
            return None
        returned: Any = call()
        # copy_slice returns a part of y that it has already written
        if returned is not y and returned.shape == y.shape:
            y.copy_(returned)
        output.device.default_stream.synchronize()
        return call, output.numpy()
