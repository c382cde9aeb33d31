"""Files of quantised weights with a real vocabulary, and what the commands write with them."""

import contextlib
import http.client
import json
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import float64
import numpy as np
import small_model

from isokern import blocks
from isokern.dtypes import dtype
from isokern.llm import GGUF, Tokenizer

VOCABULARY = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
PROMPT, SAID, COUNT = "In the beginning", "Who?", 5
CHATML = f"<|im_start|>user\n{SAID}<|im_end|>\n<|im_start|>assistant\n"
PLAIN = ["--temperature", "0", "--max-tokens", str(COUNT), "--cache", "F32"]


def write(path, type_of=lambda name: "F32"):
    """Write a Llama of random weights and kjv's vocabulary; `type_of(name)` is the type of a matrix."""
    vocabulary = {k: v for k, v in GGUF.open(VOCABULARY).metadata.items() if k.startswith("tokenizer.")}
    rows, rng = len(vocabulary["tokenizer.ggml.tokens"]), np.random.default_rng(7)

    def change(facts, held):
        facts |= vocabulary
        for name in ("token_embd.weight", "output.weight"):
            held[name] = (rng.standard_normal((rows, 256)) / 16).astype(np.float32)
        for name, array in held.items():
            if array.ndim == 2 and (kind := dtype(type_of(name))).block > 1:
                held[name] = kind.name, array.shape, blocks.quantize(array, kind).reshape(-1)

    sizes = {"width": 256, "inner": 512, "tied": False, "llama.context_length": 96}
    return small_model.made(path, "llama", change=change, **sizes)


def choose_q4_k_m(name):
    """Return the type that llama.cpp's Q4_K_M has for a matrix of these two layers."""
    if "attn_output" in name:
        return "Q5_0"  # 128 columns, no whole blocks of 256
    return "Q6_K" if name == "output.weight" or re.match(r"blk\.1\.(attn_v|ffn_down)", name) else "Q4_K"


def continue_in_float64(gguf, text):
    """Return what NumPy writes after a text in float64: always the likeliest token."""
    tokenizer, weights = Tokenizer.from_gguf(gguf), float64.weights(gguf)
    ids, stream, parts = tokenizer.encode(text, eos=False), tokenizer.stream(), []
    for _ in range(COUNT):
        with patch.object(float64, "weights", lambda gguf: weights):  # decoded once
            logits = float64.logits(gguf, ids)[-1]
        first, second = np.argsort(logits)[:-3:-1]
        assert logits[first] - logits[second] > 1e-4 * np.abs(logits).max(), "a tie"
        assert first not in tokenizer.ends
        ids.append(int(first))
        parts.append(stream.push(ids[-1]))
    return "".join([*parts, stream.end()])


def run(command, path, *words, **options):
    given = [sys.executable, "-m", "isokern", command, str(path), "--device", "cpu:0", *words]
    return subprocess.run(given, capture_output=True, text=True, check=True, timeout=300, **options).stdout


@contextlib.contextmanager
def serve(path):
    """Run `isokern serve`, and return a function that returns the only choice of an answer."""
    words = ["--port", "0", "--template", "chatml", "--cache", "F32", "--device", "cpu:0"]
    command = [sys.executable, "-m", "isokern", "serve", str(path), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(where, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body = json.dumps({"temperature": 0, "max_tokens": COUNT, **fields})
        connection.request("POST", f"/v1/{where}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        (choice,) = json.loads(answer.read())["choices"]
        connection.close()
        return choice

    try:
        port = int(re.search(r":(\d+)/v1$", process.stdout.readline())[1])
        yield ask
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def check_commands(path):
    """Fail unless all commands write what follows in float64."""
    gguf = GGUF.open(path)
    text, answer = continue_in_float64(gguf, PROMPT), continue_in_float64(gguf, CHATML)
    assert json.loads(run("generate", path, "--prompt", PROMPT, "--json", *PLAIN))["text"] == text
    assert run("chat", path, "--template", "chatml", *PLAIN, input=f"{SAID}\n") == f"{answer}\n"
    with serve(path) as ask:
        assert ask("completions", prompt=PROMPT)["text"] == text
        assert ask("chat/completions", messages=[{"role": "user", "content": SAID}])["message"]["content"] == answer
