"""PyTorch's functions without an OpInfo, called themselves on inputs drawn here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from torch_rows import FLOATS, SPECIAL, Elsewhere, Row, Sample, batched, ik, pair

Inputs = Callable[[torch.dtype], list[Sample]]


def draw(*shape: int, dtype: torch.dtype = torch.float32, low: float = -3, high: float = 3) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.rand(shape, dtype=dtype) * (high - low) + low
    return torch.randint(max(0, int(low)) if dtype is torch.uint8 else int(low), int(high) + 1, shape).to(dtype)


def each(*shapes: Any, low: float = -3, high: float = 3, **attrs: Any) -> Inputs:
    """Return one sample for each choice of attributes, whose values are lists; shapes become tensors."""

    def make(dtype: torch.dtype) -> list[Sample]:
        tried: list[dict[str, Any]] = [{}]
        for name, values in attrs.items():
            tried = [{**t, name: v} for t in tried for v in values]
        drawn = lambda s: draw(*s, dtype=dtype, low=low, high=high) if isinstance(s, tuple) else s  # noqa: E731
        return [(tuple(drawn(s) for s in shapes), kwargs) for kwargs in tried]

    return make


def numbers(*values: float) -> Inputs:
    """Return samples of a tensor, among it special numbers, and one of the values."""
    return lambda dtype: [
        ((x, v), {}) for v in values for x in (draw(3, 5, dtype=dtype), torch.tensor(SPECIAL, dtype=dtype))
    ]


def with_number(name: str) -> Callable[..., Any]:
    return lambda x, v: getattr(ik, name)(x, value=float(v))


def lp_pool(dims: int) -> Callable[..., Any]:
    """PyTorch's sums powers, not powers of magnitudes; above 0 they are the same."""

    def call(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
        if ceil_mode and any((n - kernel_size) % (stride or kernel_size) for n in x.shape[2:]):
            raise Elsewhere("PyTorch counts a window that passes the end as a whole one")
        x, single = batched(x, dims + 2)
        y = getattr(ik, f"lp_pool{dims}d")(
            x,
            p=int(norm_type),
            kernel=pair(kernel_size, dims),
            stride=() if stride is None else pair(stride, dims),
            ceil_mode=ceil_mode,
        )
        return y[0] if single else y

    return call


def fold(x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    x, single = batched(x, 3)
    y = ik.fold(
        x,
        size=pair(output_size, 2),
        kernel=pair(kernel_size, 2),
        dilation=pair(dilation, 2),
        padding=pair(padding, 2),
        stride=pair(stride, 2),
    )
    return y[0] if single else y


ROWS = [
    Row(
        "torch.add of a number", "add_scalar", with_number("add_scalar"), inputs=numbers(0.7, -2.5), function=torch.add
    ),
    Row("torch.mul by a number", "scale", with_number("scale"), inputs=numbers(0.7, -2.5, 0.0), function=torch.mul),
    Row(
        "torch.div by a number", "div_scalar", with_number("div_scalar"), inputs=numbers(0.7, -2.5), function=torch.div
    ),
    Row(
        "torch.rsub of a number",
        "rsub_scalar",
        with_number("rsub_scalar"),
        inputs=numbers(0.7, -2.5),
        function=torch.rsub,
    ),
    Row(
        "torch.pow of a number",
        "pow_scalar",
        with_number("pow_scalar"),
        inputs=numbers(2, 3, -1, -2, 0, 1, 2.5),
        function=torch.pow,
        slack=10,
    ),
    Row(
        "torch.clamp by numbers",
        "clip",
        lambda x, min=None, max=None: ik.clip(
            x, min=-math.inf if min is None else min, max=math.inf if max is None else max
        ),
        inputs=lambda dtype: [
            ((x,), {"min": low, "max": high})
            for x in (
                draw(4, 5, dtype=dtype),
                torch.tensor(SPECIAL).nan_to_num(posinf=9, neginf=-9).clamp(-9, 9).to(dtype),
            )
            # PyTorch takes -1 for 255 in U8
            for low, high in (
                (-1 if dtype.is_signed else 1, 2),
                (None, 1),
                (0, None),
                (2, -2 if dtype.is_signed else 1),
            )
        ],
        function=torch.clamp,
    ),
    Row(
        "torch.ldexp of whole numbers",
        "ldexp",
        lambda x, n: ik.ldexp(x, n),
        inputs=lambda dtype: [
            ((torch.tensor(SPECIAL, dtype=dtype)[:, None], torch.tensor([0, 1, -1, 20, -30], dtype=torch.int32)), {}),
            ((draw(3, 4, dtype=dtype), draw(4, dtype=torch.int64)), {}),
        ],
        function=torch.ldexp,
    ),
    Row(
        "torch.add with alpha",
        "axpy",
        lambda b, a, alpha: ik.axpy(a, b, alpha=alpha),
        inputs=each((3, 5), (3, 5), alpha=[0.5, -2.0]),
        function=torch.add,
    ),
    Row(
        "torch.heaviside of 0",
        "step",
        lambda x, zero: ik.step(x),
        inputs=lambda dtype: [((draw(3, 5, dtype=dtype), torch.zeros((), dtype=dtype)), {})],
        function=torch.heaviside,
    ),
    Row(
        "mse_loss without a reduction",
        "squared_difference",
        lambda a, b, reduction: ik.squared_difference(a, b),
        inputs=each((3, 5), (3, 5), reduction=["none"]),
        dtypes=FLOATS,
        function=F.mse_loss,
    ),
    # Products
    Row(
        "torch.addmm of transposes",
        "gemm",
        lambda c, a, b, beta, alpha: ik.gemm(a, b, None, c, trans_a=True, trans_b=True, alpha=alpha, beta=beta),
        inputs=each((4, 5), (3, 4), (5, 3), beta=[0, 1, 0.5], alpha=[1, -2.0]),
        function=lambda c, a, b, **more: torch.addmm(c, a.T, b.T, **more),
    ),
    Row(
        "torch.baddbmm of alpha 1",
        "batch_matmul",
        lambda c, a, b: ik.batch_matmul(c, a, b),
        inputs=each((2, 4, 5), (2, 4, 3), (2, 3, 5)),
        function=torch.baddbmm,
    ),
    Row(
        "linear without a bias",
        "matmul_transposed",
        lambda x, w: ik.matmul_transposed(x, w),
        inputs=each((2, 3, 4), (5, 4)),
        dtypes=(torch.float32,),
        function=F.linear,
    ),
    Row(
        "torch._int_mm",
        "matmul_integer",
        lambda a, b: ik.matmul_integer(a, b),
        inputs=lambda dtype: [
            ((draw(17, 8, dtype=dtype, low=-99, high=99), draw(8, 16, dtype=dtype, low=-99, high=99)), {})
        ],
        dtypes=(torch.int8,),
        function=torch._int_mm,
    ),
    Row(
        "vector_norm of 1",
        "asum",
        lambda x, ord: ik.asum(x),
        inputs=each((3, 5), ord=[1]),
        function=torch.linalg.vector_norm,
    ),
    Row(
        "vector_norm of 2",
        "nrm2",
        lambda x, ord: ik.nrm2(x),
        inputs=each((3, 5), ord=[2]),
        function=torch.linalg.vector_norm,
    ),
    Row(
        "vector_norm of 1 along dims",
        "reduce_l1",
        lambda x, ord, dim: ik.reduce_l1(x, axes=dim),
        inputs=each((3, 5, 2), ord=[1], dim=[(0,), (1, 2)]),
        dtypes=FLOATS,
        function=torch.linalg.vector_norm,
    ),
    Row(
        "vector_norm of 2 along dims",
        "reduce_l2",
        lambda x, ord, dim: ik.reduce_l2(x, axes=dim),
        inputs=each((3, 5, 2), ord=[2], dim=[(0,), (1, 2)]),
        function=torch.linalg.vector_norm,
    ),
    # Places and windows
    *(
        Row(
            f"lp_pool{d}d",
            f"lp_pool{d}d",
            lp_pool(d),
            inputs=each(
                (2, 3, *(9,) * d),
                norm_type=[1, 2, 3, 4],
                kernel_size=[3, 2],
                stride=[None, 1],
                ceil_mode=[False, True],
                low=0.1,
            ),
            share=0.8,
            function=getattr(F, f"lp_pool{d}d"),
            slack=10,
        )
        for d in (1, 2, 3)
    ),
    *(
        Row(
            f"adaptive_{kind}_pool2d of 1",
            f"global_{kind}_pool",
            lambda x, _, call=kind: getattr(ik, f"global_{call}_pool")(x),
            inputs=each((2, 3, 5, 7), 1),
            function=getattr(F, f"adaptive_{kind}_pool2d"),
        )
        for kind in ("avg", "max")
    ),
    Row(
        "max_pool2d with indices",
        "max_pool2d_with_indices",
        lambda x, kernel, stride, padding, return_indices: ik.max_pool2d_with_indices(
            x, kernel=kernel, stride=stride, padding=padding
        ),
        inputs=lambda dtype: [
            ((x,), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "return_indices": True})
            for x in (
                draw(2, 3, 8, 7, dtype=dtype),
                torch.tensor([*SPECIAL, *SPECIAL], dtype=dtype).reshape(1, 1, 6, 6),
            )
        ],
        function=lambda x, kernel, **more: F.max_pool2d(x, kernel, **more),
    ),
    Row(
        "fold",
        "fold",
        fold,
        inputs=each(
            (2, 18, 12), output_size=[(4, 6)], kernel_size=[(2, 3)], padding=[(1, 0)], stride=[(2, 1)], dilation=[1]
        ),
        dtypes=FLOATS,
        function=F.fold,
    ),
    Row(
        "affine_grid",
        "affine_grid",
        lambda theta, size, align_corners: ik.affine_grid(theta, shape=size, align_corners=align_corners),
        inputs=lambda dtype: [
            ((draw(*shape, dtype=dtype),), {"size": size, "align_corners": align})
            for shape, size in (((2, 2, 3), (2, 3, 4, 5)), ((2, 3, 4), (2, 3, 4, 5, 6)), ((1, 2, 3), (1, 1, 2, 2)))
            for align in (False, True)
        ],
        function=F.affine_grid,
    ),
    Row(
        "x[i, j]",
        "gather_nd",
        lambda x, i, j: ik.gather_nd(x, ik.stack([i, j], axis=-1)),
        inputs=lambda dtype: [((draw(3, 4, 5, dtype=dtype), torch.tensor([0, -1, 2]), torch.tensor([3, 1, -4])), {})],
        function=lambda x, i, j: x[i, j],
    ),
    Row(
        "x[:, mask]",
        "compress",
        lambda x, mask: (lambda y, count: y[:, : int(count.numpy())])(*ik.compress(x, mask, axis=1)),
        inputs=lambda dtype: [((draw(3, 4, 5, dtype=dtype), torch.tensor([True, False, True, True])), {})],
        function=lambda x, mask: x[:, mask],
    ),
    Row(
        "slice_scatter",
        "copy_slice",
        lambda y, x, dim, start, end: ik.copy_slice(x, y_offset=start, count=end - start, out=ik.copy(y)),
        inputs=lambda dtype: [((draw(9, dtype=dtype), draw(3, dtype=dtype), 0, 4, 7), {})],
        function=torch.slice_scatter,
    ),
    Row(
        "stft",
        "stft",
        lambda x, window, hop: ik.transpose(
            ik.stft(ik.unsqueeze(x, axes=(-1,)), window, step=hop, onesided=True), axes=(0, 2, 1, 3)
        ),
        inputs=each((2, 31), (8,), hop=[3, 8]),
        function=lambda x, window, hop: torch.stft(
            x, window.shape[0], hop, window=window, center=False, return_complex=True
        ),
        slack=10,
    ),
    # Attention with the logarithms of sums
    Row(
        "flash attention for the CPU",
        "attention_lse",
        lambda q, k, v: (lambda y, lse: (ik.transpose(y, axes=(0, 2, 1, 3)), ik.transpose(lse, axes=(0, 2, 1))))(
            *ik.attention_lse(*(ik.transpose(t, axes=(0, 2, 1, 3)) for t in (q, k, v)))
        ),
        inputs=each((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8)),
        dtypes=(torch.float32,),
        function=torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
    ),
]
