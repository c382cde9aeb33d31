"""Compare each operator of PyTorch's own samples, traced to ATen and imported, with PyTorch.

A sample whose graph has an operator, or a use of one, that has no counterpart is passed over: those run in PyTorch.
What is compared has to be right, and there have to be many.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
pytest.importorskip("expecttest", reason="expecttest, which PyTorch's samples need, is not installed")

from torch.func import functionalize  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils import _pytree as trees  # noqa: E402

from isokern import IsokernError  # noqa: E402
from isokern.torch.decompositions import list_decompositions  # noqa: E402
from isokern.torch.programs import ModulePrograms, Options  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
DTYPES = (torch.float32, torch.int64, torch.bool)
SAMPLES = 6  # of an operator and a dtype, at equal distances
ELSEWHERE = ("linalg.", "fft.", "masked.", "_refs", "signal", "sparse", "special.", "torch.ops")
# Of equal elements any may be found, what is empty has any content, and PyTorch decomposes integers otherwise
ANY = {"argsort", "empty", "empty_like", "empty_permuted", "empty_strided", "linspace", "new_empty", "sort", "topk"}
ENOUGH = 3_900  # samples that have to be compared


def samples(op: Any, dtype: Any) -> list[Any]:
    torch.manual_seed(3)
    found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 60))
    if len(found) <= SAMPLES:
        return found
    return [found[i * (len(found) - 1) // (SAMPLES - 1)] for i in range(SAMPLES)]


def tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in trees.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def traced(op: Any, sample: Any) -> tuple[Any, list[Any]]:
    """Return a function of the tensors of a sample, and these."""
    flat, spec = trees.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [n for n, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]

    def call(*given: Any) -> list[Any]:
        leaves = list(flat)
        for n, tensor in zip(places, given, strict=True):
            leaves[n] = tensor
        args, named = trees.tree_unflatten(leaves, spec)
        return tensors(op.op(*args, **named))

    return call, [flat[n] for n in places]


def cases() -> Iterator[tuple[str, Any, Any]]:
    from torch.testing._internal.common_methods_invocations import op_db  # ten seconds

    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        if op.name not in ANY and not name.startswith(ELSEWHERE):
            yield from ((name, op, d) for d in DTYPES if d in op.supported_dtypes("cpu"))


def test_operators_have_the_meaning_of_pytorch(cpu: Any) -> None:
    table, options = list_decompositions(), Options(cpu)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    torch.set_num_threads(1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own
        for name, op, dtype in cases():
            for n, sample in enumerate(samples(op, dtype)):
                try:
                    call, given = traced(op, sample)
                    wanted = call(*[t.clone() for t in given])
                    module = make_fx(functionalize(call), decomposition_table=table, tracing_mode="fake")(*given)
                except Exception:  # of many kinds: PyTorch does not trace it
                    counts["not traced"] += 1
                    continue
                try:
                    found = ModulePrograms(module, (), options)(*given)
                except IsokernError:
                    counts["passed over"] += 1
                    continue
                counts["compared"] += 1
                try:
                    torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-5, equal_nan=True)
                except AssertionError as error:
                    wrong.append(f"{name} of {dtype}, sample {n}: {str(error).splitlines()[0]}")
    assert wrong == []
    assert counts["compared"] >= ENOUGH, counts
