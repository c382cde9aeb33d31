"""Test that operators are recognised in the small ones that exporters write, and that results stay the same."""

from collections import Counter

import numpy as np
import pytest
from exported_forms import Writer
from graph_oracles import moved

from isokern.graph import Builder
from isokern.passes import DEFAULT, run
from isokern.rewriting.rewriter import State
from isokern.runtime import compile

ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "quick_gelu", "hardswish", "hardsigmoid")
PASSES = (
    "canonicalise,recognise_activations,recognise_norms,recognise_group_norm,recognise_attention,share_heads,"
    "recognise_rope,dead_code"
)
ROUNDS = range(12)


def compare(writer, y, device, bound=2e-5):
    """Return the kinds of operators after the passes; results before and after must agree on a device."""
    writer.b.output(y)
    graph = writer.b.graph
    feeds = [
        writer.random.integers(0, 50, v.spec.shape) if v.spec.dtype.kind == "i" else
        writer.random.standard_normal(v.spec.shape) for v in graph.inputs
    ]  # fmt: skip
    plain, done = (compile(graph, device, parameters=writer.known, passes=p).run(feeds) for p in ("", PASSES))
    np.testing.assert_allclose(done, plain, rtol=bound, atol=bound * np.abs(plain).max(initial=1))
    return Counter(op.kind for op in run(State(graph, writer.known), PASSES).graph.ops)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_an_activation_is_one_operator_however_it_is_written(kind, cpu):
    for seed in ROUNDS:
        w = Writer(seed)
        x = w.op("neg", w.input(3, 40))
        assert compare(w, w.op("sin", getattr(w, kind)(x)), cpu) == {"neg": 1, kind: 1, "sin": 1}, seed


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_a_norm_is_one_operator_however_it_is_written(kind, cpu):
    for seed in ROUNDS:
        w = Writer(seed)
        x = w.op("neg", w.input(2, 3, 24))
        found = compare(w, w.op("sin", getattr(w, kind)(x)), cpu)
        found.pop("reshape", None)  # of weights with more dims
        assert found == {"neg": 1, kind: 1, "sin": 1}, seed


def test_a_norm_by_groups_is_one_operator_however_it_is_written(cpu):
    for seed in ROUNDS:
        w = Writer(seed)
        x = w.op("neg", w.input(2, 6, 5, *[4] * w.random.integers(2)))
        found = compare(w, w.op("sin", w.group_norm(x, int(w.random.choice([1, 2, 3, 6])))), cpu)
        found.pop("reshape", None)  # of weights with more dims
        assert found == {"neg": 1, "group_norm": 1, "sin": 1}, seed


@pytest.mark.parametrize("change", ["weights", "shape", "read"])
def test_what_is_no_norm_by_groups_stays(change, cpu):
    w = Writer(1)
    x = w.op("neg", w.input(2, 6, 5))
    flat = w.op("reshape", x, shape=(2, 5, 6) if change == "shape" else (2, 3, 10))
    made = w.op("instance_norm", flat, w.number(2 if change == "weights" else 1, flat.spec.shape[1:2]), eps=1e-5)
    y = w.op("mul", w.op("reshape", made, shape=(2, 6, 5)), w.vector(6, 1))
    if change == "read":
        y = w.op("add", y, w.op("reduce_max", made, axes=(1, 2), keepdims=True))
    assert compare(w, y, cpu)["group_norm"] == 0


@pytest.mark.parametrize("heads", [0, 3])
def test_attention_is_one_operator_however_it_is_written(heads, cpu):
    for seed in range(2 * len(ROUNDS)):
        w = Writer(seed)
        found = compare(w, w.attention(2, heads, 5, 7, 16, 24), cpu)
        assert found["attention"] == 1 and not found["matmul"] and not found["softmax"], seed


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("known", [True, False])
def test_rotary_positions_are_one_operator_however_they_are_written(heads, known, cpu):
    for seed in ROUNDS:
        w = Writer(seed)
        batch = 1 + seed % 2
        tables = w.tables(batch, 5, 4, known)
        x = w.input(*((2, 3, 5, 8) if heads == 1 else (2, 5, 3, 8)))
        found = compare(w, w.op("tanh", w.rope(w.op("neg", x), tables, heads)), cpu)
        assert {k: n for k, n in found.items() if k not in ("reshape", "transpose")} == {
            "neg": 1, "rope": 1, "tanh": 1
        }, seed  # fmt: skip


