"""Test that isokern ops and isokern why agree with dispatch."""

import inspect
import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import generate
import pytest
import support as support_data

import isokern
from isokern import TensorDesc
from isokern.backend.capabilities import support
from isokern.cli import ops
from isokern.cli.why import resolve, tensor
from isokern.declare.samples import assignments, describe, first_sample, principal, products
from isokern.dtypes import PLAIN
from isokern.eager import functions
from isokern.ops import all_operators, find
from isokern.ops.aliases import ALIASES
from isokern.ops.peers import PEERS, find_peer_names, peer_names

ROOT = Path(__file__).parents[2]
KEYS = {
    *("name", "family", "kind", "kind_id", "schema", "schema_id", "signature", "doc", "dtypes", "choices", "attrs"),
    *("aliases", "functions", "cost", "devices"),
}


@pytest.fixture(scope="module")
def rows(device):
    return {row["name"]: row for row in ops.rows()}


def test_every_operator_is_listed(isokern_here, device, rows, monkeypatch):
    monkeypatch.setattr(ops, "rows", lambda name, family: list(rows.values()))  # which takes seconds
    found = isokern_here("ops", "--json").document
    assert [row["name"] for row in found] == [op.name for op in all_operators()]
    for row in found:
        assert set(row) == KEYS
        claims = row["devices"][device.name]
        assert len(claims["dtypes"]) <= row["choices"]
        for choice in claims["dtypes"]:
            assert choice.keys() == row["dtypes"].keys()
            assert all(name in row["dtypes"][variable] for variable, name in choice.items())
    (gemm,) = [row for row in found if row["name"] == "gemm"]
    assert gemm["signature"].startswith("a: T[*b, p, q], b: T[*b, r, s]")
    assert {a["name"]: (a["kind"], a["default"]) for a in gemm["attrs"]}["alpha"] == ("float", 1.0)
    (pool,) = [row for row in found if row["name"] == "max_pool2d"]
    assert {a["name"]: a["required"] for a in pool["attrs"]} == {
        "kernel": True,
        "stride": False,
        "padding": False,
        "dilation": False,
    }


def test_identities_and_aliases(rows):
    for op in all_operators():
        row = rows[op.name]
        assert (row["kind"], row["kind_id"]) == (op.kind, op.kind_id)
        assert (row["schema"], row["schema_id"]) == (op.attrs.schema, op.attrs.schema_id)
        assert row["aliases"] == list(op.aliases)
    assert rows["softmax"]["kind_id"] == int.from_bytes(b"SOFT", "little")
    assert (rows["relu"]["schema"], rows["relu"]["schema_id"]) == ("", 0)


def test_functions_are_those_that_call_the_operator(rows):
    """An operator's row lists the functions whose source looks the operator up by name."""
    own = {name: functions.find_alias(name) for name in ALIASES}
    called = {name: set(re.findall(r'(?:find|plain)\("(\w+)"\)', inspect.getsource(f))) for name, f in own.items()}
    for name, row in rows.items():
        of = [alias for alias, names in called.items() if name in names]
        assert row["functions"] == [*([] if name in called else [name]), *of]
    assert {name: set(names) for name, names in ALIASES.items()} == called
    assert {*ALIASES} <= {*dir(isokern)}
    assert rows["add"]["functions"] == ["add", "add_assign"]
    assert rows["quantize"]["functions"] == ["quantize", "cast"]
    assert rows["transpose"]["functions"] == []  # the function `transpose` copies, so it calls `rearrange`


def test_cost_is_that_of_the_first_sample(rows):
    assert rows["softmax"]["cost"]["inputs"] == ["F32[1]"]
    for op in all_operators():
        cost = rows[op.name]["cost"]
        assert (cost["flops"] is None) == (op.flops is None)
        assert cost["bytes"] >= 0
    cost = rows["gemm"]["cost"]
    a, b = (re.match(r"F32\[(\d+), (\d+)\]", d).groups() for d in cost["inputs"][:2])
    if not cost["attrs"]:
        assert cost["flops"] == 2 * int(a[0]) * int(a[1]) * int(b[1])


def test_workspaces_are_told_by_variant(rows, device):
    for op in all_operators():
        told = rows[op.name]["devices"][device.name]["workspace"]
        assert list(told) == [v.name for v in device.variants(op.stem)]
        assert set(told.values()) <= {"", *device.memory.kinds}
        sample = op.samples()[0]
        inputs, outputs = describe(op, sample, assignments(op)[0])
        try:
            made = isokern.create(op, inputs, outputs, device=device, on_missing="error", **sample.attrs)
        except isokern.NotImplementedOnDevice:
            continue
        if made.workspace_size:
            assert told[made.variant] == made.workspace.kind


def test_table(isokern_here):
    done = isokern_here("ops", "--family", "reduction")
    assert done.code == 0
    assert "reduce_sum" in done.out
    assert "log_softmax" not in done.out


