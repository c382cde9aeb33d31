"""Fork while another thread builds programs, and use them in the child: prints how the children ended.

Run with a name of `WAYS` and the number of forks.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")  # of forks with threads
X = np.ones((2, 8), np.float32)
MODEL = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"


def rows(k):
    return np.ones((k, 8), np.float32)


def onnx():
    from onnx import TensorProto, helper, numpy_helper

    from isokern.onnx import load

    weights = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 8]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "cpu:0")
    return lambda k: model.run(rows(k)), lambda: model.run(X)


def dynamic():
    from isokern.graph import Model
    from isokern.graph.layers import Linear
    from isokern.runtime import compile as compile_graph

    made = Model("m")
    made.output(made.add(Linear(8), made.input("x", (4, 8)), name="n"))
    made.initialise(0)
    program = compile_graph(made, "cpu:0", dynamic=True)
    return lambda k: program.run(rows(k)), lambda: program.run(X)


def eager():
    import isokern

    device = "cuda_sim:0"
    isokern.relu(X, device=device)
    return (
        lambda k: isokern.scale(rows(k), value=k + time.time() % 1, device=device).numpy(),
        lambda: isokern.sigmoid(np.ones((3, int(time.time() * 1e6) % 997 + 1), np.float32), device=device).numpy(),
    )


def engine():
    """A text that is open when the process forks ends with an error in the child."""
    from isokern import InvalidArgument
    from isokern.llm import Engine, Model

    made = Engine(Model.open(MODEL, device="cpu:0"), batch=4)

    def ask():
        try:
            made.submit([1, 2, 3], 3).result()
        except InvalidArgument as error:
            if not any(word in str(error) for word in ("closed", "forked")):
                raise

    ask()
    return lambda k: made.submit([k, 2, 3], 5).result(), ask


WAYS = {f.__name__: f for f in (onnx, dynamic, eager, engine)}


def main(name, forks):
    busy, own = WAYS[name]()
    stopped = []

    def go():
        k = 1
        while not stopped:
            k = k % 60 + 1
            busy(k)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    time.sleep(0.2)
    ended = Counter()
    for _ in range(forks):
        time.sleep(0.013)
        child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(15)  # where it waits, in the test's message
            signal.alarm(20)
            try:
                own()
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", flush=True)
                os._exit(3)
            os._exit(0)
        ended[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
    stopped.append(1)
    thread.join(20)
    print(dict(ended), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
