"""Compare operators with PyTorch on the samples by which PyTorch tests its own functions, its OpInfos.

The tables are in the modules beside this one: a row calls our operators in the signature of a function of PyTorch.
Where the meanings differ the call says how one is made of the other, or raises Elsewhere with what is not here; a row
says how many samples may be passed over so.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from isokern.backend import Device
from isokern.ops import all_operators, find
from isokern.ops.aliases import ALIASES
from isokern.ops.peers import peer_names

HOW = "is not installed: pip install torch expecttest (a build for the CPU is enough)"
torch = pytest.importorskip("torch", reason=f"PyTorch {HOW}")
pytest.importorskip("expecttest", reason=f"expecttest, which PyTorch's samples need, {HOW}")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch's own
    import torch_direct
    import torch_elementwise
    import torch_indices
    import torch_layouts
    import torch_losses
    import torch_products
    import torch_random
    import torch_reductions
    import torch_windows
    from torch_rows import ANY, FLOATS, NAMES, SPECIAL, TRIED, Elsewhere, Row, Sample, flatten, ik, translate

torch.set_num_threads(1)
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
TABLES = (
    torch_direct,
    torch_elementwise,
    torch_indices,
    torch_layouts,
    torch_losses,
    torch_products,
    torch_random,
    torch_reductions,
    torch_windows,
)
ROWS = [row for table in TABLES for row in table.ROWS]
SAMPLES = 40  # of a row and a dtype, at most, and spread over those that there are
RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-12}
ON_EVERY_DEVICE = "add amax cat cumsum gather matmul nn.functional.conv2d nn.functional.layer_norm softmax sort where"


@cache
def opinfos() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db  # ten seconds, so not before a test runs

    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}


def function_of(row: Row) -> Any:
    return row.function or opinfos()[row.name].op


def dtypes_of(row: Row) -> list[Any]:
    """Return the dtypes that PyTorch's function and our first operator have, or those of the row."""
    allowed = next(iter(find(row.ours.split()[0]).signature.types.values()), None)
    theirs = row.dtypes or TRIED if row.function else opinfos()[row.name].supported_dtypes("cpu")
    ours = {d.name for d in allowed} if allowed else set(NAMES.values())
    return [d for d in row.dtypes or TRIED if d in theirs and (row.dtypes or NAMES[d] in ours)]


def spread(found: list[Sample]) -> list[Sample]:
    """Return at most SAMPLES of the list, at equal distances, the first and the last among them."""
    if len(found) <= SAMPLES:
        return found
    return [found[i * (len(found) - 1) // (SAMPLES - 1)] for i in range(SAMPLES)]


def samples_of(row: Row, dtype: Any) -> Iterator[Sample]:
    torch.manual_seed(7)
    yield from row.inputs(dtype) if row.inputs else ()
    if row.function is not None:
        return
    given = opinfos()[row.name].sample_inputs("cpu", dtype, requires_grad=False)
    yield from spread([((s.input, *s.args), s.kwargs) for s in given])
    if row.special and dtype in FLOATS:
        numbers = [v for v in SPECIAL if not np.isin(v, row.apart) and not (np.isnan(v) and np.isnan(row.apart).any())]
        pairs = itertools.product(numbers, repeat=row.special)
        yield tuple(torch.tensor(column, dtype=dtype) for column in zip(*pairs, strict=True)), {}


def compare(row: Row, found: Any, wanted: Any, dtype: Any) -> None:
    ours, theirs = list(flatten(found)), list(flatten(wanted))
    assert len(ours) == len(theirs)
    for y, t in zip(ours, theirs, strict=True):
        if y is ANY:
            continue
        want = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).numpy()
        got = y.numpy()
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        rough = got.dtype == np.float32 or dtype is torch.float32
        bound = row.slack * RELATIVE[torch.float32 if rough else torch.float64]
        np.testing.assert_allclose(got, want, bound, bound)


def judge(row: Row, dtype: Any, device: Device, limit: int | None = None) -> tuple[Counter[str], set[str]]:
    """Compare a row's samples; return how many were compared, those passed over by reason, and what was called."""
    counts: Counter[str] = Counter()
    called: set[str] = set()
    ik.device = device
    function = function_of(row)
    for args, kwargs in itertools.islice(samples_of(row, dtype), limit):
        ik.called.clear()
        given = translate(args, device), {k: translate(v, device) for k, v in kwargs.items()}
        try:
            found = row.call(*given[0], **given[1])
        except Elsewhere as reason:
            counts[str(reason)] += 1
            continue
        except Exception as error:
            raise AssertionError(f"{row.name} of {describe(args)} {describe(kwargs)} fails here") from error
        wanted = function(*args, **kwargs)
        try:
            compare(row, found, wanted, dtype)
        except AssertionError as error:
            raise AssertionError(f"{row.name} of {describe(args)} {describe(kwargs)} differs") from error
        counts[""] += 1
        called |= ik.called
    return counts, called


def describe(value: Any) -> str:
    """Return arguments as text, of tensors dtype and shape, and what is in small ones."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}" + (
            f"={value.tolist()}" if value.numel() < 5 else ""
        )
    if isinstance(value, dict):
        return " ".join(f"{k}={describe(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(describe, value))})"
    return repr(value)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_meaning_is_that_of_pytorch(cpu: Device, row: Row) -> None:
    total: Counter[str] = Counter()
    called: set[str] = set()
    tried = dtypes_of(row)
    assert tried, f"{row.name}: no dtype that both have"
    for dtype in tried:
        counts, names = judge(row, dtype, cpu)
        assert counts[""] > 0, f"{row.name}: nothing of {dtype} was compared: {dict(counts)}"
        total += counts
        called |= names
    assert set(row.ours.split()) <= called
    assert total[""] >= max(1, row.share * total.total()), dict(total)
    assert row.share == 1 or len(total) > 1, "no sample was passed over: the share is 1"


def test_most_operators_are_compared() -> None:
    judged = {name for row in ROWS for name in row.ours.split()}
    assert judged <= {op.name for op in all_operators()}
    assert len(judged) >= 290
    assert len({row.name for row in ROWS}) == len(ROWS)


def core_aten() -> set[str]:
    """Return the names of PyTorch's core operators, without their overloads."""
    found = set()
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None) if space == "aten" else None
        if op is not None and torch.Tag.core in op.tags:
            found.add(packet)
    return found


def test_every_core_operator_of_pytorch_has_a_row_in_the_table_of_names() -> None:
    from isokern.torch.table import NODES

    known, core = {row.name for row in peer_names() if row.peer == "PyTorch"}, core_aten()
    assert len(core) > 150
    assert core - known == set()
    assert known - core - set(NODES) == set(), "neither core operators nor nodes that are imported"


def test_what_the_table_of_names_says_is_what_is_compared() -> None:
    """A name of the table that is a row's function here has an operator in common with that row."""
    judged = {row.name: {*row.ours.split()} for row in ROWS}
    both = [row for row in peer_names() if row.peer == "PyTorch" and row.operators and row.name in judged]
    assert len(both) > 60
    for row in both:
        ours = {name for operator in row.operators for name in (operator, *ALIASES.get(operator, ()))}
        assert judged[row.name] & ours, row


@pytest.mark.parametrize("name", ON_EVERY_DEVICE.split())
def test_some_have_the_meaning_of_pytorch_on_every_device(devices: list[Device], name: str) -> None:
    (row,) = [row for row in ROWS if row.name == name]
    for device in devices:
        counts, _ = judge(row, torch.float32, device, limit=5)
        assert counts[""] >= 1