def test_one_operator(isokern_here, device):
    done = isokern_here("ops", "softmax")
    assert done.code == 0
    op = find("softmax")
    words = " ".join(done.out.split())
    for promised in (
        f"softmax: {op.signature}",
        " ".join(op.doc.split()),
        "T: F32, F16, BF16, F64",
        "out may be x",
        "kind SOFT",
        "schema SMX1",
        "functions: softmax",
        "axis an integer -1",
        f"{device.name} ",
    ):
        assert promised in words, words
    (row,) = isokern_here("ops", "softmax", "--json").document
    assert row["name"] == "softmax"
    for name in ("relu", "cast", "concat", "random_sample"):
        assert isokern_here("ops", name).code == 0


def test_a_function_that_is_no_operator(isokern_here):
    """It is told how it is called, with the operators that it calls, where there are any."""
    done = isokern_here("ops", "split")
    assert done.code == 0
    assert "isokern.split(x, sizes, axis=0, *, device=None)" in done.err
    assert isokern_here("ops", "split", "--json").document == []
    assert [row["name"] for row in isokern_here("ops", "einsum", "--json").document] == ["generic", "matmul"]


def test_an_operator_that_is_not_there(isokern_here):
    done = isokern_here("ops", "sofmax")
    assert done.code == 2
    assert "softmax" in done.err
    done = isokern_here("ops", "softmax", "--family", "reduction")
    assert done.code == 2
    assert "one of the two" in done.err


@pytest.mark.parametrize("name", [op.name for op in all_operators()])
def test_claims_both_ways(device, name):
    """A plan can be created exactly for the dtypes that support() accepts, checked for each choice of dtypes."""
    op = find(name)
    found = support(device, op)
    assert list(found) == [tuple(types.values()) for types in assignments(op)]
    for types in assignments(op):
        sample = first_sample(op, types)
        inputs, outputs = describe(op, sample, types)
        reason = found[tuple(types.values())]
        try:
            isokern.create(op, inputs, outputs, device=device, on_missing="error", **sample.attrs)
        except isokern.NotImplementedOnDevice:
            assert reason, types
        else:
            assert reason is None, types
    assert device.supports(op) == [t for t in assignments(op) if found[tuple(t.values())] is None]


def without(monkeypatch, device, refused):
    """Make the device refuse the plans for which `refused` is true."""
    plain = type(device).variants

    def variants(self, stem):
        return [
            replace(v, supported=lambda plan, v=v: "it is refused" if refused(plan) else v.supported(plan))
            for v in plain(self, stem)
        ]

    monkeypatch.setattr(type(device), "variants", variants)


@pytest.fixture
def casts_without_f64(device, monkeypatch):
    if len(device.supports("cast")) < len(PLAIN) ** 2:
        pytest.skip(f"{device.name} does not take every cast")
    without(monkeypatch, device, lambda p: p.operator.name == "cast" and isokern.F64 in [d.dtype for d in p.table])


def test_one_pair_that_is_refused_takes_no_other_with_it(device, casts_without_f64, isokern_here):
    assert len(device.supports("cast")) == (len(PLAIN) - 1) ** 2
    assert device.supports("cast", S="F32", T="I8") == [{"S": isokern.F32, "T": isokern.I8}]
    assert device.supports("cast", S=isokern.F64, T="I8") == []
    assert len(device.supports("cast", S="F32")) == len(PLAIN) - 1
    assert device.supports("cast", T="F64") == []
    (row,) = ops.rows("cast")
    claims = row["devices"][device.name]["dtypes"]
    assert len(claims) == (len(PLAIN) - 1) ** 2
    assert {"S": "F32", "T": "I8"} in claims
    assert ops.claims_text(row, device.name) == "S: all but F64, T: all but F64"
    assert "S: all but F64, T: all but F64" in " ".join(isokern_here("ops", "cast").out.split())


def test_the_matrix_has_a_pair_that_is_refused_beside_the_others(device, casts_without_f64, monkeypatch, tmp_path):
    """The matrix on the page is made from the reports that tools/conformance.py writes."""
    monkeypatch.setattr(support_data, "REPORTS", tmp_path)
    monkeypatch.setattr(support_data, "KEPT", tmp_path / "support.json")
    backend = device.name.split(":")[0]
    report = {"backend": backend, "status": "passed", "reason": "", "check": None, "claims": ops.rows("cast")}
    report |= {"options": ["--quick"], "when": "2026-01-01 00:00 UTC", "commit": "0123456789"}
    (tmp_path / f"{backend}.json").write_text(json.dumps(report))
    support_data.write([backend])
    page = generate.matrix()
    assert "| [cast](operators/cast.md) | S: all but F64, T: all but F64 |" in page
    assert f"| {backend} | passed |  | the quick ones | 2026-01-01 00:00 UTC | 0123456 |" in page
    with pytest.raises(SystemExit, match=r"no report of \['nowhere'\]; tox -e conformance-nowhere"):
        support_data.write([backend, "nowhere"])


