"""Print the bytes by which a process grows when it runs a model: `python model_memory.py RUNTIME MODEL.onnx FEEDS.npz`.

What counts are pages of the process's own that are in memory (RssAnon), after the model is loaded and after some runs:
what a runtime needs for values between operators, for its scratch memory, and for feeds and results that it copies.
Address space that nobody has touched does not count, and neither do weights.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RUNS = 4


def own_bytes() -> int:
    """Return the bytes of the process's own pages in memory."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024


def load(runtime: str, path: str, feeds: dict[str, Any]) -> Callable[[], Any]:
    """Return a function that runs the model, whose weights are where the runtime wants them."""
    if runtime == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 2, 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, feeds)
    import isokern.onnx
    from isokern.runtime import compile

    program = compile(isokern.onnx.load(path).built, "cpu:0")
    return lambda: program.run_direct(feeds)


def main(runtime: str, path: str, given: str) -> None:
    """Load the model, run it some times, and print by how much the process has grown."""
    feeds = dict(np.load(given))
    run = load(runtime, path, feeds)
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # what was freed after loading is taken again otherwise
        trim(0)
    before, most = own_bytes(), 0
    for _ in range(RUNS):
        made = run()
        most = max(most, own_bytes())
        del made
    print(most - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
