"""Test every architecture: logits against float64 models written from their papers, and what their files may hold."""

import itertools

import numpy as np
import pytest
from reference_models import MODELS, logits
from small_architectures import FILES, NAMES, made

from isokern.llm import Model, Session
from isokern.llm.architectures import ARCHITECTURES

TEXT = [int(t) for t in np.random.default_rng(2).integers(0, 97, 30)]


def far(got, wanted):
    return float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))


def test_every_architecture_has_a_file_and_a_model():
    assert set(MODELS) == set(FILES)
    assert {NAMES.get(name, name) for name in FILES} == set(ARCHITECTURES)


@pytest.mark.parametrize("model", list(FILES))
def test_logits_are_those_of_float64(tmp_path, device, model):
    gguf = made(tmp_path / "m.gguf", model)
    wanted, loaded = logits(gguf, model, TEXT), Model(gguf, device=device)
    assert far(Session(loaded, dtype="F32").logits(TEXT, every=True), wanted) < 1e-5
    parts = Session(loaded, dtype="F32")
    rows = [parts.logits(TEXT[a:b], every=True) for a, b in itertools.pairwise((0, 13, 28, 29, 30))]
    assert far(np.concatenate(rows), wanted) < 1e-5
