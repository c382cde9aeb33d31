"""How exact a device's results are, in units in the last place: over the cases, and over a dense sweep of numbers.

A row says for one operator, dtype and device how far results are from the exact value, at most and on average. The
cases' exact values are the declaration's reference. The sweep is for functions of one number: every F16 and BF16, a
part of all F32 by their bits, and drawn F64; its exact values are float64, or computed with 40 digits for F64 and where
float64 cancels; there the numbers of every dtype are drawn.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np

from ..arguments import read_text, write_text
from ..backend import Device
from ..call.descriptor import Descriptor
from ..declare.operator import Operator, Sample
from ..dtypes import F64, DType
from ..layout import TensorDesc
from ..oracle.cases import Case
from ..oracle.expected import judge, problem
from ..oracle.ulps import Array, exact_functions, exact_values, load_mpmath, ulp_errors
from ..oracle.values import generator, limits_of
from ..status import InvalidArgument, NotImplementedOnDevice
from ..tensors import tensor
from .derive import device_cases
from .run import Runner
from .suite import Part

SWEEP = Part(1, 4096)  # the part of all F32
CHUNK = 1 << 20  # numbers in one call
DRAWN = 1 << 14  # numbers whose exact values are computed with 40 digits
CANCELS = ("gelu",)  # float64 cancels in its reference
CASES, NUMBERS = "cases", "numbers"


@dataclass
class Accuracy:
    """The errors of an operator in one dtype on one device, in ULP: `values` results, the largest error and the mean.

    `source` is `cases`, or `numbers` with the part of all F32 that they are. `at` is the case or the number of the
    largest error, `reason` says in a table why the largest one grew, and `wrong` is the first result beyond what the
    declaration allows, which no table has.
    """

    operator: str
    dtype: str
    device: str
    source: str
    values: int = 0
    largest: float = 0.0
    mean: float = 0.0
    at: str = ""
    reason: str = ""
    wrong: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The key by which a row is found."""
        return self.operator, self.dtype, self.device, self.source

    def add(self, errors: Array, where: Array | str) -> None:
        """Count errors; `where` names what each, or all of them, belong to."""
        if not errors.size:
            return
        worst = int(np.argmax(errors))
        if errors.flat[worst] > self.largest or not self.values:
            self.largest, self.at = float(errors.flat[worst]), where if isinstance(where, str) else str(where[worst])
        total = self.mean * self.values + float(np.sum(errors, where=np.isfinite(errors)))
        self.values += errors.size
        self.mean = total / self.values


def measure_cases(device: Device, operators: Sequence[Operator]) -> Iterator[Accuracy]:
    """Yield a row for each operator that rounds and each of its first dtypes, over the device's quick cases."""
    for operator in operators:
        if operator.exact:
            continue
        rows: dict[str, Accuracy] = {}

        def observe(case: Case, got: Array, expected: Array, dtype: DType, rows: dict[str, Accuracy] = rows) -> None:
            row = rows.setdefault(dtype.name, Accuracy(case.operator.name, dtype.name, backend_of(device), CASES))
            errors = ulp_errors(got, expected.astype(np.float64), dtype)
            if "flushes_denormals" in device.conditions:
                errors = errors[np.abs(expected) >= float(limits_of(dtype).tiny)]
            row.add(errors.reshape(-1), case.id)

        runner = Runner(device, observe=observe)
        for case in device_cases(device, [operator]):
            if case.quick and case.values == "drawn" and case.sample.size != "edge":  # those judge rare rows
                runner.run(case)
        yield from rows.values()


def backend_of(device: Device) -> str:
    """Return the name of the device's backend: rows of `cpu:0` are those of `cpu`."""
    return device.name.partition(":")[0]


def is_swept(operator: Operator) -> bool:
    """Return whether an operator is a function of one number whose exact values are known."""
    return len(operator.signature.inputs) == 1 and operator.name in exact_functions(load_mpmath())


def measure_sweep(device: Device, operators: Sequence[Operator], part: Part = SWEEP) -> Iterator[Accuracy]:
    """Yield a row for each function of one number and each float dtype that the device computes it in.

    Every variant of the device that takes the call is measured; the row is that of the worst.
    """
    for operator in operators:
        if not is_swept(operator):
            continue
        for dtype in operator.signature.types["T"]:
            if dtype.kind != "f":
                continue
            row = Accuracy(operator.name, dtype.name, backend_of(device), f"{NUMBERS} {part.number}/{part.count}")
            for x in numbers(dtype, part, few=operator.name in CANCELS):
                _measure(device, operator, dtype, x, row)
            if row.values:
                yield row


def _measure(device: Device, operator: Operator, dtype: DType, x: Array, row: Accuracy) -> None:
    """Count the errors of every variant of the device that takes the operator for `x`."""
    calls = list(_calls(device, operator, x))
    if not calls:
        return
    case = Case(operator, (dtype,), Sample({"x": x.shape}))
    given = problem(case, [x], [TensorDesc(dtype, x.shape)], [np.zeros_like(x)])
    exact, flushes = given.expected[0], "flushes_denormals" in device.conditions
    if dtype is F64 or operator.name in CANCELS:
        exact = np.where(np.isfinite(exact), _exact_drawn(operator, dtype), exact)
    counted = np.ones(x.shape, bool)
    if flushes:
        tiny = float(limits_of(dtype).tiny)
        counted = (np.abs(exact) >= tiny) & (np.abs(x.astype(np.float64)) >= tiny)
    for got in calls:
        row.wrong = row.wrong or judge(got, given, 0, strict_nan=False, flushes=flushes).wrong
        row.add(ulp_errors(got, exact, dtype)[counted], x[counted])


