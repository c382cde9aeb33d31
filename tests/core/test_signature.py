"""Test the signature grammar: what binds, what is refused, and that every declaration agrees with its samples."""

import pytest

from isokern import BadTensorDtype, BadTensorShape, InvalidArgument, TensorDesc, ops
from isokern.declare import signature
from isokern.declare.samples import assignments, first_sample, fits
from isokern.dtypes import F16, F32, FLOATS

TYPES = {"T": FLOATS}


def bind(text, *shapes, broadcast=(), attrs=None):
    parsed = signature.parse(text, TYPES, broadcast)
    pairs = parsed.arrange("op", [None if s is None else TensorDesc(F32, s) for s in shapes])
    dims = parsed.bind_dims("op", pairs, attrs or {})
    return [parsed.shape_of(o, {**dims, **(attrs or {})}) for o in parsed.outputs]


def test_groups_names_and_products():
    assert bind("x: T[*b, k], w: T[n, k] -> y: T[*b, n]", (2, 3, 4), (5, 4)) == [(2, 3, 5)]
    assert bind("x: T[n, g*c], w: T[o, c] -> y: T[n, o]", (2, 6), (7, 3), attrs={"g": 2}) == [(2, 7)]
    assert bind("x: T[n + 1] , y: T[n] -> z: T[2*n]", (4,), (3,)) == [(6,)]


def test_broadcast_groups():
    text = "a: T[*b, m, k], b: T[*b, k, n] -> y: T[*b, m, n]"
    assert bind(text, (3, 1, 2, 4), (5, 4, 6), broadcast=("b",)) == [(3, 5, 2, 6)]
    with pytest.raises(BadTensorShape, match="does not broadcast"):
        bind(text, (3, 2, 4), (5, 4, 6), broadcast=("b",))


def test_optional_inputs_may_be_absent():
    text = "x: T[*b, d], w?: T[d] -> y: T[*b, d]"
    assert bind(text, (2, 3)) == bind(text, (2, 3), None) == [(2, 3)]
    with pytest.raises(InvalidArgument, match="x is missing"):
        bind(text, None, (3,))


@pytest.mark.parametrize(
    ("shapes", "message"), [(((2, 3), (4,)), "dim d is 4"), (((), (3,)), "rank 0"), (((2, 3), (3, 1)), "rank 2")]
)
def test_shape_messages_name_the_operand(shapes, message):
    with pytest.raises(BadTensorShape, match=message):
        bind("x: T[*b, d], w?: T[d] -> y: T[*b, d]", *shapes)


@pytest.mark.parametrize(
    "text",
    [
        "x: T[d]",
        "x T[d] -> y: T[d]",
        "x: Q[d] -> y: T[d]",
        "x: T[*a, *b] -> y: T[*a]",
        "x: T[d // 2] -> y: T[d]",
        "x: T[f(d)] -> y: T[d]",
    ],
)
def test_malformed_signatures(text):
    with pytest.raises(ValueError, match=r"signature|operand|dim"):
        signature.parse(text, TYPES)


def test_types_bind_once():
    parsed = signature.parse("a: T[d], b: T[d] -> y: T[d]", TYPES)
    pairs = parsed.arrange("op", [TensorDesc(F32, (3,)), TensorDesc(F16, (3,))])
    with pytest.raises(BadTensorDtype, match="b has dtype F16 where T is F32"):
        parsed.bind_types("op", pairs)


@pytest.mark.parametrize("op", ops.all_operators(), ids=lambda o: o.name)
def test_every_sample_resolves_and_every_error_case_is_refused(op):
    def descs(shapes, dtypes):
        result = []
        for o in op.signature.inputs:
            given = shapes.get(o.name)
            element = dtypes.get(o.name) or dtypes.get(o.type) or op.signature.dtypes_of(o)[0]
            result += (
                [TensorDesc(element, s) for s in given]
                if o.variadic and given is not None
                else [None if given is None else TensorDesc(element, given)]
            )
        unknown = set(shapes) - {o.name for o in op.signature.inputs}
        return result + [TensorDesc(F32, shapes[u]) for u in unknown]

    def outs(case, dtypes):
        if not case.outputs:
            return None
        return [
            TensorDesc(dtypes.get(o.name) or dtypes.get(o.type) or op.signature.dtypes_of(o)[0], case.outputs[o.name])
            for o in op.signature.outputs
        ]

    free = {t: op.signature.types[t][0] for t in op.free_types}
    every = assignments(op)
    assert all(first_sample(op, types) for types in every), "each choice of dtypes has a sample"
    for sample in op.samples():
        types = next(t for t in every if fits(op, sample, t))
        inputs = descs(sample.shapes, types)
        outputs = outs(sample, types) or op.infer(inputs, sample.attrs, {t: types[t] for t in op.free_types})
        resolved = op.resolve(inputs, outputs, sample.attrs)
        assert len(resolved.table) == len(resolved.inputs) + len(outputs)
        assert op.attrs.pack(resolved.attrs) == op.attrs.pack(
            op.attrs.unpack(op.name, op.attrs.schema_id, op.attrs.pack(resolved.attrs))
        )
    assert op.errors, "a declaration says what it refuses"
    for case in op.errors:

        def refused(case=case):
            inputs = descs(case.shapes, case.dtypes)
            op.resolve(inputs, outs(case, case.dtypes) or op.infer(inputs, case.attrs, free), case.attrs)

        with pytest.raises(case.error) as caught:
            refused()
        assert op.name in str(caught.value)
