"""Test repeated calls in C: that they are found by the same keys, do the same, and keep nothing."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument, ops
from isokern.backend.buffer_view import facts_of
from isokern.backend.host_memory import HostMemory
from isokern.eager import functions, quick, repeated

VALUES = [0, -1, True, False, 1.0, 0.0, -0.0, float("nan"), "x", None, isokern.F32, (1, 2), (True,), [1], np.float32(1)]


@pytest.fixture
def module(cpu):
    """Return the CPU's module, in use."""
    x = isokern.tensor([1.0], device=cpu)
    assert isokern.neg(isokern.neg(x)).numpy().tolist() == [1.0]
    return cpu.calls


def _calls(name, *tensors, **named):
    return repeated.calls_of(ops.find(name))[repeated.key_of(tensors, named)[0]]


def _known(module, name, *tensors, **named):
    """Return a call that was made before, which is one in C."""
    getattr(isokern, name)(*tensors, **named)
    found = _calls(name, *tensors, **named)
    assert type(found) is module.Call
    return found


def test_keys_are_those_of_python(module, cpu):
    rng = np.random.default_rng(0)
    finder = module.Finder({}, {}, 9, print)
    tensors = [isokern.zeros(s, device=cpu) for s in ((), (2,), (2, 3))]
    given = [*tensors, None, 1.0, np.ones(2), "x"]
    some = 0
    for _ in range(5000):
        args = [given[i] for i in rng.integers(0, len(given) - 3 * (rng.random() < 0.8), rng.integers(0, 4))]
        for _ in range(rng.integers(0, 3)):
            one = [tensors[i] for i in rng.integers(0, 3, rng.integers(0, 4))]
            args.insert(rng.integers(0, len(args) + 1), one if rng.random() < 0.7 else tuple(one))
        named = {f"a{i}": VALUES[rng.integers(0, len(VALUES))] for i in range(rng.integers(0, 3))}
        if rng.random() < 0.2:
            named["out"] = given[rng.integers(0, len(given))]
        found = repeated.key_of(args, named)
        key = finder.key_of(tuple(args), named)
        assert key == (found and found[0]), (args, named)
        some += found is not None
    assert 1000 < some < 4500


def test_calls_in_c_give_what_calls_in_python_give(module, cpu):
    x = isokern.tensor(np.random.default_rng(1).standard_normal((4, 6)), "F32", device=cpu)
    w = isokern.tensor(np.ones(6), "F32", device=cpu)
    places = isokern.tensor(np.array([2, 0]), device=cpu)
    for name, tensors, named in [
        ("add", (x, x), {}),
        ("add", (x, w), {}),
        ("softmax", (x,), {"axis": 0}),
        ("layer_norm", (x, w), {}),  # without a bias
        ("concat", ([x, x],), {"axis": 1}),
        ("sort", (x,), {"axis": 1}),  # of two outputs
        ("gather", (x, places), {}),
        ("cumsum", (x,), {"axis": 1}),  # decomposed
        ("reduce_sum", (x,), {"axes": (1,), "keepdims": True}),
        ("cast", (x,), {"dtype": isokern.F16}),
        ("matmul", (x, isokern.transpose(x)), {}),  # with a workspace
    ]:
        first = getattr(isokern, name)(*tensors, **named)
        known = _known(module, name, *tensors, **named)
        flat = [t for given in tensors for t in (given if isinstance(given, list) else [given])]
        again, direct = getattr(isokern, name)(*tensors, **named), known(flat)
        for made in (again, direct):
            assert type(made) is type(first)
            for y, z in zip(*(t if isinstance(t, tuple) else (t,) for t in (made, first)), strict=True):
                assert type(y) is isokern.Tensor
                assert (y.desc, y.facts, y.device) == (z.desc, z.facts, z.device)
                assert y.span == (y.buffer.address, y.buffer.address + y.buffer.nbytes)
                assert y.numpy().tobytes() == z.numpy().tobytes(), name


