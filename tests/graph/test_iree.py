"""Test exported graphs with IREE, which shares no code with Isokern.

Its results agree with the declarations' references and with Isokern.
"""

import numpy as np
import pytest
from mlir_graphs import EXPORTED, FUNCTIONS, argmax_graph, cases_of, functions_graph, graph_of

from isokern import DeviceNotAvailable
from isokern.demo.zoo import digits, mlp, resnet18
from isokern.dtypes import BF16, F64, dtype
from isokern.expr.evaluate import evaluate
from isokern.expr.tree import ARITY, INTEGER_FUNCTIONS, parse
from isokern.graph.mlir import PASSES, export
from isokern.oracle.expected import Problems, judge
from isokern.passes import run
from isokern.rewriting.rewriter import State
from isokern.runtime import compile

pytest.importorskip("xdsl", reason="xDSL is not installed: pip install 'isokern[mlir]'")
compiler = pytest.importorskip("iree.compiler", reason="IREE is not installed: tox -e mlir")
runtime = pytest.importorskip("iree.runtime", reason="IREE is not installed: tox -e mlir")

FLAGS = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]
# F64 functions that IREE 3.13 neither lowers nor links
LACKS = {"F64": {"erf", "cbrt", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "tanh", "fmod", "remainder"}}
# MLIR's integers have no sign, but IREE's runtime checks the sign of NumPy's dtypes
SIGNED = {np.dtype(f"u{n}"): np.dtype(f"i{n}") for n in (1, 2, 4, 8)}


def execute(graph, arrays):
    """Compile a graph with IREE for this processor, and return its results."""
    binary = compiler.compile_str(export(graph), target_backends=["llvm-cpu"], extra_args=FLAGS)
    config = runtime.Config("local-sync")
    main = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary), config).main
    dense = [np.asarray(a, order="C") for a in arrays]  # ascontiguousarray would give a scalar a dim
    made = main(*[a.view(SIGNED.get(a.dtype, a.dtype)) for a in dense])
    made = made if isinstance(made, (tuple, list)) else [made]
    copies = [np.asarray(m).copy() for m in made]  # the results' memory belongs to the module, which ends here
    return [a.reshape(v.spec.shape).view(v.spec.dtype.numpy) for a, v in zip(copies, graph.outputs, strict=True)]


def close(got, want, share=1e-4):
    """Assert that results agree relative to the largest magnitude."""
    scale = np.max(np.abs(want), initial=1e-30)
    worst = np.max(np.abs(got.astype(np.float64) - want), initial=0) / scale
    print(f"largest difference {worst:.2e} of the scale {scale:.3g}")
    assert worst <= share


@pytest.mark.parametrize(
    "model",
    [lambda: digits(4), lambda: mlp(3), lambda: resnet18(1, 64), resnet18],
    ids=["digits", "mlp", "resnet18-64", "resnet18"],
)
@pytest.mark.parametrize("passes", [PASSES, f"fold_batch_norm,{PASSES}"], ids=["plain", "folded"])
def test_models_agree_with_isokern(model, passes):
    made = model()
    if made.graph.name == "digits" and "fold" in passes:
        pytest.skip("there is no batch norm in it")
    try:
        program = compile(made, "cpu:0")
    except DeviceNotAvailable as none:
        pytest.skip(str(none))
    (x,) = made.graph.inputs
    feed = np.random.default_rng(1).standard_normal(x.spec.shape).astype(np.float32)
    state = run(State(made.graph, made.parameters), passes)
    (got,) = execute(state.graph, [feed, *(state.parameters[v.name] for v in state.graph.parameters)])
    close(got, np.asarray(program.run(feed), np.float64))


# Their products and sums are rounded one after the other, and IREE makes one operation of both
CONTRACTED = {"lu_factor", "solve_triangular"}


def near(got, want):
    """Return whether numbers agree to a thousandth of the largest."""
    scale = np.max(np.abs(want), where=np.isfinite(want), initial=0)
    return np.isclose(got, want, rtol=1e-3, atol=1e-3 * scale, equal_nan=True).all()


