"""Call operators of many families in several floating-point environments; test_environment.py runs this.

`hostile_caller.py LIBRARY DEVICE ENVIRONMENT [LABEL ...]` opens the device in the environment and prints JSON: for each
case, or each of those labels, and each environment of its caller, a digest of the results, and the calls that changed
the caller's environment.
"""

import ctypes
import hashlib
import json
import sys

import numpy as np

import isokern

ENVIRONMENTS = ("default", "up", "down", "zero", "flush", "traps", "all")
LARGE = 1 << 19  # elements, enough for a thread pool to take part


def numbers(*shape, bits=18, seed=0):
    """Return F32 numbers that are exact whatever the environment in which they are computed."""
    drawn = np.random.default_rng(seed).integers(-(1 << bits), 1 << bits, shape)
    return np.ldexp(drawn.astype(np.float32), 2 - bits)


def subnormal(*shape):
    """Return the same numbers, but every other one is subnormal."""
    x = numbers(*shape)
    x.reshape(-1).view(np.uint32)[::2] %= 1 << 22
    return x


def cases():
    """Return label → (operator, inputs, attributes, free types), for many families."""
    x, m, w = numbers(LARGE), numbers(9, 160), numbers(160, seed=1)
    q, k, v = (numbers(1, 6, 4, 32, seed=s) for s in range(3))
    half = {"x": numbers(20, 48, bits=8).astype(np.float16), "w": numbers(48, 36, bits=8, seed=1).astype(np.float16)}
    body = {"maps": "ab,b->ab", "body": "(x0 * 0.3 + x1) / (1 + x0 * x0)"}
    return {
        "add": ("add", [x, numbers(LARGE, seed=1)], {}, {}),
        "mul, subnormal": ("mul", [subnormal(4097), numbers(4097, seed=1)], {}, {}),
        "round": ("round", [x], {}, {}),
        "reciprocal, of zeros too": ("reciprocal", [np.resize(np.float32([0, -0.0, 3, 7e-45, 1e38]), 1001)], {}, {}),
        "log, of negative numbers too": ("log", [x], {}, {}),
        "gelu": ("gelu", [x], {}, {}),
        "softmax": ("softmax", [m], {}, {}),
        "layer_norm": ("layer_norm", [m, w, numbers(160, seed=2)], {}, {}),
        "reduce_mean": ("reduce_mean", [m], {"axes": (0,)}, {}),
        "matmul": ("matmul", [numbers(70, 65), numbers(65, 130, seed=1)], {}, {}),
        "matmul, F16": ("matmul", [half["x"], half["w"]], {}, {}),
        "conv2d": ("conv2d", [numbers(1, 3, 9, 9), numbers(5, 3, 3, 3, seed=1)], {}, {}),
        "attention": ("attention", [q, k, v], {"causal": True}, {}),
        "cast": ("cast", [m], {}, {"T": "F16"}),
        "quantize": ("quantize", [m], {}, {"Q": "Q8_0"}),
        "generic": ("generic", [None, m, w], body, {"U": "F32"}),
    }


class Library:
    """The functions of environments.c."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        self.take_on, self.registers = library.environment_take_on, library.environment_registers
        self.take_on.restype = self.registers.restype = ctypes.c_uint32
        self.take_on.argtypes = [ctypes.c_char_p]


def main(path, name, opened_in, *labels):
    """Run all calls, or those of some labels, and print the result."""
    caller, every = Library(path), cases()
    given = {label: every[label] for label in labels or every}
    caller.take_on(opened_in.encode())
    device = isokern.device(name)
    for limit in device.limits(1 << 20, isokern.F32):
        limit.run()  # may start threads
    digests, kept = {}, []
    for label, (operator, arrays, attrs, types) in given.items():
        inputs = [None if a is None else isokern.tensor(a, a.dtype, device=device) for a in arrays]
        descs = [None if x is None else x.desc for x in inputs]
        descriptor = isokern.create(operator, descs, device=device, dtypes=types, **attrs)
        y = isokern.empty(descriptor.outputs[0].shape, descriptor.outputs[0].dtype, device=device)
        need = descriptor.workspace
        space = device.memory.alloc(need.size, kind=need.kind, alignment=need.alignment) if need.size else None
        digests[label] = {}
        for environment in ENVIRONMENTS:
            y.raw.copy_from(np.full(y.raw.shape, 0xAA, np.uint8))
            stream = device.stream()
            call, encoded = descriptor.bind(inputs, y, workspace=space, stream=stream), environment.encode()
            stream.record()  # may start the stream's thread
            before = caller.take_on(encoded)
            call()
            stream.synchronize()
            after = caller.registers()
            caller.take_on(opened_in.encode())
            if after != before:
                kept.append(f"{label} in {environment}: {before:#x} became {after:#x}")
            digests[label][environment] = hashlib.sha256(y.raw.numpy().tobytes()).hexdigest()[:12]
    caller.take_on(b"default")
    print(json.dumps({"digests": digests, "changed": kept}))


if __name__ == "__main__":
    main(*sys.argv[1:])
