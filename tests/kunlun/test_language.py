"""Test every function of the kernel language against its definition, and the messages for what is not modelled."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import language
import numpy as np
import pytest
import scenes
from language import F32, Row
from needs import cxx

from isokern_kunlun_sim import compiling

HERE = Path(__file__).parent
INCLUDE = compiling.HERE / "include"
EXAMPLES = HERE.parent.parent / "examples" / "xpu"

# The end of each source: `run` launches a kernel with the addresses of its input and output.
ENTRY = """
extern "C" int run(int kernel, const char *in, char *out, int clusters, int cores)
{
    auto chosen = kernels[kernel];
    const int status = chosen<<<clusters, cores>>>(in, out);
    return status != 0 ? status : xpu_wait(nullptr);
}
"""
# The rows of a group, the headers of its source, and how this begins
GROUPS: dict[str, tuple[list[Row], list[str], str]] = {
    "simd": (language.simd_kl3(), ["xtdk_simd.h"], ""),
    "simd_kl2": (language.simd_kl2(), ["xtdk_simd.h"], "#define __arch_xpu2__"),
    # what runs where the machine has no fused multiply-add
    "sums": (list(language.accumulations(F32, "rn", "")), ["xtdk_simd.h"], "#define XPUSIM_NO_FUSED"),
}
OTHERS = ["cluster_simd.h", "cluster_primitive.h", "xtdk_math.h", "xtdk_fp16.h", "xtdk_bf16.h", "cluster.h"]
for group, some in (("others", 1), ("few", 8)):  # one vector function of some dozens, and all of the others or some
    vectors = language.simd_kl3()[:: 8 * some]
    rest = [*language.pairs(), *language.scalars(), *language.assembly()]
    GROUPS[group] = ([*vectors, *rest[::some]], ["xtdk_simd.h", *OTHERS], "")
CASES = [pytest.param(g, k, id=f"{g}-{k}-{r.name}") for g, (rows, *_) in GROUPS.items() for k, r in enumerate(rows)]
SCENES = list(enumerate(scenes.SCENES))
MODES = pytest.mark.parametrize("mode", compiling.MODES)
# Compiling thousands of vector functions takes half a minute: README's command covers some of them, fewer with checks
QUICK = {("fast", "others"), ("fast", "sums"), ("checked", "few")}
FUNCTIONS = [
    pytest.param(
        mode,
        *case.values,
        id=f"{case.id}-{mode}",
        marks=[] if (mode, case.values[0]) in QUICK else [pytest.mark.full],
    )
    for mode in compiling.MODES
    for case in CASES
    if (mode, case.values[0]) != ("fast", "few")
]


def build(folder: Path, name: str, text: str, mode: str) -> Path:
    source = folder / f"{name}.xpu"
    source.write_text(text)
    built = folder / f"{name}_{mode}.so"
    compiling.library(cxx(), built, [compiling.kernel_object(cxx(), source, mode, folder / "objects", [])], mode)
    return built


# Run the kernels argv[6] to argv[7] of a library and append their outputs to a file; end at the first that fails
MANY = """
import sys
sys.path.insert(0, sys.argv[1])
from driver import Xpu
xpu = Xpu(sys.argv[2], sys.argv[3])
given, fill, cores = open(sys.argv[4], "rb").read(), bytes.fromhex(sys.argv[8]), int(sys.argv[9])
a = xpu.upload(given)
with open(sys.argv[5], "ab") as results:
    for k in range(int(sys.argv[6]), int(sys.argv[7])):
        b = xpu.upload(fill)
        code = xpu.kernels.run(k, a, b, 1, cores)
        if code != 0:
            sys.exit(xpu.error(code))
        results.write(xpu.download(b, len(fill)))
        xpu.ok(xpu.free(b))
