"""isokern ops and isokern why: what they say is what dispatch does."""

import pytest

import isokern
from isokern import TensorDesc
from isokern.cli.why import resolve, tensor
from isokern.ops import all_operators, find
from isokern.support import assignments, describe, principal, support

KEYS = {"name", "family", "signature", "dtypes", "attrs", "devices"}


def test_every_operator_is_listed(isokern_here, device):
    rows = isokern_here("ops", "--json").document
    assert [row["name"] for row in rows] == [op.name for op in all_operators()]
    for row in rows:
        assert set(row) == KEYS
        assert row["dtypes"]
        assert set(row["devices"][device.name]) <= set(row["dtypes"])
    (gemm,) = [row for row in rows if row["name"] == "gemm"]
    assert gemm["signature"].startswith("a: T[p, q], b: T[r, s]")
    assert {a["name"]: (a["kind"], a["default"]) for a in gemm["attrs"]}["alpha"] == ("float", 1.0)
    (pool,) = [row for row in rows if row["name"] == "max_pool2d"]
    assert {a["name"]: a["required"] for a in pool["attrs"]} == {
        "kernel": True,
        "stride": False,
        "padding": False,
        "dilation": False,
    }


def test_table(isokern_here):
    done = isokern_here("ops", "--family", "reduction")
    assert done.code == 0
    assert "reduce_sum" in done.out
    assert "softmax" not in done.out


@pytest.mark.parametrize("name", [op.name for op in all_operators()])
def test_claims_both_ways(device, name):
    """What support() says yes to can be created, and what it refuses cannot."""
    op = find(name)
    sample = op.samples()[0]
    for element, reason in support(device, op).items():
        refused = 0
        for types in assignments(op, element):
            inputs, outputs = describe(op, sample, types)
            try:
                isokern.create(op, inputs, outputs, device=device, **sample.attrs)
            except isokern.NotImplementedOnDevice:
                refused += 1
        assert bool(refused) == (reason is not None), (element, reason)


def test_principal_type_covers_every_operator():
    for op in all_operators():
        name, allowed = principal(op)
        assert len(allowed) > 1
        assert {t[name] for t in assignments(op, allowed[0])} == {allowed[0]}
    assert len(assignments(find("cast"), isokern.F32)) == 13


def test_why_lists_every_variant(isokern_here, device):
    document = isokern_here("why", "add", "--device", device.name, "a=F32[2,3]:1,2@4", "b=F32[3]", "--json").document
    assert set(document) == {"op", "device", "inputs", "outputs", "attrs", "variants"}
    assert document["inputs"] == ["F32[2, 3] strides (1, 2) offset 4", "F32[3]"]
    assert document["outputs"] == ["F32[2, 3]"]
    assert len(document["variants"]) == len(device.variants("elementwise"))
    assert [v["chosen"] for v in document["variants"]].count(True) == 1
    assert all(v["chosen"] != bool(v["reason"]) for v in document["variants"])
    assert [v["priority"] for v in document["variants"]] == sorted(
        (v["priority"] for v in document["variants"]), reverse=True
    )


def test_why_without_a_kernel(isokern_here, device, monkeypatch):
    monkeypatch.setattr(type(device), "variants", lambda self, stem: [])
    done = isokern_here("why", "softmax")
    assert done.code == 0
    assert "has no kernel for softmax" in done.out
    assert isokern_here("why", "softmax", "--json").document["variants"] == []


def test_why_takes_a_first_sample(isokern_here, device):
    done = isokern_here("why", "relu", "--dtype", "bf16")
    assert done.code == 0
    assert "relu(BF16[])" in done.out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("F32[2,3]", TensorDesc("F32", (2, 3))),
        ("f16[]", TensorDesc("F16", ())),
        ("I8[4]:-1@3", TensorDesc("I8", (4,), (-1,), 3)),
        ("F32[2, 3] strides (1, 2) offset 4", TensorDesc("F32", (2, 3), (1, 2), 4)),
        ("F32[2,1]@8", TensorDesc("F32", (2, 1), None, 8)),
    ],
)
def test_tensors_in_words(text, expected):
    assert tensor("x", text) == expected
    assert tensor("x", str(expected)) == expected


def test_calls_in_words():
    call = resolve(find("concat"), ["x=F32[2,3]", "x=F32[1,3]", "axis=0"])
    assert call.outputs == (TensorDesc("F32", (3, 3)),)
    call = resolve(find("cast"), ["x=F32[5]", "T=I8"])
    assert call.outputs == (TensorDesc("I8", (5,)),)
    call = resolve(find("fill"), ["y=F64[2]", "value=0.5"])
    assert (call.outputs, call.attrs["value"]) == ((TensorDesc("F64", (2,)),), 0.5)
    call = resolve(find("reduce_sum"), ["x=F32[2,3]", "axes=1", "keepdims=true"])
    assert call.outputs == (TensorDesc("F32", (2, 1)),)
    call = resolve(find("gemm"), ["a=F32[2,3]", "b=F32[3,4]", "c=F32[2,4]", "activation=relu"])
    assert call.inputs[2] is None
    assert call.attrs["activation"] == "relu"


@pytest.mark.parametrize(
    ("op", "words", "error"),
    [
        ("add", ["a"], isokern.InvalidArgument),
        ("add", ["q=F32[2]"], isokern.InvalidArgument),
        ("add", ["a=F32(2)"], isokern.InvalidArgument),
        ("add", ["a=F33[2]", "b=F32[2]"], isokern.BadTensorDtype),
        ("add", ["a=F32[2]", "a=F32[2]"], isokern.InvalidArgument),
        ("add", ["a=F32[2]"], isokern.InvalidArgument),
        ("add", ["a=F32[2]", "b=F32[3]"], isokern.BadTensorShape),
        ("softmax", ["axis=one"], isokern.InvalidArgument),
        ("softmax", ["axis=7"], isokern.InvalidArgument),
        ("reduce_sum", ["keepdims=maybe"], isokern.InvalidArgument),
        ("cast", ["x=F32[2]"], isokern.InvalidArgument),
    ],
)
def test_wrong_words(op, words, error):
    with pytest.raises(error):
        resolve(find(op), words)
