"""Test one program in many threads: results are not mixed up, and no run is refused.

Memory grows by no more than the number of concurrent runs explains.
"""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_update import cache_graph

import isokern
from isokern import InvalidArgument
from isokern.graph import Model
from isokern.graph.layers import Linear, Sequential, SiLU
from isokern.runtime import compile

THREADS = 8


def network(seed=0):
    m = Model("network")
    x = m.input("x", (4, 32))
    m.output(m.add(Sequential(Linear(64), SiLU(), Linear(48), SiLU(), Linear(8)), x, name="net"))
    m.initialise(seed=seed)
    return m


def everywhere(work, threads=THREADS):
    """Return the results of `work(number)` in several threads that begin together."""
    together = threading.Barrier(threads)

    def begun(number):
        together.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begun, range(threads)))


@pytest.mark.parametrize("runs", [40, pytest.param(1000, marks=pytest.mark.full)])
def test_one_program_serves_many_threads(devices, runs):
    for device in devices:
        program = compile(network(), device)
        fed = [np.full((4, 32), n - 3.5, np.float32) for n in range(THREADS)]
        wanted = [program.run(x) for x in fed]

        def work(number, program=program, fed=fed, wanted=wanted):
            return [n for n in range(runs) if not np.array_equal(program.run(fed[number]), wanted[number])]

        assert everywhere(work) == [[]] * THREADS
        assert len(program._others) < THREADS
        before, live = program.nbytes, device.memory.live
        everywhere(work)
        assert program.nbytes <= before * THREADS
        assert len(program._others) < THREADS
        assert device.memory.live - live == program.nbytes - before
        program.close()


def test_first_runs_compiles_and_eager_calls_at_once(devices):
    for device in devices:
        fed = np.ones((4, 32), np.float32)
        models = [network(seed) for seed in range(THREADS)]
        wanted = [compile(m, device).run(fed) for m in models]

        def work(number, device=device, models=models, wanted=wanted, fed=fed):
            for _ in range(6):
                program = compile(models[number], device)
                assert np.array_equal(program.run(fed), wanted[number])
                assert (isokern.add(fed, fed, device=device).numpy() == 2).all()
                program.close()
            return True

        assert all(everywhere(work))


def test_runs_with_mutable_inputs_are_one_after_the_other(devices):
    for device in devices:
        program = compile(cache_graph(), device, mutable=["cache"])

        def work(number, program=program):
            for _ in range(10):
                _, found = program.run([np.full((1, 1, 2, 4), number + 1.0, np.float32), np.array([number])])
                assert (found[:, number] == -(number + 1)).all()

        everywhere(work)
        assert not program._others
        assert (program.inputs[2].numpy()[0, :, 0, 0] == -np.arange(1.0, THREADS + 1)).all()


def test_a_program_is_closed_while_others_run_it(devices):
    for device in devices:
        program = compile(network(), device)
        fed = np.ones((4, 32), np.float32)
        wanted = program.run(fed)

        refusals = []

        def work(number, program=program, fed=fed, wanted=wanted, refusals=refusals):
            if number == 0:
                program.close()
                return
            try:
                for _ in range(20):
                    assert np.array_equal(program.run(fed), wanted)
            except InvalidArgument as error:
                refusals.append(str(error))

        everywhere(work)
        assert all("closed" in refusal for refusal in refusals)
        with pytest.raises(InvalidArgument, match="closed"):
            program.run(fed)


def test_a_run_is_not_captured_and_a_replay_is(devices):
    for device in devices:
        program = compile(network(), device)
        fed = np.ones((4, 32), np.float32)
        wanted = program.run(fed)
        stream = device.default_stream
        with stream.capture() as recording:
            with pytest.raises(InvalidArgument, match=r"replay\(\) in the capture"):
                program.run(fed)
            program.replay()
        assert len(recording) == len(program.capture())
        program.feed(np.zeros((4, 32), np.float32))
        program.replay()
        device.synchronize()
        assert not np.array_equal(program.outputs[0].numpy(), wanted)
        program.feed(fed)
        recording.replay()
        device.synchronize()
        assert np.array_equal(program.outputs[0].numpy(), wanted)


