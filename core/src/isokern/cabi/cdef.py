"""The declarations of a native library for cffi: the records and verbs of isokern.h, and isokern_native.h."""

from __future__ import annotations

import re
from pathlib import Path

from . import header

NATIVE = Path(__file__).parent / "include" / "isokern_native.h"


def cdef() -> str:
    """Return the text for `FFI.cdef`, in C that cffi parses; plug-ins may append to it.

    It serves both modes of cffi.
    """
    text = NATIVE.read_text().replace("\\\n", " ")
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.S)
    kept = [line for line in text.splitlines() if not line.startswith(("#", "extern")) and "__attribute__" not in line]
    return "\n".join(["typedef int32_t ik_status;", *header.records(), header.VERBS, *kept, ""])