@pytest.mark.parametrize("change", ["fraction", "halves", "sign", "angle", "tables"])
def test_what_turns_otherwise_stays(change, cpu):
    w = Writer(4)
    cos, sin = w.tables(1, 5, 4, True)
    x = w.input(2, 3, 5, 8)
    if change == "fraction":  # which no operator takes as a position
        w.known["positions"][0, 2] += 0.5
    if change == "angle":
        sin = w.op("sin", w.op("scale", cos.producer.inputs[0].producer.inputs[0], value=2.0))
    if change == "tables":  # cosines of which no angles are known
        w.known["table"] = np.float32(w.random.standard_normal((1, 5, 8)))
        cos = w.b.parameter("table", (1, 5, 8), "F32")
    y = w.rope(x, (cos, sin), 1)
    if change in ("halves", "sign"):
        first, second = (w.op("slice", x, starts=(a,), ends=(a + 4,), axes=(3,)) for a in (0, 4))
        parts = (w.op("neg", first), second) if change == "halves" else (w.op("abs", second), first)
        wide = [w.op("reshape", t, shape=(1, 1, 5, 8)) for t in (cos, sin)]
        y = w.op("add", w.op("mul", x, wide[0]), w.op("mul", w.op("concat", *parts, axis=3), wide[1]))
    assert compare(w, y, cpu)["rope"] == 0


@pytest.mark.parametrize("change", ["regrouped", "rounded", "of rows", "flipped", "narrow angles"])
def test_angles_of_another_kind_stay(change, cpu):
    """Numbers that a rope does not have: compare fails where one is put in their place."""
    w = Writer(2)
    n = 4 if change == "of rows" else 5
    w.known["positions"] = np.arange(100, 100 + n, dtype=np.float32).reshape(n, 1)
    w.known["freqs"] = np.float32([1.0, 0.3, 0.1, 0.03])
    positions, freqs = w.b.parameter("positions", (n, 1), "F32"), w.b.parameter("freqs", (4,), "F32")
    if change == "narrow angles":
        positions, freqs = (w.b.emit("cast", [v], dtypes={"T": "BF16"})[0] for v in (positions, freqs))
    if change == "of rows":
        freqs = w.op("broadcast_to", w.op("reshape", freqs, shape=(4, 1)), shape=(4, 4))
    angles = w.op("mul", positions, freqs)
    if change == "narrow angles":
        angles = w.b.emit("cast", [angles], dtypes={"T": "F32"})[0]
    if change == "regrouped":  # each angle twice in a row
        angles = w.op("reshape", angles, shape=(4 * n, 1))
    both = w.op("reshape", w.op("concat", angles, angles, axis=1), shape=(1, n, 8))
    tables = [w.op(kind, both) for kind in ("cos", "sin")]
    if change == "rounded":
        for dtype in ("BF16", "F32"):
            tables = [w.b.emit("cast", [t], dtypes={"T": dtype})[0] for t in tables]
    x = w.input(2, 3, n, 8)
    y = w.rope(x, tables, 1)
    if change == "flipped":
        cos, sin = (w.op("reshape", t, shape=(1, 1, n, 8)) for t in tables)
        first, second = (
            w.op("slice", x, starts=(n - 1, a), ends=(-n - 1, a + 4), axes=(2, 3), steps=(-1, 1)) for a in (0, 4)
        )
        y = w.op("add", w.op("mul", x, cos), w.op("mul", w.op("concat", w.op("neg", second), first, axis=3), sin))
    assert compare(w, y, cpu)["rope"] == 0


def test_a_layer_norm_of_rows_with_a_factor_stays(cpu):
    w = Writer(0)
    y = w.op("mul", w.op("layer_norm", w.op("neg", w.input(6, 24))), w.vector(24))
    assert compare(w, y, cpu)["group_norm"] == 0


