"""Test linear models, support vector machines and preparing nodes of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from onnx import TensorProto, helper, numpy_helper
from runtime_peer import ML, assert_same, feeds, make, ours
from small_models import model, node, value

from isokern.onnx import UnsupportedModel, load
from isokern.status import InvalidArgument

FLOAT, INT64, DOUBLE, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.INT32
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


def numbers(draw: np.random.Generator, count: int) -> list[float]:
    return [float(v) for v in draw.normal(size=count).astype(np.float32)]


def rows(draw: np.random.Generator, width: int, dtype: Any = np.float32) -> Any:
    """Return rows of features, or a vector."""
    shape = (width,) if draw.random() < 0.15 else (int(draw.integers(1, 9)), width)
    return (draw.normal(size=shape) * (4 if np.dtype(dtype).kind == "i" else 1)).astype(dtype)


# Linear models


@pytest.mark.parametrize("seed", range(40))
def test_a_linear_classifier(seed: int) -> None:
    draw = np.random.default_rng(seed)
    classes, count = [(2, 1), (2, 2), (3, 3), (5, 5)][seed % 4]
    x = rows(draw, 4, draw.choice([np.float32, np.float64, np.int64, np.int32]))
    attrs = {"coefficients": numbers(draw, 4 * count), "intercepts": numbers(draw, count)}
    attrs |= {"classlabels_ints": [int(v) for v in draw.permutation(classes) * 2 - 3]}
    how = {"post_transform": str(draw.choice(TRANSFORMS)), "multi_class": int(draw.integers(2))}
    assert_same(make("LinearClassifier", ML, [x], [INT64, FLOAT], **attrs, **how), feeds([x]))


def test_the_first_of_equal_scores_is_the_label() -> None:
    x = np.float32([[1, 1], [0, 0]])
    attrs = {"coefficients": [1.0, 0, 0, 1.0, 0.5, 0.5], "intercepts": [0.0] * 3, "classlabels_ints": [7, 8, 9]}
    wanted = assert_same(make("LinearClassifier", ML, [x], [INT64, FLOAT], **attrs), feeds([x]))
    assert wanted[0].tolist() == [7, 7]


@pytest.mark.parametrize("seed", range(16))
def test_a_linear_regressor(seed: int) -> None:
    draw, targets = np.random.default_rng(seed), 1 + seed % 3
    x = rows(draw, 5)
    attrs = {"coefficients": numbers(draw, 5 * targets), "targets": targets}
    if draw.random() < 0.7:
        attrs["intercepts"] = numbers(draw, targets)
    attrs["post_transform"] = str(draw.choice(TRANSFORMS))
    assert_same(make("LinearRegressor", ML, [x], [FLOAT], **attrs), feeds([x]))


# Support vector machines


@pytest.mark.parametrize("seed", range(48))
def test_a_support_vector_classifier(seed: int) -> None:
    draw = np.random.default_rng(seed)
    classes, width = [2, 3, 4][seed % 3], 3
    labels = [int(v) for v in draw.permutation(classes) * 2 - 3]
    attrs: dict[str, Any] = {"classlabels_ints": labels, "post_transform": str(draw.choice(TRANSFORMS))}
    if seed % 8 == 7:  # without vectors, as liblinear
        attrs |= {
            "coefficients": numbers(draw, classes * width),
            "rho": numbers(draw, 1),
            "kernel_params": [0.0, 0.0, 3.0],
        }
    else:
        counts = [int(v) for v in draw.integers(0, 4, classes)]
        counts[0] += 1
        total, pairs = sum(counts), classes * (classes - 1) // 2
        attrs |= {"vectors_per_class": counts, "support_vectors": numbers(draw, total * width)}
        attrs |= {"coefficients": numbers(draw, total * (classes - 1)), "rho": numbers(draw, pairs)}
        attrs |= {"kernel_type": str(draw.choice(["LINEAR", "POLY", "RBF", "SIGMOID"]))}
        attrs |= {"kernel_params": [0.3, 0.5, float(draw.choice([2, 3]))]}
        if draw.random() < 0.5:
            attrs |= {"prob_a": [-abs(v) for v in numbers(draw, pairs)], "prob_b": numbers(draw, pairs)}
    x = rows(draw, width, draw.choice([np.float32, np.float64, np.int64]))
    assert_same(make("SVMClassifier", ML, [x], [INT64, FLOAT], **attrs), feeds([x]), tolerance=1e-4)


@pytest.mark.parametrize("seed", range(24))
def test_a_support_vector_regressor(seed: int) -> None:
    draw, width = np.random.default_rng(seed), 3
    count = int(draw.integers(0, 6))
    attrs: dict[str, Any] = {"n_supports": count, "rho": numbers(draw, 1), "one_class": int(draw.random() < 0.3)}
    attrs |= {"coefficients": numbers(draw, count or width)}
    if count:
        attrs |= {"support_vectors": numbers(draw, count * width)}
    attrs |= {"kernel_type": str(draw.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])) if count else "LINEAR"}
    attrs |= {"kernel_params": [0.3, 0.5, float(draw.choice([2, 3]))]}
    x = rows(draw, width)
    assert_same(make("SVMRegressor", ML, [x], [FLOAT], **attrs), feeds([x]), tolerance=1e-4)


# What prepares features


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("single", [True, False])
def test_a_scaler(dtype: Any, single: bool) -> None:
    draw = np.random.default_rng(4)
    x, count = rows(draw, 3, dtype), 1 if single else 3
    attrs = {"offset": numbers(draw, count), "scale": numbers(draw, count)}
    assert_same(make("Scaler", ML, [x], [FLOAT], **attrs), feeds([x]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_a_normalizer(norm: str, dtype: Any) -> None:
    x = np.array([[1, -3, 2], [-1, -2, -4], [0, 0, 0], [0, -5, 0]]).astype(dtype)
    assert_same(make("Normalizer", ML, [x], [FLOAT], norm=norm), feeds([x]))


def test_a_binarizer() -> None:
    x = np.float32([[0.5, 0.6, -0.0], [-np.inf, np.inf, 0.4]])
    assert_same(make("Binarizer", ML, [x], [FLOAT], threshold=0.5), feeds([x]))
    whole = np.int64([[1, 2, 3]])
    assert ours(make("Binarizer", ML, [whole], [INT64], threshold=2.0), feeds([whole]))[0].tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("old", [float("nan"), 0.0, 2.5])
@pytest.mark.parametrize("count", [1, 3])
def test_an_imputer(old: float, count: int) -> None:
    x = np.float32([[0, 2.5, np.nan], [np.nan, 1, 0], [-0.0, np.nan, 2.5]])
    attrs = {"imputed_value_floats": [7.0, 8.0, 9.0][:count], "replaced_value_float": old}
    assert_same(make("Imputer", ML, [x], [FLOAT], **attrs), feeds([x]))


def test_an_imputer_of_integers() -> None:
    x = np.int64([[0, 5, -1], [5, 1, 0]])
    attrs = {"imputed_value_int64s": [7, 8, 9], "replaced_value_int64": 5}
    assert_same(make("Imputer", ML, [x], [INT64], **attrs), feeds([x]))


@pytest.mark.parametrize(
    "keys", [np.int64([3, -1, 7, 7, 0]), np.float32([0.5, np.nan, -2, 0.5, np.inf]), np.int64([4])]
)
@pytest.mark.parametrize("values", ["int64s", "floats"])
def test_a_label_encoder(keys: Any, values: str) -> None:
    draw = np.random.default_rng(1)
    x = np.concatenate([keys, keys + 1, draw.permutation(keys)]).reshape(-1, 3)
    kind = "int64s" if keys.dtype == np.int64 else "floats"
    told = list(range(10, 10 + len(keys))) if values == "int64s" else [v + 0.5 for v in range(len(keys))]
    attrs: dict[str, Any] = {f"keys_{kind}": keys.tolist(), f"values_{values}": told}
    attrs |= {"default_int64": -5} if values == "int64s" else {"default_float": 99.5}
    for version in (2, 4) if not np.isnan(keys.astype(float)).any() else (4,):
        made = make("LabelEncoder", ML, [x], [INT64 if values == "int64s" else FLOAT], (), {ML: version}, **attrs)
        assert_same(made, feeds([x]))


def test_a_label_encoder_of_tensors() -> None:
    x = np.float64([[0.1, 0.2, np.nan]])
    tensors = {
        "keys_tensor": np.float64([np.nan, 0.1]),
        "values_tensor": np.int64([5, 6]),
        "default_tensor": np.int64([9]),
    }
    attrs = {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
    made = make("LabelEncoder", ML, [x], [INT64], (), {ML: 4}, **attrs)
    assert ours(made, feeds([x]))[0].tolist() == [[6, 9, 5]]


@pytest.mark.parametrize("size", [1, 2, 3, 8, 100])
def test_every_key_is_found(size: int) -> None:
    keys = np.random.default_rng(size).permutation(3 * size)[:size].astype(np.int64)
    x = np.arange(-1, 3 * size + 1)
    attrs = {"keys_int64s": keys.tolist(), "values_int64s": (keys * 2).tolist(), "default_int64": -1}
    got = ours(make("LabelEncoder", ML, [x], [INT64], **attrs), feeds([x]))[0]
    np.testing.assert_array_equal(got, np.where(np.isin(x, keys), x * 2, -1))


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
def test_a_one_hot_encoder(dtype: Any) -> None:
    x = np.array([[3, 0], [8, 5], [4, 3]]).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[0, 0] = 3.7  # which is truncated
    assert_same(make("OneHotEncoder", ML, [x], [FLOAT], cats_int64s=[5, 3, 8], zeros=1), feeds([x]))
    known = np.array([[3, 5], [8, 5]]).astype(dtype)
    assert_same(make("OneHotEncoder", ML, [known], [FLOAT], cats_int64s=[5, 3, 8], zeros=0), feeds([known]))


def test_an_unknown_category_is_an_error_without_zeros() -> None:
    x = np.int64([[3], [4]])
    with pytest.raises(InvalidArgument, match="out of range"):
        ours(make("OneHotEncoder", ML, [x], [FLOAT], cats_int64s=[5, 3, 8], zeros=0), feeds([x]))


def test_columns_are_picked() -> None:
    draw = np.random.default_rng(0)
    for shape in ((4,), (3, 4), (2, 3, 4)):
        x, places = draw.normal(size=shape).astype(np.float32), np.int64([[2, 0, 2]])
        assert_same(make("ArrayFeatureExtractor", ML, [x, places], [FLOAT]), feeds([x, places]))


def test_columns_are_joined() -> None:
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([[5], [6]])
    for widths in ([2, 1], [1, 3], [3, 1]):
        assert_same(make("FeatureVectorizer", ML, [x, y], [FLOAT], inputdimensions=widths), feeds([x, y]))


# Maps as results


def zip_map(x: Any, labels: dict[str, Any]) -> Any:
    """Return a model whose result is a sequence of maps."""
    key = TensorProto.INT64 if "classlabels_int64s" in labels else TensorProto.STRING
    maps = helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, []))
    result = helper.make_value_info("z", helper.make_sequence_type_proto(maps))
    nodes = [node("Relu", "x", "r"), helper.make_node("ZipMap", ["r"], ["z"], domain=ML, **labels)]
    return model(nodes, [value("x", x.shape)], [result], domains=[ML])


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [4, 9]}, {"classlabels_strings": ["no", "yes"]}])
def test_maps_are_a_table_with_labels(labels: dict[str, Any]) -> None:
    x = np.float32([[1, -2], [3, 4], [0, 5]])
    loaded = load(zip_map(x, labels), "cpu:0")
    (names,) = labels.values()
    assert loaded.outputs[0].labels == tuple(names)
    assert str(loaded.outputs[0]) == "z: FLOAT[z.0, 2]"
    np.testing.assert_array_equal(loaded.run(x), np.maximum(x, 0))


def test_maps_of_another_number_of_labels() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidArgument, match="rows of 2 scores"):
        load(zip_map(x, {"classlabels_int64s": [4, 9]}), "cpu:0")


# What is refused


@pytest.mark.parametrize(
    ("kind", "attrs", "error", "match"),
    [
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0]}, InvalidArgument, "3 coefficients"),
        ("LinearRegressor", {"coefficients": [1.0] * 2, "intercepts": [1.0] * 2}, InvalidArgument, "2 intercepts"),
        ("Scaler", {"offset": [1.0] * 3, "scale": [1.0]}, InvalidArgument, "3 numbers of offset"),
        ("Normalizer", {"norm": "L3"}, InvalidArgument, "L3"),
        ("OneHotEncoder", {"cats_int64s": [1, 1]}, InvalidArgument, "twice"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, UnsupportedModel, "text"),
        ("LabelEncoder", {"keys_strings": ["a"], "values_floats": [1.0]}, UnsupportedModel, "text"),
        ("SVMRegressor", {"coefficients": [1.0] * 2, "rho": [0.0, 1.0]}, InvalidArgument, "rho has 2"),
        (
            "SVMRegressor",
            {"n_supports": 2, "coefficients": [1.0] * 2, "rho": [0.0]},
            InvalidArgument,
            "support_vectors",
        ),
        ("DictVectorizer", {"int64_vocabulary": [1, 2]}, UnsupportedModel, "DictVectorizer"),
    ],
)
def test_a_node_that_is_refused(kind: str, attrs: dict[str, Any], error: type[Exception], match: str) -> None:
    x = np.ones((2, 2), np.float32)
    with pytest.raises(error, match=match):
        ours(make(kind, ML, [x], [FLOAT], **attrs), feeds([x]))


def test_labels_that_are_text() -> None:
    x = np.ones((2, 2), np.float32)
    attrs = {"coefficients": [1.0] * 4, "intercepts": [0.0] * 2, "classlabels_strings": ["a", "b"]}
    with pytest.raises(UnsupportedModel, match="labels that are text"):
        ours(make("LinearClassifier", ML, [x], [INT64, FLOAT], **attrs), feeds([x]))
