"""Test sessions that begin as another one goes on: what they write, what they compute, and that they are apart."""

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
from small_architectures import made

from isokern.llm import Generation, Model, Sampling, Session, tokens
from isokern.status import InvalidArgument

pytestmark = pytest.mark.filterwarnings("ignore:.*positions are more than the")
FILE = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
TEXT = [int(t) for t in np.random.default_rng(9).integers(0, 90, 330)]
DRAWN = Sampling(0.9, 40, 0.95, 0.02, 1.1, 5)


def write(session, prompt, most=12, sampling=DRAWN):
    return list(tokens(session, prompt, most, sampling, frozenset(), Generation()))


@pytest.fixture
def counted(monkeypatch):
    """Return the numbers of tokens that sessions were given."""
    given, take = [], Session.take
    monkeypatch.setattr(Session, "take", lambda self, n, room: given.append(n) or take(self, n, room))
    return given


@pytest.mark.quick("llama-Q4_0", "gemma3-F32", "deepseek2-Q8_0", "mamba-F16", "rwkv7-F16")
@pytest.mark.parametrize("dtype", ["F32", "F16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "deepseek2", "mamba", "rwkv7"])
def test_a_fork_writes_what_a_session_writes_that_read_all(tmp_path, device, counted, name, dtype):
    if dtype != "F16" and name in ("mamba", "rwkv7"):
        pytest.skip("states are F32")
    model = Model(made(tmp_path / "m.gguf", name), device=device)
    session, start = Session(model, 400, dtype), 300 if name == "gemma3" else 40
    session.logits(TEXT[:start])
    counted.clear()
    forks = [session.fork() for _ in range(2)]
    assert not counted and [f.position for f in forks] == [start] * 2
    endings = [TEXT[start : start + 5], TEXT[start + 8 : start + 11]]
    found = [write(fork, ending) for fork, ending in zip(forks, endings, strict=True)]
    assert sum(counted) == 5 + 3 + 2 * 11
    found.append(write(session, TEXT[start + 1 : start + 2]))
    for ending, texts in zip([*endings, TEXT[start + 1 : start + 2]], found, strict=True):
        other = Session(model, 400, dtype)
        other.logits(TEXT[:start])
        assert write(other, ending) == texts


def test_forks_of_what_was_dropped_and_of_nothing(tmp_path, device):
    model = Model(made(tmp_path / "m.gguf", "gemma3"), device=device)
    session = Session(model, 400, "F32")
    assert session.fork().position == 0
    session.logits(TEXT[:310])
    session.prune_prefix(290)
    assert (session.position, session.dropped) == (20, 290)
    fork = session.fork()
    assert (fork.position, fork.dropped, fork.base) == (20, 290, session.base)
    assert write(fork, [3, 4]) == write(session, [3, 4])


def test_prefixes_that_are_not_there(tmp_path, device):
    session = Session(Model(made(tmp_path / "m.gguf", "llama"), device=device), 64)
    session.logits(TEXT[:8])
    for n in (-1, 9):
        with pytest.raises(InvalidArgument, match=f"n={n}"):
            session.prune_prefix(n)
    assert session.position == 8


def test_a_fork_outlives_the_session_that_it_began_as(device_group):
    for device in device_group:
        model = Model.open(FILE, device=device)
        session = Session(model, 96)
        session.logits(TEXT[:30])
        wanted = write(session.fork(), TEXT[30:32])
        one, other = session.fork(), session.fork()
        write(session, TEXT[40:44])  # leaves the others alone
        del session
        gc.collect()
        assert write(one, TEXT[30:32]) == wanted
        one.clear()
        del one
        gc.collect()
        assert write(other, TEXT[30:32]) == wanted, device.name


def test_forks_write_in_threads(cpu):
    model = Model.open(FILE, device=cpu)
    session = Session(model, 96)
    session.logits(TEXT[:30])
    wanted = [write(session.fork(), [10 + n]) for n in range(4)]
    found, forks = {}, [session.fork() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda n=n: found.__setitem__(n, write(forks[n], [10 + n]))) for n in range(len(forks))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(4)] == wanted
