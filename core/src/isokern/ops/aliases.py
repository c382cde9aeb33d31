"""Eager functions that are more than a call of the operator of their name, each with the operators that it calls."""

ALIASES: dict[str, tuple[str, ...]] = {  # the functions are in eager/functions.py
    "add_assign": ("add",),
    "cast": ("cast", "dequantize", "quantize"),
    "clip": ("clamp", "clip"),
    "copy": ("copy",),
    "fill": ("fill",),
    "gather": ("embedding", "gather"),
    "matmul": ("matmul", "matmul_mixed"),
    "matmul_slice": ("matmul_transposed",),
    "rope_inplace": ("rope",),
    "transpose": ("rearrange",),
}
