"""Operator: all facts about an operator, declared once; signatures, checks, plans and cases derive from it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ..dtypes import INTEGERS, DType, dtype, names
from ..expr.tree import Expr
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, BadTensorStrides, InvalidArgument, IsokernError
from .attributes import CheckedAttributes, Record, fourcc
from .normal_form import NormalForm, pointwise
from .signature import Operand, Signature

if TYPE_CHECKING:
    from .decomposition import Emitter

Shape = tuple[int, ...]
SampleTable = list[tuple[Any, ...]]  # rows to be unpacked into samples
Shapes = Callable[..., Sequence[Shape]]  # (input shapes, attrs), or with the outputs' shapes as given
Decompose = Callable[["Emitter[Any]", Sequence[Any], Mapping[str, Any], Sequence[TensorDesc]], Any]
Flops = Callable[[Sequence[TensorDesc | None], Sequence[TensorDesc]], float]


@dataclass(frozen=True)
class Sample:
    """One call to try: a shape for each input (a list of shapes for a variadic one), attributes, and domains of values.

    `values` maps an input to a domain (see oracle.values); inputs that it lacks have the operator's own `domains`.
    `types` restricts type variables for a sample that suits only some dtypes: `{"W": BLOCKS}`, and `goes` their
    combinations. `each` has the dtypes of the tensors of a mixed operand; without it they are all of one dtype. Block
    types take only samples whose last dims are whole blocks, so an operator's first sample has such dims.

    `size` small, wide and long samples are conformance cases. Wide ones run in fewer dtypes and layouts; they are large
    enough for several threads and for stores that bypass the caches (more than 2 MiB of F32). Long ones, two rows of
    each of `LENGTHS`, and rows with an extreme in every place, run in one or two dtypes. Medium and large ones are only
    for `isokern bench`.
    """

    shapes: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, Shape] = field(default_factory=dict)
    size: str = "small"
    types: Mapping[str, tuple[DType, ...]] = field(default_factory=dict)
    goes: Callable[[Mapping[str, DType]], bool] | None = None
    each: Mapping[str, tuple[DType, ...]] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The sample as in an id: `x=3x5,axis=1`, and after `->` the outputs that are not inferred."""
        return _describe(self, ",".join(f"{n}:{'+'.join(d.name for d in dtypes)}" for n, dtypes in self.each.items()))


# Lengths of rows around which kernels do something else: sizes of tiles, of what is kept in registers or local memory,
# of parts that several groups work on
LENGTHS = (*(n + d for n in (256, 512, 2048, 4096, 8192, 16384) for d in (0, -1, 1)), 40_000)


@dataclass(frozen=True)
class ErrorCase:
    """One call that create must refuse with `error`; `dtypes` fixes type variables or single operands."""

    shapes: Mapping[str, Any]
    error: type[IsokernError]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    outputs: Mapping[str, Shape] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The call as in an id, as a sample's, with the dtypes after the attributes: `x=3,axis=1,T:F64`."""
        return _describe(self, ",".join(f"{n}:{d.name}" for n, d in self.dtypes.items()))


def _describe(call: Sample | ErrorCase, dtypes: str) -> str:
    shapes = ",".join(
        f"{n}={'+'.join(map(_dims, s)) if isinstance(s, list) else _dims(s)}" for n, s in call.shapes.items()
    )
    attrs = ",".join(f"{n}={_plain(v)}" for n, v in call.attrs.items())
    outputs = ",".join(f"{n}={_dims(s)}" for n, s in call.outputs.items())
    return _share(",".join(p for p in (shapes, attrs, dtypes, outputs and f"->{outputs}") if p) or "none")


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _plain(value: Any) -> str:
    return "+".join(map(str, value)) or "()" if isinstance(value, (tuple, list)) else str(value)


@lru_cache(maxsize=4096)
def _share(text: str) -> str:
    """Return the same object for equal texts: an operator's samples are made again for each who asks."""
    return text


