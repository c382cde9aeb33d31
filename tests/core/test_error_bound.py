"""Test the rounding error bounds of expressions.

The same expressions computed in F32 stay within them, and they are tight enough that mistakes show.
"""

import numpy as np
import pytest

from isokern.conformance.derive import operator_cases
from isokern.declare.attributes import attrs, number
from isokern.declare.elementwise import row
from isokern.declare.error_bound import EPS, UNBOUNDED, bounds, distance, find_ulps
from isokern.declare.registry import withdraw
from isokern.dtypes import F32, F64
from isokern.expr.evaluate import evaluate
from isokern.expr.tree import ARITY, BINARY_FUNCTIONS, INTEGER_FUNCTIONS, SHARED_FUNCTIONS, Expr, parse, to_text
from isokern.oracle.expected import Problems, judge

COUNT = 64
UNARY = [name for name, n in ARITY.items() if n == 1 and name not in ("bitnot", "quotient")]
RELU = "maximum(x0 + x1 * x2 * 0.1, 0)"


def arrays(rng, count=3):
    """Return F32 arrays of values around 1, some of them integers, and six special values."""
    found = {}
    for i in range(count):
        x = rng.standard_normal(COUNT) * np.exp2(rng.integers(-3, 4, COUNT))
        x = np.where(rng.random(COUNT) < 0.3, np.rint(x), x)
        x[:6] = rng.permutation([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40])
        found[f"x{i}"] = x.astype(np.float32)
    return found


def tree(rng, depth):
    """Return a random expression of x0, x1 and x2."""
    if depth == 0 or rng.random() < 0.1:
        return (
            Expr("const", rng.choice([0.1, 0.5, 1, 3])) if rng.random() < 0.2 else Expr("name", f"x{rng.integers(3)}")
        )
    some = [tree(rng, depth - 1) for _ in range(3)]
    kind = rng.choice(["arith", "arith", "unary", "binary", "neg", "select", "truth"])
    if kind == "arith":
        return Expr("arith", str(rng.choice(list("+-*/"))), tuple(some[:2]))
    if kind in ("unary", "binary"):
        names = UNARY if kind == "unary" else BINARY_FUNCTIONS
        return Expr("call", str(rng.choice(names)), tuple(some[: 1 + (kind == "binary")]))
    if kind == "neg":
        return Expr("neg", None, tuple(some[:1]))
    signs = ["<", "<=", ">", ">=", "==", "!="]
    test = Expr("compare", str(rng.choice(signs)), tuple(some[:2]))
    if rng.random() < 0.4:
        other = Expr("not", None, (Expr("compare", str(rng.choice(signs)), (some[2], some[0])),))
        test = Expr(str(rng.choice(["and", "or"])), None, (test, other, some[1]))
    return test if kind == "truth" else Expr("select", None, (test, *some[1:]))


def rounded(body, values):
    """Return the expression computed in F32, and for which elements no part of it leaves the range of F32.

    An element whose inputs are not finite may have parts that are not finite.
    """
    wide = {name: x.astype(np.float64) for name, x in values.items()}
    with np.errstate(all="ignore"):
        within = np.ones(COUNT, bool)
        for node in body.walk():
            size = np.abs(np.broadcast_to(evaluate(node, wide, np.float64), COUNT))
            within &= ~np.isfinite(size) | (size < 1e30)
            within &= np.isfinite(size) | ~np.isfinite(np.sum([*values.values()], 0))
        return np.broadcast_to(evaluate(body, values, np.float32), COUNT).astype(np.float64), within


def test_random_expressions_in_f32_are_within_their_bounds():
    rng, judged, unbounded = np.random.default_rng(0), 0, 0
    for _ in range(250):
        values = arrays(rng)
        body = tree(rng, int(rng.integers(1, 5)))
        made, within = rounded(body, values)
        found = bounds(body, {name: x.astype(np.float64) for name, x in values.items()}, F32)
        wanted, off = (np.broadcast_to(x, COUNT) for x in (found.value, distance(found)))
        look = within & np.isfinite(wanted) & np.isfinite(made)
        judged += look.sum()
        unbounded += (off[look] >= UNBOUNDED).sum()
        # The last rounding of a result is part of its bound; NumPy rounds subnormal numbers as kernels do
        wrong = look & (np.abs(np.where(look, made, 0) - np.where(look, wanted, 0)) > off * EPS * (1 + 1e-6) + 1e-45)
        at = np.argmax(wrong)
        told = {name: float(x[at]) for name, x in values.items()}
        assert not wrong.any(), f"{to_text(body)} of {told}: {made[at]} instead of {wanted[at]} by {off[at]} eps"
    assert judged > 8_000 and unbounded < 0.02 * judged, (judged, unbounded)