def test_heads_of_a_cache_that_is_updated_stay(cpu):
    """A read of the cache may not move behind its update."""
    b = Builder("cache")
    q, new, at = b.input("q", (1, 1, 4, 8), "F32"), b.input("new", (1, 1, 2, 8), "F32"), b.input("at", (1,), "I64")
    cache = b.input("cache", (1, 7, 2, 8), "F32")
    wide = b.emit(
        "broadcast_to", [b.emit("reshape", [cache], {"shape": (1, 7, 2, 1, 8)})[0]], {"shape": (1, 7, 2, 2, 8)}
    )
    k = b.emit("reshape", wide, {"shape": (1, 7, 4, 8)})[0]
    changed = b.emit("cache_update", [new, at, cache])[0]
    b.output(b.emit("attention", [q, k, k])[0], changed)
    compile(b.graph, cpu, mutable=("cache",)).close()


def test_attention_reads_repeated_heads_once(cpu):
    for seed in ROUNDS:
        w = Writer(seed)
        times = int(w.random.integers(2, 4))
        q = w.input(2, 2 * times, 5, 8)
        k, v = (w.repeated(w.op("neg", w.input(2, 2, 7, 8)), times) for _ in range(2))
        if seed % 2:
            k = w.op("transpose", k, axes=(0, 1, 3, 2))
        else:  # as exporters write the product of a batch
            flat = w.op("transpose", w.op("reshape", k, shape=(4 * times, 7, 8)), axes=(0, 2, 1))
            k = w.op("reshape", flat, shape=(2, 2 * times, 8, 7))
        shares = w.op("softmax", w.times(w.op("matmul", q, k), 8**-0.5), axis=-1)
        found = compare(w, w.op("matmul", shares, v), cpu)
        assert found["attention"] == 1 and not found["broadcast_to"], seed


def test_heads_of_another_order_are_repeated(cpu):
    """Where the first queries do not share the first head, nothing is left away."""
    w = Writer(0)
    q, k, v = w.input(2, 4, 5, 8), w.input(2, 2, 7, 8), w.input(2, 2, 7, 8)

    def tiled(x):
        wide = w.op("broadcast_to", w.op("reshape", x, shape=(2, 1, 2, 7, 8)), shape=(2, 2, 2, 7, 8))
        return w.op("reshape", wide, shape=(2, 4, 7, 8))

    scores = w.op("matmul", q, w.op("transpose", tiled(k), axes=(0, 1, 3, 2)))
    found = compare(w, w.op("matmul", w.op("softmax", scores, axis=-1), tiled(v)), cpu)
    assert found["attention"] == 1 and found["broadcast_to"] == 2


def test_a_layer_of_a_transformer_has_few_operators(device_group):
    """The passes by default leave nothing that was recognised in parts, and no transpose of what exporters turn."""
    w = Writer(3)
    x = w.input(2, 6, 32)
    normed = w.layer_norm(x)

    def heads(y):
        return w.op("transpose", w.op("reshape", y, shape=(2, 6, 4, 8)), axes=(0, 2, 1, 3))

    q, k, v = (heads(w.both("add", w.op("matmul", normed, w.vector(32, 32)), w.vector(32))) for _ in range(3))
    scores = w.times(w.op("matmul", q, w.op("transpose", k, axes=(0, 1, 3, 2))), 8**-0.5)
    mixed = w.op("matmul", w.op("softmax", scores, axis=-1), v)
    joined = w.op("reshape", w.op("transpose", mixed, axes=(0, 2, 1, 3)), shape=(2, 6, 32))
    x = w.both("add", x, w.both("add", w.op("matmul", joined, w.vector(32, 32)), w.vector(32)))
    inner = w.both("add", w.op("matmul", w.layer_norm(x), w.vector(32, 64)), w.vector(1, 1, 64))
    outer = w.both("add", w.op("matmul", w.gelu(inner), w.vector(64, 32)), w.vector(32))
    w.b.output(w.both("add", x, outer))
    graph, feeds = w.b.graph, [w.random.standard_normal((2, 6, 32))]
    kinds = Counter(op.kind for op in run(State(graph, w.known), DEFAULT).graph.ops)
    views = ("reshape", "expand_shape", "collapse_shape", "flatten")
    assert {k: n for k, n in kinds.items() if k not in views} == {"layer_norm": 2, "gemm": 6, "attention": 1}
    for device in device_group:
        plain, done = (compile(graph, device, parameters=w.known, passes=p).run(feeds) for p in ("", DEFAULT))
        np.testing.assert_allclose(done, plain, rtol=1e-4, atol=1e-4, err_msg=device.name)


