"""Test mutated GGUF files: each is read or refused with a typed error, in bounded memory.

Whatever is read lies within the file. `GGUF_FUZZ_FILES=50000` sets the number of files, and `GGUF_FUZZ_SEED` the first
seed. A failure prints the seed of its file.
"""

import os
import re
import struct
import tracemalloc

import numpy as np
import pytest
from gguf_write import write_gguf

from isokern.llm import GGUF, gguf as module
from isokern.status import InvalidArgument

FILES = int(os.environ.get("GGUF_FUZZ_FILES", "5000"))
FIRST = int(os.environ.get("GGUF_FUZZ_SEED", "0"))
BATCH = 500
EXTREMES = [0, 1, 2, 4, 7, 8, 9, 12, 13, 31, 32, 33, 64, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32]
EXTREMES += [2**40, 2**61, 2**62, 2**63 - 33, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]


def blocks(name, shape, rng):
    _, block, size = next(t for t in module.TYPES.values() if t[0] == name)
    return name, shape, rng.integers(0, 256, int(np.prod(shape)) // block * size, dtype=np.uint8)


def write_seeds(folder):
    """Return valid files: an empty one, all value types, many tensors, a tokenizer and a layer, a larger alignment."""
    rng = np.random.default_rng(20)
    values = {code: np.arange(3).astype(f"<{code}") for code in module.NUMBERS.values()}
    every = {f"n.{code}": array[1] for code, array in values.items()} | {f"a.{code}": v for code, v in values.items()}
    every |= {"bool": True, "bools": np.array([True, False]), "text": "Grüße", "texts": ["a", "bc", ""]}
    every |= {"nested": [[[1, 2]], [[3]]], "empty": np.array([], np.uint8)}
    small = {f"t{i}": np.full((i + 1, 3), i, np.float16) for i in range(6)}
    mixed = {name: blocks(name, (2, 256), rng) for name, _, _ in module.TYPES.values()}
    words = ["<s>", "</s>", *(f"w{i}" for i in range(20))]
    tokens = {"general.architecture": "llama", "llama.block_count": 1, "tokenizer.ggml.tokens": words}
    tokens |= {"tokenizer.ggml.scores": np.zeros(22, np.float32), "tokenizer.ggml.merges": ["w 1", "w 2"]}
    layer = {"token_embd.weight": blocks("Q4_0", (22, 32), rng), "output_norm.weight": np.ones(32, np.float32)}
    seeds = [({}, {}), (every, {}), ({}, small), ({}, mixed), (tokens, layer), ({"general.alignment": 64}, small)]
    for i, (metadata, tensors) in enumerate(seeds):
        write_gguf(folder / f"{i}.gguf", metadata, tensors)
    return [(folder / f"{i}.gguf").read_bytes() for i in range(len(seeds))]


def fields(content, monkeypatch):
    """Return (position, size) of every number that the reader reads from the file."""
    found = []
    number = module._Cursor.number

    def noted(self, code, field):
        found.append((self.position, struct.calcsize(code)))
        return number(self, code, field)

    with monkeypatch.context() as patch:
        patch.setattr(module._Cursor, "number", noted)
        GGUF(content)
    return found


@pytest.fixture
def seeds(tmp_path, monkeypatch):
    return [(content, fields(content, monkeypatch)) for content in write_seeds(tmp_path)]


def mutated(seeds, seed):
    """Return the file of this seed: a valid one with one to four mutations."""
    rng = np.random.default_rng([seed, 1])
    content, numbers = seeds[rng.integers(len(seeds))]
    content = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        how = rng.integers(8)
        at = int(rng.integers(len(content))) if content else 0
        where, size = numbers[rng.integers(len(numbers))]
        if how == 0:
            content[at : at + 1] = bytes([content[at] ^ 1 << int(rng.integers(8))]) if content else b""
        elif how <= 2:  # set a field to an extreme value
            value = EXTREMES[rng.integers(len(EXTREMES))]
            content[where : where + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
        elif how == 3 and where + size <= len(content):  # change a field by a little
            value = int.from_bytes(content[where : where + size], "little") + int(rng.integers(-40, 41))
            content[where : where + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
        elif how == 4:
            del content[at:]
        elif how == 5:  # overwrite or insert a piece of another file
            other = seeds[rng.integers(len(seeds))][0]
            begin = int(rng.integers(len(other)))
            piece = other[begin : begin + int(rng.integers(1, 100))]
            content[at : at + (len(piece) if rng.integers(2) else 0)] = piece
        elif how == 6:
            del content[at : at + int(rng.integers(1, 40))]
        else:
            content[at : at + 8] = rng.bytes(8)
    return bytes(content)


def read_through(gguf, content):
    """Read everything in the file, and assert that it lies within it."""
    for value in gguf.metadata.values():
        assert repr(value)
    whole = np.frombuffer(content, np.uint8)
    end = 0
    for tensor in sorted(gguf.tensors.values(), key=lambda t: t.offset):
        assert end <= tensor.offset
        end = tensor.offset + tensor.data.size
        assert end <= len(content)
        assert np.array_equal(tensor.data, whole[tensor.offset : end])
        assert tensor.data.sum(dtype=np.int64) >= 0
        try:
            desc = tensor.desc
        except InvalidArgument:
            continue
        assert desc.dtype.nbytes(desc.numel) == tensor.data.size


def check(content, path=None):
    """Return whether the file opens; any exception but a typed error is raised."""
    if path is not None:
        path.write_bytes(content)
    try:
        gguf = GGUF(content) if path is None else GGUF.open(path)
    except InvalidArgument as error:
        if re.search(r" at byte \d+ .*; allowed: |is empty", str(error)) and len(str(error)) < 1500:
            return False
        raise
    read_through(gguf, content)
    return True


@pytest.mark.parametrize("first", range(FIRST, FIRST + FILES, BATCH))
def test_mutated_files(first, seeds, tmp_path):
    opened = 0
    for seed in range(first, min(first + BATCH, FIRST + FILES)):
        content = mutated(seeds, seed)
        watched = seed % 50 == 0
        if watched:
            tracemalloc.start()
        try:
            opened += check(content, tmp_path / "mutated.gguf" if seed % 5 == 0 else None)
            if watched:
                peak = tracemalloc.get_traced_memory()[1]
                assert peak < 32 * len(content) + 2**17, peak
        except Exception as error:
            raise AssertionError(f"file of seed {seed}, {len(content)} bytes") from error
        finally:
            if watched:
                tracemalloc.stop()
    # some files are valid and some are refused, so mutations reach more than the first fields
    assert 0 < opened < BATCH


def test_seeds_are_sound(seeds):
    assert all(check(content) for content, _ in seeds)
    assert max(len(content) for content, _ in seeds) < 30_000
