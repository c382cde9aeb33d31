"""Builds the library: what core generates, this backend's kernels and host side, and the table of its kernels."""

from pathlib import Path

from cffi import FFI
from setuptools import setup

from isokern.build_plugin import variant_table
from isokern.cabi.generate import generate

GENERATED = Path("generated")
KERNELS = sorted(Path("kernels").glob("*.c"))

generate(GENERATED)
(GENERATED / "variants.c").write_text(variant_table(("c", 0, path) for path in KERNELS))

ffi = FFI()
ffi.cdef((GENERATED / "isokern_native.cdef").read_text())
ffi.set_source(
    "_isokern_mine",
    '#include "isokern_native.h"',
    sources=[str(path) for path in (*sorted(GENERATED.glob("*.c")), *KERNELS, Path("host.c"))],
    include_dirs=[str(GENERATED)],
    define_macros=[("IK_LEVEL", "c")],
    extra_compile_args=["-std=c11", "-O2", "-ffp-contract=off"],
)
setup(ext_modules=[ffi.distutils_extension("build")])