"""


def environment(mode: str) -> dict[str, str]:
    """Return the environment of a process that runs kernels in a mode."""
    return {**os.environ, "ISOKERN_XPU_CHECK": "1" if mode == "checked" else "0", "ISOKERN_XPU_SEED": "0"}


def run_all(
    runtime: Path, library: Path, mode: str, count: int, given: bytes, fill: bytes, cores: int
) -> list[bytes | str]:
    """Return each kernel's output, or the error message of one that failed; others still run."""
    found: list[bytes | str] = []
    folder = library.parent
    (folder / "given").write_bytes(given)
    while len(found) < count:
        (folder / "results").write_bytes(b"")
        fixed = [str(HERE), str(runtime), str(library), str(folder / "given"), str(folder / "results")]
        command = [sys.executable, "-c", MANY, *fixed, str(len(found)), str(count), fill.hex(), str(cores)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(mode), timeout=600)
        whole = (folder / "results").read_bytes()
        found += [whole[i : i + len(fill)] for i in range(0, len(whole), len(fill))]
        if len(found) < count:
            found.append(f"exit status {done.returncode}: {done.stderr}")
    return found


Results = Callable[[str, str], "list[bytes | str]"]


@pytest.fixture(scope="module")
def results(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return a function that gives the outputs of a group's kernels, or the scenes', in a mode, computed on demand."""
    made = dict[tuple[str, str], "list[bytes | str]"]()

    def find(name: str, mode: str) -> list[bytes | str]:
        if (name, mode) not in made:
            folder = tmp_path_factory.mktemp(name)
            if name == "scenes":
                library = build(folder, name, scenes.source() + ENTRY, mode)
                made[name, mode] = run_all(runtime, library, mode, len(SCENES), scenes.GIVEN.tobytes(), bytes(4096), 64)
            else:
                library = build(folder, name, language.source(*GROUPS[name]) + ENTRY, mode)
                count = len(GROUPS[name][0])
                made[name, mode] = run_all(runtime, library, mode, count, language.input_bytes(), b"\xa7" * 128, 1)
        return made[name, mode]

    return find


@pytest.mark.parametrize(("mode", "group", "k"), FUNCTIONS)
def test_function(results: Results, mode: str, group: str, k: int) -> None:
    row, given = GROUPS[group][0][k], results(group, mode)[k]
    if isinstance(given, str):
        pytest.fail(f"{row.code}\n{given}")
    got, want = np.frombuffer(given, np.uint8)[: row.expected.nbytes].view(row.expected.dtype), row.expected
    same = language.bits(got) == language.bits(want)
    if want.dtype.kind in "fV":
        same |= np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32))
    if row.close:
        same |= np.isclose(got, want, rtol=2**-22, atol=0)
    assert same.all(), f"{row.code}\n got {got[~same]}\nwant {want[~same]}\nlanes {np.flatnonzero(~same)}"


@MODES
@pytest.mark.parametrize(("k", "scene"), SCENES, ids=[s.name for _, s in SCENES])
def test_scene(results: Results, mode: str, k: int, scene: scenes.Scene) -> None:
    given = results("scenes", mode)[k]
    if isinstance(given, str):
        pytest.fail(given)
    scene.judge(np.frombuffer(given, np.int32))


# ---- Kernels that end with an exception, each in a process of its own ----

CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from driver import Xpu
xpu = Xpu(sys.argv[2], sys.argv[3])
code = xpu.kernels.run(int(sys.argv[4]), xpu.upload(bytes(4096)), xpu.upload(bytes(4096)), 1, 64)
print(xpu.error(code) if code == xpu.EXCEPTION else f"code {code}")
xpu.kernel_debug(None)
"""


def outcome(runtime: Path, library: Path, mode: str, kernel: int = 0) -> str:
    command = [sys.executable, "-c", CHILD, str(HERE), str(runtime), str(library), str(kernel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(mode), timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_headers_of_one_name_are_told_apart(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.h").write_text("inline int twice(const volatile int *x) { return 2 * *x; }\n")
    text = '#include "copy.h"\n' + scenes.one("lm[0] = (char)twice((int *)sm);")
    built = build(tmp_path, "same", text + ENTRY, "checked")
    lines = Path(f"{built}.lines").read_text()
    assert f"F {tmp_path}/copy.h\n" in lines
    assert re.search(r"^F .*/xpusim/copy\.h$", lines, flags=re.M)


BAD = scenes.several([statement for statement, *_ in scenes.EXCEPTIONS.values()])


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that gives the library of the kernels with exceptions for a mode, compiled on demand."""
    return functools.cache(lambda mode: build(tmp_path_factory.mktemp("bad"), "bad", BAD + ENTRY, mode))


FAST = [pytest.param("fast", name, id=f"{name}-fast") for name in scenes.EXCEPTIONS]
CHECKED = [
    pytest.param("checked", name, id=f"{name}-checked", marks=[pytest.mark.full] * (name != "unaligned load from SM"))
    for name in scenes.EXCEPTIONS
]


@pytest.mark.parametrize(("mode", "name"), FAST + CHECKED)
def test_exception(runtime: Path, bad: Callable[[str], Path], mode: str, name: str) -> None:
    statement, exception, words = scenes.EXCEPTIONS[name]
    text = outcome(runtime, bad(mode), mode, list(scenes.EXCEPTIONS).index(name))
    line = BAD.split(statement)[0].count("\n") + 1
    assert f"exception {exception}," in text
    assert words in text
    assert f"bad.xpu:{line})" in text


@pytest.mark.parametrize("architecture", ["", "#define __arch_xpu2__\n"])
def test_output_is_the_host_s_when_it_asks(runtime: Path, tmp_path: Path, architecture: str) -> None:
    dump = 'memdump(3, "abc");' if architecture else ""
    text = architecture + scenes.one(f'if (core_id() == 3) {{ printf("%s %.2f\\n", "hello", 1.5f); {dump} }}')
    said = outcome(runtime, build(tmp_path, "say", text + ENTRY, "fast"), "fast")
    assert "cluster 0 core 3" in said
    assert "hello 1.50\n" in said
    assert (": 61 62 63\n" in said) == bool(architecture)


@pytest.mark.quick("checked")
@MODES
def test_output_that_is_cut_says_so(runtime: Path, tmp_path: Path, mode: str) -> None:
    text = scenes.one('if (core_id() == 3) { printf("%1023d\\n", 7); printf("%1022d\\n", 8); printf("next\\n"); }')
    said = outcome(runtime, build(tmp_path, "say", text + ENTRY, mode), mode)
    assert [line[-6:] for line in said.splitlines() if "core 3]" in line] == [" [cut]", "     8", "] next"]


# ---- What is not modelled ----


def preprocessed(header: str, architecture: str = "") -> str:
    """Return a header's own part of the preprocessed source."""
    command = [cxx(), "-std=c++17", "-E", f"-I{INCLUDE}", "-x", "c++", "-"]
    text = f'{architecture}\n#include "xpu/kernel/{header}"\n'
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    own, parts = False, []
    for line in done.stdout.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = re.search(r"xpu/kernel/\w+\.h$", marker[1]) is not None
        elif own:
            parts.append(line)
    return "\n".join(parts)


ARCHITECTURES = {"KL3": "", "KL2": "#define __arch_xpu2__"}


def absent(headers: list[str], architecture: str) -> list[str]:
    """Return the names that headers define as not modelled."""
    text = "".join(preprocessed(h, architecture) for h in headers)
    return sorted(set(re.findall(r'error\("not modelled: " "(\w+)"', text)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_function_that_is_not_modelled_says_so_at_the_author_s_line(tmp_path: Path, architecture: str) -> None:
    first = ARCHITECTURES[architecture]
    headers = ["xtdk.h", "xtdk_simd.h", "xtdk_math.h", "xtdk_io.h", "xtdk_atomic_sm_xpu3.h", "cluster_primitive.h"]
    names = absent(headers, first)
    assert len(names) > (20 if first else 100)
    source = tmp_path / "absent.xpu"
    lines = [first, *(f'#include "xpu/kernel/{h}"' for h in headers), "__global__ void k()", "{"]
    source.write_text("\n".join([*lines, *(f"    {name}();" for name in names), "}\n"]))
    with pytest.raises(compiling.CompileError) as error:
        compiling.kernel_object(cxx(), source, "fast", tmp_path, [])
    for number, name in enumerate(names, len(lines) + 1):
        pattern = rf"absent\.xpu:{number}:\d+: error: .*not modelled: {name}: \w.{{20}}"
        assert re.search(pattern, str(error.value)), name


REFUSED = {
    "KL1's copies": ("    SM2LM(out, out, 4);", "not modelled: SM2LM: KL2 and KL3 have no such copy"),
    "bfloat16 arithmetic on KL3": (
        "    float32x16_t x; bfloat16x32_t a(0); a = vvadd_bfloat16x32(a, a); (void)x;",
        "not modelled: vvadd_bfloat16x32: KL3 computes bfloat16 in float",
    ),
    "atomicadd of a short": ("    short s; atomicadd(&s, (short)1);", "not modelled: atomicadd is stated for integers"),
    "inline assembly": ('    __asm__("nop");', "not modelled: inline assembly"),
    "group-shared memory with an initialiser": ("    __group_shared__ int n = 3;", "__group_shared__ is not part of"),
    "group-shared memory behind a macro with an initialiser": (
        "    GROUP int n = 3;",
        "__group_shared__ is not part of",
    ),
    "a shift by parts of lanes": ("    int32x16_t x(1); x = vsrlp_int32x16(16, x);", "not modelled: vsrlp_int32x16"),
    "a cast of integers": (
        "    primitive_cast<int, float>((const int *)lm, (float *)lm, 4);",
        "not modelled: primitive_cast is here for float",
    ),
    "an offset of a builtin": (
        "    auto x = __builtin_xpu2_vload_mask16_mr1(lm, 4);",
        "not modelled: __builtin_xpu2_vload",
    ),
    "an integer as half precision": ("    float16 h(1); (void)h;", "deleted"),
}


@pytest.mark.quick("KL1's copies", "atomicadd of a short", "group-shared memory with an initialiser")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_author_s_line(tmp_path: Path, name: str) -> None:
    statement, words = REFUSED[name]
    text = "#define GROUP __group_shared__\n" + scenes.one(statement) + ENTRY
    source = tmp_path / "refused.xpu"
    source.write_text(text)
    with pytest.raises(compiling.CompileError, match=re.escape(words)) as error:
        compiling.kernel_object(cxx(), source, "fast", tmp_path, [])
    line = text.split(statement)[0].count("\n") + 1
    assert re.search(rf"refused\.xpu:{line}\b", str(error.value)), str(error.value)


# ---- The table is complete ----


def defined() -> Iterator[tuple[str, str]]:
    """Yield (header, function) for each function that the headers define; those that are errors are not modelled."""
    for path in sorted((INCLUDE / "xpu" / "kernel").glob("*.h")):
        for name, first in ARCHITECTURES.items():
            if name == "KL2" and "atomic" in path.name:
                continue
            for found in re.findall(
                r"__attribute__\(\((?!error)(?:[^()]|\([^()]*\))*\)\)\s+[\w:]+(?: &)?\s+(\w+)\(",
                preprocessed(path.name, first),
            ):
                if not found.startswith("xpusim_"):
                    yield path.name, found


def test_every_function_of_the_headers_is_tested() -> None:
    code = " ".join([r.code for rows, *_ in GROUPS.values() for r in rows] + [scenes.source()])
    tested = set(re.findall(r"\w+", code)) | {"printf", "memdump"}
    names = set(defined())
    assert len(names) > 500
    assert sorted({name for _, name in names} - tested) == []


# ---- The page ----


def rows_of(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading of the page about the language."""
    page = (HERE.parent.parent / "docs" / "kunlun_language.md").read_text()
    table = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in lines]


def words_of(cell: str) -> list[str]:
    """Return the names in a cell's code; not parts of names, such as `_mz` and `vload_`, nor examples with spaces."""
    code = [c for c in re.findall(r"`([^`]*)`", cell) if "=" not in c]
    return [
        w for c in code for w in re.findall(r"[\w.:]+", c) if len(w) > 2 and not w.startswith("_m") and w[-1] != "_"
    ]


OF_THE_HOST = {"xpu/xdnn.h", "xpu/runtime.h"}
# words of the page that are no names of its headers
OTHER_WORDS = {"math.h", "cluster.h", "float", "reinterpret_cast", "__group_shared__", "_rz", "_ru", "_rd", "_ASYNC"}


@pytest.mark.quick("`xtdk.h`", "`xtdk_simd.h`, `xtdk_simd_xpu2.h`")
@pytest.mark.parametrize("row", rows_of("Supported"), ids=lambda row: row[0])
def test_the_names_of_the_page_are_in_its_headers(row: list[str]) -> None:
    headers, told = re.findall(r"`([^`]*)`", row[0]), [w for w in words_of(row[1]) if w not in OTHER_WORDS]
    found = set()
    for architecture in ("", "-D__arch_xpu2__"):
        named = [h if h in OF_THE_HOST else f"xpu/kernel/{h}" for h in headers]
        text = "".join(f'#include "{h}"\n' for h in named)
        command = [cxx(), "-std=c++17", "-E", "-dD", f"-I{INCLUDE}", "-x", "c++", "-", *architecture.split()]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        found |= set(re.findall(r"\w+", done.stdout))
    for word in told:
        name = word.split("::")[-1]
        assert any(name in (f, f[2:].split("_")[0], f[1:].split("_")[0]) or f.startswith(f"{name}_") for f in found), (
            word
        )


def test_what_the_page_says_is_not_modelled_is_an_error() -> None:
    headers = ["xtdk.h", "xtdk_simd.h", "xtdk_math.h", "xtdk_io.h", "xtdk_atomic_sm_xpu3.h", "cluster_primitive.h"]
    names = set(absent(headers, "") + absent(headers, "#define __arch_xpu2__"))
    rows = {word: names for row in rows_of("Not supported") for word in words_of(row[0])}
    told = set(rows) - {"bfloat16x32", "xtdk_atomic_sm_xpu3.h", "vsrlp_int32x16", "_x256_", "_ls", "long", "size_t"}
    assert {"SM2LM", "LM2SM", "svsllp", "exp_rz", "memdump", "mfence_local", "primitive_add"} <= told
    assert sorted(told - names - {"vscatter_", "vscatter", "storea.w", "loada.w", "_ASYNC"}) == []


# ---- The example ----


AXPY = """
import ctypes, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from driver import Xpu
xpu = Xpu(sys.argv[2], sys.argv[3])
for n in (1, 15, 16, 17, 1000, 12 * 64 * 16 + 5, 100003):
    r = np.random.default_rng(n)
    x, y = (r.standard_normal(n).astype(np.float32) for _ in range(2))
    guard = np.full(64, 7, np.float32)
    a, b = xpu.upload(x.tobytes()), xpu.upload(np.concatenate([y, guard]).tobytes())
    xpu.ok(xpu.kernels.axpy_of(ctypes.c_float(1.5), a, b, ctypes.c_longlong(n), 3))
    got = np.frombuffer(xpu.download(b, 4 * (n + 64)), np.float32)
    assert (got[:n] == (1.5 * x.astype(np.float64) + y).astype(np.float32)).all()
    assert (got[n:] == 7).all()
"""


@pytest.mark.quick("checked")
@MODES
def test_example_axpy(runtime: Path, tmp_path: Path, mode: str) -> None:
    wrapper = (
        'extern "C" int axpy_of(float a, const float *x, float *y, long long n, int clusters)\n'
        "{ return axpy<<<clusters, 64>>>(a, x, y, n) + xpu_wait(nullptr); }\n"
    )
    library = build(tmp_path, "axpy", (EXAMPLES / "axpy.xpu").read_text() + wrapper, mode)
    command = [sys.executable, "-c", AXPY, str(HERE), str(runtime), str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(mode), timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
