"""Test the error bounds, special values and vectorisation of the C header's scalar functions."""

import ctypes
import math
import os
import platform
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isokern.expr.tree import NEAR

INCLUDE = Path(__file__).parents[2] / "core/src/isokern/cabi/include"
CC = os.environ.get("CC", "cc")
BUILD = runpy.run_path(str(Path(__file__).parents[2] / "plugins/cpu/kernel_build.py"))
FLAGS = BUILD["FLAGS"]
TYPES = {"f32": "float", "f64": "double"}

Array = np.ndarray[Any, np.dtype[Any]]


def erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.tolist()], x.dtype)


def erfc(x: Array) -> Array:
    return np.array([math.erfc(v) for v in x.tolist()], x.dtype)


# name: (F32 bound, F64 bound, reference); bounds in units in the last place (ULP)
UNARY: dict[str, tuple[float, float, Callable[[Array], Array]]] = {
    "exp": (1.5, 1, np.exp),
    "exp2": (1.5, 1.5, np.exp2),
    "expm1": (1.5, 2, np.expm1),
    "log": (1, 1, np.log),
    "log2": (1.5, 1.5, np.log2),
    "log10": (2, 2, np.log10),
    "log1p": (1.5, 1.5, np.log1p),
    "sin": (2, 2, np.sin),
    "cos": (2, 2, np.cos),
    "tan": (4, 4, np.tan),
    "asin": (2.5, 2.5, np.arcsin),
    "acos": (1.5, 1.5, np.arccos),
    "atan": (2, 2, np.arctan),
    "sinh": (2, 2, np.sinh),
    "cosh": (1.5, 1.5, np.cosh),
    "tanh": (1.5, 3, np.tanh),
    "asinh": (2, 2, np.arcsinh),
    "acosh": (2, 2.5, np.arccosh),
    "atanh": (2.5, 2.5, np.arctanh),
    "erf": (1.5, 3, erf),  # 2 ULP in F64, plus up to 1 ULP of the reference
    "erfc": (4.5, 7, erfc),  # 6 ULP in F64, plus up to 1 ULP of the reference
    "cbrt": (1, 1, np.cbrt),
    "sqrt": (0.5, 0.5, np.sqrt),
    "rsqrt": (1.5, 1.5, lambda x: 1 / np.sqrt(x)),
    "isnan": (0, 0, lambda x: np.isnan(x).astype(x.dtype)),
}
EXACT = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "abs": np.abs, "sign": np.sign}
UNARY |= {name: (0, 0, reference) for name, reference in EXACT.items()}


def power(x: Array, y: Array) -> Array:
    """Return NumPy's power, at infinite x in F64: glibc's 80-bit powl(-inf, -2**63) returns inf."""
    return np.where(np.isinf(x), np.power(x.astype(np.float64), y.astype(np.float64)), np.power(x, y))


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "pow": power,
    "copysign": np.copysign,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "fmod": np.fmod,
    "remainder": np.remainder,
}
LOOPING = ("fmod", "remainder")  # their number of steps depends on the operands
SYMBOLS = [f"{name}_{t}" for name in (*UNARY, *BINARY) for t in TYPES]


def loops() -> str:
    """Return C code with one plain loop per line, in the order of SYMBOLS, after the include."""
    lines = ['#include "isokern_math.h"']
    for symbol in SYMBOLS:
        name, t = symbol.split("_")
        call, c = "x[i], y[i]" if name in BINARY else "x[i]", TYPES[t]
        head = f"void v_{symbol}(long n, const {c} *restrict x, const {c} *restrict y, {c} *restrict o)"
        lines.append(f"{head} {{ (void)y; for (long i = 0; i < n; i++) o[i] = ik_{symbol}({call}); }}")
    for name in NEAR:
        head = f"void v_{name}_near_f32(long n, const float *restrict x, const float *restrict y, float *restrict o)"
        lines.append(f"{head} {{ (void)y; for (long i = 0; i < n; i++) o[i] = ik_{name}_near_f32(x[i]); }}")
    lines.append("float near_bound(void) { return IK_NEAR_F32; }")
    return "\n".join(lines) + "\n"