def test_a_call_of_other_tensors_is_described(module, cpu):
    x, wide = isokern.zeros((2, 2), device=cpu), isokern.zeros((3, 2), device=cpu)
    known = _known(module, "add", x, x)
    for wrong in ([], [x], [x, wide], [wide, wide], [x, None], [x, 1.0], [x, x, x]):
        with pytest.raises(TypeError):
            known(wrong)
    with pytest.raises(TypeError):
        known(5)

    class Part(isokern.Tensor):
        __slots__ = ()

    part = Part(x.desc, x.buffer)
    assert isokern.add(part, x).numpy().tolist() == [[0, 0], [0, 0]]


def test_what_is_not_usual_is_seen(module, cpu, monkeypatch, capsys):
    x = isokern.tensor([1.0, 2.0], device=cpu)
    _known(module, "neg", x)
    stream = cpu.stream()
    with stream, stream.capture() as recording:
        y = isokern.neg(x)
    assert len(recording) == 1
    x.copy_from(np.array([3.0, 4.0], np.float32))
    recording.replay()
    assert y.numpy().tolist() == [-3, -4]
    monkeypatch.setattr("isokern.debug.LEVEL", 2)
    isokern.neg(x)
    assert "neg(F32[2])" in capsys.readouterr().err
    monkeypatch.undo()
    rows = isokern.tensor(np.array([0, 5]), device=cpu)
    for _ in range(3):
        with pytest.raises(InvalidArgument, match=r"gather: .*5"):
            isokern.gather(x, rows)
    z = isokern.neg(x)
    z.buffer.close()
    with pytest.raises(InvalidArgument, match="closed"):
        isokern.neg(z)


def test_a_list_that_changes_meanwhile_does_no_harm(module, cpu):
    x = isokern.zeros((2,), device=cpu)
    given = [x, x]

    class Clears:
        def __del__(self):
            given.clear()

    threshold = gc.get_threshold()
    gc.set_threshold(3)
    try:
        for _ in range(300):
            cycle = Clears()
            cycle.itself = cycle
            del cycle
            given[:] = [isokern.zeros((2,), device=cpu) for _ in range(2)]
            assert isokern.concat(given).shape[0] in (2, 4)
    except InvalidArgument:  # it was empty before the call
        assert not given
    finally:
        gc.set_threshold(*threshold)


def test_ten_thousand_calls_keep_nothing(module, cpu):
    x = isokern.tensor(np.ones((4, 4), np.float32), device=cpu)
    rows = isokern.tensor(np.array([9]), device=cpu)
    kept = [None, isokern.Tensor, x, x.facts, x.desc, x.buffer, x.buffer.handle, cpu.memory]

    def call_often():
        for _ in range(2000):
            isokern.add(x, x)
            isokern.softmax(x, axis=1)
            isokern.sort(x)
            isokern.concat([x, x])
            with pytest.raises(InvalidArgument):
                isokern.gather(x, rows)

    def count():
        gc.collect()
        memory = cpu.memory
        return memory.live, memory.allocations, len(gc.get_objects()), *map(sys.getrefcount, kept[1:])

    call_often()
    before = count()
    call_often()
    after = count()
    assert after[:2] == before[:2]
    assert after[2] <= before[2] + 20
    assert after[3:] == before[3:]


def test_tables_are_cleared_while_threads_call(module, cpu):
    stop, wrong = threading.Event(), []

    def clear():
        while not stop.is_set():
            for calls in list(repeated._known.values()):
                calls.clear()

    def call(first):
        try:
            for n in range(first, first + 300):
                x = isokern.tensor(np.full(n % 50 + 1, n, np.float32), device=cpu)
                assert (isokern.scale(isokern.add(x, x), value=3.0).numpy() == 6 * n).all()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(3)]
    clearing = threading.Thread(target=clear)
    for thread in (*threads, clearing):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    clearing.join()
    assert not wrong


def test_the_peak_is_what_was_in_use_at_once(module, cpu):
    memory = cpu.memory
    x = isokern.tensor(np.ones(1 << 14, np.float32), device=cpu)
    isokern.neg(isokern.neg(x))
    gc.collect()
    memory.reset_peak()
    live = memory.live
    kept = [isokern.neg(x) for _ in range(5)]
    other = isokern.empty((1 << 14,), device=cpu)
    assert memory.peak == memory.live == live + 6 * x.buffer.nbytes
    del kept[2:]
    more = isokern.neg(x)
    assert (memory.live, memory.peak) == (live + 4 * x.buffer.nbytes, live + 6 * x.buffer.nbytes)
    del kept, other, more
    assert memory.live == live


