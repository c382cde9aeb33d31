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
from typing import IO, Any

from ..oracle.verdicts import Outcome, Verdict
from .derive import device_cases
from .exit_codes import describe_exit
from .items import Item, judge_item
from .runtime.check import RuntimeCheck, checks
from .runtime.every import runtime_checks
from .runtime.processes import ENDS, STARTS

START = 300.0  # seconds in which a worker has to begin
END = 30.0  # seconds in which it has to end after its last answer
CRASHES = 10  # cases in a row after which a worker is not started again
# A terminal and a CI send these to all processes of a group: the parent ends its workers itself
ENDING = frozenset({signal.SIGINT, signal.SIGTERM})


def run_isolated(device: str, cases: Sequence[Item], heard: Any, jobs: int, patience: float) -> None:
    """Run cases in `jobs` workers; `heard(case, outcome)` is called in this thread, in the order of arrival.

    A worker that is silent for `patience` seconds counts as hung.
    """
    shares: list[list[Item]] = [[] for _ in range(jobs)]
    for _, neighbours in itertools.groupby(cases, _group_of):
        # They share a derivation, references and programs, which two workers would compute twice
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


def _group_of(item: Item) -> str:
    return item.id if isinstance(item, RuntimeCheck) else item.operator.name


class _Crew(threading.Thread):
    """A thread that runs one worker after another until its cases are done."""

    def __init__(self, device: str, cases: Sequence[Item], arrived: queue.Queue[Any], patience: float) -> None:
        super().__init__(daemon=True)
        self.device, self.cases, self.arrived, self.patience = device, list(cases), arrived, patience
        self.process: subprocess.Popen[str] | None = None
        self.stopped = self.hung = False
        self.crashes = 0  # consecutive cases that ended the process

    def stop(self) -> None:
        """End the running worker."""
        self.stopped = True
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def run(self) -> None:
        """Start workers until no case is left."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # a worker begins with it, and ends it in `main`
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
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.said = ""
        relay = threading.Thread(target=self._relay, args=(process.stderr,), daemon=True)
        relay.start()
        operators = list(dict.fromkeys(c.operator.name for c in self.cases if not isinstance(c, RuntimeCheck)))
        quick = all(c.quick for c in self.cases)
        job = {"device": self.device, "operators": operators, "quick": quick, "cases": [c.id for c in self.cases]}
        current: Item | None = None
        answered = ""  # the id of the last one
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it died while starting: the exit code below is reported
        beginning = max(START, self.patience)  # it imports, opens the device, and derives the cases
        watch = self._watch(process, beginning)
        for line in process.stdout:
            watch.cancel()
            watch = self._watch(process, self.patience)
            if line.startswith("start"):
                current, self.said = self.cases[0], ""
            else:
                fields = json.loads(line)
                answered = fields["id"]
                self.arrived.put((self.cases.pop(0), Outcome(**{**fields, "verdict": Verdict(fields["verdict"])})))
                current, self.crashes = None, 0
        watch.cancel()
        process.stdout.close()
        hung, self.hung = self.hung, False
        if not self.cases:
            self._watch_the_end(process)
            return
        code = process.wait()
        relay.join(1)
        if self.stopped:
            return
        if current is None and not answered:
            how = f"did not begin within {beginning:.0f} s" if hung else f"ended with {describe_exit(code)}"
            self._tell(STARTS, f"a worker {how}; {self._quote()}; {len(self.cases)} cases were not run")
            self.cases.clear()
            return
        case = self.cases.pop(0)
        how = f"hung: no answer for {self.patience:.0f} s" if hung else f"ended: {describe_exit(code)}"
        detail = f"the process {how}" + (f"; {self._quote()}" if self.said else "")
        if current is None:
            detail += f"; that was before this case began, and after {answered}"
        self.crashes += 1
        if self.crashes == CRASHES:
            detail += f"; {CRASHES} cases in a row did, so {len(self.cases)} others were not run"
        self.arrived.put((case, Outcome(case.id, self.device, Verdict.FAIL_CRASH, detail)))
        if self.crashes == CRASHES:
            self.cases.clear()

    def _relay(self, stderr: IO[str]) -> None:
        """Pass on what the worker writes to standard error, and keep the last line."""
        for line in stderr:
            self.said = line.strip() or self.said
            sys.stderr.write(line)
        stderr.close()

    def _quote(self) -> str:
        return f"the last line that it printed: {self.said}" if self.said else "it printed nothing"

    def _tell(self, id_: str, found: str) -> None:
        """Report what a worker, and not one of its cases, did wrong as a failure of a requirement on processes."""
        detail = f"{checks[id_].summary.rstrip('.')}: {found}"
        self.arrived.put((checks[id_], Outcome(id_, self.device, Verdict.FAIL_CRASH, detail)))

    def _watch_the_end(self, process: subprocess.Popen[str]) -> None:
        """Wait for a worker that has answered everything; one that does not end in order is a failure of its own."""
        try:
            code = process.wait(END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            how = f"did not end within {END:.0f} s: a thread or a function at exit holds it"
        else:
            if code == 0 or self.stopped:
                return
            how = (
                f"ended with {describe_exit(code)}: a function at exit did that, or a kernel damaged memory that only"
                " the end of the process touches; run the cases under ASan"
            )
        self._tell(ENDS, f"a worker answered all its cases and then {how}")

    def _watch(self, process: subprocess.Popen[str], seconds: float) -> threading.Timer:
        def give_up() -> None:
            self.hung = True
            process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        return timer


def main() -> None:
    """Run the worker: read the job, and answer on the original stdout."""
    for number in ENDING:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which processes that a case starts would inherit
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    from ..backend.discovery import device as find_device
    from ..ops import find
    from .run import Runner

    device = find_device(job["device"])
    operators = [find(name) for name in job["operators"]]
    known: dict[str, Item] = {c.id: c for c in device_cases(device, operators, job["quick"])}
    known |= {c.id: c for c in runtime_checks()}
    runner = Runner(device)
    for id_ in job["cases"]:
        answers.write("start\n")
        outcome = judge_item(runner, known[id_])
        answers.write(json.dumps({**vars(outcome), "verdict": outcome.verdict.value}) + "\n")
    answers.close()


if __name__ == "__main__":
    main()
