"""The OpenCL devices of this machine, by platform and index."""

from __future__ import annotations

import importlib.util
import os
import warnings

import pyopencl as cl

from isokern import settings
from isokern.backend import Device, Unavailable
from isokern.status import InvalidArgument

from .devices import ClDevice, asked_group, asks_binaries
from .environment import default_environment
from .pocl import name_processor
from .settings import DEVICES

SHORT = {
    "Portable Computing Language": "pocl",
    "Intel(R) OpenCL": "intel",
    "NVIDIA CUDA": "nvidia",
    "Oclgrind": "oclgrind",
}
POCL = "pocl_binary_distribution"


def short_name(platform: cl.Platform) -> str:
    """Return the word by which a platform is chosen."""
    name: str = platform.name.strip()
    return SHORT.get(name, (name.split() or ["unnamed"])[0].lower())


def advice() -> str:
    """Return what to do where there is no device: install PoCL or, if it is installed, see what it lacks."""
    if importlib.util.find_spec(POCL) is None:
        return "pip install 'isokern-opencl[pocl]' brings one"
    return (
        "PoCL is installed, and POCL_DEBUG=error has it say what it lacks, such as a POCL_CACHE_DIR that it can write"
        " to"
    )


def open_devices() -> list[Device]:
    """Return every device that works, or those that ISOKERN_OPENCL_DEVICES names, in its order.

    `Unavailable` says why there is none.
    """
    asked_group()
    asks_binaries()
    with default_environment():
        return _open()


def _open() -> list[Device]:
    found, refused = _find()
    chosen = _choose(found, refused)
    named: dict[str, str | None] = {}
    for alias, device in list(chosen.items()):
        try:
            named[alias] = name_processor(device)
        except cl.Error as error:
            refused.append(f"{alias}: {error}")
            del chosen[alias]
    contexts = _contexts(list(chosen.values()), refused)
    opened: list[Device] = []
    for alias, device in chosen.items():
        try:
            context = contexts[device]
            opened.append(ClDevice(f"opencl:{len(opened)}", f"opencl:{alias}", context, device, named[alias]))
        except KeyError:
            pass  # its context has reported why
        except (cl.Error, Unavailable) as error:
            refused.append(f"{alias}: {error}")
    if not opened:
        raise Unavailable(f"no OpenCL device: {'; '.join(refused) or 'the platforms have none'}; {advice()}")
    for reason in refused:
        warnings.warn(f"an OpenCL device is left out: {reason}", RuntimeWarning, stacklevel=2)
    return opened


def _find() -> tuple[dict[str, cl.Device], list[str]]:
    """Return PLATFORM:INDEX → device, best first; and the reports of platforms that have none."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        where = os.environ.get("OCL_ICD_VENDORS")
        looked = f" (OCL_ICD_VENDORS={where} is where it is looked for)" if where else ""
        raise Unavailable(f"no OpenCL platform{looked}: {error}; {advice()}") from None
    found: dict[str, cl.Device] = {}
    refused: list[str] = []
    counts: dict[str, int] = {}
    for platform in platforms:
        name = "a platform"
        try:
            name = short_name(platform)
            every = platform.get_devices()
        except cl.Error as error:
            if getattr(error, "code", None) != cl.status_code.DEVICE_NOT_FOUND:
                refused.append(f"{name}: {error}")
            continue
        for device in every:  # two platforms may have one name, as two versions of PoCL do
            index = counts[name] = counts.get(name, -1) + 1
            found[f"{name}:{index}"] = device
    return dict(sorted(found.items(), key=lambda item: _rank(item[1]))), refused


def _rank(device: cl.Device) -> int:
    """Return where a device ranks among all: GPUs, accelerators, processors, and a simulator last."""
    if short_name(device.platform) == "oclgrind":
        return 3
    return 0 if device.type & cl.device_type.GPU else 2 if device.type & cl.device_type.CPU else 1


def _choose(found: dict[str, cl.Device], refused: list[str]) -> dict[str, cl.Device]:
    asked = settings.get(DEVICES)
    if not asked or not found:
        return found
    words = [w.strip() for w in asked.split(",") if w.strip()]
    chosen: dict[str, cl.Device] = {}
    for word in words:
        matched = {n: d for n, d in found.items() if word in (n, n.split(":")[0])}
        if not matched:
            has = "; ".join([", ".join(found) or "no device", *refused, *([advice()] if word == "pocl" else [])])
            raise Unavailable(f"{DEVICES}={asked}: no device is called {word}; this machine has {has}")
        chosen |= matched
    if not chosen:
        raise InvalidArgument("environment", f"{DEVICES}={asked} names no device", allowed=", ".join(found))
    return chosen


def _contexts(devices: list[cl.Device], refused: list[str]) -> dict[cl.Device, cl.Context]:
    """Return device → context.

    The devices of a platform share one, so that they copy to each other; where the platform refuses that, each has its
    own.
    """
    contexts: dict[cl.Device, cl.Context] = {}
    platforms: dict[int, list[cl.Device]] = {}
    for device in devices:
        platforms.setdefault(device.platform.int_ptr, []).append(device)
    for together in platforms.values():
        try:
            contexts |= dict.fromkeys(together, cl.Context(together))
            continue
        except cl.Error:
            pass
        for device in together:
            try:
                contexts[device] = cl.Context([device])
            except cl.Error as error:
                refused.append(f"{device.name.strip()}: {error}")
    return contexts