def test_memory_that_is_not_there_is_a_typed_error(module, cpu):
    with pytest.raises(MemoryError):
        cpu.memory.heap.take(1 << 62)
    with pytest.raises(OverflowError):
        cpu.memory.heap.take(-1)
    with pytest.raises(isokern.OutOfMemory):
        cpu.memory._take(1 << 62, isokern.U8)


def test_functions_begin_in_python_and_go_on_in_c(module):
    seen = []
    quick.when_quick(seen.append)
    quick._told.remove(seen.append)
    assert seen == [module]


def test_devices_without_the_module_do_the_same(devices):
    for device in devices:
        x = isokern.tensor([[1.0, -2.0]], device=device)
        for _ in range(3):
            assert isokern.concat([x, x]).numpy().tolist() == [[1, -2], [1, -2]]
            assert isokern.cumsum(x, axis=1).numpy().tolist() == [[1, -1]]


def test_tensors_that_are_written_to_are_checked(module, cpu):
    x = isokern.tensor([[1.0, -2.0], [3.0, -4.0]], device=cpu)
    y = isokern.zeros((2, 2), device=cpu)
    isokern.neg(x, out=y)
    known = _calls("neg", x, out=y)
    assert type(known) is module.Call
    for _ in range(3):
        assert isokern.neg(x, out=y) is y and y.numpy().tolist() == [[-1, 2], [-3, 4]]
    for n in range(3):  # y is an input, too
        assert np.array_equal(isokern.add(y, x, out=y).numpy(), n * x.numpy())
    both = isokern.zeros((3, 2), device=cpu)
    isokern.neg(both[:2], out=isokern.zeros((3, 2), device=cpu)[1:])
    assert type(_calls("neg", both[:2], out=both[1:])) is module.Call
    isokern.cumsum(both, axis=0, out=isokern.zeros((3, 2), device=cpu))
    for _ in range(3):
        with pytest.raises(InvalidArgument, match="overlap"):
            isokern.neg(both[:2], out=both[1:])
        with pytest.raises(InvalidArgument, match="overlap"):
            isokern.cumsum(both, axis=0, out=both)  # which may not be its input
    fixed = np.zeros((2, 2), np.float32)
    fixed.flags.writeable = False
    held = isokern.from_numpy(fixed, device=cpu)
    for _ in range(3):
        with pytest.raises(InvalidArgument, match="read-only"):
            isokern.neg(x, out=held)
    y.buffer.close()
    with pytest.raises(InvalidArgument, match="closed"):
        isokern.neg(x, out=y)
    for wrong in ([x], [x, y]):
        with pytest.raises(TypeError):
            known(wrong)
    with pytest.raises(TypeError):
        known([x], x[:1])


def test_equal_facts_that_are_two_objects_do(module, cpu):
    x, out = (isokern.tensor(np.ones((3, 5), np.float32), device=cpu) for _ in range(2))
    facts_of.cache_clear()  # as it forgets them when there are many
    y = isokern.tensor(np.ones((3, 5), np.float32), device=cpu)
    assert x.facts is not y.facts
    for given in (y, x, x, x, y):
        assert (isokern.add(given, 1.0).numpy() == 2).all()
        assert (isokern.clip(given, min=2.0).numpy() == 2).all()
        assert (isokern.add(given, 1.0, out=out).numpy() == 2).all()
        assert (isokern.add(given, given, out=out).numpy() == 2).all()
        for known in (_calls("add", given, given, out=out), _calls("clip", given, min=2.0, max=np.inf)):
            assert type(known) is module.Call
        assert _calls("add", given, given, out=out)([given, given], out) is out


