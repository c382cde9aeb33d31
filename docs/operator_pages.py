"""The page of each operator, from its declaration: what it computes, an example, and what a kernel receives."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import accuracies
import numpy as np
import speeds
import support
from tables import table

WRITTEN_OUT = 16  # elements of an input that an example writes out; a longer one is computed
SHOWN = 48  # elements of an output that an example prints
SETS = {"floats": "FLOATS", "numbers": "NUMBERS", "integers": "INTEGERS", "all plain dtypes": "PLAIN"}
DIGITS = 3
SIBLINGS = 10  # operators of the same stem that a page names


@dataclass(frozen=True)
class Example:
    """A call to try: its Python, and what that prints."""

    code: str
    printed: str


def pages() -> dict[str, str]:
    """Return the pages of all operators by name."""
    from isokern.ops import all_operators

    kept = support.read()
    return {op.name: write(op, kept) for op in all_operators()}


def families() -> dict[str, list[Any]]:
    """Return the operators by family, both in the alphabet's order."""
    from isokern.ops import all_operators

    found: dict[str, list[Any]] = {}
    for op in sorted(all_operators(), key=lambda op: (op.family, op.name)):
        found.setdefault(op.family, []).append(op)
    return found


def index() -> str:
    """Return a table of operators for each family."""
    parts = []
    for family, members in families().items():
        rows = [[f"[{op.name}](operators/{op.name}.md)", first_sentence(op.doc)] for op in members]
        parts += [f"## {family.capitalize()}", table(["operator", ""], rows)]
    return "\n\n".join(parts)


def primitives() -> str:
    """Return a table of the primitives: stem, operators and what they compute, most used first."""
    from isokern.ops import all_operators

    uses = count_uses()
    own = sorted((op for op in all_operators() if op.decompose is None), key=lambda op: (-uses[op.name], op.name))
    rows = [
        [f"[{op.name}](operators/{op.name}.md)", f"`{op.stem}`", str(uses[op.name]), first_sentence(op.doc)]
        for op in own
    ]
    return table(["primitive", "stem", "operators that need it", ""], rows)


def other_names() -> str:
    """Return a table for each other library: its operator, those here, and a note."""
    from isokern.ops.peers import PEERS, peer_names

    parts = []
    for peer in PEERS:
        rows = [row for row in peer_names() if row.peer == peer]
        here = sum(bool(row.operators) for row in rows)
        cells = [
            [f"`{row.name}`", ", ".join(f"[{n}](operators/{n}.md)" for n in row.operators), row.note] for row in rows
        ]
        parts += [f"## {peer}", f"{here} of {len(rows)} are here.", table([peer, "here", ""], cells)]
    return "\n\n".join(parts)


def count_uses() -> Counter[str]:
    """Return how many composite operators each primitive is a part of."""
    from isokern.ops import all_operators

    made = [decompose(op) for op in all_operators() if op.decompose is not None]
    return Counter(kind for each in made for kind in each.primitives)


@cache
def decompose(op: Any) -> Any:
    """Return an operator's decomposition, which its page and the list of primitives show."""
    from isokern.runtime.decompositions import decomposition

    return decomposition(op)


def first_sentence(doc: str) -> str:
    """Return the text up to the first full stop that ends a sentence, without one of an abbreviation such as al."""
    for at in range(len(doc)):
        if doc[at] == "." and doc[at + 1 : at + 2] in ("", " ") and not doc[:at].endswith("al"):
            return doc[: at + 1]
    return doc


def write(op: Any, kept: dict[str, Any]) -> str:
    """Return the page of an operator."""
    example = make_example(op)
    parts = [
        f"# {op.name}",
        op.doc,
        *say_formula(op),
        f"```text\n{op.signature}\n```",
        say_types(op),
        *say_attributes(op),
        "## Example",
        f"```python\n{example.code}\n```",
        f"```text\n{example.printed}\n```",
        "## Calls",
        say_calls(op),
        "## Dtypes by device",
        *say_support(op, kept),
        "## Accuracy",
        say_accuracy(op),
        *say_errors(op),
        "## Speed",
        *speeds.say_operator(op.name),
        "## Decomposition",
        say_parts(op),
        "## A call as its kernel receives it",
        *say_received(op),
    ]
    return "\n\n".join(parts) + "\n"


