"""A device with only the CPU backend's kernels for primitives; it refuses every other operator."""

from dataclasses import replace

import isokern
from isokern.backend import HostMemory
from isokern.backend.native import NativeDevice
from isokern.rewriting.target import EXCEPTIONS, primitives


class PrimitivesOnly(NativeDevice):
    """The device `primitives:0`."""

    def variants(self, stem):
        """Return the CPU backend's variants, each of which first refuses operators that are no primitives."""
        return [replace(v, supported=self._gate(v.supported)) for v in super().variants(stem)]

    @staticmethod
    def _gate(supported):
        allowed = {*primitives(), *EXCEPTIONS}

        def answer(plan):
            return supported(plan) if plan.operator.name in allowed else "it is no primitive"

        return answer


def primitives_device():
    """Return a new device, or None without the CPU backend."""
    found = [d for d in isokern.devices() if d.name == "cpu:0"]
    if not found:
        return None
    cpu = found[0]
    return PrimitivesOnly("primitives:0", dict(cpu.properties), HostMemory(), cpu.library, cpu._declined)
