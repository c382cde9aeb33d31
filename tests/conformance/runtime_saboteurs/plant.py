"""How a fault is planted: a part of the sound device is replaced, and the requirement that must find it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from threaded_device import ThreadedBuffer, ThreadedDevice, ThreadedKernel, ThreadedMemory, ThreadedStream

Device = type[ThreadedDevice]
SABOTEURS: dict[str, tuple[Device, str]] = {}  # name → the class of its device, and the requirement that finds it
KEPT: list[Any] = []  # what a leak keeps


def _plant(name: str, by: str, doc: str | None, **parts: Any) -> None:
    """Register a device that has other parts than the sound one."""
    SABOTEURS[name.lower()] = type(name, (ThreadedDevice,), {**parts, "__doc__": doc}), f"runtime/{by}"


def device(by: str) -> Callable[[Device], Device]:
    """Register a device class, and the requirement that finds it."""

    def register(cls: Device) -> Device:
        SABOTEURS[cls.__name__.lower()] = cls, f"runtime/{by}"
        return cls

    return register


def kernel(by: str) -> Callable[[type[ThreadedKernel]], type[ThreadedKernel]]:
    """Register a device with another class of kernels."""

    def register(cls: type[ThreadedKernel]) -> type[ThreadedKernel]:
        _plant(cls.__name__, by, cls.__doc__, kernel=cls)
        return cls

    return register


def stream(by: str) -> Callable[[type[ThreadedStream]], type[ThreadedStream]]:
    """Register a device with another class of streams."""

    def register(cls: type[ThreadedStream]) -> type[ThreadedStream]:
        _plant(cls.__name__, by, cls.__doc__, stream_type=cls)
        return cls

    return register


def memory(by: str) -> Callable[[type[ThreadedMemory]], type[ThreadedMemory]]:
    """Register a device with another class of memory."""

    def register(cls: type[ThreadedMemory]) -> type[ThreadedMemory]:
        _plant(cls.__name__, by, cls.__doc__, memory_type=cls)
        return cls

    return register


def buffer(by: str) -> Callable[[type[ThreadedBuffer]], type[ThreadedBuffer]]:
    """Register a device with another class of buffers."""

    def register(cls: type[ThreadedBuffer]) -> type[ThreadedBuffer]:
        memory(by)(type(cls.__name__, (ThreadedMemory,), {"buffer": cls, "__doc__": cls.__doc__}))
        return cls

    return register
