"""Time language models here and in llama.cpp, in turns: `tox -e llama-cpp`.

The models are Llamas of random weights, which llama.cpp's own quantiser brings to the types of today's files; nothing
is downloaded. Each runtime has a process of its own, which waits while the other one works, with two threads or as many
as `--threads` says. Ratios are of the best of some rounds, and above 1 where Isokern is faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from gguf_write import write_gguf
from rich.console import Console
from rich.progress import track
from rich.table import Table

TYPES = {"Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15, "Q6_K": 18}  # llama.cpp's numbers of files' types
# width, inner width, layers, heads, heads of keys, width of a head, vocabulary
SIZES = {"250M": (1024, 2816, 16, 16, 8, 64, 32000), "1B": (2048, 5632, 16, 32, 8, 64, 32000)}
CONTEXT, PROMPT, TEXT, PAUSE = 1024, 512, 48, 0.3


def write_model(path: Path, size: str, words: bool = False) -> None:
    """Write a Llama of random weights in F16, with a vocabulary of made-up words where these are wanted."""
    width, inner, layers, heads, shared, dim, vocabulary = SIZES[size]
    random = np.random.default_rng(0)

    def weight(rows: int, columns: int) -> Any:
        return (random.standard_normal((rows, columns), np.float32) / np.sqrt(columns)).astype(np.float16)

    one = np.ones(width, np.float32)
    held = {"token_embd.weight": weight(vocabulary, width), "output_norm.weight": one}
    held["output.weight"] = weight(vocabulary, width)
    for layer in range(layers):
        shapes = {"attn_q": (heads * dim, width), "attn_k": (shared * dim, width), "attn_v": (shared * dim, width)}
        shapes |= {"attn_output": (width, heads * dim), "ffn_gate": (inner, width), "ffn_up": (inner, width)}
        shapes |= {"ffn_down": (width, inner)}
        held |= {f"blk.{layer}.{name}.weight": weight(*shape) for name, shape in shapes.items()}
        held |= {f"blk.{layer}.{name}_norm.weight": one for name in ("attn", "ffn")}
    facts = {
        "context_length": CONTEXT,
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": shared,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": dim,
        "vocab_size": vocabulary,
    }
    whole: dict[str, Any] = {"general.architecture": "llama", "tokenizer.ggml.model": "none"}
    if words:
        whole |= make_words(vocabulary)
    write_gguf(path, whole | {f"llama.{key}": value for key, value in facts.items()}, held)


def make_words(count: int) -> dict[str, Any]:
    """Return the metadata of a SentencePiece vocabulary: control tokens, all bytes, and words that are numbers."""
    control, single = ["<unk>", "<s>", "</s>"], [f"<0x{byte:02X}>" for byte in range(256)]
    texts = [*control, *single, *(f"\u2581{n}" for n in range(count - 259))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (count - 259)]
    facts = {"model": "llama", "tokens": texts, "scores": np.zeros(count, np.float32)}
    facts |= {"token_type": np.array(kinds, np.int32), "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    return {f"tokenizer.ggml.{key}": value for key, value in facts.items()}


def quantise(path: Path, to: Path, kind: str, threads: int) -> None:
    """Have llama.cpp write the file in another type."""
    import llama_cpp

    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype, how.nthread = TYPES[kind], threads
    if llama_cpp.llama_model_quantize(os.fsencode(path), os.fsencode(to), how):
        raise SystemExit(f"llama.cpp cannot write {to.name}")


class Isokern:
    """A session, with activations as blocks of Q8_0, which llama.cpp always has."""

    def __init__(self, path: str, threads: int, flash: bool) -> None:
        os.environ["ISOKERN_NUM_THREADS"] = str(threads)
        from isokern.llm import Generation, Model, Sampling, Session, tokens

        self.session = Session(Model.open(path, device="cpu:0", activations="q8_0"), CONTEXT)
        self._text = lambda ids, n: list(tokens(self.session, ids, n, Sampling(), frozenset(), Generation()))

    def write(self, ids: list[int], n: int) -> None:
        """Append tokens and the n that follow."""
        self._text(ids, n)

    def clear(self) -> None:
        """Begin again."""
        self.session.clear()


class LlamaCpp:
    """A context of llama.cpp; the largest logit is the next token."""

    def __init__(self, path: str, threads: int, flash: bool) -> None:
        import llama_cpp

        self.lib = llama_cpp
        how = {"n_ctx": CONTEXT, "n_batch": PROMPT, "n_threads": threads, "n_threads_batch": threads}
        self.llama = llama_cpp.Llama(path, **how, flash_attn=flash, verbose=False)
        self.size = self.llama.n_vocab()

    def write(self, ids: list[int], n: int) -> None:
        """Append tokens and the n that follow."""
        for _ in range(n):
            given = (self.lib.llama_token * len(ids))(*ids)
            if self.lib.llama_decode(self.llama.ctx, self.lib.llama_batch_get_one(given, len(ids))):
                raise SystemExit("llama.cpp cannot decode")
            row = np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.llama.ctx, -1), (self.size,))
            ids = [int(row.argmax())]

    def clear(self) -> None:
        """Begin again."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.llama.ctx), True)