def compile_c(folder: Path, text: str, flags: list[str], output: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(CC) is None:
        pytest.skip(f"no C compiler: {CC}")
    (folder / "loops.c").write_text(text)
    command = [CC, *flags, f"-I{INCLUDE}", "loops.c", "-o", output]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def is_gcc() -> bool:
    if shutil.which(CC) is None:
        return False
    version = subprocess.run([CC, "--version"], capture_output=True, text=True, check=False).stdout
    return "Free Software Foundation" in version


def special(t: str) -> Array:
    f = np.finfo(np.float32 if t == "f32" else np.float64)
    edge = [
        0,
        f.smallest_subnormal,
        f.tiny,
        f.tiny / 2,
        f.max,
        f.eps,
        0.5,
        1,
        1 + f.eps,
        1 - f.epsneg,
        1.5,
        2,
        2.5,
        3,
        np.inf,
    ]
    edge += [k * math.pi / 4 for k in range(1, 9)] + [2.0**k for k in (22, 23, 24, 31, 50, 52, 53, 63, 64, 95, 96, 127)]
    edge += [
        87.4,
        88.3,
        88.72283,
        88.72284,
        89.4,
        103.97,
        104,
        709.78,
        709.79,
        710.47,
        745.13,
        745.14,
        1e9,
        4095.5,
        0.41421357,
    ]
    edge += [
        126,
        127.5,
        128,
        149,
        150,
        1023,
        1024,
        1074,
        1075,
        16777215,
        16777217,
        4503599627370497.5,
        9007199254740991,
    ]
    with np.errstate(over="ignore"):
        x = np.array(edge).astype(f.dtype)
    return np.concatenate([x, -x, np.array([np.nan], f.dtype)])


def dense(t: str, count: int) -> Array:
    """Return about `count` numbers: in F32 of all bit patterns, in F64 three quarters of them near 1."""
    if t == "f32":
        return np.arange(0, 2**32, 2**32 // count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    rng = np.random.default_rng(7)
    x = rng.integers(0, 2**64, count, dtype=np.uint64)
    near = count * 3 // 4
    exponents = rng.integers(1023 - 40, 1023 + 12, near, dtype=np.uint64)
    x[:near] = x[:near] & np.uint64(0x800FFFFFFFFFFFFF) | exponents << np.uint64(52)
    return x.view(np.float64)


def ulps(got: Array, want: Array) -> Array:
    """Return the distance in ULP of got's dtype; a wrong NaN, infinity or sign of zero counts as infinitely far."""
    f = np.finfo(got.dtype)
    exponent = np.maximum(np.frexp(want)[1], f.minexp + 1)
    distance = np.abs(got - want) / np.ldexp(np.ones_like(want), exponent - f.nmant - 1)
    rounded = want.astype(got.dtype)
    odd = ~np.isfinite(rounded) | ~np.isfinite(got)
    distance[odd] = np.where((rounded == got) | (np.isnan(rounded) & np.isnan(got)), 0, np.inf)[odd]
    distance[(want == 0) & (np.signbit(want) != np.signbit(got))] = np.inf
    return np.asarray(distance)


class Built:
    """The loops compiled with some flags, and what the compiler said about them."""

    def __init__(self, folder: Path, *flags: str) -> None:
        report = ["-fopt-info-vec"] if is_gcc() else []
        built = compile_c(folder, loops(), [*FLAGS, *flags, *report, "-shared", "-fPIC"], "loops.so")
        assert built.returncode == 0, built.stderr
        self.said, self.library = built.stderr, ctypes.CDLL(str(folder / "loops.so"))
        self.library.near_bound.restype = ctypes.c_float

    def __call__(self, symbol: str, x: Array, y: Array) -> Array:
        o = np.empty_like(x)
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (x, y, o))
        getattr(self.library, f"v_{symbol}")(ctypes.c_long(x.size), *pointers)
        return o


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """Return the loops for any processor, and those for this one, which may have an FMA instruction."""
    flags = {"baseline": (), "native": ("-march=native",)}
    return {name: Built(tmp_path_factory.mktemp(name), *more) for name, more in flags.items()}


def check(symbol: str, bound: float, got: Array, want: Array, *inputs: Array) -> None:
    distance = ulps(got, want)
    worst = int(np.argmax(distance))
    at = ", ".join(float(a[worst]).hex() for a in inputs)
    assert distance[worst] <= bound, (
        f"ik_{symbol}({at}) = {got[worst]!r}, want {want[worst]!r}: {distance[worst]:.3f} ULP"
    )


FEW, MANY = 2**18, 2**21  # points of a function
COUNTS = [FEW, pytest.param(MANY, marks=pytest.mark.full)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("name", UNARY)
@np.errstate(all="ignore")
def test_unary_bound(builds: dict[str, Built], name: str, t: str, count: int) -> None:
    bound32, bound64, reference = UNARY[name]
    x = np.concatenate([special(t), dense(t, count if t == "f32" else count // 8)])
    if t == "f64" and name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > 2.0**50) | np.isinf(x)]  # beyond 2^50 the functions return NaN
    want = reference(x.astype(np.float64 if t == "f32" else np.longdouble))
    for call in builds.values():
        check(f"{name}_{t}", bound32 if t == "f32" else bound64, call(f"{name}_{t}", x, x), want, x)


@pytest.mark.parametrize("name", NEAR)
def test_the_near_form_gives_the_same_bits(builds: dict[str, Built], name: str) -> None:
    every = np.concatenate([special("f32"), dense("f32", MANY)])
    for call in builds.values():
        x = every[np.abs(every) < call.library.near_bound()]
        assert x.size > 400_000
        full, near = call(f"{name}_f32", x, x), call(f"{name}_near_f32", x, x)
        assert np.array_equal(full.view(np.uint32), near.view(np.uint32))


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("name", BINARY)
@np.errstate(all="ignore")
def test_binary_bound(builds: dict[str, Built], name: str, t: str) -> None:
    s, x = special(t), dense(t, FEW if t == "f32" else FEW // 8)
    scale = 150 if t == "f32" else 1060  # beyond both ends of the range where pow is finite
    y = (np.random.default_rng(3).uniform(-scale, scale, x.size) / np.log2(np.abs(x))).astype(x.dtype)
    x, y = np.concatenate([np.repeat(s, s.size), x]), np.concatenate([np.tile(s, s.size), y])
    wide = np.float64 if t == "f32" else np.longdouble
    want = BINARY[name](x.astype(wide), y.astype(wide))
    for call in builds.values():
        got = call(f"{name}_{t}", x, y)
        if name in ("minimum", "maximum"):  # NumPy leaves open which of two zeros it returns
            assert np.array_equal(got, want.astype(x.dtype), equal_nan=True)
        else:
            check(f"{name}_{t}", {"pow": {"f32": 1.5, "f64": 2.0}[t], "remainder": 0.5}.get(name, 0), got, want, x, y)


def find_scalar_loops(said: str) -> list[str]:
    """Return the functions whose loop gcc did not say that it vectorised."""
    lines = {int(m) for m in re.findall(r"loops\.c:(\d+):\d+: optimized: loop vectorized", said)}
    return [s for i, s in enumerate(SYMBOLS, 2) if i not in lines and s.split("_")[0] not in LOOPING]


def test_every_loop_is_vectorised(builds: dict[str, Built]) -> None:
    """The flags of `baseline` are those of the first level, whose instructions vectorise the least."""
    if platform.machine() not in ("x86_64", "AMD64") or not is_gcc():
        pytest.skip("the levels are x86-64's, -fopt-info-vec is gcc's")
    assert BUILD["LEVELS"]["x86_64"]["portable"] == []
    assert find_scalar_loops(builds["baseline"].said) == []


@pytest.mark.full
@pytest.mark.parametrize("level", ["x86_v3", "x86_v4"])
def test_every_loop_is_vectorised_at_higher_levels(tmp_path: Path, level: str) -> None:
    if platform.machine() not in ("x86_64", "AMD64") or not is_gcc():
        pytest.skip("the levels are x86-64's, -fopt-info-vec is gcc's")
    flags = BUILD["LEVELS"]["x86_64"][level]
    built = compile_c(tmp_path, loops(), [*FLAGS, *flags, "-fopt-info-vec", "-c"], "loops.o")
    assert built.returncode == 0, built.stderr
    assert find_scalar_loops(built.stderr) == []


def test_no_undefined_behaviour(tmp_path: Path) -> None:
    sanitize = [
        "-std=c11",
        "-O1",
        "-fno-math-errno",
        "-fsanitize=undefined,float-cast-overflow",
        "-fno-sanitize-recover=all",
    ]
    if compile_c(tmp_path, "int main(void) { return 0; }\n", sanitize, "empty").returncode != 0:
        pytest.skip(f"{CC} has no undefined-behaviour sanitizer here")
    text = loops() + "int main(void) {\n"
    for t, c in TYPES.items():
        bits, n = "unsigned" if t == "f32" else "unsigned long long", special(t).size
        listed = ", ".join(map(hex, special(t).view(np.uint32 if t == "f32" else np.uint64).tolist()))
        text += f"static const {bits} b_{t}[] = {{{listed}}};\nstatic {c} x_{t}[{n}], y_{t}[{n}], o_{t}[{n}];\n"
        text += f"__builtin_memcpy(x_{t}, b_{t}, sizeof b_{t});\nfor (int k = 0; k < {n}; k++) {{\n"
        text += f"for (int i = 0; i < {n}; i++) y_{t}[i] = x_{t}[k];\n"
        text += "".join(f"v_{s}({n}, x_{t}, y_{t}, o_{t});\n" for s in SYMBOLS if s.endswith(t)) + "}\n"
    built = compile_c(tmp_path, text + "return 0; }\n", sanitize, "sanitized")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(tmp_path / "sanitized")], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
