"""Launches of matmul_transposed."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "added")
    if call.op == "matmul_mixed" or t.b.dtype.block == 1:
        call.refuse("weights that are not in blocks along the sum")
    rounded = int(call.attrs.lhs_quantization == "q8_0")
    n = t.y.shape[-1]
    k = t.a.shape[-1]
    m = t.y.numel // max(1, t.y.shape[-1])
    down = 1 if m == 1 else 2 if m < 4 else 4
    if m * k > 0:
        call.workspace(4 * m * k)
        call.launch("matmul_rows", groups=m * ceil_div(k, 2048), local=1, ROUNDED=rounded, b=None, k=k)
    call.launch(
        "matmul_blocks",
        groups=ceil_div(n, 16),
        local=1,
        ACROSS=4 // down,
        DOWN=down,
        EMPTY=int(m * k == 0),
        a=None,
        k=k,
        m=m,
    )