def _calls(device: Device, operator: Operator, x: Array) -> Iterator[Array]:
    """Yield the results of each variant of the device that takes the operator for `x`."""
    desc = TensorDesc(x.dtype, x.shape)
    for variant in device.variants(operator.stem):
        try:
            descriptor = Descriptor.of(operator, [desc], device=device, variant=variant.name)
        except NotImplementedOnDevice:
            continue
        given = tensor(x, device=device)
        y = tensor(np.zeros_like(x), device=device)
        descriptor.calculate([given], [y], workspace="auto")
        device.synchronize()
        yield y.numpy()


def numbers(dtype: DType, part: Part, few: bool = False) -> Iterator[Array]:
    """Yield arrays of numbers without NaN: all of a 16-bit dtype, a part of all F32 by their bits, drawn F64.

    `few` draws the others too, since their exact values take long.
    """
    if dtype is F64 or few:
        yield draw(dtype)
    elif dtype.itemsize == 2:
        every: Array = np.frombuffer(np.arange(1 << 16, dtype=np.uint16).tobytes(), dtype.numpy)
        yield every[np.isfinite(every.astype(np.float32))]
    else:
        step = CHUNK * part.count
        for start in range(part.number - 1, 1 << 32, step):
            bits = np.arange(start, min(start + step, 1 << 32), part.count, dtype=np.uint64).astype(np.uint32)
            found = bits.view(np.float32)
            yield found[~np.isnan(found)]


def draw(dtype: DType) -> Array:
    """Return drawn numbers, the same each time: half of them any finite bits, half with exponents from -20 to 10."""
    rng = generator(f"accuracy {dtype}")
    any_bits = np.frombuffer(rng.bytes(DRAWN // 2 * dtype.itemsize), dtype.numpy)
    near = np.ldexp(rng.uniform(1, 2, DRAWN // 2), rng.integers(-20, 10, DRAWN // 2)) * rng.choice([-1, 1], DRAWN // 2)
    with np.errstate(invalid="ignore"):
        any_bits = any_bits[np.isfinite(any_bits)]
    return np.concatenate([any_bits, near.astype(dtype.numpy)])


@cache
def _exact_drawn(operator: Operator, dtype: DType) -> Array:
    """Return the exact values for `draw(dtype)`, which all devices share."""
    return exact_values(operator.name, operator.attrs.check(operator.name, {}), draw(dtype).astype(np.float64))


COLUMNS = [f.name for f in fields(Accuracy) if f.name != "wrong"]


def write_table(path: Path, rows: Iterable[Accuracy]) -> None:
    """Write rows as a table of tab-separated values, sorted."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sorted(rows, key=lambda r: r.key):
        values = vars(row) | {"largest": f"{row.largest:.3f}", "mean": f"{row.mean:.4f}"}
        writer.writerow([values[c] for c in COLUMNS])
    write_text("--write", str(path), out.getvalue())


def read_table(option: str, path: Path) -> dict[tuple[str, str, str, str], Accuracy]:
    """Return the rows of a table by their keys; raise InvalidArgument, which names the option, if it is malformed."""
    allowed = "a table that `isokern accuracy` wrote"
    text = read_text(option, str(path), allowed=allowed)
    try:
        lines = list(csv.reader(io.StringIO(text), delimiter="\t"))
        if lines[:1] != [COLUMNS]:
            raise ValueError(f"its columns are {lines[0] if lines else 'not there'}")
        rows = [_read_row(*line) for line in lines[1:]]
    except (csv.Error, ValueError, TypeError) as error:
        raise InvalidArgument(option, f"{path}: {error}", allowed=allowed) from None
    return {row.key: row for row in rows}


def _read_row(
    operator: str, dtype: str, device: str, source: str, values: str, largest: str, mean: str, at: str, reason: str
) -> Accuracy:
    return Accuracy(operator, dtype, device, source, int(values), float(largest), float(mean), at, reason)


def find_worse(measured: Iterable[Accuracy], known: dict[tuple[str, str, str, str], Accuracy]) -> list[str]:
    """Return a line for each row with a wrong result, or whose largest error exceeds that of the table's row."""
    lines = []
    for row in measured:
        before = known.get(row.key)
        where = f"{row.operator} {row.dtype} on {row.device}, {row.source}"
        if row.wrong:
            lines.append(f"{where}: {row.wrong}")
        elif before is not None and round(row.largest, 3) > before.largest:
            lines.append(f"{where}: {row.largest:.3f} ULP at {row.at}, the table has {before.largest:.3f}")
    return lines


def keep_larger(rows: Iterable[Accuracy], known: dict[tuple[str, str, str, str], Accuracy]) -> list[Accuracy]:
    """Return the rows, with a table's row in place of each that has no larger error than that one."""
    return [before if (before := known.get(r.key, r)).largest >= round(r.largest, 3) else r for r in rows]


def keep_reasons(rows: Iterable[Accuracy], known: dict[tuple[str, str, str, str], Accuracy], reason: str) -> list[str]:
    """Copy the reasons of a table to new rows, and give `reason` to those that grew; return those left without one."""
    without = []
    for row in rows:
        before = known.get(row.key)
        if before is None:
            continue
        row.reason = before.reason
        if round(row.largest, 3) > before.largest:
            row.reason = reason
            without += [] if reason else [f"{row.operator} {row.dtype} on {row.device}, {row.source}"]
    return without
