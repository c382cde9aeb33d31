"""Test that libraries find the namespace: array-api-compat, and what they compute by it."""

from __future__ import annotations

import importlib
import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is imported

import numpy as np
import pytest

import isokern
import isokern.array_api as xp


def test_array_api_compat_finds_the_namespace(devices):
    compat = pytest.importorskip("array_api_compat", reason="array-api-compat is not installed")
    for device in devices:
        x = isokern.ones((2, 3), device=device)
        assert compat.array_namespace(x, 1.0) is xp
        assert compat.is_array_api_obj(x)
        assert compat.device(x) is device
        assert compat.size(x) == 6
        assert compat.to_device(x, devices[0]).device is devices[0]
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(x, np.ones(2))


ESTIMATORS = {
    "PCA": lambda s, x, y, t: s.decomposition.PCA(3, svd_solver="full").fit(x).explained_variance_,
    "PCA by eigh": lambda s, x, y, t: s.decomposition.PCA(3, svd_solver="covariance_eigh").fit(x).explained_variance_,
    "Ridge": lambda s, x, y, t: s.linear_model.Ridge(solver="svd").fit(x, t).predict(x),
    "RidgeCV": lambda s, x, y, t: s.linear_model.RidgeCV().fit(x, t).predict(x),
    "RidgeClassifier": lambda s, x, y, t: s.linear_model.RidgeClassifier(solver="svd").fit(x, y).decision_function(x),
    "LinearDiscriminantAnalysis": lambda s, x, y, t: (
        s.discriminant_analysis.LinearDiscriminantAnalysis().fit(x, y).decision_function(x)
    ),
    "MinMaxScaler": lambda s, x, y, t: s.preprocessing.MinMaxScaler().fit_transform(x),
    "Normalizer": lambda s, x, y, t: s.preprocessing.Normalizer().fit_transform(x),
    "KernelCenterer": lambda s, x, y, t: s.preprocessing.KernelCenterer().fit_transform(x @ x.T),
    "LabelEncoder": lambda s, x, y, t: s.preprocessing.LabelEncoder().fit_transform(y),
    "euclidean_distances": lambda s, x, y, t: s.metrics.pairwise.euclidean_distances(x),
    "confusion_matrix": lambda s, x, y, t: s.metrics.confusion_matrix(y, y),
    "r2_score": lambda s, x, y, t: s.metrics.r2_score(t, t * 0.75),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scikit_learn_computes_on_the_device(name, devices):
    """An estimator gives what it gives of NumPy's arrays, and leaves its results on the arrays' device."""
    sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    for module in ("decomposition", "linear_model", "discriminant_analysis", "preprocessing", "metrics"):
        importlib.import_module(f"sklearn.{module}")
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 5)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    t = (x @ np.arange(5)).astype(np.float32)
    expected = ESTIMATORS[name](sklearn, x, y, t)
    for device in devices[:2]:
        arrays = [isokern.tensor(a, device=device) for a in (x, y, t)]
        try:
            with sklearn.config_context(array_api_dispatch=True):
                found = ESTIMATORS[name](sklearn, *arrays)
        except RuntimeError as error:
            pytest.skip(str(error))  # SciPy was imported before SCIPY_ARRAY_API was set
        if isinstance(expected, np.ndarray):
            assert found.device is device
            found = found.numpy()
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
