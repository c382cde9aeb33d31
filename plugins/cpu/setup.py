"""Compiles the kernels of the levels that are asked for into libisokern_cpu, and the cffi extension that calls it."""

import os
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from build_backend import variant_table
from kernel_build import FLAGS, GENERATED, KERNELS, NATIVE, SETTING, levels_to_build, sources
from setuptools import setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src/isokern_cpu")
LIBRARY = "libisokern_cpu.so"


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
        levels = levels_to_build()
        print(f"building the levels {', '.join(levels)} ({SETTING})", flush=True)
        wanted = repr([levels, *(os.environ.get(name) for name in ("CC", "CFLAGS", "ISOKERN_CPU_CFLAGS"))])
        temporary = Path(self.build_temp, sha256(wanted.encode()).hexdigest()[:8])  # other flags make other objects
        temporary.mkdir(parents=True, exist_ok=True)
        built = sources(levels)
        table = temporary / "variants.c"
        table.write_text(variant_table((level, priority, path) for level, priority, path, _ in built))
        jobs = [
            (path, temporary / "runtime", [], [])
            for path in [*sorted(NATIVE.glob("*.c")), GENERATED / "isokern_native.c", table]
        ]
        jobs += [(path, temporary / level, flags, [("IK_LEVEL", level)]) for level, _, path, flags in built]
        newest = max(
            p.stat().st_mtime
            for p in [
                *KERNELS.rglob("*.h"),
                *NATIVE.glob("*.h"),
                *GENERATED.glob("*.h"),
                Path("setup.py"),
                Path("kernel_build.py"),
            ]
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
