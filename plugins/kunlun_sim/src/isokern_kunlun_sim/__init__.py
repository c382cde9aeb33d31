"""The Kunlun XPU backend of Isokern: kernels for the vendor's runtime or an emulated device.

The kernels are written for clusters of cores with local memory.
"""

from __future__ import annotations

import ctypes.util
from pathlib import Path

from isokern.backend import Device, Register, Unavailable, check_fingerprints, hookimpl
from isokern.settings import get as get_setting
from isokern.status import InvalidArgument, IsokernError

from .settings import CHECK, DEVICES, FIX_MFENCE, PROFILE, REPORT, RUNTIME, SEED, SUPPRESS, TIMEOUT

HERE = Path(__file__).parent
EMULATOR = HERE / "libxpurt.so"
CLAIMS = HERE / "claims.txt"
VENDOR_KERNELS = HERE / "libisokern_kunlun_xtdk.so"  # the output of `isokern-xpu build --xtdk`


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the settings and the backends: `kunlun` on the vendor's runtime, `kunlun_sim` on the emulator."""
    register.setting(RUNTIME, "the XPU runtime library: emulator, vendor, or the path of one")
    register.setting(
        CHECK, "1: run the checked kernels on the emulated XPU, which reports what breaks the programming model's rules"
    )
    register.setting(
        SEED,
        "seed of the emulated XPU's schedule of cores and copies; 0 (the default): in order, copies as late as legal",
    )
    register.setting(DEVICES, "how many XPUs are emulated (1)")
    register.setting(
        TIMEOUT, "milliseconds of processor time after which a cluster of the emulated XPU is ended (10000)"
    )
    register.setting(REPORT, "file to which the emulated XPU writes its findings as JSON")
    register.setting(PROFILE, "file to which checked kernels append what they did, a line of JSON a launch")
    register.setting(SUPPRESS, "file of findings that are not told: lines `rule:kernel`, with wildcards")
    register.setting(
        FIX_MFENCE,
        "all: the emulated XPU adds fences as the compiler does with -fix-mfence=all; none (the default)",
    )
    register.backend(
        "kunlun_sim",
        _open_emulated,
        hook_version=1,
        emulated=True,
        libraries=lambda: [get_library(), str(EMULATOR)],
        claims=CLAIMS,
    )
    register.backend("kunlun", _open_vendor, hook_version=1, claims=CLAIMS)


def get_library() -> str:
    """Return the path of the shared library with the C verbs of isokern.h for the emulated XPU.

    A host program without Python links or loads it. It needs the emulated runtime, `libxpurt.so`, which is in the same
    folder. With ISOKERN_XPU_CHECK=1 it is the library of checked kernels.
    """
    return str(HERE / f"libisokern_kunlun_{_mode()}.so")


def _mode() -> str:
    """Return which kernels run; the emulator refuses values other than 0 and 1."""
    return "checked" if get_setting(CHECK) == "1" else "fast"


def _open_emulated() -> list[Device]:
    asked = get_setting(RUNTIME) or "emulator"
    if asked == "vendor":
        raise Unavailable(f"{RUNTIME}=vendor")
    mode, kernels = _mode(), Path(get_library())
    if not EMULATOR.exists() or not kernels.exists():
        raise Unavailable(
            "the plug-in was built without a C++ compiler: install g++ and install isokern-kunlun-sim again"
        )
    chosen = EMULATOR if asked == "emulator" else Path(asked)
    if not chosen.exists():
        allowed = "emulator, vendor, or a library's path"
        raise InvalidArgument("environment", f"{RUNTIME}={asked}: no such file", allowed=allowed)
    return _open("kunlun_sim", str(chosen), kernels, mode)


def _open_vendor() -> list[Device]:
    if (get_setting(RUNTIME) or "vendor") != "vendor":
        raise Unavailable(f"{RUNTIME}={get_setting(RUNTIME)}")
    found = ctypes.util.find_library("xpurt")
    if found is None:
        raise Unavailable("no libxpurt on this machine: the vendor's XRE is not installed")
    if not VENDOR_KERNELS.exists():
        raise Unavailable(f"{found} is here, but no kernels for it: run `isokern-xpu build --xtdk PATH`")
    return _open("kunlun", found, VENDOR_KERNELS, "hardware")


def _open(name: str, runtime_path: str, kernels: Path, mode: str) -> list[Device]:
    """Open the devices of a runtime library with the kernels built for it."""
    from importlib.metadata import version

    from .devices import XpuDevice, native_library
    from .runtime import Runtime

    try:
        runtime = Runtime(runtime_path)
        if mode != "hardware" and runtime_path != str(EMULATOR):
            Runtime(EMULATOR)  # the kernels run on its cores, whichever library the host calls
        library = native_library(kernels, (HERE / "generated" / "isokern_native.cdef").read_text())
        check_fingerprints("kunlun_sim", version("isokern-kunlun-sim"), library.fingerprints)
        count = range(runtime.device_count())
        return [XpuDevice(f"{name}:{i}", i, runtime, library, mode != "hardware", mode) for i in count]
    except OSError as error:
        raise Unavailable(f"{runtime_path} cannot be loaded: {error}") from None
    except IsokernError as error:
        raise Unavailable(error.problem) from None
