"""Test generated misuses of the Python interface.

Each gives a typed error or works; where it fails it writes nothing, and nothing stays allocated.
"""

import gc
import random
import time
from pathlib import Path

import numpy as np
import pytest
from random_calls import draw

import isokern
from isokern import IsokernError, TensorDesc
from isokern.ops import all_operators, find

ODD = (
    None,
    3,
    -1,
    2.5,
    float("nan"),
    "x",
    b"x",
    2**70,
    [],
    {},
    (),
    [None],
    object(),
    np.float32(2),
    np.zeros(3),
    TensorDesc("F32", (2,)),
    iter(()),
)
LARGEST = 1 << 16  # the most bytes of a tensor that is allocated


def make(device, desc):
    """Make a tensor of a description whose memory is full of ones."""
    nbytes = desc.dtype.nbytes(max(0, -(-desc.extent[1] // desc.dtype.block) * desc.dtype.block))
    buffer = device.memory.alloc(nbytes, desc.dtype)
    buffer.write(np.full(nbytes, 1, np.uint8))
    return isokern.Tensor(desc, buffer)


def bytes_of(tensor):
    return tensor.buffer.read().tobytes()


def misuse_create(rng, op, inputs, outputs, attrs):
    """Return arguments of create, one of which may be wrong."""
    name, given = op.name, dict(attrs)
    kind = rng.randrange(8)
    if kind == 0:
        name = rng.choice((*ODD, op.name.upper()))
    elif kind == 1:
        inputs = rng.choice(ODD)
    elif kind == 2:
        outputs = rng.choice(ODD)
    elif kind == 3 and inputs:
        inputs = list(inputs)
        inputs[rng.randrange(len(inputs))] = rng.choice(ODD)
    elif kind == 4:
        given[rng.choice(("axis", "nonsense", "dtype", *given))] = rng.choice(ODD)
    elif kind == 5:
        given["prepacked"] = rng.choice(ODD)
    elif kind == 6:
        given["variant"] = rng.choice(("", "nonsense", 3, object()))
    else:
        given["dtypes"] = rng.choice((*ODD, {"T": "nonsense"}, {"Z": "F32"}, {3: 4}))
        outputs = None
    return name, inputs, outputs, given


def misuse_call(rng, device, inputs, outputs, workspace):
    """Return arguments of calculate, one of which is wrong in three of four cases."""
    ins, outs, more = list(inputs), list(outputs), {"workspace": workspace}
    kind = rng.randrange(12)
    if kind == 0:
        ins = rng.choice(ODD)
    elif kind == 1:
        outs = rng.choice(ODD)
    elif kind == 2 and ins:
        ins[rng.randrange(len(ins))] = rng.choice(ODD)
    elif kind == 3:
        outs[rng.randrange(len(outs))] = rng.choice(ODD)
    elif kind == 4:
        at = rng.randrange(len(outs))
        closed = make(device, outs[at].desc)
        closed.buffer.close()
        outs[at] = closed
    elif kind == 5:
        more["workspace"] = rng.choice((*ODD, device.memory.alloc(1), device.memory.alloc(1 << 20)))
    elif kind == 6:
        more["stream"] = rng.choice((*ODD[1:], device))
    elif kind == 7:
        ins.append(make(device, TensorDesc("F32", (2,))))
    elif kind == 8:
        outs[rng.randrange(len(outs))] = make(device, TensorDesc("I8", (5, 3)))
    return ins, outs, more


def attempt(told, call):
    """Return (result of a call, typed error that it raised); print `told` where it raises any other exception."""
    try:
        return call(), None
    except IsokernError as error:
        return None, error
    except BaseException:
        print(told)
        raise


def run(device, descriptor, ins, outs, more):
    descriptor.calculate(ins, outs, **more)
    device.synchronize()


def try_calls(device, count, seed):
    """Make `count` calls of random operators; return (number refused, number that worked)."""
    rng, operators = random.Random(seed), all_operators()
    refused = worked = 0
    for i in range(count):
        op = operators[i % len(operators)]
        inputs, outputs, attrs = draw(op, rng)
        given = op, inputs, outputs, attrs
        if i % 2:
            given = misuse_create(rng, *given)
        told = f"call {i} of seed {seed}: create{given!r}"
        descriptor, error = attempt(told, lambda g=given: isokern.create(*g[:3], device=device, **g[3]))
        small = all(d is None or d.dtype.nbytes(max(32, d.extent[1])) <= LARGEST for d in (*outputs, *inputs))
        if error is None and i % 2 == 0 and small:
            tensors = [None if d is None else make(device, d) for d in (*outputs, *inputs)]
            need = descriptor.workspace
            space = device.memory.alloc(need.size, kind=need.kind, alignment=need.alignment) if need.size else None
            before = [bytes_of(t) for t in tensors if t is not None]
            given = misuse_call(rng, device, tensors[len(outputs) :], tensors[: len(outputs)], space)
            told += f"; calculate{given!r}"
            _, error = attempt(told, lambda d=descriptor, g=given: run(device, d, *g))
            checked = [op, *map(find, descriptor.made_of)]
            # An error in data, which a part of the operator may find, still gives a defined result
            if error is not None and not any(o.device_error for o in checked):
                assert [bytes_of(t) for t in tensors if t is not None] == before, told
        assert error is None or len(str(error)) < 5000, told
        refused, worked = refused + (error is not None), worked + (error is None)
    return refused, worked


def test_misuses_are_typed_errors(device):
    refused, worked = try_calls(device, 1500, 0)
    assert refused > 700 and worked > 50, (refused, worked)


@pytest.mark.full
def test_ten_thousand_misuses(device):
    """It stops after a minute, since on some devices calls compile their kernels."""
    live, begin, refused, tried = device.memory.live, time.monotonic(), 0, 0
    while tried < 10_000 and (tried == 0 or time.monotonic() < begin + 60):
        refused += try_calls(device, 500, 1 + tried // 500)[0]
        tried += 500
    assert refused > tried // 2
    gc.collect()
    device.synchronize()
    assert device.memory.live <= live + (1 << 20)


@pytest.mark.full
def test_a_hundred_thousand_descriptors_leave_nothing_behind(device):
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc/self/statm")
    descs = [TensorDesc("F32", (n, 4)) for n in range(1, 65)]
    pages = []
    for repeats in (2_000, 20_000) if device.asynchronous else (10_000, 100_000):  # those of a driver take longer
        for i in range(repeats):
            isokern.create("softmax", [descs[i % 64]], device=device, axis=-1)
        gc.collect()
        pages.append(int(Path("/proc/self/statm").read_text().split()[1]))
    assert pages[1] - pages[0] < 2048, pages
