"""Matrix products by a library: the plans of the stem `gemm` that it takes, and the variant that calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from isokern.backend import BASE_ALIGNMENT, Declined, Kernel, KernelVariant, Stream, Unavailable, Workspace
from isokern.cabi.plan import Plan
from isokern.dtypes import BF16, F16, F32, F64, names
from isokern.layout import TensorDesc
from isokern.status import InternalError

from .driver import Matrix, Planned, Product
from .place import CudaPlace
from .streams import Call, CudaStream

NAME, PRIORITY = "cublaslt", 20
TYPES = (F32, F16, BF16, F64)
ALIGNED = 16  # bytes
ACTIVATIONS = {"none", "relu"}  # its gelu is less exact than F32


def product_of(plan: Plan) -> Product | str:
    """Return the product that a plan of stem `gemm` is, or why the library does not have it.

    The library is column-major: it reads a row-major matrix as its transpose, so yᵀ = bᵀ aᵀ is requested.
    """
    y, a, b, bias, c = [*plan.table, None, None][:5]
    assert y is not None and a is not None and b is not None
    alpha, beta, activation = (plan.attrs.get(n, d) for n, d in (("alpha", 1.0), ("beta", 0.0), ("activation", "none")))
    if y.dtype not in TYPES:
        return f"{y.dtype} is not of {names(TYPES)}"
    if activation not in ACTIVATIONS:
        return f"the library has no {activation}"
    if y.dtype is F64 and (bias is not None or activation != "none"):
        return "bias and activation in F64"
    if y.ndim > 3:
        return "batch dims that do not step together"
    if 0 in (y.numel, a.shape[-1]):
        return "nothing to multiply"
    if bias is not None and bias.strides[0] != 1 and bias.numel > 1:
        return "a bias with gaps"
    c = None if beta == 0 else c
    left, right, made = _either(b), _either(a), _lines(y)
    added = made if c is None else _lines(c)
    if left is None or right is None or made is None or added is None:
        return "a matrix has no dim along memory, or y and c not their last one"
    batch = y.shape[0] if y.ndim == 3 else 1
    if batch > 1 and y.strides[0] == 0:
        return "results of the batch in one place"
    if batch > 1 and c is not None and c.strides[0] == 0:
        return "one c for the whole batch"
    rounds = y.dtype in (F16, BF16) and (bias is not None or activation != "none")
    if rounds and any(n % ALIGNED for m in (left, right, made, added) for n in (m.offset, 2 * m.lead, 2 * m.apart)):
        return "bias or activation of 16-bit matrices that are not aligned, which it adds to rounded products"
    start = None if bias is None else bias.offset * y.dtype.itemsize
    return Product(y.dtype, batch, alpha, 0.0 if c is None else beta, activation, left, right, added, made, start)


def _lines(x: TensorDesc, transposed: bool = False) -> Matrix | None:
    """Return x, whose rows are contiguous, as a column-major matrix of the library, or None where they are not.

    A row of x is a column of that matrix.
    """
    rows, cols, along, step = x.shape[-2], x.shape[-1], x.strides[-1], x.strides[-2]
    if cols > 1 and along != 1:
        return None
    lead = step if rows > 1 else max(1, cols)
    if lead < max(1, cols):
        return None
    apart = x.strides[0] if x.ndim == 3 else 0
    return Matrix(cols, rows, lead, apart, x.offset * x.dtype.itemsize, transposed)


def _either(x: TensorDesc) -> Matrix | None:
    """Return x by its rows or, transposed, by its columns."""
    order = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return _lines(x) or _lines(x.permute(order), transposed=True)


class ProductKernel(Kernel):
    """A product that the library has planned."""

    def __init__(self, product: Product, planned: Planned) -> None:
        self.product, self.planned = product, planned
        self.workspace = Workspace(planned.workspace, BASE_ALIGNMENT)

    def _call(self, handles: Sequence[Any], workspace: Any, stream: CudaStream) -> Call:
        y, a, b = map(int, handles[:3])
        p = self.product
        c = int(handles[4]) if p.beta else y
        bias = int(handles[3]) + p.bias if p.bias is not None else 0
        addresses = (b + p.a.offset, a + p.b.offset, c + p.c.offset, y + p.y.offset, bias)
        scratch = 0 if workspace is None else int(workspace)
        return Call(partial(self.planned.enqueue, addresses, scratch), None, (self, handles, workspace), workspace)

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Enqueue the product."""
        assert isinstance(stream, CudaStream)
        stream.take(self._call(handles, workspace, stream))

    def bind(
        self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream, owned: Any
    ) -> Callable[[], None]:
        """Return the call with all its arguments bound."""
        assert isinstance(stream, CudaStream)
        call, keep = self._call(handles, workspace, stream), (self, owned)

        def launch_bound(stream: CudaStream = stream) -> None:
            if stream.recording is not None:
                stream.recording.owned.append(keep)
            stream.take(call)

        return launch_bound


def variants(device: CudaPlace) -> list[KernelVariant]:
    """Return the variant of the stem `gemm`, where the device has a library."""
    missing = ""
    library = None
    try:
        library = device.driver.products()
    except Unavailable as error:
        missing = str(error)
    if library is None and not missing:
        return []

    def supported(plan: Plan) -> str | None:
        product = product_of(plan)
        return missing or (product if isinstance(product, str) else None)

    def build(plan: Plan) -> ProductKernel:
        product = product_of(plan)
        assert library is not None and isinstance(product, Product)
        try:
            return ProductKernel(product, device.ask("create", library.plan, product))
        except InternalError as error:
            raise Declined(str(error)) from None

    return [KernelVariant("gemm", NAME, PRIORITY, supported, build, "default")]
