"""Eager functions that are more than a call of the operator of their name, each with the operators that it calls.

Those without an operator return views.
"""

ALIASES: dict[str, tuple[str, ...]] = {  # the functions are in eager/functions.py and eager/conveniences.py
    "add_assign": ("add",),
    "cast": ("cast", "dequantize", "quantize"),
    "chunk": (),
    "clip": ("clamp", "clip"),
    "copy": ("copy",),
    "diag": ("diag_embed", "diagonal"),
    "diagflat": ("diag_embed",),
    "div": ("cast", "div"),
    "einsum": ("generic", "matmul"),
    "fill": ("fill",),
    "float_power": ("cast", "pow"),
    "full": ("fill",),
    "gather": ("embedding", "gather"),
    "index_copy": ("scatter",),
    "matmul": ("matmul", "matmul_mixed"),
    "matmul_slice": ("matmul_transposed",),
    "meshgrid": (),
    "ones": ("fill",),
    "rope_inplace": ("rope",),
    "select_last_token": ("gather", "sub"),
    "split": (),
    "take": ("gather",),
    "take_along_axis": ("gather_elements",),
    "transpose": ("rearrange",),
}
