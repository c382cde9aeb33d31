"""What cffi is told of a native library: the records and verbs of isokern.h, and isokern_native.h, in the C that cffi parses."""

from __future__ import annotations

import re
from pathlib import Path

from . import header

NATIVE = Path(__file__).parent / "include" / "isokern_native.h"


def cdef() -> str:
    """The text for `FFI.cdef`, by which a plug-in calls its library in either mode of cffi; it adds what is its own."""
    text = NATIVE.read_text().replace("\\\n", " ")
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.S)
    kept = [line for line in text.splitlines() if not line.startswith(("#", "extern")) and "__attribute__" not in line]
    return "\n".join(["typedef int32_t ik_status;", *header.records(), header.VERBS, *kept, ""])
