"""Test lowering: every operator is a primitive or decomposes into primitives, which agree with its reference."""

from dataclasses import replace

import numpy as np
import pytest
from primitives_device import primitives_device

import isokern
from isokern import InvalidArgument, NotImplementedOnDevice, TensorDesc
from isokern.backend import Declined, HostMemory, Workspace
from isokern.conformance.derive import operator_cases
from isokern.conformance.run import Runner
from isokern.declare import Sample, declare
from isokern.declare.registry import withdraw
from isokern.declare.samples import assignments, describe, fits
from isokern.demo.zoo import MODELS
from isokern.dtypes import F32
from isokern.graph import parse
from isokern.ops import all_operators, find
from isokern.oracle.verdicts import Verdict
from isokern.passes import DEFAULT, run
from isokern.rewriting.conversion import convert, single
from isokern.rewriting.rewriter import State
from isokern.rewriting.target import EXCEPTIONS, Target, primitives
from isokern.runtime import compile

COMPOSITE = [op for op in all_operators() if op.decompose is not None]
SHARE = 3  # every third quick case runs, since all of them take minutes
# One of each way to decompose, with the primitives that it comes to
FEW = (
    *("add", "floor_divide", "layer_norm", "softmax_sinks", "cumprod", "logcumsumexp", "matmul", "linear", "conv2d"),
    *("solve", "avg_pool2d", "max_pool2d", "rope", "index_add", "one_hot", "weighted_gather", "unpack_bits", "nms"),
    *("dynamic_quantize", "kthvalue", "bernoulli", "ssd_scan", "nll_loss"),
)


@pytest.fixture(scope="module")
def device():
    found = primitives_device()
    if found is None:
        pytest.skip("the CPU backend is not installed")
    return found


def test_the_exceptions_are_named_and_few():
    assert set(EXCEPTIONS) == {"random_sample", "copy_slice", "cache_update", "paged_cache_update"}
    assert all(find(name).decompose is None and len(reason) > 20 for name, reason in EXCEPTIONS.items())
    assert not set(primitives()) & set(EXCEPTIONS)


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("op", COMPOSITE, ids=lambda op: op.name)
def test_every_operator_reaches_primitives(op):
    allowed, reached = {*primitives(), *EXCEPTIONS}, 0
    for types in assignments(op)[:6]:
        for sample in op.samples():
            if sample.size != "small" or not fits(op, sample, types):
                continue
            inputs, outputs = describe(op, sample, types)
            graph = single(op, inputs, outputs, op.attrs.check(op.name, sample.attrs))
            lowered = run(State(graph, {}), "to_primitives").graph
            assert {o.kind for o in lowered.ops} <= allowed
            assert [v.spec for v in lowered.outputs] == outputs
            reached += 1
    assert reached


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("op", COMPOSITE, ids=lambda op: op.name)
def test_what_a_device_of_primitives_computes(op, device):
    """The conformance suite checks results, the exact workspace, and that nothing else is written."""
    runner, wrong = Runner(device), []
    quick = [c for c in operator_cases(op) if c.quick and c.values not in ("error", "claim")]
    wrong_indices = [c for c in quick if c.values == "out_of_range"]
    for case in [*wrong_indices, *quick[:: SHARE if len(quick) > 20 else 1]]:
        outcome = runner.run(case)
        if outcome.verdict is not Verdict.LOWERED:
            wrong.append(f"{case.id}: {outcome.verdict.value}: {outcome.detail}")
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.parametrize(
    ("name", "attrs", "x"),
    [
        ("rms_norm", {}, np.full((2, 64), 300)),
        ("layer_norm", {}, np.resize([400.0, -400.0], (2, 64))),
        ("reduce_mean", {"axes": (1,)}, np.full((2, 64), 2000)),
        ("avg_pool2d", {"kernel": (8, 8)}, np.full((1, 2, 8, 8), 2000)),
        ("adaptive_avg_pool2d", {"output_size": (1, 1)}, np.full((1, 2, 8, 8), 2000)),
        ("adaptive_avg_pool2d", {"output_size": (3, 3)}, np.full((1, 2, 8, 8), 60000)),
        ("softmax", {}, np.zeros((1, 70000))),
    ],
)
def test_what_would_overflow_in_f16_is_held_in_f32(name, attrs, x, device):
    """Intermediate sums exceed 65,504, the largest F16 value, while the results fit."""
    given = TensorDesc("F16", x.shape)
    descriptor = isokern.create(name, [given], device=device, **attrs)
    assert descriptor.variant == "lowered"
    found = isokern.tensor(x, "F16", device=device)
    y = isokern.empty(descriptor.outputs[0].shape, "F16", device=device)
    descriptor.calculate(found, y, workspace="auto")
    reference = find(name).reference
    filled = [None] * (len(find(name).signature.inputs) - 1)
    wanted = reference(x.astype(np.float64), *filled, **find(name).attrs.check(name, attrs))
    np.testing.assert_allclose(y.numpy().astype(np.float64), wanted, rtol=2e-3)


