"""A device that has nothing but the primitives: the CPU backend's kernels for these, and a refusal for every other operator."""

from dataclasses import replace

import isokern
from isokern.backend import HostMemory
from isokern.backend.native import NativeDevice
from isokern.rewriting.conversion import EXCEPTIONS, primitives


class PrimitivesOnly(NativeDevice):
    """`primitives:0`."""

    def variants(self, stem):
        """The CPU backend's, each asked whether the operator is a primitive before it is asked itself."""
        return [replace(v, supported=self._gate(v.supported)) for v in super().variants(stem)]

    @staticmethod
    def _gate(supported):
        allowed = {*primitives(), *EXCEPTIONS}

        def answer(plan):
            return supported(plan) if plan.operator.name in allowed else "it is no primitive"

        return answer


def primitives_device():
    """A new one; None without the CPU backend."""
    found = [d for d in isokern.devices() if d.name == "cpu:0"]
    if not found:
        return None
    cpu = found[0]
    return PrimitivesOnly("primitives:0", dict(cpu.properties), HostMemory(), cpu.library, cpu._declined)
