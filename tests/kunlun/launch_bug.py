"""Launch one kernel of `bugs`, read its output, and print the code; runs in a process of its own, which may crash."""

from __future__ import annotations

import ctypes
import json
import sys

TO_HOST, TO_DEVICE = 0, 1


def main(runtime: str, library: str, stem: str, repaired: bool, case: dict[str, int | str]) -> int:
    """Launch the kernel and read its output; return the first code that is not 0."""
    xpu = ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    kernels = ctypes.CDLL(library)
    n, room = int(case["n"]), int(case["room"])
    given = "device" if repaired else case["given"]

    def device_memory(count: int) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        assert xpu.xpu_malloc(ctypes.byref(pointer), ctypes.c_uint64(4 * count), 0) == 0
        return pointer

    values = (ctypes.c_float * room)(*(float(i % 251) for i in range(room)))
    if given == "other":
        assert xpu.xpu_set_device(1) == 0
    source = device_memory(room)
    assert xpu.xpu_memcpy(source, values, ctypes.c_uint64(4 * room), TO_DEVICE) == 0
    assert xpu.xpu_set_device(0) == 0
    target = device_memory(room)
    if given == "freed":
        assert xpu.xpu_free(source) == 0
    if given == "host":
        source = ctypes.cast(values, ctypes.c_void_p)
    launched = getattr(kernels, f"run_{stem}")(
        int(repaired), int(case["clusters"]), int(case["cores"]), None, source, target, n
    )
    assert launched == 0, launched
    code = int(xpu.xpu_wait(None))
    return code or int(xpu.xpu_memcpy(values, target, ctypes.c_uint64(4 * room), TO_HOST))


if __name__ == "__main__":
    print(main(*sys.argv[1:4], sys.argv[4] == "repaired", json.loads(sys.argv[5])))