def test_heads_before_lengths_are_read_where_they_lie(device_group):
    """As a cache of keys and values has them: neither they nor the queries are moved for the attention."""
    w = Writer(0)
    q, k, v = w.input(2, 3, 4, 16), w.input(2, 3, 9, 16), w.input(2, 3, 9, 16)
    scores = w.times(w.op("matmul", q, w.op("transpose", k, axes=(0, 1, 3, 2))), 0.25)
    w.b.output(w.op("abs", w.op("matmul", w.op("softmax", scores, axis=-1), v)))
    feeds = [w.random.standard_normal(x.spec.shape) for x in (q, k, v)]
    for device in device_group:
        plain, done = (compile(w.b.graph, device, parameters=w.known, passes=p) for p in ("", DEFAULT))
        np.testing.assert_allclose(done.run(feeds), plain.run(feeds), rtol=2e-5, atol=2e-5, err_msg=device.name)
        assert moved(done) <= w.b.graph.outputs[0].spec.nbytes, device.name


NEAR = {
    "another factor": lambda w, x: w.op("mul", x, w.op("sigmoid", w.op("scale", x, value=1.7))),
    "read elsewhere": lambda w, x: _with_result(w, w.op("sigmoid", x), x),
    "two tensors": lambda w, x: w.op("mul", w.op("neg", x), w.op("sigmoid", x)),
    "a vector": lambda w, x: w.op("mul", w.op("add", x, w.vector(8)), w.op("sigmoid", x)),
    "other limits": lambda w, x: w.op("mul", x, w.op("clip", w.op("add_scalar", x, value=3.0), min=0.0, max=5.0)),
    "the sum of squares": lambda w, x: w.op(
        "div", x, w.op("sqrt", w.op("add_scalar", w.op("reduce_sum", w.op("square", x), axes=(1,), keepdims=True)))
    ),
    "the first axis": lambda w, x: w.op(
        "div", x, w.op("sqrt", w.op("add_scalar", w.op("reduce_mean", w.op("square", x), axes=(0,), keepdims=True)))
    ),
    "the square of another": lambda w, x: w.op(
        "mul", x, w.op("rsqrt", w.op("add_scalar", w.op("reduce_mean", w.op("abs", x), axes=(1,), keepdims=True)))
    ),
}


def _with_result(w, gate, x):
    w.b.output(gate)
    return w.op("mul", x, gate)


@pytest.mark.parametrize("name", NEAR)
def test_what_is_nearly_one_stays(name):
    w = Writer(0)
    w.b.output(NEAR[name](w, w.op("neg", w.input(3, 8))))
    graph = w.b.graph
    assert run(State(graph, w.known), PASSES).graph.dump() == graph.dump()


SCORES = {
    "softmax of another axis": {"axis": -2},
    "a mask of small numbers": {"low": -1e4},
    "scores that are a result": {"result": True},
}


@pytest.mark.parametrize("name", SCORES)
def test_what_is_nearly_attention_stays(name):
    how = SCORES[name]
    w = Writer(0)
    scores = w.op("matmul", w.input(2, 5, 8), w.input(2, 8, 5))
    if "low" in how:
        open_ = w.op("less", w.input(5, 5), w.number(0.5))
        scores = w.op("where", open_, scores, w.number(how["low"]))
    if "result" in how:
        w.b.output(scores)
    w.b.output(w.op("matmul", w.op("softmax", scores, axis=how.get("axis", -1)), w.input(2, 5, 8)))
    assert not any(op.kind == "attention" for op in run(State(w.b.graph, w.known), PASSES).graph.ops)


def test_an_activation_of_narrow_numbers(cpu):
    """The written constants are rounded to F16, and so the activation is found by what is nearest."""
    for seed in range(4):
        for kind in ("gelu", "gelu_tanh"):
            w = Writer(seed, "F16")
            x = w.op("neg", w.input(3, 40))
            w.known = {name: value.astype(np.float16) for name, value in w.known.items()}
            found = compare(w, w.op("sin", getattr(w, kind)(x)), cpu, 5e-3)
            assert found == {"neg": 1, kind: 1, "sin": 1}, (seed, kind)


# Channels that are scaled and shifted behind a layer

