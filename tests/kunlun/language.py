"""The kernel language as a table of calls, result types and expected values.

NumPy or exact rational arithmetic computes the expected values.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
MASK16, MASK32 = 0xA5C3, 0x3C5A96E1


@dataclass(frozen=True)
class Format:
    """A vector type, and the NumPy dtype that stores its lanes here."""

    name: str
    operand: str  # the letter of its operands: xa, xb, xc
    dtype: Any  # of the values
    scalar: str  # the scalar operand of an sv form, as C source
    digits: int = 0  # of the significand, hidden bit included; 0: integers
    emax: int = 0

    @property
    def lanes(self) -> int:
        return 64 // np.dtype(self.dtype).itemsize

    @property
    def mask(self) -> int:
        return MASK16 if self.lanes == 16 else MASK32


F32 = Format("float32x16", "f", np.float32, "1.75f", 24, 127)
I32 = Format("int32x16", "i", np.int32, "-77")
U32 = Format("uint32x16", "u", np.uint32, "3000000000u")
I16 = Format("int16x32", "s", np.int16, "")
BF16 = Format("bfloat16x32", "b", ml_dtypes.bfloat16, "0x3fe0", 8, 127)
F16 = Format("float16x32", "h", np.float16, "float16(1.75f)", 11, 15)
FORMATS = (F32, I32, U32, I16, BF16, F16)
SCALARS = {"f": 1.75, "i": -77, "u": 3000000000, "b": 1.75, "h": 1.75}


def _operands() -> dict[str, Array]:
    """Return operands a, b, c of each format: ordinary values, ties, underflow and overflow, NaN and infinities."""
    r = np.random.default_rng(3)
    found: dict[str, Array] = {}
    for f in FORMATS:
        for j, letter in enumerate("abc"):
            if not f.digits:
                info = np.iinfo(f.dtype)
                x = r.integers(info.min, info.max, f.lanes, endpoint=True).astype(f.dtype)
                x[:4] = (info.min, info.max, 0, 5)
                x = np.roll(x, j)
                x[8] = 12345
            else:
                span = min(f.emax, 20)
                x = (r.standard_normal(f.lanes) * np.exp2(r.integers(-span // 2, span // 2, f.lanes))).astype(f.dtype)
                x[0], x[1] = 1.0, (-1.0, 0.5, 2.0)[j]
                x[2] = np.array(ml_dtypes.finfo(f.dtype).max, f.dtype) * (1, 0.75, 1)[j]
                x[3] = np.array(ml_dtypes.finfo(f.dtype).tiny, f.dtype) * (1, 0.5, -1)[j]
                x[4] = (np.nan, 1.0, 1.0)[j]
                x[5] = (1.0, np.nan, 1.0)[j]
                x[6] = (np.inf, -3.0, 1.0)[j]
                x[7] = (0.0, -0.0, 1.0)[j]
                x[8] = -2.5
            found[f.operand + letter] = x
    # ties between narrower floats, and values beyond half precision
    found["fa"][9:16] = np.array(
        [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, -(1 + 3 * 2**-11), 65519.99, 65520, 1e-8], np.float32
    )
    found["fb"][9:13] = (1e-30, -1e-30, 3e-30, -1e30)  # sums that float64 cannot represent
    return found


OPERANDS = _operands()


@dataclass(frozen=True)
class Row:
    """`code` (an expression, or statements that write to `o`) gives `expected`: a vector of a format, or a scalar."""

    name: str
    code: str
    expected: Array
    result: str  # the format's name, a scalar type, or "" for statements
    close: bool = False  # approximate on a card, and here correct to 2 ULP


# ---- Exact arithmetic ----


def rounded(x: Fraction, f: Format, mode: str) -> float:
    """Round x to the format: to nearest even (rn), towards zero (rz), up (ru) or down (rd)."""
    if x == 0:
        return 0.0
    m = abs(x)
    e = m.numerator.bit_length() - m.denominator.bit_length()
    e -= m < Fraction(2) ** e
    step = Fraction(2) ** (max(e, 1 - f.emax) - f.digits + 1)
    n = math.floor(m / step)
    rest = m / step - n
    away = mode == ("ru" if x > 0 else "rd")
    if mode == "rn":
        n += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n % 2 == 1)
    elif away and rest > 0:
        n += 1
    most = (2 - Fraction(2) ** (1 - f.digits)) * Fraction(2) ** f.emax
    value = n * step
    if value > most:
        return math.copysign(math.inf if mode == "rn" or away else float(most), x)
    return math.copysign(float(value), x)


def combined(op: str, v: list[Any]) -> Any:
    """Apply the operation to values of any numeric type."""
    if op == "mac":
        return v[0] * v[1] + v[2]
    return {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[op](v[0], v[1])


def arithmetic(f: Format, op: str, operands: list[Array], mode: str) -> Array:
    """Compute an operation by lane: exactly and rounded once where all operands are finite, else as IEEE does."""
    if not f.digits:
        exact = combined(op, [x.astype(object) for x in operands])
        return np.array([int(v) & 0xFFFFFFFF for v in exact], np.uint32).view(f.dtype)
    out = np.empty(f.lanes, f.dtype)
    with np.errstate(all="ignore"):
        for i, lane in enumerate(zip(*(x.astype(np.float64) for x in operands), strict=True)):
            ieee = combined(op, list(lane))
            value = combined(op, [Fraction(float(v)) for v in lane]) if all(np.isfinite(lane)) else Fraction(0)
            out[i] = rounded(value, f, mode) if value != 0 else ieee  # IEEE gives zeros their sign
    return out


EXTREMES: dict[str, Callable[[Array, Array], Array]] = {
    "max": lambda a, b: np.where(a > b, a, b),
    "min": lambda a, b: np.where(a < b, a, b),
}
COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "neq": np.not_equal,
    "gt": np.greater,
}
BITWISE: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xnor": lambda a, b: ~(a ^ b),
}


def bits(x: Array) -> Array:
    return x.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[x.dtype.itemsize])


def on(f: Format, mask: int) -> Array:
    """Return which lanes a mask enables."""
    return np.array([mask >> i & 1 for i in range(f.lanes)], bool)


def picked(f: Format, mask: int, yes: Array, no: Array | int) -> Array:
    held = no if isinstance(no, np.ndarray) else np.zeros(f.lanes, f.dtype)
    return np.where(on(f, mask), bits(yes), bits(held)).view(f.dtype)


def scalar(f: Format) -> Array:
    return np.full(f.lanes, SCALARS[f.operand]).astype(f.dtype)


def forms(f: Format, stem: str, value: Callable[[Array, Array], Array], suffix: str = "") -> Iterator[Row]:
    """Yield the vv and sv forms of a binary operation, without and with masks."""
    a, b, c = (OPERANDS[f.operand + letter] for letter in "abc")
    for form, first, text in (("vv", a, f"{f.operand}a"), ("sv", scalar(f), f.scalar)):
        full, args = value(first, b), f"{text}, {f.operand}b"
        name = f"{form}{stem}_{f.name}"
        yield Row(f"{name}{suffix}", f"{name}{suffix}({args})", full, f.name)
        for m in ("", f", {f.mask:#x}"):
            mask = f.mask if m else -1
            yield Row(f"{name}_mz{suffix}", f"{name}_mz{suffix}({args}{m})", picked(f, mask, full, 0), f.name)
            yield Row(
                f"{name}_mh{suffix}", f"{name}_mh{suffix}({args}, {f.operand}c{m})", picked(f, mask, full, c), f.name
            )


def accumulations(f: Format, mode: str, suffix: str) -> Iterator[Row]:
    a, b, c = (OPERANDS[f.operand + letter] for letter in "abc")
    for form, first, text in (("vv", a, f"{f.operand}a"), ("sv", scalar(f), f.scalar)):
        full, args = arithmetic(f, "mac", [first, b, c], mode), f"{text}, {f.operand}b, {f.operand}c"
        name = f"{form}mac_{f.name}"
        yield Row(f"{name}{suffix}", f"{name}{suffix}({args})", full, f.name)
        yield Row(f"{name}_mz{suffix}", f"{name}_mz{suffix}({args}, {f.mask:#x})", picked(f, f.mask, full, 0), f.name)
        yield Row(f"{name}_mh{suffix}", f"{name}_mh{suffix}({args}, {f.mask:#x})", picked(f, f.mask, full, c), f.name)


def all_arithmetic(f: Format, modes: str) -> Iterator[Row]:
    for mode in modes.split():
        suffix = "" if mode == "rn" else f"_{mode}"
        for op in ("add", "sub", "mul"):
            yield from forms(
                f,
                op,
                lambda a, b, op=op, mode=mode: arithmetic(f, op, [a, b], mode),  # type: ignore[misc]
                suffix,
            )
        yield from accumulations(f, mode, suffix)
    with np.errstate(invalid="ignore"):
        for op, extreme in EXTREMES.items():
            yield from forms(f, op, extreme)


def all_bitwise(f: Format) -> Iterator[Row]:
    for op, combine in BITWISE.items():
        yield from forms(
            f,
            op,
            lambda a, b, combine=combine: combine(bits(a), bits(b)).view(f.dtype),  # type: ignore[misc]
        )


def as_mask(truth: Array) -> int:
    return sum(1 << i for i, t in enumerate(truth) if t)


def all_comparisons(f: Format) -> Iterator[Row]:
    a, b, c = (OPERANDS[f.operand + letter] for letter in "abc")
    hold = 0x5A5A0F0F
    with np.errstate(invalid="ignore"):
        for op in ("lt", "le", "eq", "neq"):
            for form, first, text in (("vv", a, f"{f.operand}a"), ("sv", scalar(f), f.scalar)):
                name, args = f"{form}{op}_{f.name}", f"{text}, {f.operand}b"
                full = as_mask(COMPARISONS[op](first, b))
                lanes = (1 << f.lanes) - 1
                for call, value in (
                    (f"{name}({args})", full),
                    (f"{name}_mz({args})", full),
                    (f"{name}_mz({args}, {f.mask:#x})", full & f.mask),
                    (f"{name}_mh({args}, {f.mask:#x}, {hold:#x})", (full & f.mask | hold & ~f.mask) & lanes),
                    (f"{name}_mh({args}, {f.mask:#x})", (full | ~f.mask) & lanes),
                ):
                    yield Row(call.split("(")[0], call, np.array([value], np.uint32), "int")
        for op in ("lt", "gt"):
            name = f"vvset{op}_{f.name}"
            full = COMPARISONS[op](a, b).astype(f.dtype)
            yield Row(name, f"{name}({f.operand}a, {f.operand}b)", full, f.name)
            yield Row(
                f"{name}_mz", f"{name}_mz({f.operand}a, {f.operand}b, {f.mask:#x})", picked(f, f.mask, full, 0), f.name
            )
            yield Row(
                f"{name}_mh",
                f"{name}_mh({f.operand}a, {f.operand}b, {f.operand}c, {f.mask:#x})",
                picked(f, f.mask, full, c),
                f.name,
            )


PLACES = {"lm": "", "sm": "__shared__ ", "gsm": "__group_shared__ "}
FENCES = "mfence_lm_sm();"


def all_memory(f: Format) -> Iterator[Row]:
    """Yield loads from and stores to each kind of memory; `t` is 64 bytes of it."""
    a, b, x = OPERANDS[f.operand + "a"], OPERANDS[f.operand + "b"], f.operand
    for place, storage in PLACES.items():
        there = f"{storage}__simd__ char t[64]; COPY(t, {x}a); {FENCES} "
        back = f"{FENCES} move64(o, t);"
        load, store = f"vload_{place}_{f.name}", f"vstore_{place}_{f.name}"
        for name, call, value in (
            (load, f"{load}(t)", a),
            (f"{load}_mz", f"{load}_mz(t)", a),
            (f"{load}_mz", f"{load}_mz(t, {f.mask:#x})", picked(f, f.mask, a, 0)),
            (f"{load}_mh", f"{load}_mh(t, {x}b, {f.mask:#x})", picked(f, f.mask, a, b)),
        ):
            yield Row(name, f"{there}PUT({f.name}, {call});", value, "")
        for name, call, value in (
            (store, f"{store}(t, {x}b)", b),
            (f"{store}_mz", f"{store}_mz(t, {x}b, {f.mask:#x})", picked(f, f.mask, b, 0)),
            (f"{store}_mh", f"{store}_mh(t, {x}b, {f.mask:#x})", picked(f, f.mask, b, a)),
        ):
            yield Row(name, f"{there}{call}; {back}", value, "")


def all_spread(f: Format) -> Iterator[Row]:
    """Yield gathers and scatters by byte offsets, from a base that is no multiple of 64."""
    a, b, x = OPERANDS[f.operand + "a"], OPERANDS[f.operand + "b"], f.operand
    order = (np.arange(16) * 7 + 3) % 16
    for place in ("lm", "sm"):
        storage = PLACES[place]
        there = f"{storage}__simd__ char t[128]; COPY(t + 4, {x}a); ORDER; {FENCES} "
        gather, scatter = f"vgather_{place}_{f.name}", f"vscatter_{place}_{f.name}"
        for name, call, value in (
            (gather, f"{gather}(t + 4, order)", a[order]),
            (f"{gather}_mz", f"{gather}_mz(t + 4, order, {f.mask:#x})", picked(f, f.mask, a[order], 0)),
            (f"{gather}_mh", f"{gather}_mh(t + 4, order, {x}b, {f.mask:#x})", picked(f, f.mask, a[order], b)),
        ):
            yield Row(name, f"{there}PUT({f.name}, {call});", value, "")
        moved, some = a.copy(), a.copy()
        moved[order] = b
        some[order[on(f, f.mask)]] = b[on(f, f.mask)]
        for name, call, value in (
            (scatter, f"{scatter}(t + 4, {x}b, order)", moved),
            (f"{scatter}_mh", f"{scatter}_mh(t + 4, {x}b, order, {f.mask:#x})", some),
        ):
            yield Row(name, f"{there}{call}; {FENCES} move64(o, t + 4);", value, "")


def all_moves(f: Format) -> Iterator[Row]:
    a, b, x, half = OPERANDS[f.operand + "a"], OPERANDS[f.operand + "b"], f.operand, f.lanes // 2
    low, high = (np.stack([a[s], b[s]], 1).reshape(-1) for s in (slice(0, half), slice(half, None)))
    for stem in ("vmerge", "vvmerge"):
        yield Row(f"{stem}_l_{f.name}", f"{stem}_l_{f.name}({x}a, {x}b)", low, f.name)
        yield Row(f"{stem}_h_{f.name}", f"{stem}_h_{f.name}({x}a, {x}b)", high, f.name)
    yield Row(f"vshuffle2_{f.name}", f"vshuffle2_{f.name}({x}a)", a.reshape(-1, 2)[:, ::-1].reshape(-1), f.name)


def narrowed(x: Array, f: Format, mode: str) -> Array:
    out = np.empty(len(x), f.dtype)
    with np.errstate(all="ignore"):
        for i, v in enumerate(x.astype(np.float64)):
            out[i] = rounded(Fraction(float(v)), f, mode) if np.isfinite(v) and v != 0 else v
    return out


def all_conversions(kl2: bool) -> Iterator[Row]:
    fa, fb = OPERANDS["fa"], OPERANDS["fb"]
    for tag, f in (("bf16", BF16), ("fp16", F16)):
        vector = BF16 if kl2 or tag == "bf16" else F16  # half precision is in vectors of the other 16-bit type on KL2
        into = f"{vector.operand}b"
        for mode in ("rn", "rz", "ru", "rd"):
            suffix, low, high = "" if mode == "rn" else f"_{mode}", narrowed(fa, f, mode), narrowed(fb, f, mode)
            old = OPERANDS[into].view(f.dtype)
            stem = f"vfloat2{tag}"
            for form, call, value in (
                ("l", f"(fa, {into})", np.concatenate([low, old[16:]])),
                ("h", f"(fb, {into})", np.concatenate([old[:16], high])),
                ("lh", "(fa, fb)", np.concatenate([low, high])),
            ):
                yield Row(
                    f"{stem}_{form}{suffix}", f"{stem}_{form}{suffix}{call}", value.view(vector.dtype), vector.name
                )
        wide = OPERANDS[f"{vector.operand}a"].view(f.dtype).astype(np.float32)
        for suffix in ("", "_rz", "_ru", "_rd") if tag == "fp16" else ("",):
            for form, value in (("l", wide[:16]), ("h", wide[16:])):
                yield Row(
                    f"v{tag}2float_{form}{suffix}",
                    f"v{tag}2float_{form}{suffix}({vector.operand}a)",
                    value,
                    "float32x16",
                )


def whole_vectors() -> Iterator[Row]:
    ua = OPERANDS["ua"]
    f32, i32 = np.zeros(16, np.float32), np.zeros(16, np.int32)
    yield Row("vset_zero", "vset_zero()", f32, "float32x16")
    yield Row("vset_zero_int", "vset_zero_int()", i32, "int32x16")
    yield Row("vset_one", "vset_one()", f32 + 1, "float32x16")
    yield Row("vset_zero_fp16", "vset_zero_fp16()", np.zeros(32, np.float16), "float16x32")
    yield Row("vrmax_float32x16", "vrmax_float32x16(fc)", np.array([OPERANDS["fc"].max()]), "float")
    yield Row("vrmax_float16x32", "vrmax_float16x32(hc).val_", np.array([OPERANDS["hc"].max()]), "short")
    yield Row(
        "vpopcnt512",
        "vpopcnt512(ia)",
        np.array([sum(int(v).bit_count() for v in bits(OPERANDS["ia"]))], np.int32),
        "int",
    )
    for count in (0, 7, 31):
        for name, full in (("svsll_uint32x16", ua << np.uint32(count)), ("svsrl_uint32x16", ua >> np.uint32(count))):
            yield Row(name, f"{name}({count}, ua)", full, "uint32x16")
            for m in ("", f", {MASK16:#x}"):
                mask = MASK16 if m else -1
                yield Row(f"{name}_mz", f"{name}_mz({count}, ua{m})", picked(U32, mask, full, 0), "uint32x16")
                held = picked(U32, mask, full, OPERANDS["uc"])
                yield Row(f"{name}_mh", f"{name}_mh({count}, ua, uc{m})", held, "uint32x16")
    fc = OPERANDS["fc"]
    yield Row("vabs_float32x16", "vabs_float32x16(fc)", (bits(fc) & 0x7FFFFFFF).view(np.float32), "float32x16")
    given = OPERANDS["sa"].view(np.int8)
    for place, storage in PLACES.items():
        there = f"{storage}__simd__ char t[64]; COPY(t, sa); {FENCES} "
        name = f"vload_{place}_int8x64"
        yield Row(name, f"{there}PUT(int16x32, reinterpret_cast<int16x32_t>({name}(t)));", given, "")
        for name in (f"vstore_{place}_int8x64", f"vstore_{place}_int8x64_mh"):
            stored = f"{name}(t, reinterpret_cast<int8x64_t>(sb)); {FENCES} move64(o, t);"
            yield Row(name, there + stored, OPERANDS["sb"].view(np.int8), "")
    for count in (32, 64, 128, 256):
        shifted = np.concatenate([OPERANDS["ia"], i32])[count // 32 :][:16]
        yield Row("vsrlp_int32x16", f"vsrlp_int32x16({count}, ia)", shifted, "int32x16")
    name = "__builtin_xpu2_vload_mask16_mr1"
    yield Row(name, f"{name}(fa_bytes, 0)", OPERANDS["fa"], "float32x16")
    for f, kind in ((F32, "float"), (I32, "int"), (U32, "unsigned")):
        for lane in (0, 5, 15):
            name = f"vextract_{f.name}"
            yield Row(name, f"{name}({f.operand}b, {1 << lane:#x})", OPERANDS[f.operand + "b"][lane : lane + 1], kind)
    yield Row(
        "vextract_bfloat16x32", "vextract_bfloat16x32(bb, 1 << 20)", bits(OPERANDS["bb"])[20:21].astype(np.int32), "int"
    )
    yield Row("reinterpret_cast", "reinterpret_cast<int16x32_t>(fa)", OPERANDS["fa"].view(np.int16), "int16x32")
    yield Row(
        "reinterpret_cast",
        "reinterpret_cast<float32x16_t>(svand_uint32x16(0x7fffffffu, reinterpret_cast<uint32x16_t>(fc)))",
        np.abs(OPERANDS["fc"]),
        "float32x16",
    )
    yield Row("int32x16_t", "int32x16_t(-3)", i32 - 3, "int32x16")


def simd_kl3() -> list[Row]:
    """Return the rows of xtdk_simd.h on KL3."""
    rows = [
        *all_arithmetic(F32, "rn rz ru rd"),
        *all_arithmetic(I32, "rn"),
        *all_arithmetic(U32, "rn"),
        *(r for r in all_arithmetic(F16, "rn")),
        *whole_vectors(),
        *all_conversions(False),
    ]
    for f in FORMATS:
        rows += all_memory(f)
    for f in (F32, I32, U32):
        rows += [*all_bitwise(f), *all_comparisons(f), *all_spread(f), *all_moves(f)]
    rows += [*all_moves(BF16), *all_moves(F16), *all_bitwise(F16), *(r for r in all_bitwise(BF16))]
    hb, mask = OPERANDS["hb"], F16.mask
    mac = arithmetic(F16, "mac", [OPERANDS["ha"], hb, OPERANDS["hc"]], "rn")
    rows += [
        Row(
            "vvmac_float16x32_mz_rn",
            f"vvmac_float16x32_mz_rn(ha, hb, hc, {mask:#x})",
            picked(F16, mask, mac, 0),
            "float16x32",
        ),
        Row(
            "svmul_float16x32_mh",
            f"svmul_float16x32_mh(float16(1.75f), hb, {mask:#x})",
            picked(F16, mask, arithmetic(F16, "mul", [scalar(F16), hb], "rn"), hb),
            "float16x32",
        ),
        Row(
            "svadd_float16x32_mh",
            f"svadd_float16x32_mh(float16(1.75f), hb, {mask:#x})",
            picked(F16, mask, arithmetic(F16, "add", [scalar(F16), hb], "rn"), hb),
            "float16x32",
        ),
    ]
    return rows


def assembly() -> list[Row]:
    """Return the rows of inline assembly that converts vectors of floats to bytes."""
    parts = ("fa", "fb", "fc", "quiet")
    quiet = np.array(
        [-129, -128.5, -128, -127.5, -0.5, 0.5, 1.5, 2.5, 126.5, 127, 127.5, 128, 1e9, -1e9, 3, 0], np.float32
    )
    x = [np.nan_to_num(OPERANDS[p], nan=0) if p != "quiet" else quiet for p in parts]
    expected = np.concatenate([np.clip(np.rint(part), -128, 127) for part in x]).astype(np.int8)
    lanes = ", ".join(f"{v}f" for v in quiet)
    held = f"float32x16_t quiet = {{{lanes}}}; "
    numbers = "".join(
        f"float32x16_t {p}_n = svmul_float32x16_mz(1.0f, {p}, vveq_float32x16({p}, {p})); " for p in parts
    )
    four = [f"vfloat2fix8_{part}.rn @, %{{}}\\t\\n" for part in ("ll", "lh", "hl", "hh")]
    inputs = ", ".join(f'"v"({p}_n)' for p in parts)

    def code(register: str, first: int) -> str:
        return " ".join('"' + line.replace("@", register).format(first + k) + '"' for k, line in enumerate(four))

    result = f'int8x64_t q; __asm__ __volatile__({code("%0", 1)} : "=&v"(q) : {inputs}); vstore_lm_int8x64(o, q);'
    register = f'asm({code("vr0", 0)} "vstore.mz vr0{{mr1}}, 0(%4)" :: {inputs}, "r"(o) : "vr0");'
    return [Row("vfloat2fix8", f"{held}{numbers}{c}", expected, "") for c in (result, register)]


def simd_kl2() -> list[Row]:
    """Return the rows that xtdk_simd.h has only on KL2."""
    return [*all_arithmetic(BF16, "rn rz ru rd"), *all_bitwise(BF16), *all_comparisons(BF16), *all_conversions(True)]


def pairs() -> list[Row]:
    """Return the rows of cluster_simd.h and cluster_primitive.h."""
    rows = []
    f32, i32 = np.zeros(16, np.float32), np.zeros(16, np.int32)
    for name, value in (("vzero", 0), ("vone", 1)):
        rows.append(Row(name, f"{name}<float>()", f32 + value, "float32x16"))
        rows.append(Row(name, f"{name}<int>()", i32 + value, "int32x16"))
    ia = np.concatenate([OPERANDS["ia"][:8], [16777217, -16777219, 33554434, 33554435]]).astype(np.int32)
    rows.append(Row("vfix2float", "vfix2float(ia)", OPERANDS["ia"].astype(np.float32), "float32x16"))
    numbers = ", ".join(f"{n}" if n > -(1 << 31) else "-2147483647 - 1" for n in ia.tolist())
    rows.append(
        Row("vfix2float", f"vfix2float({{{numbers}}})", np.append(ia, i32[:4]).astype(np.float32), "float32x16")
    )
    rows.append(Row("int32x16_t", "int32x16_t{7, -8}", np.append([7, -8], i32[2:]).astype(np.int32), "int32x16"))
    f, g = OPERANDS["fa"], OPERANDS["fb"]
    i, j = OPERANDS["ia"], OPERANDS["ib"]
    b, h = OPERANDS["ba"], OPERANDS["ha"]
    wide_b, wide_h = b.astype(np.float32), h.astype(np.float32)
    odd_even = np.concatenate([wide_b[1::2], wide_b[0::2]])
    m = MASK32
    for place, storage in PLACES.items():
        there = f"{storage}__simd__ char t[128]; "

        def put(kind: str, *, what: str, fill: str, place: str = place, there: str = there) -> str:
            return f"{there}{fill} {FENCES} {kind}_t x, y; {what.replace('@', place)} PUT2({kind}, x, y);"

        both_f, both_i = "COPY(t, fa); COPY(t + 64, fb);", "COPY(t, ia); COPY(t + 64, ib);"
        half = {16: picked(F32, m & 0xFFFF, f, 0), 32: picked(F32, m >> 16, g, 0)}
        rows += [
            Row(
                f"vload2_{place}",
                put("float32x16", what="vload2_@((const float *)t, x, y);", fill=both_f),
                np.concatenate([f, g]),
                "",
            ),
            Row(
                f"vload2_{place}_mz",
                put("float32x16", what=f"vload2_@_mz((const float *)t, x, y, {m:#x});", fill=both_f),
                np.concatenate([half[16], half[32]]),
                "",
            ),
            Row(
                f"vload2_{place}",
                put("int32x16", what="vload2_@((const int *)t, x, y);", fill=both_i),
                np.concatenate([i, j]),
                "",
            ),
            Row(
                f"vload2_{place}_mz",
                put("int32x16", what=f"vload2_@_mz((const int *)t, x, y, {m:#x});", fill=both_i),
                np.concatenate([picked(I32, m & 0xFFFF, i, 0), picked(I32, m >> 16, j, 0)]),
                "",
            ),
            Row(
                f"vload2_{place}",
                put("float32x16", what="vload2_@((const bfloat16 *)t, x, y);", fill="COPY(t, ba);"),
                wide_b,
                "",
            ),
            Row(
                f"vload2_{place}_mz",
                put("float32x16", what=f"vload2_@_mz((const bfloat16 *)t, x, y, {m:#x});", fill="COPY(t, ba);"),
                np.where(on(BF16, m), wide_b, np.float32(0)),
                "",
            ),
            Row(
                f"vload2_{place}_unordered",
                put("float32x16", what="vload2_@_unordered((const bfloat16 *)t, x, y);", fill="COPY(t, ba);"),
                odd_even,
                "",
            ),
            Row(
                f"vload2_{place}_unordered_mz",
                put(
                    "float32x16", what=f"vload2_@_unordered_mz((const bfloat16 *)t, x, y, {m:#x});", fill="COPY(t, ba);"
                ),
                np.concatenate([np.where(on(BF16, m), wide_b, np.float32(0))[k::2] for k in (1, 0)]),
                "",
            ),
            Row(
                f"vload2_{place}",
                put("float32x16", what="vload2_@((const float16 *)t, x, y);", fill="COPY(t, ha);"),
                wide_h,
                "",
            ),
            Row(
                f"vload2_{place}_mz",
                put("float32x16", what=f"vload2_@_mz((const float16 *)t, x, y, {m:#x});", fill="COPY(t, ha);"),
                np.where(on(F16, m), wide_h, np.float32(0)),
                "",
            ),
            Row(
                f"vload2_{place}",
                put("float16x32", what="vload2_@((const float16 *)t, x, y);", fill="COPY(t, ha); COPY(t + 64, hb);"),
                np.concatenate([h, OPERANDS["hb"]]),
                "",
            ),
        ]
        cut = np.concatenate([f, g])
        cast = {"lm": "primitive_cast", "sm": "primitive_cast_sm", "gsm": "primitive_cast_gsm"}[place]
        for code, fill, value in (
            (f"{cast}((float *)t, (float *)t, 32);", both_f, cut),
            (f"{cast}((float *)t, (bfloat16 *)t, 0);", both_f, cut),
            (f"{cast}((float *)t, (bfloat16 *)t, 17);", both_f, narrowed(cut, BF16, "rz")),
            (f"{cast}((float *)t, (float16 *)t, 32);", both_f, narrowed(cut, F16, "rn")),
            (f"{cast}((bfloat16 *)t, (float *)t, 1);", "COPY(t, ba);", wide_b),
            (f"{cast}((float16 *)t, (float *)t, 32);", "COPY(t, ha);", wide_h),
        ):
            back = "move64(o, t); " + ("move64(o + 64, t + 64);" if value.nbytes > 64 else "")
            rows.append(Row(cast, f"{there}{fill} {FENCES} {code} {back}", value, ""))
        unordered = np.stack([bits(g) >> 16, bits(f) >> 16], 1).reshape(-1).astype(np.uint16)
        for code, value in (
            ("vstore2_@((float *)t, fa, fb);", cut),
            ("vstore2_@((int *)t, ia, ib);", np.concatenate([i, j])),
            ("vstore2_@((bfloat16 *)t, fa, fb);", narrowed(cut, BF16, "rz")),
            ("vstore2_@((float16 *)t, fa, fb);", narrowed(cut, F16, "rn")),
            ("vstore2_@((float16 *)t, ha, hb);", np.concatenate([h, OPERANDS["hb"]])),
            ("vstore2_@_unordered((bfloat16 *)t, fa, fb);", unordered),
        ):
            name = code.split("(")[0].replace("@", place)
            size = value.nbytes
            rows.append(
                Row(
                    name,
                    f"{there}{code.replace('@', place)} {FENCES} move64(o, t); "
                    + ("move64(o + 64, t + 64);" if size > 64 else ""),
                    value,
                    "",
                )
            )
    return rows


def scalars() -> list[Row]:
    """Return the rows of xtdk_math.h, xtdk_fp16.h, xtdk_bf16.h and cluster.h."""
    rows = []

    def row(name: str, code: str, value: Any, kind: str = "float") -> None:
        dtype = {"float": np.float32, "int": np.int32, "short": np.uint16, "bool": np.int32}[kind]
        close = name in ("sqrt", "log", "exp", "pow", "rsqrt", "fast_erf", "fast_inverse_sqrt")
        rows.append(Row(name, code, np.array([value], dtype), "int" if kind == "bool" else kind, close))

    f32 = np.float32
    for x in (0.3, 2.0, 77.5):
        row("sqrt", f"sqrt({x}f)", np.sqrt(f32(x)))
        row("log", f"log({x}f)", np.log(f32(x)))
        row("exp", f"exp({x}f)", np.exp(f32(x)))
        row("pow", f"pow({x}f, 1.5f)", np.power(f32(x), f32(1.5)))
        row("rsqrt", f"rsqrt({x}f)", f32(1) / np.sqrt(f32(x)))
        row("fast_erf", f"fast_erf({x}f)", math.erf(x))
        row("fast_inverse_sqrt", f"fast_inverse_sqrt({x}f, 0.0f)", 1 / math.sqrt(x))
        row("fabs", f"fabs(-{x}f)", x)
        row(
            "hexp",
            f"hexp(__float2half({min(x, 4.0)}f)).val_",
            bits(np.exp(np.array(f32(np.float16(min(x, 4.0))))).astype(np.float16)),
            "short",
        )
    row("min", "min(-3, 4)", -3, "int")
    row("max", "max(-3, 4)", 4, "int")
    row("fmin", "fmin(-3.5f, 4.0f)", -3.5)
    row("fmax", "fmax(-3.5f, 4.0f)", 4.0)
    for n, k in ((0, 4), (1, 4), (8, 4), (9, 4)):
        row("roundup", f"roundup({n}, {k})", -(-n // k) * k, "int")
        row("roundup_div", f"roundup_div({n}, {k})", -(-n // k), "int")
        row("rounddown", f"rounddown({n}, {k})", n // k * k, "int")
        row("rounddown_div", f"rounddown_div({n}, {k})", n // k, "int")
    for k in (2, 4, 8, 16, 32, 64, 128, 256):
        for n in (0, k - 1, k, 1001):
            row(f"mod{k}", f"mod{k}({n})", n % k, "int")
            row(f"roundup{k}", f"roundup{k}({n})", -(-n // k) * k, "int")
            row(f"roundup_div{k}", f"roundup_div{k}({n})", -(-n // k), "int")
            row(f"rounddown{k}", f"rounddown{k}({n})", n // k * k, "int")
            if k < 256:
                row(f"div{k}", f"div{k}({n})", n // k, "int")
    row("roundup512", "roundup512(1025)", 1536, "int")
    fix = {"float2fix": np.rint, "float2fix_rz": np.trunc, "float2fix_ru": np.ceil, "float2fix_rd": np.floor}
    for name, direction in fix.items():
        for x in (1.5, -1.5, 2.5, -0.25, 4194303.875, -4194303.875, 123456.4):
            row(name, f"{name}({x}f)", int(direction(f32(x))), "int")
        fails = {"float2fix": 4194305, "float2fix_rz": 4194306, "float2fix_ru": 4194305, "float2fix_rd": 4194306}
        row(name, f"{name}(4194305.5f)", fails[name], "int")
        row(name, f"{name}(1e10f)", -(2**31), "int")
    for mode in ("rn", "rz", "ru", "rd"):
        name = "fix2float" if mode == "rn" else f"fix2float_{mode}"
        for n in (0, -7, 16777215, 16777217, -16777219, 2147483647):
            row(name, f"{name}({n})", rounded(Fraction(n), F32, mode))
    for x in (1.5, -1.5, 2.5, 0.49):
        for name, direction in (("rint", np.rint), ("trunc", np.trunc), ("ceil", np.ceil), ("floor", np.floor)):
            row(name, f"{name}({x}f)", direction(x))
    for x in (1.0, 1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, 1e-8, 6e-8, -0.1):
        with np.errstate(over="ignore"):
            half = bits(np.array(f32(x)).astype(np.float16))
            brain = bits(np.array(f32(x)).astype(ml_dtypes.bfloat16))
        for name in ("__float2half", "__float2half_rn", "float2float16"):
            row(name, f"{name}({x}f).val_", half, "short")
        for name in ("__float2bfloat16", "__float2bfloat16_rn", "float2bfloat"):
            row(name, f"{name}({x}f).val_", brain, "short")
        row("__half2float", f"__half2float(__float2half({x}f))", half.view(np.float16).astype(f32))
        row("float162float", f"float162float(float16({x}f))", half.view(np.float16).astype(f32))
        row("__bfloat162float", f"__bfloat162float(bfloat16_t({x}f))", brain.view(ml_dtypes.bfloat16).astype(f32))
        row("bfloat2float", f"bfloat2float(bfloat16({x}f))", brain.view(ml_dtypes.bfloat16).astype(f32))
    for op, value in (("+", 1.25 + 0.3), ("-", 1.25 - 0.3), ("*", 1.25 * 0.3), ("/", 1.25 / 0.3)):
        for kind, dtype in (("float16", np.float16), ("half", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
            a, b = np.array(1.25, dtype), np.array(0.3, dtype)
            exact = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[op](
                a.astype(np.float64), b.astype(np.float64)
            )
            row(f"{kind} {op}", f"({kind}(1.25f) {op} {kind}(0.3f)).val_", bits(np.array(exact.astype(dtype))), "short")
        assert value
    row("float16 -", "(-float16(1.5f)).val_", bits(np.array(-1.5, np.float16)), "short")
    row("float16 +=", "(float16(1.5f) += float16(1.0f)).val_", bits(np.array(2.5, np.float16)), "short")
    row("float16 ==", "float16(0.0f) == float16(-0.0f)", 0, "bool")
    for n in (0, -7, 257, 2049):
        row("half", f"half({n}).val_", bits(np.array(f32(n)).astype(np.float16)), "short")
        row("bfloat16", f"bfloat16({n}).val_", bits(np.array(f32(n)).astype(ml_dtypes.bfloat16)), "short")
    row("half to float", "2.0f + (float)half(0.3f)", f32(2) + f32(np.float16(0.3)))
    row("exp", "exp(-half(0.5f))", np.exp(f32(-0.5)))
    row("half -", "(-half(1.5f)).val_", bits(np.array(-1.5, np.float16)), "short")
    row("bfloat16 -", "(-bfloat16(1.5f)).val_", bits(np.array(-1.5, ml_dtypes.bfloat16)), "short")
    for op, value in (("+", 2.25), ("-", 0.75), ("*", 1.125), ("/", 2.0)):
        code = f"half x(1.5f); x {op}= half(0.75f); *(short *)o = x.val_;"
        rows.append(Row(f"half {op}=", code, bits(np.array([value], np.float16)), ""))
    truth = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}
    for op, holds in {**truth, "!=": np.not_equal}.items():
        for x, y in ((1.5, 1.5), (-1.0, 0.5), (0.5, -1.0), (0.0, -0.0)):
            row(f"half {op}", f"half({x}f) {op} half({y}f)", bool(holds(x, y)), "bool")
        row(f"half {op}", f"half(NAN) {op} half(NAN)", op == "!=", "bool")
    for op, holds in truth.items():
        row(f"bfloat16 {op}", f"bfloat16(-1.5f) {op} bfloat16(0.5f)", bool(holds(-1.5, 0.5)), "bool")
        row(f"bfloat16 {op}", f"bfloat16(1.5f) {op} bfloat16(1.5f)", bool(holds(1.5, 1.5)), "bool")
    for name, value in (("fmax", 1.5), ("fmin", -2.0)):
        row(name, f"{name}(bfloat16(1.5f), bfloat16(-2.0f)).val_", bits(np.array(value, ml_dtypes.bfloat16)), "short")
    row("is_same", "xpu_std::is_same<half, __half>::value && !xpu_std::is_same<half, bfloat16>::value", 1, "bool")
    row("bfloat16 ==", "bfloat16(1.5f) == bfloat16(1.5f)", 1, "bool")
    row("bfloat16 !=", "bfloat16(1.5f) != bfloat16(1.5f)", 0, "bool")
    row("fmax", "fmax(__float2half(1.5f), __float2half(-2.0f)).val_", bits(np.array(1.5, np.float16)), "short")
    row("fmin", "fmin(__float2half(1.5f), __float2half(-2.0f)).val_", bits(np.array(-2.0, np.float16)), "short")
    row("float16 to half", "half(float16(half(1.5f))).val_", 0x3E00, "short")
    row("half::of_bits", "half::of_bits(0x3e00).val_", 0x3E00, "short")
    return rows


def source(rows: list[Row], headers: list[str], first: str = "") -> str:
    """Return a `.xpu` file with one kernel per row."""
    used = [f for f in FORMATS if not (first and f is F16)]
    layout = {name: 64 * i for i, name in enumerate(OPERANDS)}
    lines = [first, *(f'#include "xpu/kernel/{h}"' for h in headers)]
    lines.append("#define COPY(to, from) move64(to, from##_bytes)")
    lines.append("#define PUT(T, ...) vstore_lm_##T(o, __VA_ARGS__)")
    lines.append("#define PUT2(T, x, y) vstore_lm_##T(o, x); vstore_lm_##T(o + 64, y)")
    lines.append("#define ORDER int32x16_t order = vload_lm_int32x16(order_bytes)")
    lines.append(
        "static __device__ inline void move64(char *to, const char *from)"
        " { for (int i = 0; i < 64; i++) to[i] = from[i]; }"
    )
    for k, r in enumerate(rows):
        body = [f"static __global__ void kernel_{k}(__global_ptr__ const char *in, __global_ptr__ char *out)", "{"]
        body.append("    __local__ __simd__ char o[128];\n    (void)in;")
        body.append("    GM2LM(out, o, 128);")
        names = [
            n
            for n in [*OPERANDS, "order"]
            if f"{n}_bytes" in r.code or _uses(r.code, n) or (n == "order" and "ORDER" in r.code)
        ]
        for n in names:
            at = layout.get(n, 64 * len(OPERANDS))
            body.append(f"    __local__ __simd__ char {n}_bytes[64]; GM2LM(in + {at}, {n}_bytes, 64);")
            owner = next((f for f in used if n[:1] == f.operand and n != "order"), None)
            if owner is not None:
                body.append(f"    [[maybe_unused]] {owner.name}_t {n} = vload_lm_{owner.name}({n}_bytes);")
        if r.result == "":
            body.append(f"    {r.code}")
        elif r.result in {f.name for f in FORMATS}:
            body.append(f"    PUT({r.result}, {r.code});")
        else:
            body.append(f"    *({r.result} *)o = {r.code};")
        body.append("    mfence_lm();\n    LM2GM(o, out, 128);\n}")
        lines.append("\n".join(body))
    lines.append(
        "static void (*const kernels[])(const char *, char *) = {"
        + ", ".join(f"kernel_{k}" for k in range(len(rows)))
        + "};"
    )
    return "\n".join(lines)


def _uses(code: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", code) is not None


def input_bytes() -> bytes:
    """Return all operands, 64 bytes each, and the order of gathers."""
    order = ((np.arange(16) * 7 + 3) % 16 * 4).astype(np.int32)
    return b"".join(x.tobytes() for x in OPERANDS.values()) + order.tobytes()