@pytest.mark.parametrize(
    ("body", "x", "eps"),
    [
        ("x0 * x1", (1.1, 1.1), 0.5 * 1.21),
        ("x0 * x1", (1.5, 1.5), 0),  # the product is exact in F32
        ("x0 - x0", (1.1,), 0),
        ("x0 * x1 - x2", (1.1, 1.1, 1.21), 0.5 * 1.21),  # the rounding error of the product that cancels
        ("maximum(x0 * x1, 0)", (-1e3, 1.1), 0),  # far below the value that is chosen
        ("maximum(x0 * x1 - x2, 0)", (1.1, 1.1, 1.3), 0),
        ("minimum(x0 * x1, x1 * x0)", (1.1, 1.1), 0.5 * 1.21),
        ("x0 * x1 / x2", (1.1, 1.1, 4), 0.5 * 1.21 / 4 + 1.21 / 4),
        ("exp(x0 * x1)", (1.1, 2.1), np.exp(2.31) * (0.5 * 2.31 + 4)),
        ("sin(x0 * x1)", (1.1, 20.0), 0.5 * 22 + 6 * abs(np.sin(22))),
        ("1 / (x0 * x1 - x2)", (1.1, 1.1, np.float32(1.1) ** 2), UNBOUNDED),
        ("sqrt(x0 * x1 - x2)", (1.1, 1.1, 1.21), None),
        ("3 if x0 * x1 > x2 else 5", (1.1, 1.1, 1.21), 2 / EPS),  # rounding decides the comparison
        ("3 if x0 * x1 > x2 and x0 == 1 else 5", (1.1, 1.1, 1.21), 0),
        ("3 if x0 * x1 > x2 or x0 != 1 else 5", (1.1, 1.1, 1.21), 0),
        ("3 if x0 * x1 > x2 else 5", (1.1, 1.1, 1.3), 0),
        ("3 if x0 * x1 == x2 else 5", (1.5, 1.5, 2.25), 0),
        ("floor(x0 * x1)", (np.float32(0.1), 30.0), None),
        ("floor(x0 * x1)", (1.11, 30.0), 0),
        ("0 * x0 + 1e999", (1.1,), 0),
        ("isnan(x0 * x1)", (np.nan, 1.0), 0),
    ],
)
def test_bounds(body, x, eps):
    values = {f"x{i}": np.float64(np.float32(v)) for i, v in enumerate(x)}
    off = float(distance(bounds(parse(body), values, F32)))
    assert off == pytest.approx(eps, rel=1e-3) if eps is not None else 1 < off < UNBOUNDED, off


def test_a_name_stands_for_what_was_computed_before():
    x = {"x0": np.array([1.1, -3.3]), "x1": np.array([1.21, 7.7])}
    first = bounds(parse("x0 * x0"), x, F32)
    parts, whole = bounds(parse("x2 - x1"), x | {"x2": first}, F32), bounds(parse("x0 * x0 - x1"), x, F32)
    assert (distance(parts) == distance(whole)).all() and (distance(parts) > distance(first)).all()
    assert (distance(bounds(parse("x2 - x1"), x | {"x2": first.value}, F32)) < distance(parts)).all()


def test_subnormals_round_by_their_spacing():
    for compute, small in ((F32, 1e-42), (F64, 1e-320)):
        least, eps = (float(n) for n in (np.finfo(compute.numpy).smallest_subnormal, np.finfo(compute.numpy).eps))
        values = {"x0": np.float64(small), "x1": np.float64(0.3)}
        off = float(distance(bounds(parse("x0 * x1"), values, compute))) * eps
        assert 0.5 * least <= off <= 3 * least
        assert float(distance(bounds(parse("x0 * x1"), values | {"x0": np.float64(0)}, compute))) == 0


