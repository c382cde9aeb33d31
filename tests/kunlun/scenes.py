"""Kernels of many cores, for what the language says about shared memory, ordering and sharing of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
GIVEN = np.random.default_rng(5).integers(-1000, 1000, 1024).astype(np.int32)

HEAD = """
#include "xpu/kernel/cluster.h"
#include "xpu/kernel/cluster_debug.h"
#include "xpu/kernel/cluster_primitive_template.h"
#include "xpu/kernel/xtdk_simd_xpu2.h"
#include "xpu/kernel/xtdk_trigonometric.h"
#include "xpu/kernel/xtdk_atomic_sm_xpu3.h"
"""


@dataclass(frozen=True)
class Scene:
    """The body of a kernel that 64 cores of one cluster run on 1,024 ints in and out, and a check of the output."""

    name: str
    body: str
    judge: Callable[[Array], None]


def gives(expected: Any) -> Callable[[Array], None]:
    def judge(out: Array) -> None:
        want = np.asarray(expected)
        assert (out[: want.size] == want).all(), (out[: want.size], want)

    return judge


def same_set(expected: Any) -> Callable[[Array], None]:
    def judge(out: Array) -> None:
        assert sorted(out[: len(expected)].tolist()) == sorted(expected)

    return judge


def contended(out: Array) -> None:
    assert out[0] == 64
    assert out[1] > 0, "no store ever failed: the others never came between"


def clocks(out: Array) -> None:
    assert (out[:64] > 0).all()


def shares(out: Array) -> None:
    for i, (n, length, align) in enumerate(SHARES):
        units = -(-length // align)
        counts = [units // n + (t < units % n) for t in range(n)]
        ends = np.minimum(np.cumsum(counts) * align, length)
        starts = np.concatenate([[0], ends[:-1]])
        got = out[128 * i : 128 * i + 2 * n].reshape(n, 2)
        assert (got[:, 0] == starts).all() and (got[:, 1] == ends).all(), (n, length, align)


def tiles(out: Array) -> None:
    """Check that the tiles of a matrix, one for each core, have every element once, and what XDNN's rule makes them."""
    for i, (m, n, columns, height) in enumerate(TILES):
        count = np.zeros((m, n), int)
        ends = out[256 * i : 256 * i + 256].reshape(64, 4)
        for top, bottom, left, right in ends:
            count[top:bottom, left:right] += 1
        assert (count == 1).all(), (m, n)
        assert (ends[0] == (0, height, 0, columns)).all(), (m, n, ends[0])


# rows and columns of a matrix, and those of the first core's tile
TILES = [(1, 1000, 16, 1), (640, 30, 30, 10), (20, 100, 34, 1), (5, 40000, 625, 5)]
SHARES = [(64, 1000, 16), (64, 10, 4), (63, 0, 8), (7, 12345, 1)]
CORE = "const int c = core_id();"
COPIES = [
    # memory, its declaration, its name in copies, fence after GM2*, fence after *2GM
    ("LM", "__local__ int m[16];", "LM", "mfence_lm", "mfence_lm_gm"),
    ("SM", "__shared__ int all[64][16]; int *m = all[c];", "SM", "mfence_sm", "mfence_sm_gm"),
    ("GSM", "__group_shared__ int four[4][16]; int *m = four[c % 4];", "GSM", "mfence_lm_sm", "mfence_gm"),
]

