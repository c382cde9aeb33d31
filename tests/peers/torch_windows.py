"""PyTorch's convolutions, pools, resampling and transforms, made of our operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch_rows import (
    ANY,
    FLOATS,
    NANS,
    Elsewhere,
    Row,
    Sample,
    batched,
    ik,
    pair,
)


def convolve(dims: int) -> Callable[..., Any]:
    def call(
        x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        x, single = batched(x, dims + 2)
        dilation = pair(dilation, dims)
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(dilation, w.shape[2:], strict=True)]
            low, high = [t // 2 for t in total], [t - t // 2 for t in total]
        else:
            low = high = [0] * dims if padding == "valid" else list(pair(padding, dims))
        stride = pair(stride, dims)
        if dims == 1:
            y = ik.conv1d(
                x, w, bias, stride=stride[0], padding=low[0], end_padding=high[0], dilation=dilation[0], groups=groups
            )
        else:
            y = getattr(ik, f"conv{dims}d")(
                x, w, bias, stride=stride, padding=(*low, *high), dilation=dilation, groups=groups
            )
        return y[0] if single else y

    return call


def transpose_convolve(dims: int) -> Callable[..., Any]:
    def call(
        x: Any,
        w: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        x, single = batched(x, dims + 2)
        y = getattr(ik, f"conv_transpose{dims}d")(
            x,
            w,
            bias,
            stride=pair(stride, dims),
            padding=pair(padding, dims) * 2,
            output_padding=pair(output_padding, dims),
            dilation=pair(dilation, dims),
            groups=groups,
        )
        return y[0] if single else y

    return call


def places(sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> list[int]:
    """Return how many elements behind the end PyTorch's ceil_mode reads in each dim."""
    found = []
    for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        reach = size + 2 * p - d * (k - 1) - 1
        count = -(-reach // s)
        if count * s >= size + p:
            count -= 1
        found.append(max(0, count * s - reach))
    return found


def max_pool(dims: int) -> Callable[..., Any]:
    """Return max_pool{dims}d; ceil_mode is padding behind the end where ours has none."""

    def call(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        x, single = batched(x, dims + 2)
        kernel, padding, dilation = (pair(v, dims) for v in (kernel_size, padding, dilation))
        stride = kernel if stride is None or stride == [] else pair(stride, dims)
        behind = places(x.shape[2:], kernel, stride, padding, dilation) if ceil_mode else [0] * dims
        high = [p + b for p, b in zip(padding, behind, strict=True)]
        if any(h > d * (k - 1) for h, d, k in zip(high, dilation, kernel, strict=True)):
            raise Elsewhere("padding as wide as the window")
        shared = {"stride": stride, "padding": (*padding, *high), "dilation": dilation}
        if dims == 1:
            shared = {"stride": stride[0], "padding": padding[0], "end_padding": high[0], "dilation": dilation[0]}
        if return_indices:
            if dims != 2:
                raise Elsewhere("indices of other pools than those in two dims")
            found = ik.max_pool2d_with_indices(x, kernel=kernel, **shared)
            return [f[0] for f in found] if single else found
        y = getattr(ik, f"max_pool{dims}d")(x, kernel=kernel[0] if dims == 1 else kernel, **shared)
        return y[0] if single else y

    return call


def avg_pool(dims: int) -> Callable[..., Any]:
    def call(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        x, single = batched(x, dims + 2)
        kernel, padding = pair(kernel_size, dims), pair(padding, dims)
        stride = kernel if stride in (None, (), []) else pair(stride, dims)
        if divisor_override is not None:
            if ceil_mode and any(padding):
                raise Elsewhere("a divisor of windows that pass the padding")
            factor = math.prod(kernel) / divisor_override
            return ik.scale(call(x, kernel, stride, padding, ceil_mode), value=factor)  # without a batch as given
        if dims == 3:
            y = ik.avg_pool3d(
                x,
                kernel=kernel,
                stride=stride,
                padding=padding,
                ceil_mode=ceil_mode,
                count_include_pad=count_include_pad,
            )
            return y[0] if single else y
        behind = places(x.shape[2:], kernel, stride, padding, (1,) * dims) if ceil_mode else [0] * dims
        if any(behind) and count_include_pad and any(padding):
            raise Elsewhere("the part of a window behind the padding does not count")
        high = [p + b for p, b in zip(padding, behind, strict=True)]
        if any(h > k - 1 for h, k in zip(high, kernel, strict=True)):
            raise Elsewhere("padding as wide as the window")
        include = count_include_pad and not any(behind)
        if dims == 1:
            y = ik.avg_pool1d(
                x,
                kernel=kernel[0],
                stride=stride[0],
                padding=padding[0],
                end_padding=high[0],
                count_include_pad=include,
            )
        else:
            y = ik.avg_pool2d(x, kernel=kernel, stride=stride, padding=(*padding, *high), count_include_pad=include)
        return y[0] if single else y

    return call


def adaptive(name: str, dims: int) -> Callable[..., Any]:
    def call(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        x, single = batched(x, dims + 2)
        wanted = [n if o is None else o for o, n in zip(pair(output_size, dims), x.shape[2:], strict=True)]
        if 0 in wanted:
            raise Elsewhere("no bins")
        y = getattr(ik, name)(x, output_size=wanted)
        y = y[0] if single else y
        return (y, ANY) if return_indices else y

    return call


def max_unpool(dims: int) -> Callable[..., Any]:
    def call(
        x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Any:
        x, single = batched(x, dims + 2)
        indices, _ = batched(indices, dims + 2)
        kernel, padding = pair(kernel_size, dims), pair(padding, dims)
        stride = kernel if stride is None else pair(stride, dims)
        usual = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[2:], stride, padding, kernel, strict=True)]
        y = ik.max_unpool(x, indices, size=usual if output_size is None else tuple(output_size)[-dims:])
        return y[0] if single else y

    return call


def im2col(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    x, single = batched(x, 4)
    y = ik.im2col(
        x,
        kernel=pair(kernel_size, 2),
        dilation=pair(dilation, 2),
        padding=pair(padding, 2),
        stride=pair(stride, 2),
    )
    return y[0] if single else y


# Resampling


def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    dims = x.ndim - 2
    if size is None:
        exact = [
            n * f
            for n, f in zip(
                x.shape[2:],
                pair(scale_factor, dims) if not isinstance(scale_factor, float) else (scale_factor,) * dims,
                strict=True,
            )
        ]
        if any(v != int(v) for v in exact):
            raise Elsewhere("places by a factor other than the quotient of the sizes")
        sizes = tuple(int(v) for v in exact)
    else:
        sizes = pair(size, dims)
    if mode == "area":
        return getattr(ik, f"adaptive_avg_pool{dims}d")(x, output_size=sizes)
    if mode == "nearest":
        return ik.interpolate(x, sizes=sizes, mode="nearest", coordinates="asymmetric", nearest_mode="floor")
    if mode == "nearest-exact":
        return ik.interpolate(x, sizes=sizes, mode="nearest", nearest_mode="round_prefer_ceil")
    ours = "cubic" if mode == "bicubic" else "linear"
    more = {"antialias": True, "exclude_outside": True, "cubic_a": -0.5} if antialias else {}
    return ik.interpolate(
        x, sizes=sizes, mode=ours, coordinates="align_corners" if align_corners else "half_pixel", **more
    )


def grid_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    ours = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}[mode]
    return ik.grid_sample(x, grid, mode=ours, padding=padding_mode, align_corners=bool(align_corners))


def grid_sampler(x: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    names = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return grid_sample(x, grid, names[0][mode], names[1][padding], align_corners)


# Transforms


def transform(inverse: bool = False, onesided: bool = False) -> Callable[..., Any]:
    """Return fft, ifft or rfft; of real numbers, as pairs of real and imaginary parts."""

    def call(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
        axis = dim % x.ndim
        count = x.shape[axis] if n is None else n
        y = ik.dft(ik.unsqueeze(x, axes=(-1,)), axis=axis, length=count, inverse=inverse, onesided=onesided)
        power = {None: 0, "backward": 0, "ortho": 0.5, "forward": 1}[norm]
        return ik.scale(y, value=float(count) ** (power if inverse else -power)) if power else y

    return call


def windows(dims: int) -> Callable[[torch.dtype], list[Sample]]:
    """Return a sample of a pool over NaN and infinities."""
    return lambda dtype: [((torch.tensor(NANS, dtype=dtype)[(None,) * dims], 2 if dims < 3 else (1, 2, 2)), {})]


def far_places(dtype: torch.dtype) -> list[Sample]:
    """Return samples of places far outside."""
    x = torch.rand(1, 2, 3, 4, dtype=dtype)
    places = torch.tensor([0, 0.9, -1, 1, 1.2, -3.7, 9, 1e5, -1e5], dtype=dtype)
    grid = torch.cartesian_prod(places, places).reshape(1, 9, 9, 2)
    return [
        ((x, grid), {"mode": mode, "padding_mode": padding, "align_corners": align})
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for align in (False, True)
    ]


ROWS = [
    *(Row(f"nn.functional.conv{d}d", f"conv{d}d", convolve(d), dtypes=FLOATS) for d in (1, 2, 3)),
    *(
        Row(f"nn.functional.conv_transpose{d}d", f"conv_transpose{d}d", transpose_convolve(d), dtypes=FLOATS)
        for d in (1, 2, 3)
    ),
    *(
        Row(
            f"nn.functional.max_pool{d}d",
            f"max_pool{d}d",
            max_pool(d),
            share=1 if d == 2 else 0.3,
            dtypes=FLOATS,
            inputs=windows(d),
        )
        for d in (1, 2, 3)
    ),
    *(
        Row(f"nn.functional.avg_pool{d}d", f"avg_pool{d}d", avg_pool(d), share=0.3, dtypes=FLOATS, inputs=windows(d))
        for d in (1, 2, 3)
    ),
    *(
        Row(
            f"nn.functional.adaptive_{kind}_pool{d}d",
            f"adaptive_{kind}_pool{d}d",
            adaptive(f"adaptive_{kind}_pool{d}d", d),
            inputs=windows(d),
        )
        for kind in ("avg", "max")
        for d in (1, 2, 3)
    ),
    *(Row(f"nn.functional.max_unpool{d}d", "max_unpool", max_unpool(d)) for d in (1, 2, 3)),
    Row("nn.functional.unfold", "im2col", im2col),
    *(
        Row(f"nn.functional.interpolate.{mode}", ours, interpolate, share=0.3, dtypes=FLOATS)
        for mode, ours in {
            "nearest": "interpolate",
            "nearest-exact": "interpolate",
            "linear": "interpolate",
            "bilinear": "interpolate",
            "trilinear": "interpolate",
            "bicubic": "interpolate",
            "area": "adaptive_avg_pool2d",
        }.items()
    ),
    Row(
        "nn.functional.upsample_bilinear",
        "interpolate",
        lambda x, size=None, scale_factor=None: interpolate(x, size, scale_factor, "bilinear", True),
        share=0.3,
        dtypes=FLOATS,
    ),
    Row(
        "nn.functional.upsample_nearest",
        "interpolate",
        lambda x, size=None, scale_factor=None: interpolate(x, size, scale_factor),
        share=0.3,
        dtypes=FLOATS,
    ),
    Row("nn.functional.grid_sample", "grid_sample", grid_sample, slack=10, inputs=far_places),
    Row("grid_sampler_2d", "grid_sample", grid_sampler, slack=10),
    Row("grid_sampler_3d", "grid_sample", grid_sampler, slack=10),
    Row("fft.fft", "dft", transform(), dtypes=FLOATS, slack=10),
    Row("fft.ifft", "dft", transform(inverse=True), dtypes=FLOATS, slack=10),
    Row("fft.rfft", "dft", transform(onesided=True), dtypes=FLOATS, slack=10),
]
