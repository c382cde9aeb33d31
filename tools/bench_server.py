"""Time `isokern serve` and llama.cpp's server, which take turns, for some numbers of requests at once.

`python tools/bench_server.py --rival PATH/llama-server` (its own option names: 0.5 or later; `cmake --build … --target
llama-server` of llama.cpp's sources makes it). The models are those of `bench_llm.py`, with a vocabulary. Prompts are
tokens, other ones each time, so that neither server finds any in its cache; texts are greedy, and of one length. A
number is tokens of text a second, of all requests of a round, from the first one sent to the last one answered. On a
machine that others use, set OMP_WAIT_POLICY=passive: threads of llama.cpp that wait would take time from each other.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from bench_llm import SIZES, quantise, write_model
from rich.console import Console
from rich.table import Table

PAUSE, LATEST, FIRST = 0.3, 600, 300  # seconds; FIRST is the first token of the vocabulary that is no byte


class Server:
    """A server in a process of its own, and a client of it."""

    def __init__(self, command: list[str], port: int, extra: dict[str, Any], threads: int) -> None:
        self.url, self.extra = f"http://127.0.0.1:{port}", extra
        env = {**os.environ, "ISOKERN_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + LATEST
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command[0]} does not serve: {' '.join(command)}")
            time.sleep(0.1)

    def answers(self) -> bool:
        """Return whether the server is ready."""
        try:
            with urllib.request.urlopen(f"{self.url}/health") as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def complete(self, prompt: list[int], count: int) -> None:
        """Have a text of `count` tokens made; SystemExit where it has another length."""
        body = {"prompt": prompt, "max_tokens": count, "temperature": 0, **self.extra}
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=LATEST) as answer:
            made = json.load(answer)["usage"]["completion_tokens"]
        if made != count:
            raise SystemExit(f"{self.url} made {made} tokens, not {count}")

    def measure(self, prompts: list[list[int]], count: int) -> float:
        """Return the seconds until all texts are there, which are asked for at once."""
        threads = [threading.Thread(target=self.complete, args=(prompt, count)) for prompt in prompts]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begin

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(LATEST)


def find_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def start_servers(path: Path, rival: Path, most: int, room: int, threads: int) -> dict[str, Server]:
    """Return both servers of a model, for `most` requests at once of `room` positions each."""
    ours, theirs, n = find_port(), find_port(), str(threads)
    isokern = [sys.executable, "-m", "isokern", "serve", str(path), "--port", str(ours), "--batch", str(most)]
    isokern += ["--context", str(room), "--positions", str(room * most), "--activations", "q8_0"]
    llama = [str(rival), "-m", str(path), "--port", str(theirs), "-np", str(most), "-c", str(room * most), "-t", n]
    llama += ["-tb", n, "--no-ui", "-cram", "0"]
    plain = {"ignore_eos": True, "cache_prompt": False, "samplers": ["top_k"], "top_k": 1}
    made = {"isokern": Server(isokern, ours, {}, threads)}
    try:
        made["llama.cpp"] = Server(llama, theirs, plain, threads)
    except BaseException:
        made["isokern"].stop()
        raise
    return made


def compare(
    path: Path, rival: Path, counts: list[int], prompt: int, text: int, rounds: int, threads: int
) -> dict[int, dict[str, list[float]]]:
    """Return the tokens a second of each server in each round, by the number of requests at once."""
    random = np.random.default_rng(1)
    found: dict[int, dict[str, list[float]]] = {count: {} for count in counts}
    servers = start_servers(path, rival, max(counts), prompt + text, threads)
    try:
        for each in range(rounds + 1):  # the first is not counted: programs are compiled in it
            for count, rates in found.items():
                for name, server in servers.items():
                    prompts = random.integers(FIRST, 32000, (count, prompt)).tolist()
                    time.sleep(PAUSE)
                    seconds = server.measure(prompts, text)
                    if each:
                        rates.setdefault(name, []).append(count * text / seconds)
    finally:
        for server in servers.values():
            server.stop()
    return found


def main(
    rival: Annotated[Path, typer.Option(help="llama.cpp's llama-server")],
    kinds: Annotated[str, typer.Option(help="types of weights, with commas between them")] = "Q4_0,Q8_0",
    requests: Annotated[str, typer.Option(help="numbers of requests at once")] = "1,16",
    prompt: Annotated[int, typer.Option(help="tokens of a prompt")] = 128,
    text: Annotated[int, typer.Option(help="tokens of a text")] = 64,
    rounds: Annotated[int, typer.Option(help="times that each server is asked")] = 5,
    threads: Annotated[int, typer.Option(help="threads of each server")] = 2,
    size: Annotated[str, typer.Option(help=f"of {', '.join(SIZES)}")] = "250M",
    folder: Annotated[Path | None, typer.Option(help="where the models are kept; none by default")] = None,
) -> None:
    """Print a table of tokens a second, medians of all rounds, and their ratios: of medians, and of the best rounds."""
    table = Table("weights", "requests", "isokern", "llama.cpp", "ratio", "of the best", title=f"{threads} threads")
    with tempfile.TemporaryDirectory() as held:
        home = folder or Path(held)
        home.mkdir(parents=True, exist_ok=True)
        for kind in kinds.split(","):
            plain, path = home / f"{size}-words-f16.gguf", home / f"{size}-words-{kind}.gguf"
            if not path.exists():
                if not plain.exists():
                    write_model(plain, size, words=True)
                quantise(plain, path, kind, threads)
            found = compare(path, rival, [int(n) for n in requests.split(",")], prompt, text, rounds, threads)
            for count, rates in found.items():
                ours, theirs = rates["isokern"], rates["llama.cpp"]
                ratios = median(ours) / median(theirs), max(ours) / max(theirs)
                row = [kind, str(count), f"{median(ours):.1f}", f"{median(theirs):.1f}", *(f"{r:.2f}" for r in ratios)]
                table.add_row(*row)
    Console(width=None if Console().is_terminal else 120).print(table)


if __name__ == "__main__":
    typer.run(main)
