"""Compiles the kernels of every level into libisokern_cpu, and the cffi extension that calls it.

Levels are folders: every `kernels/<stem>.c` is built for each level of the architecture with that level's flags, under the symbol
`<stem>__<level>`; `kernels/<level>/<stem>.c` replaces it there and in the levels above. A feature folder holds overrides only.
"""

import os
import platform
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from build_backend import variant_table
from setuptools import setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src/isokern_cpu")
LIBRARY = "libisokern_cpu.so"
KERNELS = SOURCE / "kernels"
NATIVE = SOURCE / "native"
GENERATED = Path("generated")
FLAGS = [
    "-std=c11",
    "-O3",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-fwrapv",
    "-pthread",
    "-g0",  # Python's own flags ask for debug information, which triples the time to compile
]
V4 = ["-march=x86-64-v4", "-mprefer-vector-width=512"]
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


def sources() -> list[tuple[str, int, Path, list[str]]]:
    """(level, priority, file, flags) of everything that is built."""
    stems = {p.stem: p for p in sorted(KERNELS.glob("*.c"))}
    found = []
    for priority, (level, flags) in enumerate(LEVELS.get(MACHINE, {"portable": []}).items()):
        stems |= {p.stem: p for p in sorted((KERNELS / level).glob("*.c"))}
        found += [(level, 10 * priority, path, flags) for path in stems.values()]
    for number, (feature, flags) in enumerate(FEATURES.get(MACHINE, {}).items(), 10):
        found += [(feature, 10 * number, path, flags) for path in sorted((KERNELS / feature).glob("*.c"))]
    return found


class BuildKernels(build_ext):
    """build_ext that first compiles the kernels, in a folder of objects a level, into one shared library."""

    def build_extension(self, ext):
        folder = Path(self.get_ext_fullpath(ext.name)).parent
        folder.mkdir(parents=True, exist_ok=True)
        self.link_kernels(folder)
        ext.library_dirs.append(str(folder))
        ext.depends = [str(p) for p in [*NATIVE.glob("*.h"), *GENERATED.glob("*.h")]]
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            ext.include_dirs.append("stable_abi")
        super().build_extension(ext)

    def copy_extensions_to_source(self):
        """In place (editable): the library goes beside the extension."""
        super().copy_extensions_to_source()
        built = Path(self.build_lib) / "isokern_cpu" / LIBRARY
        if built.exists():
            self.copy_file(str(built), str(SOURCE / LIBRARY))

    def link_kernels(self, folder: Path) -> None:
        extra = os.environ.get("ISOKERN_CPU_CFLAGS", "").split()
        wanted = repr([os.environ.get(name) for name in ("CC", "CFLAGS", "ISOKERN_CPU_CFLAGS")])
        temporary = Path(self.build_temp, sha256(wanted.encode()).hexdigest()[:8])  # other flags make other objects
        temporary.mkdir(parents=True, exist_ok=True)
        built = sources()
        table = temporary / "variants.c"
        table.write_text(variant_table((level, priority, path) for level, priority, path, _ in built))
        jobs = [
            (path, temporary / "runtime", [], [])
            for path in [*sorted(NATIVE.glob("*.c")), GENERATED / "isokern_native.c", table]
        ]
        jobs += [(path, temporary / level, flags, [("IK_LEVEL", level)]) for level, _, path, flags in built]
        newest = max(
            p.stat().st_mtime
            for p in [*KERNELS.rglob("*.h"), *NATIVE.glob("*.h"), *GENERATED.glob("*.h"), Path("setup.py")]
        )

        def compile_one(job):
            path, output, flags, macros = job
            target = output / f"{path.stem}.o"
            if target.exists() and target.stat().st_mtime > max(newest, path.stat().st_mtime):
                return str(target)
            local = temporary / "source" / output.name  # a flat name, so that the object lands in the level's folder
            made = self.compiler.compile(
                [str(path)], output_dir=str(local), macros=macros, include_dirs=[str(KERNELS), str(NATIVE), str(GENERATED)],
                extra_postargs=[*FLAGS, *flags, *extra],
            )  # fmt: skip
            output.mkdir(parents=True, exist_ok=True)
            os.replace(made[0], target)
            return str(target)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, jobs))
        name = ["-install_name", f"@rpath/{LIBRARY}"] if sys.platform == "darwin" else [f"-Wl,-soname,{LIBRARY}"]
        self.compiler.link_shared_object(objects, str(folder / LIBRARY), extra_postargs=["-pthread", *name, *extra])


setup(
    cffi_modules=["ffi.py:builder"],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},  # one wheel for all Pythons: cffi keeps to the stable ABI
)
