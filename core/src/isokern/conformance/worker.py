"""Cases in worker processes: a crash costs one case, and a new worker continues after it.

The parent sends one line of JSON (device, operators, case ids); the worker answers with a line before each case and one
after it. The worker's own stdout is redirected to stderr, so that a backend's output does not interfere.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ..oracle.verdicts import Outcome, Verdict
from ..status import InternalError
from .derive import device_cases
from .items import Item, judge_item
from .runtime.check import RuntimeCheck
from .runtime.every import runtime_checks

START = 300.0  # seconds in which a worker has to begin
CRASHES = 10  # cases in a row after which a worker is not started again


def run_isolated(device: str, cases: Sequence[Item], heard: Any, jobs: int, patience: float) -> None:
    """Run cases in `jobs` workers; `heard(case, outcome)` is called in this thread, in the order of arrival.

    A worker that is silent for `patience` seconds counts as hung.
    """
    shares: list[list[Item]] = [[] for _ in range(jobs)]
    for _, neighbours in itertools.groupby(cases, _group_of):
        # They share references and programs, which two workers would compute twice
        min(shares, key=len).extend(neighbours)
    arrived: queue.Queue[tuple[Item, Outcome] | Exception | None] = queue.Queue()
    crews = [_Crew(device, share, arrived, patience) for share in shares if share]
    for crew in crews:
        crew.start()
    open_ = len(crews)
    try:
        while open_:
            item = arrived.get()
            if item is None:
                open_ -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                heard(*item)
    finally:
        for crew in crews:
            crew.stop()


def _group_of(item: Item) -> tuple[str, str]:
    return (item.id, "") if isinstance(item, RuntimeCheck) else (item.operator.name, item.dtype)


class _Crew(threading.Thread):
    """A thread that runs one worker after another until its cases are done."""

    def __init__(self, device: str, cases: Sequence[Item], arrived: queue.Queue[Any], patience: float) -> None:
        super().__init__(daemon=True)
        self.device, self.cases, self.arrived, self.patience = device, list(cases), arrived, patience
        self.process: subprocess.Popen[str] | None = None
        self.stopped = self.hung = False
        self.crashes = 0  # of cases in a row

    def stop(self) -> None:
        """End the running worker."""
        self.stopped = True
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def run(self) -> None:
        """Start workers until no case is left."""
        try:
            while self.cases and not self.stopped:
                self._one_worker()
        except Exception as error:  # passed to the waiting thread, which raises it
            self.arrived.put(error)
        self.arrived.put(None)

    def _one_worker(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.process = process = subprocess.Popen(
            [sys.executable, "-m", "isokern.conformance.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdin is not None and process.stdout is not None
        operators = list(dict.fromkeys(c.operator.name for c in self.cases if not isinstance(c, RuntimeCheck)))
        job = {"device": self.device, "operators": operators, "cases": [c.id for c in self.cases]}
        current: Item | None = None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it died while starting: the exit code below is reported
        watch = self._watch(process, max(START, self.patience))  # it imports, opens the device, and derives the cases
        for line in process.stdout:
            watch.cancel()
            watch = self._watch(process, self.patience)
            if line.startswith("start"):
                current = self.cases[0]
            else:
                fields = json.loads(line)
                self.arrived.put((self.cases.pop(0), Outcome(**{**fields, "verdict": Verdict(fields["verdict"])})))
                current, self.crashes = None, 0
        watch.cancel()
        code = process.wait()
        process.stdout.close()
        if self.stopped or (not self.cases and code == 0):
            return
        if not self.cases:
            raise InternalError(
                "check",
                f"a worker for {self.device} answered all its cases and then died ({_cause(code)})",
                hint="a kernel damaged memory that only the end of the process touches: run the cases under ASan",
            )
        if current is None:
            why = f"did not begin within {START:.0f} s" if self.hung else f"ended by itself ({_cause(code)})"
            raise InternalError(
                "check",
                f"a worker for {self.device} {why}",
                hint="what it printed is above; --no-isolation runs in this process",
            )
        detail = (
            f"the process hung: no answer for {self.patience:.0f} s"
            if self.hung
            else f"the process ended: {_cause(code)}"
        )
        self.hung = False
        self.crashes += 1
        if self.crashes == CRASHES:
            detail += f"; {CRASHES} cases in a row did, so {len(self.cases) - 1} others were not run"
        self.arrived.put((self.cases.pop(0), Outcome(current.id, self.device, Verdict.FAIL_CRASH, detail)))
        if self.crashes == CRASHES:
            self.cases.clear()

    def _watch(self, process: subprocess.Popen[str], seconds: float) -> threading.Timer:
        def give_up() -> None:
            self.hung = True
            process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        return timer


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def main() -> None:
    """Run the worker: read the job, and answer on the original stdout."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    from ..backend.discovery import device as find_device
    from ..ops import find
    from .run import Runner

    device = find_device(job["device"])
    known: dict[str, Item] = {c.id: c for c in device_cases(device, [find(name) for name in job["operators"]])}
    known |= {c.id: c for c in runtime_checks()}
    runner = Runner(device)
    for id_ in job["cases"]:
        answers.write("start\n")
        outcome = judge_item(runner, known[id_])
        answers.write(json.dumps({**vars(outcome), "verdict": outcome.verdict.value}) + "\n")
    answers.close()


if __name__ == "__main__":
    main()
