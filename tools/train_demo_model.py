"""Train the language model of `examples/models`: a small Llama on the King James Bible that Debian ships.

    apt-get download bible-kjv-text
    python tools/train_demo_model.py train bible-kjv-text_*.deb --work build/kjv     # about an hour on one core
    python tools/train_demo_model.py export bible-kjv-text_*.deb --work build/kjv --out examples/models

Needs torch, tokenizers and isokern; `dpkg-deb` and `gzip` unpack the text. An interrupted run continues from where it
last saved. Until the learning rate begins to fall, every step is the same for any `--steps`, so a run may also be made
longer or shorter until then.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import re
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own name for it
from gguf_write import write_gguf
from torch import Tensor, nn

from isokern.llm import GGUF, GGUFTensor, Tokenizer

SEED = 1611
VOCABULARY = 2048  # <s>, </s>, the 256 bytes, and merges
BOS, EOS = 0, 1
CONTEXT = 512
WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER = 256, 4, 8, 4, 32, 448
EPSILON, FREQUENCY_BASE = 1e-5, 10000.0
BATCH = 8  # windows of CONTEXT tokens
RATE = 2e-3  # AdamW's learning rate; rises over WARM_UP steps, falls to 0 over the last fraction DECAY of all
WARM_UP, DECAY = 100, 0.4
DROPOUT = 0.1
HELD_OUT = ("Ruth", "Eccl", "Jonah", "Phi", "Jas")  # whole books; Phi is Philippians

NAME = "kjv-2.7m"
KEPT = ("F16", "Q4_0")  # the types that are in the repository
PROMPTS = ("In the beginning", "And David said unto the people,", "Blessed is the man")

Tokens = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


def verses(package: Path) -> str:
    """Return the text of Debian's bible-kjv-text: a title line, then one `Ge1:1 In the beginning …` per line."""
    unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as files:
        member = files.extractfile("./usr/lib/bible.data")
        assert member is not None
        data = member.read()
    stream = data[data.index(b"\x1f\x9d") :]  # a table of seek points, then one stream of compress(1)
    return subprocess.run(["gzip", "-dc"], input=stream, stdout=subprocess.PIPE, check=True).stdout.decode("ascii")


def books(package: Path) -> dict[str, str]:
    """Return each book's text by its abbreviation: a verse per line, an empty line between chapters."""
    found: dict[str, list[str]] = {}
    last = ("", "")
    for book, chapter, verse in re.findall(r"^(\d?[A-Z][A-Za-z]*)(\d+):\d+ (.*)$", verses(package), re.MULTILINE):
        if book == last[0] and chapter != last[1]:
            found[book].append("")
        found.setdefault(book, []).append(verse)
        last = (book, chapter)
    return {book: "\n".join(lines) + "\n" for book, lines in found.items()}


def split(package: Path) -> tuple[list[str], str]:
    """Return (the books to train on, the held-out books as one text)."""
    texts = books(package)
    return [text for book, text in texts.items() if book not in HELD_OUT], "\n".join(texts[book] for book in HELD_OUT)