def say_formula(op: Any) -> list[str]:
    """Return the scalar expression of an elementwise operator, as every backend computes it."""
    from isokern.expr.tree import to_text

    if op.scalar_expr is None:
        return []
    text = to_text(op.scalar_expr)
    return [f"Each element of the output is this expression of the inputs' elements:\n\n```text\n{text}\n```"]


def say_types(op: Any) -> str:
    """Return the dtypes over which each type variable ranges."""
    lines = [f"`{v}`: {say_dtypes([d.name for d in allowed])}" for v, allowed in op.signature.types.items()]
    return "  \n".join(lines)


def say_dtypes(names: Sequence[str]) -> str:
    """Return a list of dtypes, or the name of the set that they form."""
    from isokern import dtypes

    for text, attribute in SETS.items():
        if set(names) == {d.name for d in getattr(dtypes, attribute)}:
            return f"{text} ({', '.join(names)})" if text == "floats" else text
    return ", ".join(names) or "-"


def say_attributes(op: Any) -> list[str]:
    """Return the table of attributes, if there are any."""
    from isokern.declare.attributes import REQUIRED

    rows = [
        [f"`{a.name}`", a.allowed, "required" if a.default is REQUIRED else f"`{a.default}`", a.doc]
        for a in op.attrs.attrs
    ]
    return [table(["attribute", "takes", "default", ""], rows)] if rows else []


def say_calls(op: Any) -> str:
    """Return the names by which Python and C call the operator, and which outputs may be in the memory of inputs."""
    from isokern.eager.functions import function, functions_of

    names = [f"isokern.{name}{inspect.signature(function(name))}" for name in functions_of(op)]
    lines = [
        "```python\n" + "\n".join([*names, f'isokern.create("{op.name}", …)']) + "\n```\n",
        f"C: kind `{op.kind}`" + (f", attributes `{op.attrs.schema}`." if op.attrs.schema else ", no attributes."),
        f"`out` may be {' or '.join(f'`{a}`' for a in op.aliases)} itself."
        if op.aliases
        else "`out` shares no memory with an input.",
    ]
    if op.inout:
        lines.append(f"The old content of {' and '.join(f'`{o}`' for o in op.inout)} is also an input: give `out=`.")
    if op.constants:
        lines.append(f"`Descriptor.prepack` takes {' and '.join(f'`{c}`' for c in op.constants)}.")
    return "  \n".join(lines)


def say_support(op: Any, kept: dict[str, Any]) -> list[str]:
    """Return the row of the support matrix."""
    claims = kept["operators"].get(op.name, {})
    if not claims:
        return ["The last full run did not have this operator."]
    runs = {run["backend"]: run for run in kept["runs"]}
    rows = [[d, taken, support.say_part(runs[d.split(":")[0]])] for d, taken in claims.items()]
    return [
        table(["device", "dtypes", "cases run"], rows),
        "From the last full run of the conformance suite, as [the matrix](../matrix.md) has it.",
    ]


def say_accuracy(op: Any) -> str:
    """Return how far a result may be from the reference."""
    if op.exact:
        return "Exact: results are compared bit for bit with the reference."
    scale = " · |reference| + scale)" if op.tolerance.scale else " · |reference|)"
    text = f"At most ε · ({op.tolerance.ulps:g}{scale} away from the float64 reference, plus the rounding to the dtype."
    return text + (" The scale is the magnitude that cancels on the way." if op.tolerance.scale else "")


def say_errors(op: Any) -> list[str]:
    """Return the measured errors, if there are some."""
    found = accuracies.tabulate_operator(op.name)
    said = "Largest error in ULP, and the mean of all, as [measured](../accuracy.md):"
    return [said, found] if found else []


def say_parts(op: Any) -> str:
    """Return the primitives that a composite becomes."""
    if op.decompose is None:
        return "It is a [primitive](../primitives.md): every backend should have a kernel for it."
    made = decompose(op)
    parts = ", ".join(f"{n} × [{kind}]({kind}.md)" for kind, n in made.primitives.items())
    return f"On a device without a kernel for it, `{'-'.join(made.dtypes)} {made.sample}` becomes {parts}" + (
        f"; the values between them take {made.peak:,} bytes." if made.peak else "."
    )


