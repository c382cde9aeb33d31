"""What the library of kernels is built of: levels, files and compiler flags. setup.py builds by it, and tests read it; it stands alone.

Levels are folders: every `kernels/<stem>.c` is built for each level of the architecture with that level's flags, under the symbol
`<stem>__<level>`; `kernels/<level>/<stem>.c` replaces it there and in the levels above. A feature folder holds overrides only.
"""

import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parent
KERNELS = Path("src/isokern_cpu/kernels")  # below ROOT, as all paths here
NATIVE = Path("src/isokern_cpu/native")
GENERATED = Path("generated")
SETTING = "ISOKERN_CPU_LEVELS"
NUMERICS = ["-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno", "-fwrapv"]
FLAGS = [
    "-std=c11",
    # The passes of -O3 that a kernel was measured to gain from. All of them take twice the time to compile; what short loops of constant
    # length gain from unrolling is written at the loop.
    "-O2",
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-funswitch-loops",
    "-fsplit-loops",
    "-Wno-ignored-optimization-argument",  # clang does the same by itself at -O2, and warns of names that are gcc's
    "-Wall",
    "-Wextra",
    "-Werror",
    *NUMERICS,
    "-pthread",
    "-g0",  # Python's own flags ask for debug information, which triples the time to compile
]
V4 = ["-march=x86-64-v4", "-mprefer-vector-width=512"]
OF_STEM = {
    # Many tiles whose loops have one expression a register: looking for those in common takes gcc a third of the time, and finds none
    **{stem: ["-fno-gcse"] for stem in ("conv2d", "gemm", "generic")},
    # Quick to compile, and without the other passes of -O3 some of their calls took a tenth longer
    **{
        stem: ["-O3"]
        for stem in (
            "add_rms_norm",
            "batch_norm",
            "causal_softmax",
            "layer_norm",
            "quantize",
            "random_sample",
            "rms_norm",
        )
    },
}
LEVELS = {  # architecture -> level -> flags, worst first; each takes the overrides of those before it
    "x86_64": {"portable": [], "x86_v3": ["-march=x86-64-v3"], "x86_v4": V4},
    "aarch64": {"portable": [], "neon": []},
}
FEATURES = {  # overrides only, above every level; worst first
    "x86_64": {
        "avx512_vnni": [*V4, "-mavx512vnni"],
        "avx512_bf16": [*V4, "-mavx512bf16"],
        "amx_bf16": [*V4, "-mamx-tile", "-mamx-bf16"],
    },
}
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
OWN_LEVELS = LEVELS.get(MACHINE, {"portable": []})
OWN_FEATURES = FEATURES.get(MACHINE, {})
PROBE = '#include <stdio.h>\n#include "levels.c"\nint main(int n, char **names)\n{\n    for (int i = 1; i < n; i++)\n        puts(ik_level_missing(names[i]) == NULL ? "1" : "0");\n}\n'


def sources(names: Collection[str] | None = None) -> list[tuple[str, int, Path, list[str]]]:
    """(level, priority, file, flags) of everything that is built for these levels and features, by default all of them."""
    stems = {p.stem: p for p in _files("*.c")}
    found = []
    for priority, (level, flags) in enumerate(OWN_LEVELS.items()):
        stems |= {p.stem: p for p in _files(f"{level}/*.c")}
        found += [(level, 10 * priority, path, flags) for path in stems.values()]
    for number, (feature, flags) in enumerate(OWN_FEATURES.items(), 10):
        found += [(feature, 10 * number, path, flags) for path in _files(f"{feature}/*.c")]
    return [
        (level, priority, path, [*flags, *OF_STEM.get(path.stem, [])])
        for level, priority, path, flags in found
        if names is None or level in names
    ]


def _files(pattern: str) -> list[Path]:
    return [p.relative_to(ROOT) for p in sorted((ROOT / KERNELS).glob(pattern))]


def compiler() -> list[str]:
    """The command of the C compiler; where there is none the build ends with one line that says so."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(command[0]) is None:
        raise SystemExit(
            f"isokern-cpu is built from C, and no C compiler `{command[0]}` is found: install one (Debian, Ubuntu: apt install gcc libc6-dev;"
            " Fedora: dnf install gcc; macOS: xcode-select --install), or set CC to yours"
        )
    return command


def levels_to_build() -> list[str]:
    """The levels and features that ISOKERN_CPU_LEVELS asks for; where it is not set, what this machine runs best."""
    known, words = [*OWN_LEVELS, *OWN_FEATURES], asked_levels()
    wanted = set(known if "all" in words else words)
    if "native" in words:
        wanted |= native_levels()
    return [name for name in known if name in wanted]


def asked_levels() -> list[str]:
    """The words of ISOKERN_CPU_LEVELS; one that is none, or features without a level, end the build with one line."""
    known, given = [*OWN_LEVELS, *OWN_FEATURES], os.environ.get(SETTING, "")
    words = [w.strip() for w in given.split(",") if w.strip()] or ["native"]
    for word in words:
        if word not in ("all", "native", *known):
            raise SystemExit(
                f"{SETTING}={given}: no level is called {word!r}; allowed are all, native (what this machine runs best) and, of {MACHINE},"
                f" {', '.join(known)}, separated by commas"
            )
    if not {"all", "native", *OWN_LEVELS} & set(words):
        raise SystemExit(
            f"{SETTING}={given}: a feature replaces some kernels of a level; add one of {', '.join(OWN_LEVELS)}"
        )
    return words


def check() -> None:
    """End the build with one line where this machine or the environment lacks what it takes."""
    compiler()
    asked_levels()


def native_levels() -> set[str]:
    """The best level that the processor here has, and all its features, by the function of native/levels.c that the library asks when it runs."""
    known = [*OWN_LEVELS, *OWN_FEATURES]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "probe.c"), Path(folder, "probe")
        source.write_text(PROBE)
        command = [
            *compiler(),
            "-std=c11",
            *(f"-I{ROOT / p}" for p in (NATIVE, GENERATED)),
            str(source),
            "-o",
            str(program),
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise SystemExit(
                f"the C compiler cannot build a program (are libc's headers there?): {shlex.join(command)}\n{made.stderr}"
            )
        try:
            answers = subprocess.run([str(program), *known], capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(
                f"what was compiled does not run here ({error}), so the levels are not known: set {SETTING} to some of {', '.join(known)}"
            ) from None
    has = [name for name, answer in zip(known, answers, strict=True) if answer == "1"]
    return {[n for n in has if n in OWN_LEVELS][-1], *(n for n in has if n in OWN_FEATURES)}
