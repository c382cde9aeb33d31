"""Test mutated models of all architectures and block types: a text, or a typed error, quickly and in bounded memory.

Each file goes through the reader, its configuration, its tokenizer, the weights and a short run. `MODEL_FUZZ_FILES`
sets the number of files, and `MODEL_FUZZ_SEED` the first seed. A failure prints the seed of its file; where the process
ends, the last seed is in the file `seed` of the test's folder.
"""

import contextlib
import os
import signal
import struct
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import small_architectures
import small_model
from gguf_write import write_gguf
from small_architectures import FILES, VOCABULARY
from test_gguf_fuzz import EXTREMES, fields
from test_mixed_types import MIXES, mix
from test_tokenizer import bert_metadata, gemma4_metadata, gpt2_metadata, llama_metadata, rwkv_metadata, t5_metadata

from isokern import InvalidArgument, IsokernError
from isokern.dtypes import ALL_WEIGHTS
from isokern.llm import GGUF, Model, Session, Tokenizer

COUNT = int(os.environ.get("MODEL_FUZZ_FILES", "200"))
FIRST = int(os.environ.get("MODEL_FUZZ_SEED", "0"))
BATCH = 50
SECONDS = 5  # of processor time for a file
ROOM = 256 << 20  # bytes that a file of at most 3 MB may take at once, with what its kernels need
TYPES = {**MIXES, "older": {"output": "Q8_0", "attn_v": "Q5_0", "": "Q4_1"}}
FLOATS = ("F16", "BF16")
VALUES = [0, 1, 3, 2**16, 2**31, 2**40, -1, 0.5, 1e-30, 1e30, float("nan"), float("inf"), -1.0, "", "x", "llama", True]
VALUES += [np.int32([1, 2]), np.float32([np.nan] * 97), np.arange(97, dtype=np.int32), ["a"], ["é"] * 97, [""] * 97]
VALUES += [np.zeros(0, np.uint8), np.float64(1e300), np.uint64(2**63), [[1, 2], [3]]]


KINDS = [llama_metadata, gpt2_metadata, gemma4_metadata]
KINDS += [
    lambda: bert_metadata()[1],
    lambda: rwkv_metadata([b"ab", b" a"])[1],
    lambda: t5_metadata({"a": -1.0, "▁": 0}),
]


def add_vocabulary(keys):
    """Return a change that gives a file the tokenizer of some metadata, and its tables as many rows."""

    def change(facts, held):
        rows = len(keys["tokenizer.ggml.tokens"])
        for name, array in held.items():
            if array.shape[0] == VOCABULARY:
                held[name] = np.resize(array, (rows, *array.shape[1:]))
        facts |= keys

    return change


def one_after_other(changes):
    def change(facts, held):
        for each in changes:
            each(facts, held)

    return change


@cache
def read_seeds(folder):
    """Return a valid file of each architecture and of each mix of block types: bytes, numbers in it, its header's end.

    They have a tokenizer of each kind by turns.
    """
    found = []
    for i, model in enumerate((*FILES, *TYPES, *FLOATS)):
        path, vocabulary = folder / f"{i}.gguf", add_vocabulary(KINDS[i % len(KINDS)]())
        if model in FILES:
            gguf = small_architectures.made(path, model, change=vocabulary)
        elif model in FLOATS:
            gguf = small_model.made(path, dtype=model, change=vocabulary)
        else:
            changes = vocabulary, mix(TYPES[model])
            gguf = small_model.made(path, tied=False, change=one_after_other(changes), width=256, inner=512)
        content = path.read_bytes()
        numbers = fields(content, pytest.MonkeyPatch())
        found.append((content, numbers, min(t.offset for t in gguf.tensors.values())))
    return found


@pytest.fixture(scope="session")
def seeds(tmp_path_factory):
    return read_seeds(tmp_path_factory.mktemp("seeds"))