PAIRS = [(name, "drawn") for name in EXPORTED]
PAIRS += [(name, "special") for name in ("cast", "sort", "topk")]
PAIRS += [(name, "out_of_range") for name in ("gather", "scatter", "lstm_recurrence")]


@pytest.mark.parametrize(("name", "values"), PAIRS)
def test_primitives_agree_with_their_references(name, values):
    # IREE's runtime accepts no array of BF16, and the cells of recurrences call tanh, which it lacks in F64
    beyond = {BF16, F64} if name.endswith("_recurrence") else {BF16}
    cases = [c for c in cases_of(name, values) if not beyond & set(c.types)]
    problems = [Problems(subnormal=False).of(case) for case in cases]
    arrays = [a for p in problems for a in p.inputs if a is not None]
    wrong, results = [], iter(execute(graph_of(cases), arrays))
    for case, problem in zip(cases, problems, strict=True):
        for i, want in enumerate(problem.expected):
            got = flushed(case, want, next(results))
            if name in CONTRACTED and want.dtype.kind == "f":
                found = "" if near(got, want) else f"{got} instead of {want}"
            else:
                found = judge(got, problem, i, strict_nan=False, flushes=True).wrong
            wrong += [f"{case.id}: {found}"] if found else []
    assert not wrong and not list(results)


def flushed(case, want, got):
    """Return `got`, with the wanted value where a cast from F64 gave a zero for a subnormal number of the same sign.

    IREE runs code with the processor's flag that makes subnormal results zero, and casts F64 to F16 by way of F32,
    where a subnormal becomes zero too.
    """
    if case.operator.name != "cast" or case.types[0].name != "F64" or case.types[1].kind != "f":
        return got
    small = np.abs(want) < np.finfo(want.dtype).smallest_normal
    return np.where((got == 0) & small & (np.signbit(got) == np.signbit(want)), want, got)


@pytest.mark.parametrize("element", ["F32", "F64", "F16", "I64", "U64"])
def test_functions_agree_with_the_interpreter(element):
    kind = dtype(element)
    integer = kind.kind != "f"
    names = INTEGER_FUNCTIONS if integer else [f for f in FUNCTIONS if f not in LACKS.get(element, ())]
    rng = np.random.default_rng(2)
    drawn = (
        rng.integers(-40, 40, (2, 4096))
        if integer
        else rng.uniform(-1, 1, (2, 4096)) * np.exp2(rng.integers(-4, 5, (2, 4096)))
    )
    x, y = drawn.astype(kind.numpy)
    if not integer:
        x[:5] = y[3:8] = [0, np.inf, -np.inf, np.nan, 1]
    results = execute(functions_graph(element, names), [x, y])
    for name, got in zip(names, results, strict=True):
        tree = parse(f"{name}({'x0' if ARITY[name] == 1 else 'x0, x1'})")
        wide = kind.compute.numpy if integer else np.float64
        with np.errstate(all="ignore"):
            want = evaluate(tree, {"x0": x.astype(wide), "x1": y.astype(wide)}, wide).astype(kind.numpy)
        if integer:
            assert (got == want).all(), name
            continue
        share = {"F32": 1e-4, "F64": 1e-9, "F16": 2e-3}[element]
        right = np.isclose(got, want, rtol=share, atol=share, equal_nan=True) | beyond(name, x, y, want)
        assert right.all(), f"{name}: {[(x[i], y[i], got[i], want[i]) for i in np.flatnonzero(~right)[:5]]}"


def beyond(name, x, y, want):
    """Return where IREE's functions are known to differ.

    Some return wrong results for infinity or NaN, and near a pole the tangent is as uncertain as its argument.
    """
    infinite = np.isinf(x) & (name in ("asinh", "cbrt")) | np.isnan(y) & (name == "pow")
    return infinite | (np.abs(want) > 100) & (name == "tan")


def test_argmax_takes_the_first_and_nan_is_largest():
    x = np.array([[1, 5, 5, 2], [np.nan, 1, np.nan, 9], [-np.inf] * 4], np.float32)
    for got, want in zip(execute(argmax_graph(), [x]), [x.argmax(0), x.argmax(1, keepdims=True)], strict=True):
        assert (got == want).all()
