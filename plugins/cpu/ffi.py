"""The cffi extension: the interface of every native plug-in, and the CPU backend's own functions, for Python."""

from pathlib import Path

from cffi import FFI

builder = FFI()
builder.cdef(Path("generated/isokern_native.cdef").read_text())
builder.cdef(
    """
    int32_t ik_threads(void);
    void ik_measure_copy(void *to, const void *from, uint64_t bytes, int32_t streaming);
    double ik_measure_fma(int32_t dtype, int64_t rounds);
    """
)
builder.set_source("isokern_cpu._native", '#include "runtime.h"')  # compiled by the ninja file of kernel_build.py