def say_received(op: Any) -> list[str]:
    """Return what a kernel of the operator's stem receives: its tensors in normal form, and their record."""
    from isokern.cabi.received import find_siblings, say_normal_form, summarise_operands

    siblings = find_siblings(op)
    also = ", ".join(f"[{name}]({name}.md)" for name in siblings[:SIBLINGS])
    also += f" and {len(siblings) - SIBLINGS} others" if len(siblings) > SIBLINGS else ""
    rows = [
        [
            f"`{o.name}`",
            "written" if o.written else "read",
            " or ".join(map(str, o.ranks)),
            " and ".join(["may be absent"] * o.may_be_absent + ["may have stride 0"] * o.may_repeat),
        ]
        for o in summarise_operands(op)
    ]
    record = ", ".join(f"`{name}` at {offset}" for name, _, offset in op.attrs.layout)
    return [
        f"Its stem is `{op.stem}`." + (f" The same kernels compute {also}." if also else ""),
        table(["tensor", "is", "rank", ""], rows),
        f"The normal form: {say_normal_form(op).removeprefix('Return ')}",
        *([f"Its attributes are a record of {op.attrs.nbytes} bytes: {record}."] if record else []),
    ]


# Examples


def make_example(op: Any) -> Example:
    """Return an example from the operator's samples; what it prints is the reference's result, not a device's."""
    from isokern.declare.samples import describe, slots
    from isokern.oracle.cases import Case
    from isokern.oracle.expected import problem

    types, sample = choose_sample(op)
    _, outputs = describe(op, sample, types)
    domains = {**op.domains, **sample.values}
    given = [
        None if slot.shape is None else write_values(domains.get(slot.operand.name, "moderate"), slot, 5 * position)
        for position, slot in enumerate(slots(op, sample, types))
    ]
    before = [np.zeros(o.raw.shape if o.dtype.block > 1 else o.shape, o.dtype.numpy or np.uint8) for o in outputs]
    case = Case(op, tuple(types.values()), sample)
    found = problem(case, [None if g is None else g.array for g in given], list(outputs), before).expected
    code = write_call(op, types, sample, given, outputs)
    return Example(code, "\n".join(show(array, out.dtype) for array, out in zip(found, outputs, strict=True)))


def choose_sample(op: Any) -> tuple[dict[str, Any], Any]:
    """Return dtypes, F32 if possible, and the small sample that shows most with fewest numbers."""
    from isokern import dtypes
    from isokern.declare.samples import assignments, describe
    from isokern.oracle.cases import samples

    preferred = [dtypes.F32, dtypes.I32, dtypes.I64, dtypes.Q8_0]

    def rank_types(types: dict[str, Any]) -> int:
        same = op.free_types and len(types) > 1 and len(set(types.values())) == 1  # a cast that changes nothing
        return sum(preferred.index(d) if d in preferred else 9 for d in types.values()) + (2 if same else 0)

    def rank_sample(sample: Any) -> tuple[bool, bool, bool, bool, int]:
        inputs, outputs = describe(op, sample, types)
        every = [d for d in (*inputs, *outputs) if d is not None]
        rank, numbers = max(d.ndim for d in every), sum(d.numel for d in every)
        small = max(d.numel for d in every) < 4 or rank < 2
        extreme = any(isinstance(v, float) and not abs(v) < 1e6 for v in sample.attrs.values())
        return any(d.numel == 0 for d in every), extreme, small, rank > 3, numbers

    for types in sorted(assignments(op), key=rank_types):
        if found := samples(op, "small", types):
            return types, min(found, key=rank_sample)
    raise LookupError(f"{op.name} has no small sample")


@dataclass(frozen=True)
class Written:
    """An input of an example: its Python, and its value (raw blocks for a block type)."""

    code: str
    array: np.ndarray