def train_tokenizer(texts: list[str]) -> tokenizers.Tokenizer:
    """Train byte-level BPE with GPT-2's pre-tokenisation; `<s>` and `</s>` are its first tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class Block(nn.Module):
    """Attention with grouped queries, then SwiGLU; RMSNorm precedes each, and the result is added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.RMSNorm(WIDTH, EPSILON), nn.RMSNorm(WIDTH, EPSILON)
        self.attn_q = nn.Linear(WIDTH, HEADS * HEAD_DIM, bias=False)
        self.attn_k = nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False)
        self.attn_v = nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False)
        self.attn_output = nn.Linear(HEADS * HEAD_DIM, WIDTH, bias=False)
        self.ffn_gate = nn.Linear(WIDTH, INNER, bias=False)
        self.ffn_up = nn.Linear(WIDTH, INNER, bias=False)
        self.ffn_down = nn.Linear(INNER, WIDTH, bias=False)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map x[n, t, width] to the same shape."""
        n, t, _ = x.shape
        h = self.attn_norm(x)
        q = rotate(self.attn_q(h).view(n, t, HEADS, HEAD_DIM).transpose(1, 2), cos, sin)
        k = rotate(self.attn_k(h).view(n, t, KV_HEADS, HEAD_DIM).transpose(1, 2), cos, sin)
        v = self.attn_v(h).view(n, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
        k, v = (a.repeat_interleave(HEADS // KV_HEADS, dim=1) for a in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.attn_output(y.transpose(1, 2).reshape(n, t, HEADS * HEAD_DIM)))
        h = self.ffn_norm(x)
        return torch.add(x, self.drop(self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply RoPE over adjacent pairs, as in GGUF's llama: x[…, t, head_dim] with cos and sin[t, head_dim / 2]."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


class Llama(nn.Module):
    """The network; its parameters have GGUF's names. The output is tied to the embedding."""

    cos: Tensor
    sin: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.token_embd = nn.Embedding(VOCABULARY, WIDTH)
        self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output_norm = nn.RMSNorm(WIDTH, EPSILON)
        self.drop = nn.Dropout(DROPOUT)
        frequency = FREQUENCY_BASE ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
        angle = torch.outer(torch.arange(CONTEXT, dtype=torch.float64), frequency)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                last = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * LAYERS) if last else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens[n, t] to logits[n, t, vocabulary]."""
        t = tokens.shape[1]
        x = self.drop(self.token_embd(tokens))
        for block in self.blk:
            x = block(x, self.cos[:t], self.sin[:t])
        return F.linear(self.output_norm(x), self.token_embd.weight)


def windows(stream: Tokens, starts: Tokens) -> tuple[Tensor, Tensor]:
    """Return (input, target): BOS and the CONTEXT tokens from each start on; a window always begins with BOS."""
    target = stream[starts[:, None] + np.arange(CONTEXT)]
    given = np.concatenate((np.full((len(starts), 1), BOS), target[:, :-1]), axis=1)
    return torch.from_numpy(given), torch.from_numpy(target)


@torch.no_grad()
def perplexity(model: Llama, stream: Tokens) -> float:
    """Return exp of the mean loss over all tokens, in consecutive windows of CONTEXT tokens, each after BOS."""
    model.eval()
    loss = 0.0
    for start in range(0, len(stream), CONTEXT):
        target = torch.from_numpy(stream[start : start + CONTEXT])
        given = torch.cat((torch.tensor([BOS]), target[:-1]))
        loss += F.cross_entropy(model(given[None])[0], target, reduction="sum").item()
    model.train()
    return math.exp(loss / len(stream))


def rate_at(step: int, steps: int) -> float:
    """Return the learning rate: linear warm-up, constant, then half a cosine to 0 over the last DECAY of the steps."""
    fall = max(0.0, step - (1 - DECAY) * steps) / (DECAY * steps)
    return RATE * min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * fall))


def train(package: Path, work: Path, steps: int, save_every: int) -> None:
    """Train, and save the tokenizer, the state and the log to `work`."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    work.mkdir(parents=True, exist_ok=True)
    texts, heldout_text = split(package)
    tokenizer = train_tokenizer(texts)
    tokenizer.save(str(work / "tokenizer.json"))
    stream = np.array([i for text in texts for i in (*tokenizer.encode(text).ids, EOS, BOS)])
    heldout = np.array(tokenizer.encode(heldout_text).ids)
    model = Llama()
    groups = [
        {"params": [w for w in model.parameters() if w.ndim == 2], "weight_decay": 0.1},
        {"params": [w for w in model.parameters() if w.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
    first, spent, kept = 0, 0.0, work / "state.pt"
    if kept.exists():
        state = torch.load(kept)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        first, spent = state["step"], state["seconds"]
    parameters = sum(w.numel() for w in model.parameters())
    print(
        f"{parameters} parameters, {len(stream)} tokens to train on, {len(heldout)} held out, from step {first}",
        flush=True,
    )
    began, losses = time.perf_counter() - spent, []
    for step in range(first, steps):
        rng = np.random.Generator(np.random.PCG64([SEED, step]))
        given, target = windows(stream, rng.integers(0, len(stream) - CONTEXT, BATCH))
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(given)
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % save_every == 0 or step + 1 == steps:
            seconds = time.perf_counter() - began
            row: dict[str, Any] = {
                "step": step + 1,
                "seconds": round(seconds),
                "train_loss": round(float(np.mean(losses)), 4),
            }
            row["heldout_perplexity"] = round(perplexity(model, heldout), 3)
            row["tokens_per_second"] = round((step + 1) * BATCH * CONTEXT / seconds)
            with (work / "log.jsonl").open("a") as log:
                print(json.dumps(row), file=log)
            print(row, flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
            torch.save({**state, "step": step + 1, "seconds": seconds}, work / "state.part")
            (work / "state.part").replace(kept)
            losses = []


def blocks(x: Array, type_: str) -> Array:
    """Return the bytes of x[…, n] in a block type.

    For 32 elements there is a float16 scale d, in Q4_1 a minimum m too, then the integers q. Q8_0: x ≈ d q, q in
    -127..127. Q4_0: x ≈ d (q - 8), where d takes the element of largest magnitude to -8. Q4_1: x ≈ d q + m.
    `gguf.quants` makes the same bytes.
    """
    x = x.reshape(-1, 32).astype(np.float32)
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    head = []
    if type_ == "Q8_0":
        d = np.maximum(-low, high) / np.float32(127)
    elif type_ == "Q4_0":
        d = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1) / np.float32(-8)
    else:
        d, head = (high - low) / np.float32(15), [low]
    scaled = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    if type_ == "Q8_0":
        scaled = x * scaled
        body = (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))).astype(np.int8).view(np.uint8)
    else:
        q = x * scaled + np.float32(8.5) if type_ == "Q4_0" else (x - low) * scaled + np.float32(0.5)
        q = q.astype(np.uint8).clip(0, 15)
        body = q[:, :16] | q[:, 16:] << 4
    halves = [part.astype(np.float16).view(np.uint8) for part in (d, *head)]
    return np.concatenate((*halves, body), axis=1).reshape(-1)


def elements(tensor: GGUFTensor) -> Array:
    """Return the float32 elements of a tensor of a file."""
    if tensor.type in ("F32", "F16"):
        return tensor.array.astype(np.float32)
    raw = tensor.data.reshape(-1, tensor.dtype.itemsize)
    d = raw[:, :2].copy().view(np.float16).astype(np.float32)
    if tensor.type == "Q8_0":
        x = d * raw[:, 2:].view(np.int8)
    elif tensor.type == "Q4_0":
        x = d * (nibbles(raw[:, 2:]) - 8)
    else:
        x = d * nibbles(raw[:, 4:]) + raw[:, 2:4].copy().view(np.float16)
    return np.asarray(x, dtype=np.float32).reshape(tensor.shape)


def nibbles(packed: npt.NDArray[np.uint8]) -> Array:
    """Return the numbers in rows of 16 bytes: their low halves, then their high ones."""
    return np.concatenate((packed & 15, packed >> 4), axis=1).astype(np.float32)


def metadata(tokenizer: tokenizers.Tokenizer, file_type: int) -> dict[str, Any]:
    """Return the metadata that readers of llama files expect."""
    state = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in state["merges"]]
    llama = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": LAYERS, "feed_forward_length": INNER}
    llama |= {"attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "vocab_size": VOCABULARY}
    kinds = np.ones(VOCABULARY, np.int32)
    kinds[[BOS, EOS]] = 3  # control
    return {
        "general.architecture": "llama",
        "general.name": "Isokern KJV 2.7M",
        "general.description": "A small Llama trained on the King James Bible",
        "general.license": "public domain",
        "general.quantization_version": 2,
        "general.file_type": file_type,
        **{f"llama.{key}": value for key, value in llama.items()},
        "llama.attention.layer_norm_rms_epsilon": EPSILON,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.rope.freq_base": FREQUENCY_BASE,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.add_bos_token": True,
    }


def load(gguf: GGUF) -> Llama:
    """Return the network with a file's weights."""
    model = Llama()
    model.load_state_dict({name: torch.from_numpy(elements(tensor)) for name, tensor in gguf.tensors.items()})
    return model.eval()


@torch.no_grad()
def sample(model: Llama, tokenizer: Tokenizer, prompt: str, count: int, temperature: float, seed: int) -> str:
    """Return the prompt and up to `count` tokens after it, drawn at a temperature."""
    rng = np.random.Generator(np.random.PCG64(seed))
    ids = tokenizer.encode(prompt)
    for _ in range(count):
        logits = model(torch.tensor([ids[-CONTEXT:]]))[0, -1].double() / temperature
        ids.append(int(rng.choice(VOCABULARY, p=torch.softmax(logits, dim=0).numpy())))
        if ids[-1] in tokenizer.ends:
            break
    return tokenizer.decode(ids)


def export(package: Path, work: Path, out: Path) -> None:
    """Write the model in five types to `work` or `out`, and print perplexities and samples.

    F16 and Q4_0 go to `out`, with the held-out text.
    """
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    heldout = split(package)[1]
    (out / "heldout.txt").write_text(heldout)
    library = tokenizers.Tokenizer.from_file(str(work / "tokenizer.json"))
    weights = {name: w.numpy() for name, w in torch.load(work / "state.pt")["model"].items()}
    for file_type, type_ in ((0, "F32"), (1, "F16"), (7, "Q8_0"), (3, "Q4_1"), (2, "Q4_0")):
        tensors: dict[str, Any] = {}
        for name, w in weights.items():
            if w.ndim == 1 or type_ == "F32":
                tensors[name] = w
            else:
                tensors[name] = w.astype(np.float16) if type_ == "F16" else (type_, w.shape, blocks(w, type_))
        path = (out if type_ in KEPT else work) / f"{NAME}-{type_.lower()}.gguf"
        write_gguf(path, metadata(library, file_type), tensors)
        gguf = GGUF.open(path)
        tokenizer, model = Tokenizer.from_gguf(gguf), load(gguf)
        stream = np.array(tokenizer.encode(heldout, bos=False))
        assert stream.tolist() == library.encode(heldout).ids
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(
            f"{type_}: {path.stat().st_size} bytes, "
            f"held-out perplexity {perplexity(model, stream):.3f}, sha256 {digest}"
        )
        if type_ in KEPT:
            for seed, prompt in enumerate(PROMPTS):
                print(f"{type_}, {prompt!r}:\n{sample(model, tokenizer, prompt, 120, 0.7, seed)}\n")


def main() -> None:
    """Parse the command line and run the stage."""
    parser = argparse.ArgumentParser(description="Train and export the language model of examples/models.")
    parser.add_argument("stage", choices=("train", "export"))
    parser.add_argument("package", type=Path, help="bible-kjv-text_*.deb")
    parser.add_argument(
        "--work", type=Path, default=Path("build/kjv"), help="tokenizer, state and log (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("examples/models"), help="what export keeps (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=2400, help="steps of AdamW (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between two savings (default: %(default)s)")
    given = parser.parse_args()
    if given.stage == "train":
        train(given.package, given.work, given.steps, given.save_every)
    else:
        export(given.package, given.work, given.out)


if __name__ == "__main__":
    main()
