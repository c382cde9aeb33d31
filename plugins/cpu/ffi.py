"""The cffi extension: the verbs of isokern.h and the tables of the runtime, for Python."""

import re
import sys
from pathlib import Path

from cffi import FFI

_header = Path("generated/isokern.h").read_text()
_records = re.findall(r"typedef struct ik_(?:tensor|plan|call) \{.*?\} ik_\w+;", _header, re.S)
_verbs = re.findall(r"^(?:ik_status|void|const char|void \*|const char \*)[ *]*ik_\w+\([^;]*\);", _header, re.M)

builder = FFI()
builder.cdef(
    "typedef int32_t ik_status;\n"
    + "\n".join(_records)
    + "\n"
    + "\n".join(_verbs)
    + """
    typedef struct ik_operator { const char *name; uint32_t kind; const char *stem; uint32_t schema_id, attr_bytes; int64_t fingerprint; ...; } ik_operator;
    typedef struct ik_variant { const char *stem; const char *level; int32_t priority; ...; } ik_variant;
    static const ik_variant ik_variants[];
    extern const uint32_t ik_variant_count;
    const ik_operator *ik_operator_list(uint32_t *count);
    const char *ik_level_missing(const char *level);
    int32_t ik_threads(void);
    void ik_measure_copy(void *to, const void *from, uint64_t bytes, int32_t streaming);
    double ik_measure_fma(int32_t dtype, int64_t rounds);
    ik_status ik_stream_begin_capture(void *stream);
    const ik_call *ik_stream_end_capture(void *stream, uint64_t *count);
    void ik_calls_free(const ik_call *calls, uint64_t count);
    ik_status ik_call_packed(const ik_plan *plan, const char *data, void *workspace, uint64_t workspace_bytes, void *stream);
    ik_status ik_run_one(const ik_call *call);
    """
)
builder.set_source(
    "isokern_cpu._native",
    '#include "runtime.h"',
    include_dirs=["src/isokern_cpu/native", "generated"],
    define_macros=[("Py_LIMITED_API", "0x030a0000")],  # one wheel for Python 3.10 and later
    libraries=["isokern_cpu"],
    extra_link_args=["-Wl,-rpath,@loader_path" if sys.platform == "darwin" else "-Wl,-rpath,$ORIGIN"],
)
