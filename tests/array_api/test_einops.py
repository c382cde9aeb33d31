"""Test einops on tensors, compared with einops on NumPy's arrays."""

from __future__ import annotations

import numpy as np
import pytest

einops = pytest.importorskip("einops", reason="einops is not installed: pip install einops")

import isokern  # noqa: E402
import isokern.array_api.einops  # noqa: E402

X = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
W = np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: einops.rearrange(x, "b h w -> w (b h)"),
        lambda x, w: einops.rearrange(x, "b (h p) w -> (b p) h 1 w", p=2),
        lambda x, w: einops.rearrange([x, x], "n b h w -> b h (n w)"),
        lambda x, w: einops.repeat(x, "b h w -> b k h (w r)", k=3, r=2),
        *[
            lambda x, w, r=r: einops.reduce(x, "b (h p) w -> b h", r, p=2)
            for r in ("min", "max", "sum", "mean", "prod")
        ],
        lambda x, w: einops.reduce(x > 5, "b h w -> b w", "any"),
        lambda x, w: einops.reduce(x > 5, "b h w -> b w", "all"),
        lambda x, w: einops.einsum(x, w, "batch row inner, inner column -> batch column row"),
        lambda x, w: einops.einsum(x, x, "b h w, b k w -> b h k"),
        lambda x, w: einops.einsum(x, "b h w -> b"),
        lambda x, w: einops.einsum(x, w, "... i, i j -> ... j"),
        lambda x, w: einops.pack([x, x[:, 0]], "b * w")[0],
        lambda x, w: einops.unpack(x, [(1,), (3,)], "b * w")[1],
    ],
)
def test_einops_gives_what_it_gives_of_numpys_arrays(place, call):
    wanted = call(X, W)
    found = call(isokern.tensor(X, device=place), isokern.tensor(W, device=place))
    assert isinstance(found, isokern.Tensor) and found.device is place
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_sizes_that_do_not_fit_are_einops_own_error(place):
    with pytest.raises(einops.EinopsError, match="divide axis of length 4"):
        einops.rearrange(isokern.tensor(X, device=place), "b (h p) w -> b h p w", p=3)