@pytest.mark.parametrize("name", MODELS)
def test_models_on_a_device_of_primitives(name, device):
    m = MODELS[name]() if name != "resnet18" else MODELS[name](size=64, width=8)
    rng = np.random.default_rng(5)
    feeds = [
        rng.integers(0, 128, v.spec.shape) if v.spec.dtype.kind == "i" else rng.standard_normal(v.spec.shape)
        for v in m.graph.inputs
    ]
    feeds = [f.astype(v.spec.dtype.numpy) for f, v in zip(feeds, m.graph.inputs, strict=True)]
    wanted = compile(m, "cpu:0").run(feeds)
    program = compile(m, device)
    found = program.run(feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert {op.kind for op in program.graph.ops} <= {*primitives(), *EXCEPTIONS}
    print(f"{name}: peak of {program.arena_bytes} bytes in primitives")


def test_a_part_may_lack_its_last_operands():
    """layer_norm has a weight and a bias, which nothing stands for in the parts of this operator."""
    operator = declare(
        "centre",
        "CNTR",
        "x: T[*d] -> y: T[*d]",
        {"T": (F32,)},
        family="normalization",
        doc="layer_norm without a weight and a bias.",
        reference=lambda x: x,
        samples=lambda: [Sample({"x": (3, 4)})],
        decompose=lambda e, inputs, values, outputs: e("layer_norm", *inputs, eps=0.0),
    )
    try:
        x = np.random.default_rng(3).standard_normal((3, 40), np.float32)
        given, y = isokern.tensor(x, device="cpu:0"), isokern.empty(x.shape, "F32", device="cpu:0")
        descriptor = isokern.create(operator, [given.desc], device="cpu:0")
        assert descriptor.variant == "lowered"
        descriptor.calculate(given, y, workspace="auto")
    finally:
        withdraw(operator)
    np.testing.assert_allclose(
        y.numpy(), (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("by", ["argument", "setting"])
def test_the_policy(device, by, monkeypatch):
    """`create` and the eager functions lower by default, and refuse with "error"; kernels run in either case."""
    x = isokern.tensor(np.ones((3, 4)), "F32", device=device)
    assert isokern.create("softmax", [x.desc], device=device).variant == "lowered"
    np.testing.assert_allclose(isokern.softmax(x).numpy(), 0.25)
    if by == "setting":
        monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    options = {"on_missing": "error"} if by == "argument" else {}
    refusal = r"it is no primitive.*on_missing='lower' decomposes it into operators"
    with pytest.raises(NotImplementedOnDevice, match=refusal):
        isokern.create("softmax", [x.desc], device=device, **options)
    with pytest.raises(NotImplementedOnDevice, match=refusal):
        isokern.softmax(x, **options)
    own = isokern.create("softmax", [x.desc], device="cpu:0", **options)
    assert own.variant != "lowered" and own.made_of == ()
    assert isokern.softmax(isokern.tensor(np.ones(2), device="cpu:0"), **options).shape == (2,)
    np.testing.assert_allclose(isokern.softmax(x, on_missing="lower").numpy(), 0.25)


def test_a_policy_that_is_none(device, monkeypatch):
    x = isokern.tensor(np.ones(4), "F32", device=device)
    for call in (isokern.softmax, lambda x, **options: isokern.create("softmax", [x.desc], device=device, **options)):
        for wrong in ("lowr", 1, ("lower",)):
            with pytest.raises(InvalidArgument, match=r"softmax: on_missing=.*; allowed: lower or error"):
                call(x, on_missing=wrong)
    monkeypatch.setenv("ISOKERN_ON_MISSING", "never")
    with pytest.raises(InvalidArgument, match="ISOKERN_ON_MISSING='never'; allowed: lower or error"):
        isokern.create("softmax", [x.desc], device=device)


def test_bound_and_captured_calls(device):
    """A bound call of parts reads what its inputs hold at each run, within a recording, too."""
    x = isokern.tensor(np.ones((3, 4)), "F32", device=device)
    y, z = (isokern.empty(x.shape, "F32", device=device) for _ in range(2))
    made = isokern.create("softmax", [x.desc], device=device)
    bound = made.bind(x, y, workspace="auto")
    with device.default_stream.capture() as recording:
        bound()
        made.calculate(y, z, workspace="auto")
    for values in (np.arange(12.0).reshape(3, 4), np.zeros((3, 4))):
        x.copy_from(values.astype(np.float32))
        recording.replay()
        wanted = np.exp(values) / np.exp(values).sum(1, keepdims=True)
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-6)
        np.testing.assert_allclose(z.numpy(), np.exp(wanted) / np.exp(wanted).sum(1, keepdims=True), rtol=1e-6)


def test_graphs_have_the_same_policy(device, monkeypatch, capfd):
    """A compile under "error" refuses what one under "lower" has cached, and names every operator and its layer."""
    m = MODELS["mlp"]()
    assert compile(m, device).graph
    refusal = r"no kernel for \d operators: .*softmax of net\.5: .*it is no primitive.*on_missing='lower'"
    for options in ({"on_missing": "error"}, {"on_missing": "error", "dynamic": True}):
        with pytest.raises(NotImplementedOnDevice, match=refusal):
            compile(m, device, **options)
    with pytest.raises(InvalidArgument, match="on_missing='never'; allowed: lower or error"):
        compile(m, device, on_missing="never")
    assert compile(m, "cpu:0", on_missing="error").graph
    monkeypatch.setattr("isokern.debug.LEVEL", 1)
    compile(MODELS["mlp"](), device, passes="")
    assert f"on {device.name}: linear of net.0 is decomposed" in capfd.readouterr().err
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    with pytest.raises(NotImplementedOnDevice, match=refusal):
        compile(m, device)


def test_a_descriptor_says_what_it_is_made_of(device, monkeypatch, capfd):
    monkeypatch.setattr("isokern.debug.LEVEL", 1)
    made = isokern.create("rms_norm", [TensorDesc("F32", (3, 4)), TensorDesc("F32", (4,))], device=device)
    assert made.made_of and set(made.made_of) <= {*primitives()}
    said = capfd.readouterr().err
    assert f"made of {made.made_of[0]}" in said and f"with {made.workspace_size} bytes of workspace" in said
    assert made.why()[-1].variant == "lowered"


@pytest.mark.parametrize(("asked", "given"), [(Workspace(24, 64, "fast"), "default"), (Workspace(24, 4096), "")])
def test_a_part_gets_memory_of_the_default_kind(device, asked, given):
    """The kind that a part's kernel asks for is a wish; an alignment that the workspace lacks is no wish."""

    class Asking(type(device)):
        def variants(self, stem):
            return [replace(v, build=self._ask(v.build)) for v in super().variants(stem)]

        @staticmethod
        def _ask(build):
            def attempt(plan):
                kernel = build(plan)
                kernel.workspace = asked
                return kernel

            return attempt

    asking = Asking("asking:0", dict(device.properties), HostMemory(), device.library, device._declined)
    x = TensorDesc("F32", (3, 4))
    if given:
        made = isokern.create("softmax", [x], device=asking)
        assert (made.workspace.kind, made.workspace.alignment) == (given, 256) and made.workspace_size >= 24
        return
    with pytest.raises(NotImplementedOnDevice, match="needs a workspace aligned to 4096, and has one aligned to 256"):
        isokern.create("softmax", [x], device=asking)


def test_parts_behind_a_wrong_index_still_run(device):
    """The error is raised at the call, and the result is what the declaration says: zeros in place of the row."""
    table = isokern.tensor(np.ones((4, 3)), "F32", device=device)
    out = isokern.tensor(np.full((2, 3, 2), np.nan), "F32", device=device)[..., 0]
    indices = isokern.tensor(np.array([1, 9]), device=device)
    made = isokern.create("embedding", [table.desc, indices.desc], [out.desc], device=device)
    assert made.made_of[-1] == "rearrange"
    bound = made.bind([table, indices], out, workspace="auto")
    for call in (bound, lambda: made.calculate([table, indices], out, workspace="auto")):
        with pytest.raises(InvalidArgument, match=r"\[1\] is 9"):
            call()
        np.testing.assert_array_equal(out.numpy(), [[1, 1, 1], [0, 0, 0]])
        out.copy_from(np.full((2, 3), np.nan, np.float32))


def test_an_operator_that_was_taken_and_not_built_is_made_of_others(device):
    """A variant may take a call and decline when it is built, as where a self-test fails."""

    class Declining(type(device)):
        def variants(self, stem):
            return [
                replace(v, supported=lambda plan: None, build=self._decline(v.build)) for v in super().variants(stem)
            ]

        @staticmethod
        def _decline(build):
            def attempt(plan):
                if plan.operator.decompose is not None:
                    raise Declined("its self-test failed")
                return build(plan)

            return attempt

    declining = Declining("declining:0", dict(device.properties), HostMemory(), device.library, device._declined)
    assert set(isokern.create("softmax", [TensorDesc("F32", (3, 4))], device=declining).made_of) <= {*primitives()}


def test_an_error_names_it_only_where_it_helps(device):
    """The error suggests the policy only for F32, the one dtype that this device's kernels support."""

    class F32Only(type(device)):
        def variants(self, stem):
            return [replace(v, supported=self._narrow(v.supported)) for v in super().variants(stem)]

        @staticmethod
        def _narrow(supported):
            def answer(plan):
                wide = any(d is not None and d.dtype.name != "F32" for d in plan.table)
                return "it is not F32" if wide else supported(plan)

            return answer

    narrow = F32Only("narrow:0", dict(device.properties), HostMemory(), device.library, device._declined)
    with pytest.raises(NotImplementedOnDevice, match="on_missing='lower'"):
        isokern.create("softmax", [TensorDesc("F32", (3, 4))], device=narrow, on_missing="error")
    for policy in ("error", "lower"):
        with pytest.raises(NotImplementedOnDevice, match="it is not F32") as caught:
            isokern.create("softmax", [TensorDesc("F64", (3, 4))], device=narrow, on_missing=policy)
        assert "on_missing" not in str(caught.value)
        assert ("lowered: " in str(caught.value)) == (policy == "lower")


def test_targets():
    m = MODELS["mlp"]()
    state = State(m.graph, m.parameters)
    partial = convert(state, Target(lambda *_: None).illegal("softmax"))
    assert {"linear", "gelu", "generic"} <= {op.kind for op in partial.graph.ops}
    assert "softmax" not in {op.kind for op in partial.graph.ops}

    def wide(operator, inputs, outputs, attrs):
        return None if outputs[0].shape[-1] > 10 else "only wide ones"

    some = convert(state, Target(lambda *_: None).dynamic("linear", wide))
    kinds = [op.kind for op in some.graph.ops]
    assert (kinds.count("linear"), kinds.count("matmul_transposed")) == (2, 1)


def test_what_stays_illegal_is_listed_by_layer_with_the_reason():
    m = MODELS["mlp"]()
    target = Target.of_primitives().illegal("generic", reason="no loop nests here").illegal("matmul_transposed")
    with pytest.raises(NotImplementedOnDevice) as caught:
        convert(State(m.graph, m.parameters), target)
    for part in (
        "generic of net.1: no loop nests here",
        "matmul_transposed of net.0: it is illegal",
        "generic of net.5",
    ):
        assert part in str(caught.value)
    kept = convert(State(m.graph, m.parameters), target, partial=True)
    assert "generic" in {op.kind for op in kept.graph.ops}


def test_a_decomposition_that_is_wrong_is_named():
    graph = parse('graph g {\n  %0 = input "x": F32[2, 3]\n  %1 = relu(%0) "act": F32[2, 3]\n  return %1\n}')
    relu = find("relu")
    before = relu.decompose
    try:
        object.__setattr__(relu, "decompose", lambda e, inputs, attrs, outputs: e("transpose", inputs[0]))
        with pytest.raises(
            InvalidArgument, match=r"relu\(act\): its decomposition makes .*F32\[3, 2\].*mend the declaration"
        ):
            run(State(graph, {}), "to_primitives")
        object.__setattr__(relu, "decompose", lambda e, inputs, attrs, outputs: e("relu", inputs[0]))
        with pytest.raises(InvalidArgument, match="decomposes into itself: relu → relu"):
            run(State(graph, {}), "to_primitives")
    finally:
        object.__setattr__(relu, "decompose", before)


def test_lowered_and_then_fused():
    m = MODELS["llama"]()
    state = run(State(m.graph, m.parameters), f"{DEFAULT},to_primitives,canonicalise,common_subexpressions,dead_code")
    assert {op.kind for op in state.graph.ops} <= set(primitives())


def test_constraints_go_to_the_part_that_reads_the_input(device):
    text = (
        'graph g {{\n  %0 = input "x": F32[2, 64]\n  %1 = input "r": F32[2, 64]\n  %2 = input "w": F32[64]\n'
        "  %3 = copy(%0): F32[2, 64]\n  %4 = {}\n  return %4\n}}"
    )
    norm = parse(text.format("rms_norm(%3, %2) where aligned(0, 64), contiguous(0): F32[2, 64]"))
    held = compile(norm, device, passes="").graph
    assert all(op.kind != "rms_norm" for op in held.ops)
    (kept,) = ((op, c) for op in held.ops for c in op.constraints if c.kind == "aligned")
    assert (kept[0].inputs[kept[1].operand].vid, kept[1].amount) == (held.ops[0].outputs[0].vid, 64)
    relu = parse(text.format("silu(%3) where alias(0): F32[2, 64]"))
    with pytest.raises(InvalidArgument, match=r"alias\(0\): it is made of \d+ operators, as .* memory that keeps it"):
        compile(relu, device, passes="")
