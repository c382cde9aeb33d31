"""A test plug-in whose device has only the digits network's operators, computed by NumPy in float64."""

import numpy as np

from isokern import hookimpl
from isokern.backend import HOOK_VERSION, Device, Event, HostMemory, Kernel, KernelVariant, Stream, Workspace

STEMS = ("conv2d", "elementwise", "pool2d", "rearrange", "gemm")


class NumpyKernel(Kernel):
    workspace = Workspace()

    def __init__(self, plan):
        self.plan = plan

    def launch(self, handles, workspace, workspace_bytes, stream):
        y, *inputs = [None if d is None else _array(h, d) for h, d in zip(handles, self.plan.table, strict=True)]
        op = self.plan.operator
        wide = [None if x is None else x.astype(np.float64) for x in inputs]
        if op.stem == "gemm":
            result = wide[0] @ wide[1] + (0 if len(wide) < 3 or wide[2] is None else wide[2])
        else:
            result = wide[0] if op.stem == "rearrange" else op.reference(*wide, **self.plan.attrs)
        y[...] = result


def _array(address, desc):
    size = desc.dtype.itemsize
    interface = {
        "data": (address + desc.offset * size, False),
        "shape": desc.shape,
        "strides": tuple(s * size for s in desc.strides),
        "typestr": desc.dtype.numpy.str,
        "version": 3,
    }
    return np.asarray(type("_Memory", (), {"__array_interface__": interface})())


class NumpyStream(Stream):
    def synchronize(self):
        pass

    def record(self):
        return Event()

    def begin_capture(self):
        raise NotImplementedError

    def end_capture(self, recording):
        raise NotImplementedError


class NumpyDevice(Device):
    def stream(self):
        return NumpyStream(self)

    def variants(self, stem):
        return [KernelVariant(stem, "numpy", 0, lambda plan: None, NumpyKernel)] if stem in STEMS else []


def _open():
    memory = HostMemory()
    device = NumpyDevice("numpy:0", {"emulated": True}, memory, {"slow": "it is NumPy"})
    memory.attach(device)
    return [device]


@hookimpl
def isokern_register_backends(register):
    register.backend("numpy", _open, hook_version=HOOK_VERSION)