LAYERS = {
    "conv1d": ((2, 4, 9), (6, 4, 3), {}),
    "conv2d": ((2, 4, 6, 5), (6, 2, 3, 3), {"groups": 2}),
    "conv3d": ((1, 2, 4, 4, 3), (6, 2, 2, 2, 2), {}),
    "conv_transpose1d": ((2, 4, 7), (4, 6, 3), {"stride": (2,)}),
    "conv_transpose2d": ((2, 4, 5, 4), (4, 3, 3, 3), {"groups": 2}),
    "linear": ((5, 7), (6, 7), {}),
    "matmul": ((2, 5, 7), (7, 6), {}),
    "gemm": ((5, 7), (6, 7), {"trans_b": True, "alpha": 0.5}),
}


def scaled(w, y, axis):
    """Return channels scaled and shifted in one of the ways in which a norm is written."""
    rank = y.spec.ndim
    shape = tuple(6 if n == axis else 1 for n in range(rank))
    forms = [
        lambda: w.both("add", w.both("mul", y, w.vector(*shape)), w.vector(*shape)),
        lambda: w.op("div", w.op("sub", y, w.vector(*shape)), w.number(0.5, shape)),
        lambda: w.op("add_scalar", w.op("scale", y, value=-2.0), value=0.25),
        lambda: w.op("rsub_scalar", w.op("bias_add", y, w.vector(6), axis=axis), value=1.5),
        lambda: w.op("sub", w.vector(*shape[axis:]), w.both("mul", y, w.vector(*shape[axis:]))),
    ]
    if axis == 1:
        forms.append(lambda: w.op("batch_norm", y, w.vector(6), w.number(2, (6,)), w.vector(6), w.vector(6), eps=1e-3))
    return forms[w.random.integers(len(forms))]()


@pytest.mark.parametrize("kind", LAYERS)
def test_what_scales_channels_is_folded_into_weights(kind, cpu):
    x, weights, attrs = LAYERS[kind]
    for seed in range(8):
        w = Writer(seed)
        given = [w.op("neg", w.input(*x)), w.vector(*weights)]
        if w.random.integers(2) and kind != "matmul":
            given.append(w.vector(6))
        y = w.op(kind, *given, **attrs)
        axis = y.spec.ndim - 1 if kind in ("linear", "matmul", "gemm") else 1
        y = scaled(w, y, axis)
        w.b.output(w.op("relu", scaled(w, y, axis)))
        graph = w.b.graph
        state = run(State(graph, w.known), "fold_batch_norm,fuse_epilogue")
        assert len(state.graph.ops) == 2, (seed, state.graph.dump())
        feeds = [w.random.standard_normal(x)]
        plain, done = (
            compile(graph, cpu, parameters=w.known, passes=p).run(feeds) for p in ("", "fold_batch_norm,fuse_epilogue")
        )
        np.testing.assert_allclose(done, plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())


def test_a_product_takes_a_factor_and_a_bias_of_any_rank(device_group):
    """The source document's own example is one operator: gemm, bias_add, relu."""
    b = Builder("g")
    x, w, bias = b.input("x", (5, 7)), b.parameter("w", (7, 6)), b.parameter("bias", (6,))
    (y,) = b.emit("gemm", [x, w])
    (y,) = b.emit("bias_add", [y, bias])
    b.output(*b.emit("relu", [y]))
    assert [op.kind for op in run(State(b.graph, {}), DEFAULT).graph.ops] == ["gemm"]
    w = Writer(5)
    y = w.op("scale", w.op("matmul", w.input(2, 3, 5, 7), w.input(3, 7, 6)), value=0.25)
    w.b.output(w.op("hardswish", w.op("add", w.vector(1, 1, 6), y)))
    state = run(State(w.b.graph, w.known), "fuse_epilogue,canonicalise")
    assert [op.kind for op in state.graph.ops if op.kind != "reshape"] == ["gemm"]
    feeds = [w.random.standard_normal(v.spec.shape) for v in w.b.graph.inputs]
    for device in device_group:
        plain, done = (compile(w.b.graph, device, parameters=w.known, passes=p).run(feeds) for p in ("", DEFAULT))
        np.testing.assert_allclose(done, plain, rtol=2e-5, atol=2e-5, err_msg=device.name)