def test_every_function_has_the_error_of_its_row():
    floats = set(ARITY) - (set(INTEGER_FUNCTIONS) - set(SHARED_FUNCTIONS))
    assert all(find_ulps(name) <= 8 for name in floats | set("+-*/"))
    found = {name: find_ulps(name) for name in ("abs", "floor", "maximum", "isnan", "copysign", "+", "exp")}
    assert found == {"abs": 0, "floor": 0, "maximum": 0, "isnan": 0, "copysign": 0, "+": 0.5, "exp": 4}


@pytest.mark.parametrize(
    "body", [RELU, "x0 * x1 + x2", "(x0 - x1) * x2", "x0 / (1 + exp(-x0)) * x1", "tanh(x0 * x1) + x2"]
)
def test_mistakes_are_beyond_the_bounds(body):
    """The bounds exclude an operand rounded to F16 and a result that is off by 2e-6."""
    rng = np.random.default_rng(1)
    x = {f"x{i}": rng.standard_normal(4000).astype(np.float32) for i in range(3)}
    wide = {name: a.astype(np.float64) for name, a in x.items()}
    found = bounds(parse(body), wide, F32)
    off, alive = distance(found) * EPS, found.value != 0
    assert not np.any(np.abs(evaluate(parse(body), x, np.float32) - found.value) > off)
    mistakes = {
        "operand": evaluate(parse(body), wide | {"x0": wide["x0"].astype(np.float16).astype(np.float64)}, np.float64),
        "result": found.value * (1 + 2e-6),
    }
    for name, made in mistakes.items():
        caught = np.mean((np.abs(made - found.value) > off)[alive])
        assert caught > 0.5, (name, caught)


def test_rounding_over_the_edge_of_a_domain():
    """cosh(1e-5) rounds to 1, where acos is 0, but its exact value is outside acos's domain; cosh(2) certainly is."""
    x = {"x0": np.array([1e-5, 2.0, 0.0, np.nan])}
    found = distance(bounds(parse("acos(cosh(x0))"), x, F32))
    assert found[0] == UNBOUNDED
    assert found[1] == 0
    assert 0 < found[2] < UNBOUNDED
    assert found[3] == 0


def test_a_sign_that_a_computed_nan_gives_is_either():
    values = {"x0": np.array([np.inf, 2.0, 2.0]), "x1": np.array([np.inf, np.inf, 0.5])}
    off = distance(bounds(parse("copysign(x0, tan(x1))"), values, F32))
    assert off[0] == UNBOUNDED and 4 / EPS <= off[1] < 4.001 / EPS and off[2] == 0
    values["x1"] = np.array([np.nan, np.nan, 0.5])
    assert (distance(bounds(parse("copysign(x0, x1)"), values, F32)) == 0).all()
    assert distance(bounds(parse("1 / (x0 - x0 * 1.0000001)"), {"x0": np.array([0.0])}, F32))[0] == 0


@pytest.mark.parametrize(("fault", "caught"), [(0.0, False), (1e-5, True)])
def test_a_row_takes_its_bound_from_its_expression(fault, caught):
    """An F32 result is right where it rounds as the expression does, and wrong where a term is a little larger."""
    blend = row(
        "blend",
        "BLND",
        "a b",
        "a + weight * (b - a)",
        lambda a, b, weight: a + weight * (b - a),
        (F32, F64),
        doc="a + weight · (b - a).",
        record=attrs("BLN1", number("weight", 0.3)),
        ulps=None,
    )
    try:
        case = next(c for c in operator_cases(blend) if c.values == "drawn" and "a=1025" in c.id and c.types[0] is F32)
        given = Problems(subnormal=True).of(case)
        a, b = given.inputs
        got = a + np.float32(0.3 + fault) * (b - a)
        judged = judge(got.astype(np.float32), given, 0, strict_nan=False, flushes=False)
    finally:
        withdraw(blend)
    assert bool(judged.wrong) == caught, judged.wrong
    assert caught or judged.share > 0.02, "the bound is too wide to find anything"