def test_outputs_that_are_closed_meanwhile_are_kept_till_the_end(module, cpu, monkeypatch):
    seen, shape = [], None
    scratch = cpu.default_stream.scratch

    def close_outputs(need):  # as another thread might while the kernels run
        for tensor in [t for t in gc.get_objects() if type(t) is isokern.Tensor and t.shape == shape]:
            used, memory = cpu.memory.heap.used, tensor.buffer.handle
            memory = weakref.ref(memory.owner) if hasattr(memory, "owner") else None
            tensor.buffer.close()
            del tensor
            seen.append(cpu.memory.heap.used == used if memory is None else memory() is not None)
        return scratch(need)

    monkeypatch.setattr(cpu.default_stream, "scratch", close_outputs)
    for wanted in ((7, 9), (701, 797)):
        x, y = (isokern.tensor(np.ones(s, np.float32), device=cpu) for s in ((wanted[0], 12), (12, wanted[1])))
        _known(module, "matmul", x, y)
        gc.collect()
        shape = wanted
        made = isokern.matmul(x, y)
        assert not made.buffer.alive
        shape = None
    assert seen == [True, True]


def test_levels_that_are_no_integers_are_those_of_python(module, cpu, monkeypatch):
    x = isokern.tensor([1.0, 2.0], device=cpu)
    _known(module, "neg", x)
    monkeypatch.setattr("isokern.debug.LEVEL", 1.0)
    assert isokern.neg(x).numpy().tolist() == [-1, -2]
    monkeypatch.setattr("isokern.debug.LEVEL", None)
    with pytest.raises(TypeError, match="NoneType"):
        isokern.neg(x)


def test_blocks_that_are_given_back_are_given_again(module):
    heap = module.Heap(print)
    heap.limit = 1 << 40
    for size, count in ((192, 64), (1 << 18, 4), (heap.largest, 1)):
        for _ in range(3):
            blocks = [heap.take(size) for _ in range(count + 2)]
            addresses = [b.address for b in blocks]  # objects that the blocks have as long as they are kept
            blocks.clear()
            again = [heap.take(size) for _ in range(count)]
            assert {id(b.address) for b in again} <= set(map(id, addresses))
            del again, blocks
    blocks = [heap.take(heap.largest - 64 * n) for n in range(40)]
    addresses = [b.address for b in blocks]
    for at in range(40):  # which is more than all that is kept
        blocks[at] = None
    assert heap.take(heap.largest).address is not addresses[0]
    assert heap.take(heap.largest - 64 * 39).address is addresses[39]


def test_a_block_that_is_too_large_empties_nothing(module, cpu):
    heap = module.Heap(print)
    heap.limit = 1 << 40
    kept = heap.take(192)
    address = kept.address  # an object that the block has as long as it is kept
    del kept
    for n in range(100):
        heap.take(heap.largest + 64 * (n + 1))
    assert heap.take(192).address is address
    assert cpu.memory.is_of_heap(heap.largest) and not cpu.memory.is_of_heap(heap.largest + 1)
    kept = heap.take(heap.largest)
    address = kept.address
    del kept
    assert heap.take(heap.largest).address is address


def test_a_memory_that_has_a_buffer_of_its_heap_is_collected(module):
    memory = HostMemory(module.Heap)
    found = weakref.ref(memory)
    memory.own = memory.alloc(100)
    assert memory.live == memory.peak == 100
    del memory
    gc.collect()
    assert found() is None


def test_calls_are_refused_whatever_was_made_before(module, cpu):
    x, row = isokern.tensor(np.ones((3, 2), np.float32), device=cpu), isokern.zeros((3,), device=cpu)
    for _ in range(3):
        assert isokern.matmul(row, x).shape == (2,)
        assert isokern.mul(x, x).shape == (3, 2)
        assert isokern.softmax(x, axis=1).shape == (3, 2)
        with pytest.raises(isokern.BadTensorShape):
            functions.plain("matmul")(row, x)
        for wrong in (
            lambda: isokern.mul(x, x, None),
            lambda: isokern.mul(x, None),
            lambda: isokern.softmax(x, None, axis=1),
            lambda: isokern.matmul(x, x.T, None),
            lambda: isokern.concat([x, x], None),
            lambda: isokern.concat([x, x, None]),
        ):
            with pytest.raises(InvalidArgument):
                wrong()
        isokern.matmul(x, x.T), isokern.concat([x, x])
    assert isokern.layer_norm(x, row[:2], None).shape == (3, 2)  # which may be left out