RUNTIMES = {"isokern": Isokern, "llama.cpp": LlamaCpp, "llama.cpp, flash": LlamaCpp}


def work(runtime: str, path: str, threads: int) -> None:
    """Load a model and answer each line of standard input with the seconds of a prompt and of the text after it."""
    random = np.random.default_rng(1)
    prompt = [int(t) for t in random.integers(0, SIZES["1B"][-1], PROMPT)]
    begin = time.perf_counter()
    model = RUNTIMES[runtime](path, threads, "flash" in runtime)
    model.write(prompt[:64], 1)
    answer: dict[str, float] = {"first": time.perf_counter() - begin}
    while True:
        print(json.dumps(answer), flush=True)
        if not sys.stdin.readline():
            return
        model.clear()
        begin = time.perf_counter()
        model.write(prompt, 1)
        read = time.perf_counter()
        model.clear()
        model.write(prompt[:128], 2)
        begun = time.perf_counter()
        model.write([5], TEXT)
        answer = {"prefill": read - begin, "decode": time.perf_counter() - begun}
        lines = Path("/proc/self/status").read_text().splitlines()
        answer["memory"] = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def compare(path: Path, rounds: int, threads: int) -> dict[str, dict[str, float]]:
    """Return the shortest seconds of each runtime, which take turns, and the most memory that each had."""
    here, best = Path(__file__), dict[str, dict[str, float]]()
    begun = {}
    with path.open("rb") as file:  # nobody's first token waits for the disk
        while file.read(1 << 24):
            pass
    for runtime in RUNTIMES:
        command = [sys.executable, os.fspath(here), "--worker", runtime, "--threads", str(threads), os.fspath(path)]
        begun[runtime] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        best[runtime] = json.loads(begun[runtime].stdout.readline())  # type: ignore[union-attr]  # pipes
    for _ in range(rounds):
        for runtime, process in begun.items():
            time.sleep(PAUSE)
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            found = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            best[runtime] |= {k: min(v, best[runtime].get(k, v)) for k, v in found.items()}
    for process in begun.values():
        process.communicate("")
    return best


def main(
    sizes: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(SIZES)}; all by default")] = None,
    kinds: Annotated[str, typer.Option(help="types, with commas between them")] = ",".join(TYPES),
    rounds: Annotated[int, typer.Option(help="times that each runtime runs")] = 5,
    threads: Annotated[int, typer.Option(help="threads of each runtime")] = 2,
    folder: Annotated[Path | None, typer.Option(help="where the models are kept; none by default")] = None,
    worker: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Print a table of ratios."""
    if worker is not None:
        assert sizes is not None
        work(worker, sizes[0], threads)
        return
    others = [name for name in RUNTIMES if name != "isokern"]
    columns = ["model", "tokens/s: prompt", "text", *(f"{o}: {what}" for o in others for what in ("prompt", "text"))]
    table = Table(*columns, "first token", "memory / file", title=f"{threads} threads; ratios, ours / theirs")
    with tempfile.TemporaryDirectory() as held:
        home = folder or Path(held)
        home.mkdir(parents=True, exist_ok=True)
        todo = [(size, kind) for size in sizes or SIZES for kind in kinds.split(",")]
        for size, kind in track(todo, console=Console(stderr=True)):
            plain, path = home / f"{size}-f16.gguf", home / f"{size}-{kind}.gguf"
            if not path.exists():
                if not plain.exists():
                    write_model(plain, size)
                quantise(plain, path, kind, threads)
            found = compare(path, rounds, threads)
            ours = found["isokern"]
            row = [f"{PROMPT / ours['prefill']:.0f}", f"{TEXT / ours['decode']:.1f}"]
            row += [f"{found[o][what] / ours[what]:.2f}" for o in others for what in ("prefill", "decode")]
            row.append(f"{found['llama.cpp']['first'] / ours['first']:.2f}")
            row.append(f"{ours['memory'] / path.stat().st_size:.2f}")
            table.add_row(f"{size} {kind}", *row)
    Console(width=None if Console().is_terminal else 140).print(table)


if __name__ == "__main__":
    typer.run(main)