def change_bytes(content, numbers, header, rng):
    """Return a file with numbers or bits of its header changed, or bytes of its tensors, in one or two places."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 3)):
        where, size = numbers[rng.integers(len(numbers))]
        at, begin = (int(rng.integers(*ends)) for ends in ((0, header), (header, len(content))))
        how = rng.integers(8)
        if how < 2:
            near = int.from_bytes(content[where : where + size], "little") + int(rng.integers(-3, 4))
            value = near if how else EXTREMES[rng.integers(len(EXTREMES))]
            content[where : where + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
        elif how < 4:
            content[at : at + 1] = bytes([content[at] ^ 1 << int(rng.integers(8))])
        elif how < 6:
            content[begin : begin + 64] = rng.bytes(len(content[begin : begin + 64]))
        else:
            content[begin : begin + 64] = bytes([rng.choice([0, 127, 255])]) * len(content[begin : begin + 64])
    return bytes(content)


def change_values(content, path, rng):
    """Return a file with one or two values or tensors changed, or gone."""
    gguf = GGUF(content)
    metadata, tensors = dict(gguf.metadata), dict(gguf.tensors)
    for _ in range(rng.integers(1, 3)):
        key, name = (list(held)[rng.integers(len(held))] for held in (metadata, tensors))
        tensor, how = gguf.tensors.get(name), rng.integers(10)
        if how < 5 and key != "general.architecture":
            metadata[key] = VALUES[rng.integers(len(VALUES))]
        elif how == 5:
            del metadata[key]
        elif how == 6:
            del tensors[name]
        elif how == 7 and tensor is not None:
            tensors[f"{name}x"] = tensors.pop(name)
        elif how == 8 and tensor is not None:
            tensors[name] = (tensor.type, tensor.shape[::-1], tensor.data)
        elif tensor is not None:
            other = gguf.tensors[list(gguf.tensors)[rng.integers(len(gguf.tensors))]]
            tensors[name] = (other.type, other.shape, other.data)
    with contextlib.suppress(struct.error, OverflowError):  # no such file can be written
        write_gguf(path, metadata, tensors)
        return path.read_bytes()
    return content


def use(content, cpu):
    """Take a file as far as it goes, and return whether it wrote a token."""
    try:
        gguf = GGUF(content)
    except InvalidArgument:
        return False
    with contextlib.suppress(InvalidArgument):
        tokenizer = Tokenizer.from_gguf(gguf)
        assert isinstance(tokenizer.decode(tokenizer.encode("Hello, é\n 12</s>", special=True)), str)
    try:
        model = Model(gguf, device=cpu)
        logits = Session(model, 16).logits([0, 3, model.config.vocabulary - 1])
    except IsokernError:
        return False
    assert logits.size == model.config.vocabulary
    return True


@contextlib.contextmanager
def limits(seconds=SECONDS):
    """Fail what takes more processor time or memory than a file may."""

    def stop(number, frame):
        raise TimeoutError(f"more than {seconds} s of processor time")

    before, first = signal.signal(signal.SIGPROF, stop), read_memory("VmRSS", reset=True)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    most = read_memory("VmHWM") - first
    assert most < ROOM, f"{most >> 20} MiB more"


def read_memory(name, reset=False):
    """Return the bytes that this process has or had at most since the last reset; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        text = Path("/proc/self/status").read_text()
        return int(text.partition(f"{name}:")[2].split()[0]) << 10
    return 0


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, BATCH))
def test_mutated_models(first, seeds, cpu, tmp_path):
    ran = 0
    for seed in range(first, min(first + BATCH, FIRST + COUNT)):
        rng = np.random.default_rng([seed, 2])
        content, numbers, header = seeds[seed % len(seeds)]
        (tmp_path / "seed").write_text(f"{seed}")
        try:
            if rng.random() < 0.5:
                content = change_values(content, tmp_path / "m.gguf", rng)
            else:
                content = change_bytes(content, numbers, header, rng)
            with limits():
                ran += use(content, cpu)
        except Exception as error:
            raise AssertionError(f"file of seed {seed}") from error
    assert 0 < ran < BATCH


def test_seeds_run(seeds, cpu):
    assert len(seeds) == len(FILES) + len(TYPES) + len(FLOATS)
    for content, _, _ in seeds[:: len(KINDS) + 1]:
        with limits():
            assert use(content, cpu)
    known = {name for types in TYPES.values() for name in types.values()} | {"F32", *FLOATS}
    assert known == {d.name for d in ALL_WEIGHTS} - {"F8E4M3FN", "F8E5M2"}, "all types that GGUF has"


def spin():
    while True:
        pass


def test_limits_are_kept():
    with pytest.raises(TimeoutError), limits(0.1):
        spin()
    with pytest.raises(AssertionError, match="MiB more"), limits():
        np.ones(ROOM + (8 << 20), np.uint8)
