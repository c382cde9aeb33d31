"""Test what is this backend's own."""

import numpy as np
import pytest

import isokern


def test_it_computes() -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    on = isokern.tensor(x, device="acme:0")
    assert np.array_equal(isokern.add(on, isokern.neg(on)).numpy(), np.zeros_like(x))
    assert np.array_equal(isokern.transpose(on).numpy(), x.T)


def test_a_plan_that_a_kernel_does_not_take_is_refused_with_the_reason() -> None:
    x = isokern.tensor(np.ones(3), device="acme:0")
    with pytest.raises(isokern.NotImplementedOnDevice, match="NaN is declared for F64 beyond"):
        isokern.sin(x)


def test_an_operator_without_a_kernel_is_refused() -> None:
    x = isokern.tensor(np.ones((2, 2), np.float32), device="acme:0")
    with pytest.raises(isokern.NotImplementedOnDevice, match="acme:0 has no kernel for gemm"):
        isokern.matmul(x, x)
