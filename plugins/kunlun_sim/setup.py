"""Builds the emulated runtime and the kernels (fast and checked) with g++. Without a C++ compiler the wheel has no device and says so."""

import importlib.util
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build_backend import variant_table
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/isokern_kunlun_sim").resolve()
GENERATED = Path("generated").resolve()
LEVEL = "xpu"


def _load(name):
    """A module of the package that stands alone, without the package's __init__."""
    spec = importlib.util.spec_from_file_location(f"_kunlun.{name}", PACKAGE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sys.modules["_kunlun"] = type(sys)("_kunlun")
sys.modules["_kunlun"].__path__ = [str(PACKAGE)]
_load("rewriting")
compiling = _load("compiling")


class BuildKernels(build_ext):
    """Makes libxpurt.so and one library of all kernels a mode."""

    def get_ext_filename(self, fullname):
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def build_extension(self, ext):
        cxx = compiling.compiler()
        folder = Path(self.get_ext_fullpath(ext.name)).parent.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sources = sorted((PACKAGE / "kernels").glob("*.xpu"))
        variants = GENERATED / "variants.c"
        variants.write_text(variant_table((LEVEL, 0, path) for path in sources))
        # Kernels of one's own need the headers, too, and the vendor's build all of it
        shutil.copytree(GENERATED, folder / "generated", dirs_exist_ok=True)
        if cxx is None:
            print("no C++ compiler: the emulated device will be unavailable", file=sys.stderr)
            return
        work = Path(self.build_temp).resolve()
        built = compiling.runtime(cxx, work / "xpurt", GENERATED / "emulation")
        self.copy_file(str(built), str(folder / "libxpurt.so"))
        include = [PACKAGE / "native", GENERATED]
        (work / "host").mkdir(exist_ok=True)
        host = []
        for source in (variants, GENERATED / "isokern_native.c", PACKAGE / "native" / "host.cpp"):
            target = work / "host" / f"{source.stem}.o"
            language = ["-x", "c", "-std=c11"] if source.suffix == ".c" else ["-std=c++17"]
            includes = [f"-I{p}" for p in (PACKAGE / "include", *include)]
            compiling.run(
                [cxx, *language, *compiling.COMMON, "-O2", f"-DIK_LEVEL={LEVEL}", *includes, "-c", source, "-o", target]
            )
            host.append(target)
        jobs = [(source, mode) for mode in compiling.MODES for source in sources]
        with ThreadPoolExecutor(compiling.processors()) as pool:
            objects = list(pool.map(lambda j: (j[1], compiling.kernel_object(cxx, j[0], j[1], work, include)), jobs))
        for mode in compiling.MODES:
            compiling.library(
                cxx, folder / f"libisokern_kunlun_{mode}.so", [*host, *(o for m, o in objects if m == mode)], mode
            )

    def copy_extensions_to_source(self):
        """In place (editable): what was made goes beside the package's modules."""
        shutil.copytree(GENERATED, PACKAGE / "generated", dirs_exist_ok=True)
        for made in Path(self.build_lib, "isokern_kunlun_sim").glob("*.so*"):
            self.copy_file(str(made), str(PACKAGE / made.name))


class AnyPython(bdist_wheel):
    """The libraries are opened by cffi: nothing in them depends on a Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("isokern_kunlun_sim.libxpurt", [])],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": AnyPython},
)
