"""NVRTC, CUDA's compiler as a library, through ctypes: it needs no GPU, and several threads may compile at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation; PTX is empty where it failed, and in some versions beside a cubin."""

    failed: bool
    log: str
    ptx: str


class Nvrtc:
    """The NVRTC library."""

    def __init__(self, library: Path) -> None:
        for builtins in sorted(library.parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins))  # that of CUDA 13.0 is found only if it is loaded before
        self._library = ctypes.CDLL(str(library))

    def version(self) -> tuple[int, int]:
        """Return CUDA's version, as (13, 0)."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def architectures(self) -> list[int]:
        """Return the supported architectures, as 75 for sm_75."""
        count = ctypes.c_int()
        self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._library.nvrtcGetSupportedArchs(known)
        return sorted(known)

    def compile(self, source: str, options: Sequence[str]) -> Compiled:
        """Compile one source."""
        program = ctypes.c_void_p()
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        assert not self._library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        try:
            failed = self._library.nvrtcCompileProgram(program, len(options), given) != 0
            return Compiled(failed, self._text(program, "ProgramLog"), "" if failed else self._text(program, "PTX"))
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        length = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(length))
        buffer = ctypes.create_string_buffer(max(1, length.value))
        getattr(self._library, f"nvrtcGet{what}")(program, buffer)
        return buffer.value.decode()


@cache
def libraries() -> list[Nvrtc]:
    """Return every NVRTC that NVIDIA's packages brought, the newest first."""
    spec = find_spec("nvidia")
    folders = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    found = [Nvrtc(p) for folder in folders for p in sorted(folder.rglob("libnvrtc.so.*"))]
    return sorted(found, key=Nvrtc.version, reverse=True)


def installed() -> Nvrtc:
    """Return the newest NVRTC of NVIDIA's packages; skip the test without one."""
    if not libraries():
        pytest.skip("no NVRTC: pip install nvidia-cuda-nvrtc")
    return libraries()[0]