def test_a_program_on_a_stream_of_its_own(devices):
    """Another thread may run on its own stream while the default stream is captured."""
    for device in devices:
        stream, fed = device.stream(), np.ones((4, 32), np.float32)
        wanted = compile(network(), device).run(fed)
        x = isokern.tensor(fed, device=device)
        with device.default_stream.capture() as recording:
            y = isokern.add(x, x)
            program = compile(network(), stream=stream)
            with ThreadPoolExecutor(1) as pool:
                assert np.array_equal(pool.submit(program.run, fed).result(), wanted)
        recording.replay()
        assert (y.numpy() == 2).all()
        program.replay()
        stream.synchronize()
        assert np.array_equal(program.outputs[0].numpy(), wanted)
        with pytest.raises(InvalidArgument, match="compile: the stream is a int; allowed: a stream of"):
            compile(network(), device, stream=3)
        for other in devices:
            if other is not device:
                with pytest.raises(InvalidArgument, match=f"the stream is of {device.name}"):
                    compile(network(), other, stream=stream)


def test_a_dynamic_program_serves_many_threads(device_group):
    for device in device_group:
        program, models = compile(network(), device, dynamic=True), {}
        for rows in range(1, 13):  # more sizes than are kept
            models[rows] = program.run(np.full((rows, 32), rows, np.float32))

        def work(number, program=program, models=models):
            for n in range(30):
                rows = 1 + (number * 5 + n) % 12
                assert np.array_equal(program.run(np.full((rows, 32), rows, np.float32)), models[rows])
            return True

        assert all(everywhere(work))
        assert len(program.programs) <= 9
        program.close()


@pytest.mark.full
def test_everything_at_once(devices, request):
    """Eight threads make eager calls, compile, run and capture for `--thread-seconds` on each device.

    No call is refused, no result is wrong, and memory does not grow.
    """
    for device in devices:
        fed = np.ones((4, 32), np.float32)
        shared, dynamic = compile(network(), device), compile(network(1), device, dynamic=True)
        wanted, rows = shared.run(fed), {n: dynamic.run(np.ones((n, 32), np.float32)) for n in range(1, 7)}

        def step(n, device=device, fed=fed, shared=shared, dynamic=dynamic, wanted=wanted, rows=rows):
            if n % 5 == 0:
                program = compile(network(), device, stream=device.stream() if n % 2 else None)
                assert np.array_equal(program.run(fed), wanted)
                program.close()
            elif n % 5 == 1:
                assert np.array_equal(shared.run(fed), wanted)
            elif n % 5 == 2:
                count = 1 + n % 6
                assert np.array_equal(dynamic.run(np.ones((count, 32), np.float32)), rows[count])
            elif n % 5 == 3:
                with device.stream() as stream:
                    x = isokern.tensor(fed, device=device)
                    with stream.capture() as recording:
                        y = isokern.add(x, x)
                    recording.replay()
                    assert (y.numpy() == 2).all()
            else:
                scale = n % 100
                x = isokern.tensor(fed * scale, device=device)
                assert (isokern.matmul(x, isokern.transpose(x)).numpy() == 32.0 * scale * scale).all()

        def work(number, until=0.0, step=step):
            done = 0
            while time.monotonic() < until:
                step(number + done)
                done += 1
            return done

        half = request.config.getoption("--thread-seconds", default=8.0) / 2
        for part in range(2):
            until = time.monotonic() + half
            assert min(everywhere(lambda number, until=until: work(number, until))) > 0
            gc.collect()
            device.synchronize()
            live = device.memory.live
            if part == 0:
                before = live
        assert live <= before + 64 * 1024  # there are as many contexts as concurrent runs, no more
        shared.close()
        dynamic.close()
