"""Test that checkpoints of others load into our layers by a map of names."""

import json

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("safetensors", reason="safetensors is not installed: pip install 'isokern[graph]'")

from safetensors.numpy import save_file

from isokern import BadTensorShape, InvalidArgument
from isokern.graph import Model, load_state
from isokern.graph.layers import Linear, RMSNorm, Sequential

NAMES = {
    "model.layers.{n}.mlp.weight": "net.{n}.0.weight",
    "model.layers.{n}.norm.{kind}": "net.{n}.1.{kind}",
    "model.layers.{n}.turned": ("net.{n}.0.bias", lambda x: x[0]),
    "lm_head.{rest}": None,
}


@pytest.fixture
def model():
    """Return a model of two blocks."""
    m = Model("m")
    m.output(m.add(Sequential(*(Sequential(Linear(4), RMSNorm()) for _ in range(2))), m.input("x", (3, 4)), name="net"))
    return m


def state():
    random = np.random.default_rng(0)
    found = {"lm_head.weight": np.zeros((2, 2), np.float32)}
    for n in range(2):
        found[f"model.layers.{n}.mlp.weight"] = random.standard_normal((4, 4)).astype(np.float32)
        found[f"model.layers.{n}.norm.weight"] = random.standard_normal(4).astype(np.float16)
        found[f"model.layers.{n}.turned"] = random.standard_normal((1, 4)).astype(ml_dtypes.bfloat16)
    return found


def write_shards(folder, arrays, **changes):
    """Write a checkpoint of two files and an index, as Hugging Face does."""
    names = sorted(arrays)
    parts = {"model-00001-of-00002.safetensors": names[:3], "model-00002-of-00002.safetensors": names[3:]}
    for file, held in parts.items():
        save_file({n: arrays[n] for n in held}, folder / file)
    where = {n: file for file, held in parts.items() for n in held}
    index = {"metadata": {"total_size": 1}, "weight_map": {**where, **changes}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder / "model.safetensors.index.json"


@pytest.mark.parametrize("form", ["file", "folder", "index", "folder with index"])
def test_a_checkpoint_loads_by_its_names(model, tmp_path, form):
    arrays = state()
    path = tmp_path
    if "index" in form:
        path = write_shards(tmp_path, arrays)
    else:
        path = tmp_path / "model.safetensors"
        save_file(arrays, path)
    load_state(model, tmp_path if "folder" in form else path, NAMES)
    for n in range(2):
        np.testing.assert_array_equal(model.parameters[f"net.{n}.0.weight"], arrays[f"model.layers.{n}.mlp.weight"])
        np.testing.assert_array_equal(model.parameters[f"net.{n}.1.weight"], arrays[f"model.layers.{n}.norm.weight"])
        bias = arrays[f"model.layers.{n}.turned"][0].astype(np.float32)
        np.testing.assert_array_equal(model.parameters[f"net.{n}.0.bias"], bias)
    model.complete()


def test_names_of_the_model_need_no_map(model, tmp_path):
    model.initialise()
    model.save(tmp_path / "own.safetensors")
    other = Model("other")
    net = Sequential(*(Sequential(Linear(4), RMSNorm()) for _ in range(2)))
    other.output(other.add(net, other.input("x", (3, 4)), name="net"))
    load_state(other, tmp_path / "own.safetensors")
    assert all(np.array_equal(other.parameters[n], a) for n, a in model.parameters.items())


WRONG = {
    "for no parameter": lambda a: a.update({"model.layers.7.mlp.weight": np.zeros((4, 4), np.float32)}),
    "lm_tail.weight": lambda a: a.update({"lm_tail.weight": np.zeros(2, np.float32)}),
    "has no net.1.0.weight": lambda a: a.pop("model.layers.1.mlp.weight"),
    "two tensors for 'net.0.0.weight'": lambda a: a.update({"net.0.0.weight": np.zeros((4, 4), np.float32)}),
}


@pytest.mark.parametrize("told", WRONG)
def test_nothing_is_ignored_or_missing(model, tmp_path, told):
    arrays = state()
    WRONG[told](arrays)
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(InvalidArgument, match=told):
        load_state(model, tmp_path, NAMES)
    assert not model.parameters


def test_a_shape_is_checked(model, tmp_path):
    arrays = state()
    arrays["model.layers.0.mlp.weight"] = np.zeros((4, 5), np.float32)
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(BadTensorShape, match=r"net.0.0.weight"):
        load_state(model, tmp_path, NAMES)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"more": "model-00001-of-00002.safetensors"}, "differ in more"),
        ({"lm_head.weight": "../model.safetensors"}, "files next to it"),
        ({"lm_head.weight": "missing.safetensors"}, "files next to it"),
        ({"lm_head.weight": "model-00002-of-00002.safetensors"}, "differ in lm_head.weight"),
        ({"lm_head.weight": 3}, "an index"),
    ],
)
def test_an_index_that_is_wrong_is_told(model, tmp_path, changes, told):
    save_file(state(), tmp_path / "model.safetensors")
    (tmp_path / "inner").mkdir()
    path = write_shards(tmp_path / "inner", state(), **changes)
    with pytest.raises(InvalidArgument, match=told):
        load_state(model, path, NAMES)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', "[" * 100_000, "\0"])
def test_what_is_no_index_is_told(model, tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InvalidArgument, match="an index"):
        load_state(model, tmp_path / "x.json", NAMES)
    (tmp_path / "model.safetensors").write_text(text)
    with pytest.raises(InvalidArgument, match="a safetensors file"):
        load_state(model, tmp_path, NAMES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="one with model"):
        load_state(model, tmp_path / "empty")


def test_a_map_that_is_wrong_is_told(model, tmp_path):
    save_file(state(), tmp_path / "model.safetensors")
    with pytest.raises(InvalidArgument, match="fields of the name"):
        load_state(
            model, tmp_path, {"model.{n}": "x", **NAMES, "lm_head.{x}": None, "model.layers.{n}.mlp.weight": "{m}"}
        )
    with pytest.raises(InvalidArgument, match="fields such as"):
        load_state(model, tmp_path, {"{9}": "x"})