@dataclass(frozen=True)
class Tolerance:
    """How far a result may lie from the float64 reference.

    Bound = eps(compute) * (ulps * |reference| + scale) + a few of the smallest subnormal numbers + rounding to the
    output's dtype. `scale(inputs, attrs)` is the magnitude of what was added up on the way (for a contraction of K
    terms, about sqrt(K) times the sum of |a||b|); a tuple where there are several outputs. A scale with a parameter
    `compute` also gets the compute type of the output.
    """

    ulps: float = 4.0
    scale: Callable[..., Any] | None = None


@dataclass(frozen=True, eq=False)
class Resolved:
    """A checked call: the tensors as given, the tensors in normal form (outputs first), and all attributes.

    Equal calls are mostly one object (see `Operator.resolve`), so that what is known about a call can be kept by it.
    """

    operator: Operator
    inputs: tuple[TensorDesc | None, ...]
    outputs: tuple[TensorDesc, ...]
    table: tuple[TensorDesc | None, ...]
    attrs: CheckedAttributes


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator.

    `kind` is its stable four-character code. `stem` is the name of the kernel file that computes it (its own name, or
    its family's), and `normal_form` brings the tensors to the normal form that the stem's kernels read. `aliases` lists
    the inputs whose memory an output may share exactly; `inout` the outputs whose old content is an input. `exact`
    operators are compared bit for bit with a reference that works on the dtypes themselves. `constants` lists inputs
    that mostly stay the same between calls: a kernel may have a packed layout for them (`Descriptor.prepack`).

    `check(inputs, attrs)` raises the typed errors that depend on more than shapes or dtypes alone.
    `combinations(types)` says which dtypes go together, where not all do. `decompose(e, inputs, attrs, outputs)` emits
    equivalent operators of a lower level (see decomposition.py); an operator without it is a primitive. `expression` is
    an elementwise row, or the fixed body of a loop nest whose terms `combine` reduces (see generic.py).
    """

    name: str
    kind: str
    family: str
    signature: Signature
    doc: str
    reference: Callable[..., Any]
    samples: Callable[[], Sequence[Sample]]
    attrs: Record = field(default_factory=Record)
    tolerance: Tolerance = field(default_factory=Tolerance)
    errors: Sequence[ErrorCase] = ()
    domains: Mapping[str, str] = field(default_factory=dict)
    shapes: Shapes | None = None
    check: Callable[[Sequence[TensorDesc | None], Mapping[str, Any]], None] | None = None
    normal_form: NormalForm = pointwise
    stem: str = ""
    aliases: tuple[str, ...] = ()
    inout: tuple[str, ...] = ()
    exact: bool = False
    constants: tuple[str, ...] = ()
    expression: Expr | None = None
    combine: str = ""
    combinations: Callable[[Mapping[str, DType]], bool] | None = None
    flops: Flops | None = None
    device_error: str = ""
    decompose: Decompose | None = None

    def __post_init__(self) -> None:
        if not self.stem:
            object.__setattr__(self, "stem", self.name)
        if len(self.kind) != 4:
            raise ValueError(f"{self.name}: kind {self.kind!r} is not four characters")

    def __repr__(self) -> str:
        return f"<operator {self.name}({self.signature})>"

    @property
    def scalar_expr(self) -> Expr | None:
        """The expression of an elementwise operator."""
        return None if self.combine else self.expression

    @property
    def kind_id(self) -> int:
        """`kind` as the 32-bit number of the C interface."""
        return fourcc(self.kind)

    def operand_names(self, count: int) -> list[str]:
        """Return the names of `count` inputs; that of a variadic operand is repeated."""
        names: list[str] = []
        for operand in self.signature.inputs:
            names += [operand.name] * (count - len(self.signature.inputs) + 1 if operand.variadic else 1)
        return names

    @property
    def free_types(self) -> tuple[str, ...]:
        """Type variables that no required input fixes: the caller names them (the target of `cast`)."""
        fixed = {o.type for o in self.signature.inputs if not o.optional}
        return tuple(
            dict.fromkeys(
                o.type for o in self.signature.outputs if o.type in self.signature.types and o.type not in fixed
            )
        )

    @property
    def index_types(self) -> tuple[str, ...]:
        """Type variables of indices: integers of inputs alone, on which the computation does not depend."""
        made = {o.type for o in self.signature.outputs}
        rest = list(self.signature.types.items())[1:]
        return tuple(name for name, allowed in rest if name not in made and set(allowed) <= set(INTEGERS))

    @property
    def shapes_take_outputs(self) -> bool:
        """Whether `shapes` has a parameter for the outputs as given."""
        return self.shapes is not None and _takes_outputs(self.shapes)

    def value_error(self, at: int, value: int) -> InvalidArgument:
        """Return the error for a bad value that a kernel found at a place of the input that `device_error` names."""
        error = InvalidArgument(self.name, self.device_error.format(at=at, value=value))
        error.found = at, value
        return error

    def read_value_error(self, text: str) -> InvalidArgument | None:
        """Return the error of `value_error` whose text, without the operator's name, is given; None for another."""
        parts = re.split(r"(\{at\}|\{value\})", self.device_error)
        pattern = "".join(f"(?P<{p[1:-1]}>-?[0-9]+)" if p in ("{at}", "{value}") else re.escape(p) for p in parts)
        found = re.fullmatch(pattern, text) if self.device_error else None
        return None if found is None else self.value_error(int(found["at"]), int(found["value"]))

    def infer(
        self,
        inputs: Sequence[TensorDesc | None],
        attrs: Mapping[str, Any] | None = None,
        dtypes: Mapping[str, Any] | None = None,
    ) -> tuple[TensorDesc, ...]:
        """Return contiguous outputs for these inputs; `dtypes` names the free type variables (`{"T": "F16"}`).

        Results are cached, as those of `resolve` are.
        """
        key = _key_of(self, inputs, (), attrs or {}) if dtypes is None else None
        found = _inferred.get(key) if key is not None else None
        if found is None:
            found = self._infer(inputs, attrs, dtypes)
            if key is not None:
                if len(_inferred) >= KNOWN:
                    _inferred.clear()
                _inferred[key] = found
        return found

    def _infer(
        self,
        inputs: Sequence[TensorDesc | None],
        attrs: Mapping[str, Any] | None,
        dtypes: Mapping[str, Any] | None,
    ) -> tuple[TensorDesc, ...]:
        values = self.attrs.check(self.name, attrs or {})
        self.signature.check_descs(self.name, "inputs", inputs)
        known = self.signature.types
        if dtypes is not None and (not isinstance(dtypes, Mapping) or not dtypes.keys() <= known.keys()):
            raise InvalidArgument(self.name, f"dtypes={dtypes!r}", allowed=f"a mapping of {', '.join(known) or 'none'}")
        return self.infer_checked(inputs, values, {name: dtype(given) for name, given in (dtypes or {}).items()})

    def infer_checked(
        self, inputs: Sequence[TensorDesc | None], values: Mapping[str, Any], named: Mapping[str, DType]
    ) -> tuple[TensorDesc, ...]:
        """Infer the outputs from checked attributes and named dtypes.

        It is also compiled for C hosts (see cabi/inference).
        """
        _, scope, types = self.bind(inputs, values)
        for name in self.free_types:
            if name in types:
                continue
            if name not in named:
                raise InvalidArgument(
                    self.name, f"dtype {name} of the output is not given", allowed=names(self.signature.types[name])
                )
            if named[name] not in self.signature.types[name]:
                allowed = names(self.signature.types[name])
                raise BadTensorDtype(self.name, f"dtype {name} of the output is {named[name].name}", allowed=allowed)
            types[name] = named[name]
        self.check_combination(types)
        shapes = self.output_shapes(inputs, values, scope, None)
        elements = [
            types[o.type] if o.type in types else self.signature.dtypes_of(o)[0] for o in self.signature.outputs
        ]
        for o, element, shape in zip(self.signature.outputs, elements, shapes, strict=True):
            if element.block > 1 and (not shape or shape[-1] % element.block):
                allowed = f"a multiple of {element.block} as last dim"
                raise BadTensorShape(
                    self.name, f"output {o.name} would be {element.name} {list(shape)}", allowed=allowed
                )
        return tuple([TensorDesc(element, shape) for element, shape in zip(elements, shapes, strict=True)])

    def describe(
        self,
        inputs: Sequence[TensorDesc | None],
        attrs: Mapping[str, Any] | None = None,
        dtypes: Mapping[str, Any] | None = None,
    ) -> Resolved:
        """Check a call whose outputs are inferred, as `resolve` of what `infer` returns does."""
        key = _key_of(self, inputs, (), attrs or {}) if dtypes is None else None
        found = _described.get(key) if key is not None else None
        if found is None:
            values = self.attrs.check(self.name, attrs or {})
            found = self.resolve(inputs, self.infer(inputs, values, dtypes), values)
            if key is not None:
                if len(_described) >= KNOWN:
                    _described.clear()
                _described[key] = found
        return found

    def resolve(
        self, inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc], attrs: Mapping[str, Any] | None = None
    ) -> Resolved:
        """Check all of a call that does not depend on memory, and bring its tensors to normal form.

        Results are cached: graphs repeat the same calls, and every pass asks about each.
        """
        key = _key_of(self, inputs, outputs, attrs or {})
        found = _known.get(key) if key is not None else None
        if found is None:
            found = self._resolve(inputs, outputs, attrs or {})
            if key is not None:
                if len(_known) >= KNOWN:
                    _known.clear()
                _known[key] = found
        return found

    def _resolve(
        self, inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc], attrs: Mapping[str, Any]
    ) -> Resolved:
        values = self.attrs.check(self.name, attrs)
        self.signature.check_descs(self.name, "inputs", inputs)
        self.signature.check_descs(self.name, "outputs", outputs)
        ins, table = self.settle(inputs, outputs, values)
        return Resolved(self, ins, tuple(outputs), table, values)

    def settle(
        self, inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc], values: Mapping[str, Any]
    ) -> tuple[tuple[TensorDesc | None, ...], tuple[TensorDesc | None, ...]]:
        """Return the inputs with None for absent ones, and the table of tensors that kernels read; raise typed errors.

        A C host's calls run this function and all that it calls, too (cabi/inference).
        """
        pairs, scope, types = self.bind(inputs, values)
        if len(outputs) != len(self.signature.outputs):
            raise InvalidArgument(
                self.name,
                f"{len(outputs)} outputs are given",
                allowed=f"{len(self.signature.outputs)}: {self.signature}",
            )
        shapes = self.output_shapes(inputs, values, scope, [o.shape for o in outputs])
        for operand, desc, shape in zip(self.signature.outputs, outputs, shapes, strict=True):
            self.check_output(operand, desc, shape, types)
        self.check_combination(types)
        widened = [None if d is None else self.signature.widen(o, _straighten(d), scope) for o, d in pairs]
        ins, outs = self.normal_form(widened, [_straighten(d) for d in outputs], values)
        return tuple([d for _, d in pairs]), (*outs, *ins)

    def bind(
        self, inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]
    ) -> tuple[list[tuple[Operand, TensorDesc | None]], dict[str, Any], dict[str, DType]]:
        """Return operands paired with tensors, dims and attributes by name, and dtypes by type variable.

        The last has only the type variables that the inputs fix.
        """
        pairs = self.signature.arrange(self.name, inputs)
        types = self.signature.bind_types(self.name, pairs)
        if self.check is not None:
            self.check([d for _, d in pairs], values)
        scope = {**values, **self.signature.bind_dims(self.name, pairs, values)}
        return pairs, scope, types

    def check_combination(self, types: Mapping[str, DType]) -> None:
        """Raise BadTensorDtype where these dtypes do not go together."""
        if self.combinations is None or self.combinations(types):
            return
        given = ", ".join([f"{name} = {d.name}" for name, d in types.items()])
        last = list(self.signature.types)[-1]
        allowed = [d for d in self.signature.types[last] if self.combinations({**types, last: d})]
        raise BadTensorDtype(self.name, f"dtypes {given}", allowed=f"{last} = {names(allowed)} beside the others")

    def output_shapes(
        self,
        inputs: Sequence[TensorDesc | None],
        values: Mapping[str, Any],
        scope: Mapping[str, Any],
        given: Sequence[Shape] | None,
    ) -> list[Shape]:
        """Return the shapes of the outputs; `given` are those that the caller named, which some operators accept."""
        if self.shapes is None:
            return [self.signature.shape_of(o, scope) for o in self.signature.outputs]
        known = [None if d is None else d.shape for d in inputs]
        if self.shapes_take_outputs:
            return [tuple(s) for s in self.shapes(known, values, given)]
        return [tuple(s) for s in self.shapes(known, values)]

    def check_output(self, operand: Operand, desc: TensorDesc, shape: Shape, types: dict[str, DType]) -> None:
        """Raise a typed error where an output does not match the inputs."""
        where = self.name
        allowed = (types[operand.type],) if operand.type in types else self.signature.dtypes_of(operand)
        if desc.dtype not in allowed:
            raise BadTensorDtype(where, f"output {operand.name} has dtype {desc.dtype.name}", allowed=names(allowed))
        types.setdefault(operand.type, desc.dtype)
        if desc.shape != shape:
            raise BadTensorShape(where, f"output {operand.name} is {desc}", allowed=f"{list(shape)}: {self.signature}")
        if desc.overlaps_itself:
            raise BadTensorStrides(
                where,
                f"output {operand.name} is {desc}: two of its elements share memory",
                hint="write to a plain tensor",
            )


