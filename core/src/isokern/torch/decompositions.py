"""Which ATen operators PyTorch decomposes first: those of its default table, but for those that are operators here."""

from __future__ import annotations

from functools import cache
from typing import Any

from .library import library as torch

NAMES = """_fused_rms_norm _prelu_kernel _scaled_dot_product_flash_attention_for_cpu _upsample_bilinear2d_aa
    _upsample_bicubic2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d addcdiv addcmul
    baddbmm celu channel_shuffle deg2rad dot frac glu gru hardshrink hardsigmoid hardswish index_add isneginf isposinf
    lerp linear log_sigmoid_forward logaddexp logaddexp2 logsumexp lstm masked_fill mish mv nan_to_num
    pixel_shuffle pixel_unshuffle rad2deg reflection_pad1d reflection_pad2d reflection_pad3d repeat_interleave
    replication_pad1d replication_pad2d replication_pad3d rms_norm rnn_relu rnn_tanh roll scaled_dot_product_attention
    silu sinc softplus softshrink split stack std std_mean tril triu unbind unfold upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
    var_mean xlogy"""
KEPT = frozenset(NAMES.split())


def list_decompositions() -> dict[Any, Any]:
    """Return PyTorch's default decompositions without those of operators that are here."""
    return dict(_filter_default())


@cache
def _filter_default() -> dict[Any, Any]:
    table = torch.export.exported_program.default_decompositions()
    return {op: how for op, how in table.items() if not _is_kept(op)}


def _is_kept(op: Any) -> bool:
    space, _, name = op._schema.name.partition("::")
    return space == "aten" and name in KEPT
