"""Builds the emulated runtime and the kernels (fast and checked) with g++.

Without a C++ compiler, the wheel has no device, and the plug-in says so.
"""

import fcntl
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from build_backend import variant_table, write_host_files
from ninja import BIN_DIR
from ninja.ninja_syntax import Writer, escape_path
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/isokern_kunlun_sim").resolve()
GENERATED = Path("generated").resolve()
LEVEL = "xpu"
CHECKOUT = Path("../../core/src").is_dir()
KEPT = Path("build").resolve()  # in a checkout: reused by the next build
LIBRARY = "libisokern_kunlun_{}.so"  # for each mode


def _load(name):
    """Load a module that does not import `isokern`, without the package's __init__."""
    spec = importlib.util.spec_from_file_location(f"_kunlun.{name}", PACKAGE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sys.modules["_kunlun"] = type(sys)("_kunlun")
sys.modules["_kunlun"].__path__ = [str(PACKAGE)]
_load("lifetimes")
_load("announcing")
_load("rewriting")
compiling = _load("compiling")


class BuildKernels(build_ext):
    """Builds libxpurt.so and one library of all kernels for each mode, with ninja.

    In a checkout, only what has changed since the last build is compiled.
    """

    def get_ext_filename(self, fullname):
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def build_extension(self, ext):
        cxx = compiling.compiler()
        folder = Path(self.get_ext_fullpath(ext.name)).parent.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sources = sorted((PACKAGE / "kernels").glob("*.xpu"))
        compiling.write_changed(GENERATED / "variants.c", variant_table((LEVEL, 0, path) for path in sources))
        # The user's own kernels need the headers, too, and the vendor's build needs all of it
        shutil.copytree(GENERATED, folder / "generated", dirs_exist_ok=True)
        if cxx is None:
            print("no C++ compiler: the emulated device will be unavailable", file=sys.stderr)
            return
        work = KEPT if CHECKOUT else Path(self.build_temp).resolve()
        work.mkdir(parents=True, exist_ok=True)
        with open(work / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent builds wait for each other
            write_ninja(cxx, work, sources)
            # BIN_DIR is empty if pip builds in isolation; then ninja is found by PATH
            command = os.path.join(BIN_DIR, "ninja")
            if subprocess.run([command, "-f", str(work / "build.ninja")], check=False).returncode != 0:
                raise SystemExit("isokern-kunlun-sim: ninja failed; its messages stand above")
            checked = work / LIBRARY.format("checked")
            listed = Path(f"{checked}.lines")
            if not listed.exists() or listed.stat().st_mtime < checked.stat().st_mtime:
                Path(f"{listed}.partial").write_text(compiling.lines(checked), encoding="utf-8")
                os.replace(f"{listed}.partial", listed)
            for made in (work / "libxpurt.so", work / LIBRARY.format("fast"), checked, listed):
                shutil.copyfile(made, folder / made.name)
        write_host_files(folder, "isokern-kunlun-sim", [LIBRARY.format("fast"), "libxpurt.so"])
        compiling.strip(folder / checked.name)

    def copy_extensions_to_source(self):
        """Copy the built files into the package, for an editable install."""
        shutil.copytree(GENERATED, PACKAGE / "generated", dirs_exist_ok=True)
        for made in Path(self.build_lib, "isokern_kunlun_sim").glob("*.so*"):
            self.copy_file(str(made), str(PACKAGE / made.name))
        write_host_files(PACKAGE, "isokern-kunlun-sim", [LIBRARY.format("fast"), "libxpurt.so"])


def write_ninja(cxx, work, sources):
    """Write the ninja file of the three libraries in `work`.

    The kernels' common headers are precompiled once for each mode.
    """
    with open(work / "build.ninja", "w") as file:
        w = Writer(file, width=1000)
        w.variable("builddir", escape_path(str(work)))
        w.rule(
            "cxx",
            f"{shlex.quote(cxx)} $flags -MD -MF $out.d -c $in -o $out",
            "compile $out",
            depfile="$out.d",
            deps="gcc",
        )
        w.rule("link", "$command", "link $out")

        def words(parts):
            return " ".join(shlex.quote(str(p)) for p in parts).replace("$", "$$")

        def compile_object(source, target, flags, needs=()):
            w.build(str(target), "cxx", str(source), implicit=list(map(str, needs)), variables={"flags": words(flags)})
            return target

        def link(target, objects, command, needed=()):
            w.build(
                str(target),
                "link",
                list(map(str, objects)),
                implicit=list(map(str, needed)),
                variables={"command": words(command)},
            )

        emulation = [f"-I{GENERATED}", f"-I{GENERATED / 'emulation'}"]
        units = [
            compile_object(unit, work / "xpurt" / f"{unit.stem}.o", [*compiling.RUNTIME, *emulation])
            for unit in compiling.runtime_units(work / "xpurt")
        ]
        library = work / "libxpurt.so"
        link(library, units, compiling.runtime_command(cxx, library, units))
        runtime = library
        include = [PACKAGE / "native", GENERATED]
        host = []
        for source in (
            GENERATED / "variants.c",
            *sorted(GENERATED.glob("isokern_*.c")),
            PACKAGE / "native" / "host.cpp",
        ):
            language = ["-x", "c", "-std=c11"] if source.suffix == ".c" else ["-std=c++17"]
            includes = [f"-I{p}" for p in (*include, PACKAGE / "include")]
            flags = [*language, *compiling.COMMON, "-O2", f"-DIK_LEVEL={LEVEL}", *includes]
            host.append(compile_object(source, work / f"{source.stem}.o", flags))
        written = [(source, compiling.kernel_source(source, work)) for source in sources]
        for mode in compiling.MODES:
            (work / mode).mkdir(exist_ok=True)
            common = work / mode / "common.h"
            compiling.write_changed(common, '#include "xpusim/launch.h"\n#include "kernel.h"\n')
            flags = compiling.kernel_flags(sources[0], mode, include)
            parsed = compile_object(common, f"{common}.gch", ["-x", "c++-header", *flags])
            objects = [
                compile_object(
                    cpp,
                    work / mode / f"{cpp.stem}.o",
                    [*compiling.kernel_flags(source, mode, include), "-include", common],
                    [parsed],
                )
                for source, cpp in written
            ]
            library = work / LIBRARY.format(mode)
            made = [*host, *objects]
            link(library, made, compiling.link_command(cxx, library, made, mode, [runtime]), [runtime])


class AnyPython(bdist_wheel):
    """A wheel for every Python: cffi loads the libraries, and nothing in them depends on the version."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("isokern_kunlun_sim.libxpurt", [])],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": AnyPython},
)
