"""What the library of kernels is built from (levels, files, compiler flags), and the ninja file that builds it.

setup.py builds by it, and tests read it.

Levels are folders: every `kernels/<stem>.c` is built for each level of the architecture with that level's flags, under
the symbol `<stem>__<level>`; `kernels/<level>/<stem>.c` replaces it there and in the levels above. A feature folder has
overrides only.

An editable install keeps the ninja file, with the settings it was made from, and rebuilds what was edited when the
plug-in is imported. In a checkout this begins with the declarations of core: `generated/` is made again when a module
that it is generated from has changed.
"""

import hashlib
import json
import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parent
KERNELS = Path("src/isokern_cpu/kernels")  # relative to ROOT, as all paths here
NATIVE = Path("src/isokern_cpu/native")
CALLS = Path("src/isokern_cpu/calls")  # an extension of its own
GENERATED = Path("generated")
CORE = ROOT.parents[1] / "core" / "src"  # exists only in a checkout
SETTING = "ISOKERN_CPU_LEVELS"
NUMERICS = ["-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno", "-fwrapv"]
FLAGS = [
    "-std=c11",
    # -O2 and those passes of -O3 from which a kernel was measured to gain; with all of them compiling takes twice as
    # long. Where unrolling short loops of constant length gains, the loop has a pragma.
    "-O2",
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-funswitch-loops",
    "-fsplit-loops",
    "-Wall",
    "-Wextra",
    "-Werror",
    *NUMERICS,
    "-pthread",
    "-g0",  # Python's own flags ask for debug information, which triples the time to compile
]
V4 = ["-march=x86-64-v4", "-mprefer-vector-width=512"]
OF_STEM = {
    # Many tiles whose loops have one expression per register: gcc spends a third of the time looking for common
    # subexpressions, and finds none
    **{stem: ["-fno-gcse"] for stem in ("conv2d", "conv_integer", "gemm", "generic", "matmul_integer")},
    # Quick to compile; without the other passes of -O3 some of their calls took a tenth longer
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
# The number of objects that a kernel is compiled into (IK_IN_PART in kernel.h), so that a rebuild after an edit uses
# several processors; 1 for all others
PARTS = {"conv2d": 3, "elementwise": 3, "gemm": 3, "generic": 3}
# Kernels that are compiled in one object, since they have the same loops: these take nearly all of the time
TOGETHER = {"products": ("matmul_transposed", "matmul_id")}
LEVELS = {  # architecture -> level -> flags, worst first; each inherits the overrides of those before it
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
PROBE = (
    '#include <stdio.h>\n#include "levels.c"\nint main(int n, char **names)\n{\n    for (int i = 1; i < n; i++)\n'
    '        puts(ik_level_missing(names[i]) == NULL ? "1" : "0");\n}\n'
)


def sources(names: Collection[str] | None = None) -> list[tuple[str, int, Path, list[str]]]:
    """Return (level, priority, file, flags) of all that is built for these levels and features, by default all."""
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
    """Return the command of the C compiler; where there is none the build ends with one line that says so."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(command[0]) is None:
        raise SystemExit(
            f"isokern-cpu is built from C, and no C compiler `{command[0]}` is found: install one (Debian, Ubuntu: apt"
            " install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install), or set CC to yours"
        )
    return command


def levels_to_build() -> list[str]:
    """Return the levels and features that ISOKERN_CPU_LEVELS asks for, by default those this machine runs best."""
    known, words = [*OWN_LEVELS, *OWN_FEATURES], asked_levels()
    wanted = set(known if "all" in words else words)
    if "native" in words:
        wanted |= native_levels()
    return [name for name in known if name in wanted]


def is_clang() -> bool:
    """Return whether the compiler is clang rather than gcc."""
    return "clang" in subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=False).stdout


def asked_levels() -> list[str]:
    """Return the words of ISOKERN_CPU_LEVELS; an unknown word, or features without a level, end the build."""
    known, given = [*OWN_LEVELS, *OWN_FEATURES], os.environ.get(SETTING, "")
    words = [w.strip() for w in given.split(",") if w.strip()] or ["native"]
    for word in words:
        if word not in ("all", "native", *known):
            raise SystemExit(
                f"{SETTING}={given}: no level is called {word!r}; allowed are all, native (what this machine runs best)"
                f" and, of {MACHINE}, {', '.join(known)}, separated by commas"
            )
    if not {"all", "native", *OWN_LEVELS} & set(words):
        raise SystemExit(
            f"{SETTING}={given}: a feature replaces some kernels of a level; add one of {', '.join(OWN_LEVELS)}"
        )
    return words


def check() -> None:
    """End the build with one line where this machine or the environment lacks something that the build needs."""
    compiler()
    asked_levels()


def native_levels() -> set[str]:
    """Return the best level that this machine's processor has, and all its features.

    It calls the function of native/levels.c that the library calls at run time.
    """
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
                f"the C compiler cannot build a program (are libc's headers there?): {shlex.join(command)}\n"
                f"{made.stderr}"
            )
        try:
            answers = subprocess.run([str(program), *known], capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(
                f"what was compiled does not run here ({error}), so the levels are not known: set {SETTING} to some of"
                f" {', '.join(known)}"
            ) from None
    has = [name for name, answer in zip(known, answers, strict=True) if answer == "1"]
    return {[n for n in has if n in OWN_LEVELS][-1], *(n for n in has if n in OWN_FEATURES)}


def wheel_folder(temporary: Path) -> Path:
    """Return the folder of a wheel's object files.

    In a checkout it is next to the sources, under a hash of all settings of the compilation, so that no build repeats
    another's work.
    """
    if not CORE.is_dir():
        return temporary
    return Path("build", hashlib.sha256(repr(_read_levels()).encode()).hexdigest()[:8])


def _read_levels() -> dict[str, list[str]]:
    """Return the settings that the environment asks for."""
    clang = is_clang()
    return {
        "levels": levels_to_build(),
        "precompiled": [] if clang else list(OWN_LEVELS),
        "cc": compiler(),
        # Else clang warns about gcc's names for passes that clang runs at -O2 anyway
        "cflags": (["-Wno-ignored-optimization-argument"] if clang else [])
        + shlex.split(os.environ.get("CFLAGS", ""))
        + shlex.split(os.environ.get("ISOKERN_CPU_CFLAGS", "")),
        "ldflags": shlex.split(os.environ.get("LDFLAGS", "")),
    }


def configure(folder: Path, target: Path, *, editable: bool) -> None:
    """Choose what to build from the environment, and write `folder`'s ninja file for the two libraries in `target`."""
    settings = {"root": str(ROOT), "folder": str(folder), "target": str(target), "editable": editable, **_read_levels()}
    (folder / "settings.json").write_text(json.dumps(settings, indent=1))
    write_ninja(folder)


def write_ninja(folder: Path) -> None:
    """Write the ninja file for the settings in `folder` and the kernels that exist now."""
    from ninja.ninja_syntax import Writer, escape_path

    settings = json.loads((folder / "settings.json").read_text())
    target, built = Path(settings["target"]), sources(settings["levels"])
    library, extension, calls = (target / name for name in ("libisokern_cpu.so", "_native.abi3.so", "_calls.abi3.so"))
    darwin = sys.platform == "darwin"
    name = ["-install_name", f"@rpath/{library.name}"] if darwin else [f"-Wl,-soname,{library.name}"]
    rpath = "-Wl,-rpath,@loader_path" if darwin else "-Wl,-rpath,$ORIGIN"
    include = [f"-I{p}" for p in (KERNELS, NATIVE, GENERATED)]
    python_h = (
        sysconfig.get_path("include") if Path(sysconfig.get_path("include"), "Python.h").exists() else "stable_abi"
    )
    bundle = ["-bundle", "-undefined", "dynamic_lookup"] if darwin else ["-shared"]

    def words(*parts: object) -> str:
        """Quote a shell command for a ninja file."""
        return " ".join(shlex.quote(str(p)) for p in parts).replace("$", "$$")

    def step(*parts: object) -> str:
        # The Python that starts the build: the one that wrote this file may have existed only during the installation
        return f'"$${{PYTHON:-{sys.executable}}}" ' + words(ROOT / "kernel_build.py", folder, *parts)

    with open(folder / "build.ninja", "w") as file:
        w = Writer(file, width=1000)
        w.variable("builddir", escape_path(str(folder)))
        cc = words(*settings["cc"])
        w.rule("cc", f"{cc} -MD -MF $out.d $flags -c $in -o $out", "compile $out", depfile="$out.d", deps="gcc")
        w.rule(  # a compiler that refuses the precompiled header reads the copy
            "header",
            f"cp $in $copy && {cc} -MD -MF $out.d $flags -x c-header $in -o $out",
            "precompile $out",
            depfile="$out.d",
            deps="gcc",
        )
        w.rule("link", f"{cc} $flags $in $libs -o $out", "link $out")
        w.rule("again", step("ninja"), "write $out", generator=True, restat=True)
        w.rule("make", "$command", "make $out", restat=True)
        w.build(
            str(folder / "build.ninja"),
            "again",
            implicit=["kernel_build.py", str(folder / "settings.json"), *map(str, _folders())],
        )
        mark = str(GENERATED / "isokern_abi.h")  # the output that the depfile names has to be the first
        host = GENERATED / "host_device.c"
        derived = [str(p) for p in sorted({host, *GENERATED.rglob("*")}) if p.suffix in (".h", ".c", ".cdef")]
        headers = [mark, *(name for name in derived if name != mark)]
        if settings["editable"] and CORE.is_dir():
            w.rule(
                "derive",
                step("derive"),
                "make what core's declarations say",
                restat=True,
                depfile=str(folder / "generated.d"),
            )
            w.build(headers, "derive", implicit=["kernel_build.py"])
        table, native = folder / "variants.c", folder / "_native.c"
        kernels = [str(path) for _, _, path, _ in built]
        w.build(str(table), "make", implicit=kernels, variables={"command": step("variants")})
        cdef = [str(GENERATED / "isokern_native.cdef"), "ffi.py"]
        w.build(str(native), "make", implicit=cdef, variables={"command": step("extension")})

        def compile_to(
            output: Path, source: Path, *flags: object, rule: str = "cc", needs: Collection[str] = (), **variables: str
        ) -> str:
            # The compiler flags of this Python are not used: the libraries are compiled with these flags only
            variables["flags"] = words("-fPIC", *FLAGS, *flags, *include, *settings["cflags"])
            w.build(str(output), rule, str(source), implicit=list(needs), order_only=headers, variables=variables)
            return str(output)

        runtime = [*sorted(NATIVE.glob("*.c")), *sorted(GENERATED.glob("isokern_*.c")), host, table]
        objects = [compile_to(folder / "runtime" / f"{path.stem}.o", path) for path in runtime]
        # gcc takes a quarter of a second to read its header of vector instructions, half the time of a small kernel, so
        # the kernels of a level share a precompiled one. Not those with their own flags, for which gcc would silently
        # use the header's flags instead
        read = {
            level: compile_to(
                folder / level / "vectors.h.gch",
                KERNELS / "vectors.h",
                *flags,
                rule="header",
                copy=words(folder / level / "vectors.h"),
            )
            for level, flags in OWN_LEVELS.items()
            if level in settings["levels"] and level in settings["precompiled"]
        }
        for level, _, path, flags in units(built, folder):
            needs = [read[level]] if level in read and path.stem not in OF_STEM else []
            told = [*flags, f"-DIK_LEVEL={level}", *(["-include", folder / level / "vectors.h"] if needs else [])]
            parts = PARTS.get(path.stem, 1) if path.parent == KERNELS else 1
            for part in range(parts):
                output, numbered = (
                    (f"{path.stem}.o", []) if parts == 1 else (f"{path.stem}.{part}.o", [f"-DIK_PART={part}"])
                )
                objects.append(compile_to(folder / level / output, path, *told, *numbered, needs=needs))
        linked = [*settings["ldflags"], *settings["cflags"]]
        w.build(str(library), "link", objects, variables={"flags": words("-shared", "-pthread", *name, *linked)})
        python = ["-DPy_LIMITED_API=0x030a0000", "-isystem", python_h]
        glue = compile_to(folder / "_native.o", native, *python, "-w")  # warnings in cffi's code are not ours to fix
        w.build(
            str(extension),
            "link",
            glue,
            implicit=str(library),
            variables={"flags": words(*bundle, *linked), "libs": words(f"-L{target}", "-lisokern_cpu", rpath)},
        )
        parts = [
            compile_to(folder / "calls" / f"{p.stem}.o", p, *python, "-fvisibility=hidden")
            for p in sorted(CALLS.glob("*.c"))
        ]
        w.build(str(calls), "link", parts, variables={"flags": words(*bundle, *linked), "libs": words(rpath)})


def units(built: list[tuple[str, int, Path, list[str]]], folder: Path) -> list[tuple[str, int, Path, list[str]]]:
    """Return what is compiled for `built`: the same files, but for one in `folder` that includes those of TOGETHER."""
    by_place = {(level, path.parent, path.stem): flags for level, _, path, flags in built}
    found, made = [], set()
    for level, priority, path, flags in built:
        name, stems = next(((n, s) for n, s in TOGETHER.items() if path.stem in s), ("", ()))
        if [by_place.get((level, path.parent, stem)) for stem in stems] != [flags] * len(stems) or not stems:
            found.append((level, priority, path, flags))
        elif (level, name) not in made:
            made.add((level, name))
            unit = folder / level / f"{name}.c"
            unit.parent.mkdir(parents=True, exist_ok=True)
            relative = path.parent.relative_to(KERNELS)
            write_changed(unit, "".join(f'#include "{(relative / stem).as_posix()}.c"\n' for stem in stems))
            found.append((level, priority, unit, flags))
    return found


def _folders() -> list[Path]:
    """Return the folders where an added or deleted file makes another ninja file necessary."""
    levels = (KERNELS / name for name in (*OWN_LEVELS, *OWN_FEATURES))
    return [p for p in [KERNELS, NATIVE, CALLS, GENERATED / "operators", *levels] if p.is_dir()]


def main(folder: Path, step: str) -> None:
    """Run a step of the ninja file, in ROOT."""
    settings = json.loads((folder / "settings.json").read_text())
    if step == "ninja":
        write_ninja(folder)
    elif step == "derive":
        sys.path.insert(0, str(CORE))
        from isokern.cabi.generate import generate, write_depfile

        generate(GENERATED)
        write_depfile(folder / "generated.d", str(GENERATED / "isokern_abi.h"))
    elif step == "variants":
        from build_backend import variant_table

        write_changed(folder / "variants.c", variant_table(row[:3] for row in sources(settings["levels"])))
    elif step == "extension":
        runpy.run_path("ffi.py")["builder"].emit_c_code(str(folder / "_native.c"))


def write_changed(path: Path, text: str) -> None:
    """Write a file only where its text changes, so that nothing is rebuilt for it otherwise."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