def test_wrong_claims_are_asked_of_nobody(device):
    with pytest.raises(isokern.InvalidArgument, match=r"cast: dtypes of U; allowed: of S, T"):
        device.supports("cast", U="F32")
    with pytest.raises(isokern.BadTensorDtype):
        device.supports("cast", S="F33")
    with pytest.raises(isokern.InvalidArgument, match="no operator is called 'castle'"):
        device.supports("castle")
    assert device.supports("softmax", T="I32") == []


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ("", []),
        ("a b", ["ab"]),
        ("ax ay bx by", ["ab,xy"]),
        ("ax ay bx", ["a,xy", "b,x"]),
        ("ax by cx", ["ac,x", "b,y"]),
        ("axp axq ayp ayq bxp bxq byp byq cxp", ["ab,xy,pq", "c,x,p"]),
    ],
)
def test_choices_as_products(choices, expected):
    found = products([tuple(choice) for choice in choices.split()])
    assert [",".join("".join(of) for of in part) for part in found] == expected
    assert sorted(c for part in found for c in product(*part)) == sorted(tuple(c) for c in choices.split())


def test_principal_type_covers_every_operator():
    for op in all_operators():
        name, allowed = principal(op)
        assert allowed
        assert {t[name] for t in assignments(op, {name: allowed[0]})} == {allowed[0]}
    assert len(assignments(find("cast"), {"S": isokern.F32})) == len(PLAIN)


def test_why_lists_every_variant(isokern_here, device):
    document = isokern_here("why", "add", "--device", device.name, "a=F32[2,3]:1,2@4", "b=F32[3]", "--json").document
    assert set(document) == {"op", "device", "inputs", "outputs", "attrs", "variants", "lowered"}
    assert document["lowered"] is None
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
    assert "not decomposed: fill: " in done.out
    assert isokern_here("why", "softmax", "--json").document["variants"] == []
    assert "not decomposed: topk has no decomposition" in isokern_here("why", "topk").out


def test_what_is_made_of_others(isokern_here, device, monkeypatch):
    """`why`, `ops` and `devices` print what a device has no kernel for and decomposes, and obey the policy."""
    before = {r["device"]: r["operators"] for r in isokern_here("devices", "--json").document}[device.name]
    without(monkeypatch, device, lambda plan: plan.operator.name == "softmax")
    done = isokern_here("why", "softmax", "x=F32[3,4]")
    assert "no variant takes this call" in done.out
    assert "made of fill ×2, generic ×4, with 512 bytes of workspace" in done.out
    (row,) = ops.rows("softmax")
    claims = row["devices"][device.name]
    assert claims["dtypes"] == [] and len(claims["lowered"]) == row["choices"] == 4
    assert ops.claims_text(row, device.name) == "decomposed: all"
    assert f"{device.name} decomposed: all" in " ".join(isokern_here("ops", "softmax").out.split())
    counts = {r["device"]: r["operators"] for r in isokern_here("devices", "--json").document}[device.name]
    assert (counts["lowered"], counts["missing"]) == (before["lowered"] + 1, 0)
    assert "decomposed" in isokern_here("devices").out

    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    found = isokern_here("why", "softmax", "x=F32[3,4]", "--json").document["lowered"]
    assert (found["chosen"], found["workspace"], len(found["made_of"])) == (False, 512, 6)
    assert found["reason"] == "refused, by ISOKERN_ON_MISSING=error"
    assert ops.rows("softmax")[0]["devices"][device.name]["lowered"] == []


def test_a_part_of_the_dtypes_is_made_of_others(device, monkeypatch):
    without(monkeypatch, device, lambda plan: plan.operator.name == "softmax" and plan.table[0].dtype is isokern.F16)
    (row,) = ops.rows("softmax")
    assert ops.claims_text(row, device.name) == "all but F16; decomposed: F16"


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


def test_names_of_other_libraries(isokern_here):
    done = isokern_here("ops", "DepthToSpace")
    assert done.code == 0 and "ONNX's DepthToSpace: depth_to_space" in done.err
    assert done.out.startswith("depth_to_space: x: T[n, c, h, w] -> y")
    assert [row["name"] for row in isokern_here("ops", "averagepool", "--json").document] == [
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
    ]
    done = isokern_here("ops", "TfIdfVectorizer")
    assert done.code == 2 and "ONNX's TfIdfVectorizer: " in done.err
    assert isokern_here("ops", "softmax").err.count("'s") == 0
    for name in ("aten.addmm", "aten::addmm.out", "torch.ops.aten.addmm.default"):
        done = isokern_here("ops", name)
        assert done.code == 0 and done.err.startswith("PyTorch's addmm: addmm, c last"), name
        assert done.out.startswith("addmm: a: T[m, k]")
    assert [row["name"] for row in isokern_here("ops", "_to_copy", "--json").document] == ["cast"]


def test_the_table_of_other_names_says_something_of_each():
    names = peer_names()
    assert {row.peer for row in names} == set(PEERS)
    assert len({(row.peer, row.name) for row in names}) == len(names) > 650
    declared = {op.name for op in all_operators()}
    for row in names:
        assert set(row.operators) <= declared, row
        assert row.operators or row.note, row
        assert row in find_peer_names(row.name.lower())
