"""Time eager calls of the most used operators beside PyTorch's and NumPy's, in turns in one process.

    python tools/eager_calls.py --rounds 200

Each operator has a row of calls that do the same with 4 x 4 floats; `--rounds` times each is called some times in turn,
and the least of its times counts. PyTorch's column is left out where PyTorch is not installed. The last line is the
median and the largest of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import isokern
from isokern import array_api as xp

LOOP = 20  # calls that are timed together
Call = Callable[[], Any]
Row = tuple[str, Call, Call | None, Call | None]  # what it is; Isokern's, PyTorch's and NumPy's


def list_rows(torch: Any) -> list[Row]:
    """Return the calls of operators, and of what arrays do."""
    rng = np.random.default_rng(0)
    na, nb = (rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    arrays = {"a": na, "b": nb, "p": np.abs(na) + 0.5, "w": np.abs(nb[0]), "i": np.array([0, 2]), "m": na > 0}
    x = {name: isokern.tensor(v) for name, v in arrays.items()}
    t = {name: torch.from_numpy(v.copy()) for name, v in arrays.items()} if torch else {}
    f: Any = torch.nn.functional if torch else None
    a, b, p, w, i, m = (x[name] for name in "abpwim")

    def of_torch(name: str, *args: str, **named: Any) -> Call | None:
        found = getattr(torch, name, None) or getattr(f, name, None)
        return None if torch is None or found is None else partial(found, *(t[n] for n in args), **named)

    rows: list[Row] = []
    for n in ("add", "sub", "mul", "div", "maximum", "minimum", "equal", "less"):
        other = {"sub": "subtract", "mul": "multiply", "div": "divide"}.get(n, n)
        mine, theirs = getattr(isokern, n), getattr(np, other)
        peer = of_torch({"equal": "eq", "less": "lt"}.get(n, n), "a", "b")
        rows.append((n, partial(mine, a, b), peer, partial(theirs, na, nb)))
    for n in ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "sin", "tanh", "sigmoid", "relu", "gelu", "silu"):
        rows.append((n, partial(getattr(isokern, n), p), of_torch(n, "p"), None))
    rows += [
        ("pow", partial(isokern.pow, p, b), of_torch("pow", "p", "b"), None),
        ("where", partial(isokern.where, m, a, b), of_torch("where", "m", "a", "b"), None),
        ("clip", partial(isokern.clip, a, min=-1.0, max=1.0), of_torch("clip", "a", min=-1.0, max=1.0), None),
        ("matmul", partial(isokern.matmul, a, b), of_torch("matmul", "a", "b"), lambda: na @ nb),
        ("reduce_sum", partial(isokern.reduce_sum, a, axes=(1,)), of_torch("sum", "a", dim=1), lambda: na.sum(1)),
        ("reduce_mean", partial(isokern.reduce_mean, a, axes=(1,)), of_torch("mean", "a", dim=1), None),
        ("reduce_max", partial(isokern.reduce_max, a, axes=(1,)), of_torch("amax", "a", dim=1), None),
        ("softmax", partial(isokern.softmax, a, axis=1), of_torch("softmax", "a", dim=1), None),
        ("layer_norm", partial(isokern.layer_norm, a, w, w), None, None),
        ("gather", partial(isokern.gather, a, i), None, lambda: na[arrays["i"]]),
        ("concat", partial(isokern.concat, [a, b]), None, lambda: np.concatenate([na, nb])),
        ("argmax", partial(isokern.argmax, a, axis=1), of_torch("argmax", "a", dim=1), None),
        ("copy", partial(isokern.copy, a), of_torch("clone", "a"), na.copy),
        ("cumsum", partial(isokern.cumsum, a, axis=1), of_torch("cumsum", "a", dim=1), lambda: na.cumsum(1)),
        ("a + b", lambda: a + b, (lambda: t["a"] + t["b"]) if torch else None, lambda: na + nb),
        ("a + 1", lambda: a + 1, (lambda: t["a"] + 1) if torch else None, lambda: na + 1),
        ("a @ w", lambda: a @ w, (lambda: t["a"] @ t["w"]) if torch else None, lambda: na @ arrays["w"]),
        ("a[1:, None]", lambda: a[1:, None], (lambda: t["a"][1:, None]) if torch else None, lambda: na[1:, None]),
        ("a.T", lambda: a.T, (lambda: t["a"].T) if torch else None, lambda: na.T),
        ("reshape", lambda: xp.reshape(a, (2, 8)), of_torch("reshape", "a", shape=(2, 8)), lambda: na.reshape(2, 8)),
    ]
    if torch:
        functional: dict[str, Call] = {
            "layer_norm": partial(f.layer_norm, t["a"], (4,), t["w"], t["w"]),
            "gather": partial(torch.index_select, t["a"], 0, t["i"]),
            "concat": partial(torch.cat, [t["a"], t["b"]]),
        }
        rows = [(n, mine, functional.get(n, peer), other) for n, mine, peer, other in rows]
    return rows


def measure(calls: list[Call | None], rounds: int) -> list[float]:
    """Return the least time of each call in microseconds; NaN where there is none."""
    best = [float("nan") if call is None else float("inf") for call in calls]
    for _ in range(rounds + 1):
        for at, call in enumerate(calls):
            if call is None:
                continue
            start = time.perf_counter()
            for _ in range(LOOP):
                call()
            best[at] = min(best[at], (time.perf_counter() - start) / LOOP * 1e6)
    return best


def main() -> None:
    """Print a row for each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    try:
        torch: Any = import_module("torch")
        torch.set_num_threads(1)
    except ImportError:
        torch = None
    ratios = []
    print(f"{'call':12} {'Isokern':>8} {'PyTorch':>8} {'NumPy':>8}  microseconds, and the ratio to PyTorch's")
    for name, mine, peer, numpy in list_rows(torch):
        own, theirs, other = measure([mine, peer, numpy], rounds)
        ratio = own / theirs
        print(f"{name:12} {own:8.2f} {theirs:8.2f} {other:8.2f}  {ratio:.2f}")
        ratios += [] if ratio != ratio else [ratio]
    if ratios:
        print(f"median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