def _straighten(desc: TensorDesc) -> TensorDesc:
    """Return an empty tensor with plain strides: some of its dims, alone, would reach before the buffer's start."""
    return TensorDesc(desc.dtype, desc.shape, None, desc.offset) if desc.numel == 0 else desc


KNOWN = 1 << 13  # calls that are cached: some megabytes
_known: dict[Hashable, Resolved] = {}
_described: dict[Hashable, Resolved] = {}
_inferred: dict[Hashable, tuple[TensorDesc, ...]] = {}
_EXACT = frozenset((bool, int, float, str, type(None)))


def _key_of(
    operator: Operator,
    inputs: Sequence[TensorDesc | None],
    outputs: Sequence[TensorDesc],
    attrs: Mapping[str, Any],
) -> Hashable:
    """Return the cache key of a call, or None where equality is not certain.

    Attributes enter as text, which distinguishes -0.0 from 0.0 and 1 from 1.0.
    """
    if not isinstance(inputs, (list, tuple)) or not isinstance(outputs, (list, tuple)):
        return None
    for desc in (*inputs, *outputs):
        if desc is not None and type(desc) is not TensorDesc:
            return None
    if type(attrs) is CheckedAttributes:
        return operator, *inputs, "->", *outputs, attrs.text
    if not isinstance(attrs, Mapping):
        return None
    for value in attrs.values():
        for v in value if type(value) in (list, tuple) else (value,):
            if type(v) not in _EXACT or (type(v) is int and v.bit_length() > 64):  # a longer one may have no repr
                return None
    return operator, *inputs, "->", *outputs, repr(dict(attrs))


@cache
def _takes_outputs(shapes: Shapes) -> bool:
    code = getattr(shapes, "__code__", None)  # a first call would notice the time of `signature`
    return "outputs" in (inspect.signature(shapes).parameters if code is None else code.co_varnames[: code.co_argcount])