SCENES = [
    Scene(
        "identity",
        f"{CORE} const int v[4] = {{c, core_num(), cluster_id() * 100 + cluster_num(), physical_cluster_id()}};"
        " __local__ int m[4]; for (int i = 0; i < 4; i++) m[i] = v[i]; mfence(); LM2GM(m, out + 4 * c, 16);",
        gives(np.stack([np.arange(64), np.full(64, 64), np.ones(64, int), np.zeros(64, int)], 1).reshape(-1)),
    ),
    *(
        Scene(
            f"copies of {name}",
            f"{CORE} {declared} GM2{there}(in + 16 * c, m, 64); {there}2GM(m, out + 16 * c, 64);",
            gives(GIVEN),
        )
        for name, declared, there, *_ in COPIES
    ),
    *(
        Scene(
            f"asynchronous copies of {name}",
            f"{CORE} {declared} GM2{there}_ASYNC(in + 16 * c, m, 64); {fence}(); m[0]++; mfence();"
            f" {there}2GM_ASYNC(m, out + 16 * c, 64); {last}();",
            gives(GIVEN + (np.arange(1024) % 16 == 0)),
        )
        for name, declared, there, fence, last in COPIES
    ),
    Scene(
        "the cluster's barriers",
        f"{CORE} __shared__ int m[64]; m[c] = c; mfence_sm(); sync_cluster();"
        " const int n = m[63 - c]; mfence_sm(); sync_all();"
        " m[c] = n; mfence_sm(); SM2GM(m + c, out + c, 4);",
        gives(np.arange(63, -1, -1)),
    ),
    Scene(
        "barriers of groups",
        f"{CORE} __group_shared__ int m[4]; m[c % 4] = c; mfence_lm(); sync_local(); const int n = m[3 - c % 4];"
        " mfence_lm(); sync_group(1u << c / 4); __local__ int r; r = n; mfence_lm(); LM2GM(&r, out + c, 4);",
        gives([c // 4 * 4 + 3 - c % 4 for c in range(64)]),
    ),
    Scene(
        "group-shared objects are a group's own",
        f"{CORE} __group_shared__ __simd__ float x[16], y[3];\n"
        f" __group_shared__ int\n n; if (c % 4 == 0) {{ n = c; y[2] = 1; }}"
        " vstore_gsm_float32x16(x, vset_one()); mfence_lm(); sync_local();"
        " __local__ int r; r = n + (int)x[c % 16] + (int)y[2]; mfence_lm(); LM2GM(&r, out + c, 4);",
        gives([c // 4 * 4 + 2 for c in range(64)]),
    ),
    Scene(
        "one core at a time has the lock",
        "__shared__ int n, other; if (core_id() == 0) { n = 0; other = 0; } mfence_sm(); sync_cluster();"
        " ticket_lock_mix(); const int before = n; SM2REG_atomic(&other);"
        " n = before + 1; mfence_sm(); ticket_unlock_mix();"
        " sync_cluster(); if (core_id() == 0) SM2GM(&n, out, 4);",
        gives([64]),
    ),
    Scene(
        "a store fails where another came between",
        "__shared__ int n, failed; if (core_id() == 0) { n = 0; failed = 0; } mfence_sm(); sync_cluster();"
        " while (REG2SM_atomic(&n, SM2REG_atomic(&n) + 1) != 0) atomicadd(&failed, 1);"
        " sync_cluster(); if (core_id() == 0) { SM2GM(&n, out, 4); SM2GM(&failed, out + 1, 4); }",
        contended,
    ),
    Scene(
        "the same of floats",
        "__shared__ float n; if (core_id() == 0) n = 0; mfence_sm(); sync_cluster();"
        " while (REG2SM_atomic(&n, SM2REG_atomic(&n) + 0.5f) != 0) {}"
        " sync_cluster(); if (core_id() == 0) SM2GM(&n, out, 4);",
        gives(np.array([32], np.float32).view(np.int32)),
    ),
    *(
        Scene(
            f"atomicadd of {kind}",
            f"{CORE} __shared__ {kind} n; if (c == 0) n = 0; mfence_sm(); sync_cluster();"
            f" __local__ int r; r = (int)atomicadd(&n, ({kind})2); mfence_lm(); LM2GM(&r, out + c, 4);",
            same_set(list(range(0, 128, 2))),
        )
        for kind in ("int", "unsigned", "float", "long long")
    ),
    Scene(
        "amoadd gives the old value",
        f"{CORE} __local__ int r; r = __builtin_xpu_amoadd(out + 64, 3); mfence_lm(); LM2GM(&r, out + c, 4);",
        same_set(list(range(0, 192, 3))),
    ),
    Scene(
        "a spin lock of amoswap",
        "while (__builtin_xpu_amoswap(out + 1, 1) != 0) {} __local__ int n; GM2LM(out, &n, 4); n++; mfence_lm();"
        " LM2GM(&n, out, 4); mfence_gm(); __builtin_xpu_amoswap(out + 1, 0);",
        gives([64, 0]),
    ),
    Scene(
        "shares",
        "const int sizes[][3] = {"
        + ", ".join(f"{{{n}, {length}, {align}}}" for n, length, align in SHARES)
        + f"}}; {CORE} for (int i = 0; i < 4; i++) if (c < sizes[i][0]) {{ __local__ int r[2];"
        " partition(c, sizes[i][0], sizes[i][1], sizes[i][2], &r[0], &r[1]);"
        " mfence_lm(); LM2GM(r, out + 128 * i + 2 * c, 8); }",
        shares,
    ),
    Scene(
        "tiles",
        "const int sizes[][2] = {"
        + ", ".join(f"{{{m}, {n}}}" for m, n, *_ in TILES)
        + f"}}; {CORE} for (int i = 0; i < 4; i++) {{ __local__ int r[4];"
        " partition2d(c, 64, sizes[i][0], sizes[i][1], &r[0], &r[1], &r[2], &r[3]);"
        " mfence_lm(); LM2GM(r, out + 256 * i + 4 * c, 16); }",
        tiles,
    ),
    *(
        Scene(
            f"buffers of {memory} in turn",
            f"if (core_id() != 0) return; {storage} int m[{16 * count}];"
            f" {kind}<16, {memory}Ptr<int>> at({memory}Ptr<int>(m + 0)); at.gm_load_async(in, 16); at.mfence();"
            " for (int i = 0; i < 60; i++) {"
            " at.next().gm_load(in + 16 * (i + 1), 16); at.ptr[0]++; mfence();"
            " if (i % 2) at.gm_store(out + 16 * i, 16); else { at.gm_store_async(out + 16 * i, 16); mfence(); }"
            f" at.toggle(); }} if (({memory}Ptr<int>(m) + 3).ptr != m + 3) out[0] = -1;",
            gives(GIVEN[:960] + (np.arange(960) % 16 == 0)),
        )
        for memory, storage, kind, count in (
            ("Lm", "__local__", "DoublePtr", 2),
            ("Sm", "__shared__", "DoublePtr", 2),
            ("Gsm", "__group_shared__", "TriplePtr", 3),
        )
    ),
    Scene(
        "words of shared memory by instructions",
        "__shared__ int n; if (core_id() == 0) n = 0; mfence_sm(); sync_cluster(); bool fail = true; while (fail) {"
        ' int a; __asm__ __volatile__("loada.w %0,%1" : "=&r"(a) : "r"(&n)); a += 3;'
        ' __asm__ __volatile__("storea.w %0,%1,%2" : "=&r"(fail) : "r"(a), "r"(&n)); }'
        ' asm("mfence{sm}"); sync_cluster(); if (core_id() == 0) SM2GM(&n, out, 4);',
        gives([192]),
    ),
    Scene(
        "the clock goes on",
        f"{CORE} __local__ int r; const int before = get_clock(); do r = get_clock() - before; while (r == 0);"
        " mfence_lm(); LM2GM(&r, out + c, 4);",
        clocks,
    ),
    Scene(
        "mathematics of any type",
        "if (core_id() != 0) return; __local__ int r[6]; r[0] = (int)min(2.5f, 1.5f); r[1] = (int)max(7LL, 9LL);"
        " r[2] = (int)roundup(9LL, 4);"
        " r[3] = (int)roundup_div(9LL, 4); r[4] = (int)rounddown(9LL, 4); r[5] = (int)rounddown_div(-3LL, 4);"
        " mfence_lm(); LM2GM(r, out, 24);",
        gives([1, 9, 12, 3, 8, 0]),
    ),
    Scene(
        "the architecture",
        "if (core_id() != 0) return; __local__ int r; r = __XPU3__ + __arch_xpu3__; mfence_lm(); LM2GM(&r, out, 4);",
        gives([2]),
    ),
]

# statement, exception, words of the message
EXCEPTIONS = {
    "unaligned load": ("    vload_lm_float32x16(lm + 4);", 16, "multiple of 64"),
    "unaligned masked load": ("    vload_lm_int16x32_mz(lm + 2, 1);", 16, "multiple of 64"),
    "unaligned load from SM": ("    vload_sm_int32x16(sm + 32);", 16, "multiple of 64"),
    "unaligned store": ("    vstore_lm_float32x16(lm + 63, vset_zero());", 16, "multiple of 64"),
    "unaligned store to SM": ("    vstore_sm_float32x16_mh(sm + 1, vset_zero(), 1);", 16, "multiple of 64"),
    "unaligned pair": ("    float32x16_t a, b; vload2_lm((const bfloat16 *)(lm + 2), a, b);", 16, "multiple of 64"),
    "nested locks": ("    ticket_lock_mix(); ticket_lock_mix();", 24, "nested atomic"),
    "unlock without a lock": ("    ticket_unlock_mix();", 30, "does not have the lock"),
    "two lanes at once": ("    vextract_float32x16(vset_zero(), 3);", 30, "has to have one bit"),
    "no lane": ("    vextract_int32x16(vset_zero_int(), 0x10000);", 30, "has to have one bit"),
    "unaligned word": ("    SM2REG_atomic((const int *)(sm + 2));", 5, "multiple of 4"),
    "too much group-shared memory": ("    __group_shared__ char big[32769]; big[0] = 1;", 4, "32768 bytes"),
}


def one(statement: str) -> str:
    """Return a file with one kernel, which has the statement on a line of its own."""
    return several([statement])


def several(statements: Sequence[str]) -> str:
    """Return a file with a kernel for each statement, which is on a line of its own; #include lines come first."""
    included = [s for s in statements if s.startswith("#include")]
    kernels = [
        f"""static __global__ void kernel_{k}(const char *in, char *out)
{{
    __local__ __simd__ char lm[256];
    __shared__ char sm[256];
    GM2LM(in, lm, 256);
    sm[core_id()] = 0;
{"" if statement in included else statement}
    if (lm[0] == 1)
        LM2GM(lm, out, 64);
}}
"""
        for k, statement in enumerate(statements)
    ]
    names = ", ".join(f"kernel_{k}" for k in range(len(statements)))
    table = f"static void (*const kernels[])(const char *, char *) = {{{names}}};\n"
    return "\n".join([HEAD, *included, *kernels, table])


def source() -> str:
    """Return a file with the scenes' kernels."""
    made = [HEAD]
    for k, scene in enumerate(SCENES):
        made.append(f"static __global__ void kernel_{k}(const char *given, char *taken)")
        made.append(
            "{\n    __global_ptr__ const int *in = (const int *)given;\n"
            "    __global_ptr__ int *out = (int *)taken; (void)in;"
        )
        made.append(f"    {scene.body}\n}}")
    names = ", ".join(f"kernel_{k}" for k in range(len(SCENES)))
    made.append(f"static void (*const kernels[])(const char *, char *) = {{{names}}};")
    return "\n".join(made)