def write_values(domain: str, slot: Any, first: int) -> Written:
    """Return values of a domain that are short to write; `first` sets the inputs of a call apart."""
    from isokern import blocks
    from isokern.oracle.values import draw, generator

    count = math.prod(slot.shape)
    kind = (
        "np.float32"
        if slot.dtype.kind == "q"
        else "np.bool_"
        if slot.dtype.kind == "b"
        else f"{'ml_dtypes' if slot.dtype.is_foreign else 'np'}.{np.dtype(slot.dtype.numpy).name}"
    )
    checked, _, limit = domain.partition(":")
    if checked in ("index", "length") and count > WRITTEN_OUT:
        array = (np.arange(count) * 7 % int(limit)).reshape(slot.shape).astype(slot.dtype.numpy)
        return Written(f"(np.arange({count}) * 7 % {limit}).reshape({slot.shape}).astype({kind})", array)
    if slot.dtype.kind == "b" or checked in ("index", "length"):
        array = draw(domain, slot.dtype, slot.shape, generator(f"{slot.label} {slot.shape}"))
        return Written(f"np.array({array.tolist()}, {kind})", array)
    low, step = choose_range(domain, slot.dtype)
    spread = (np.arange(count) + first) * 7 % 19
    array = ((spread + low) / step).reshape(slot.shape).astype(slot.dtype.numpy or np.float32)
    if count <= WRITTEN_OUT and slot.dtype.kind != "q":
        return Written(f"np.array({array.tolist()}, {kind})", array)
    numbers = f"np.arange({f'{first}, {first + count}' if first else count}) * 7 % 19"
    numbers += f" {'+' if low > 0 else '-'} {abs(low)}" if low else ""
    numbers = f"({numbers}) / {step}" if step != 1 else numbers
    code = f"({numbers}).reshape({slot.shape}).astype({kind})"
    if slot.dtype.kind == "q":
        return Written(f'isokern.quantize({code}, dtype="{slot.dtype.name}")', blocks.quantize(array, slot.dtype))
    return Written(code, array)


def choose_range(domain: str, dtype: Any) -> tuple[Any, int]:
    """Return (low, step): the numbers 0 to 18, plus `low`, over `step` are in the domain and the dtype."""
    if dtype.kind == "u":
        return {"any": 0, "exponents": 113}.get(domain, 1), 1
    if dtype.kind == "i":
        return (1, 1) if domain in ("positive", "nonzero") else (-9, 1)
    ranges = {"unit": (-9, 10), "positive": (1, 4), "above_one": (4, 4), "nonzero": (-9.5, 4)}
    return ranges.get(domain, (-9, 4))


def write_call(op: Any, types: dict[str, Any], sample: Any, given: Sequence[Written | None], outputs: Any) -> str:
    """Return the Python of an example."""
    foreign = any(value is not None and "ml_dtypes" in value.code for value in given)
    lines = ["import isokern", *(["import ml_dtypes"] if foreign else []), "import numpy as np", ""]
    names = iter(op.operand_names(len(given)))
    words: list[str] = []
    variadic: dict[str, list[str]] = {}
    for operand in op.signature.inputs:
        if operand.variadic:
            variadic[operand.name] = []
    for position, (name, value) in enumerate(zip(names, given, strict=True)):
        own = f"{name}{len(variadic[name]) + 1}" if name in variadic else name
        if value is not None:
            lines.append(f"{own} = {value.code}")
        elif any(later is not None for later in given[position:]):
            own = "None"
        else:
            continue
        if name in variadic:
            variadic[name].append(own)
            if len(variadic[name]) == 1:
                words.append(name)
        else:
            words.append(own)
    words = [f"[{', '.join(variadic[word])}]" if word in variadic else word for word in words]
    words += [f"{name}={value!r}" for name, value in sample.attrs.items()]
    made = [o.name for o in op.signature.outputs]
    if op.inout or sample.outputs:
        begin = "zeros" if op.inout else "empty"
        lines += [f'{n} = isokern.{begin}({o.shape}, "{o.dtype.name}")' for n, o in zip(made, outputs, strict=True)]
        words.append(f"out={made[0] if len(made) == 1 else tuple(made)}")
        target = ""
    else:
        words += [f'dtype="{types[name].name}"' for name in op.free_types]
        target = f"{', '.join(made)} = "
    lines.append(f"{target}isokern.{op.name}({', '.join(words)})")
    lines += [f"print({show_code(name, out)})" for name, out in zip(made, outputs, strict=True)]
    return "\n".join(lines)


def show_code(name: str, out: Any) -> str:
    """Return the Python that prints an output as `show` does."""
    value = f'isokern.cast({name}, dtype="F32").numpy()' if out.dtype.block > 1 else f"{name}.numpy()"
    value += ".ravel()[:8]" if out.numel > SHOWN else ""
    return f"np.round({value}, {DIGITS})" if out.dtype.kind in "fq" else value


def show(array: np.ndarray, dtype: Any) -> str:
    """Return what an example prints of an expected output."""
    from isokern import blocks

    values = blocks.dequantize(array, dtype) if dtype.block > 1 else array.astype(dtype.numpy)
    values = values.ravel()[:8] if values.size > SHOWN else values
    return str(np.round(values, DIGITS) if dtype.kind in "fq" else values)
