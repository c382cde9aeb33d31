"""PyTorch's random numbers: of many draws, the shares below some numbers are those of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from torch_rows import (
    Row,
    ik,
)

DRAWS = 200_000


def shares(x: torch.Tensor, edges: list[float]) -> torch.Tensor:
    """Return which share of the elements lies below each edge."""
    return torch.tensor([(x < e).double().mean().item() for e in edges], dtype=torch.float64)


def alike(theirs: Callable[[], torch.Tensor], edges: list[float]) -> Callable[..., Any]:
    return lambda *_, **__: shares(theirs().double(), edges)


def drawn(ours: Callable[[], Any], edges: list[float]) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        found = torch.from_numpy(ours().numpy().astype("float64"))
        return ik.copy(shares(found, edges).numpy())

    return call


def seed() -> Any:
    return np.array([7, 0], np.uint64)


def alike_row(
    name: str, ours: str, theirs: Callable[[], torch.Tensor], call: Callable[[], Any], edges: list[float]
) -> Row:
    """Return a row whose error is that of DRAWS draws: shares are within 0.01."""
    return Row(
        name,
        ours,
        drawn(call, edges),
        dtypes=(torch.float64,),
        slack=1e10,
        inputs=lambda dtype: [((), {})],
        function=alike(theirs, edges),
    )


ROWS = [
    alike_row(
        "torch.rand",
        "random_uniform",
        lambda: torch.rand(DRAWS) * 3 - 1,
        lambda: ik.random_uniform(seed(), low=-1, high=2, shape=(DRAWS,), dtype="F32"),
        [-1, -0.5, 0, 1, 1.9, 2],
    ),
    alike_row(
        "torch.normal",
        "random_normal",
        lambda: torch.normal(1.0, 2.0, (DRAWS,)),
        lambda: ik.random_normal(seed(), mean=1, scale=2, shape=(DRAWS,), dtype="F32"),
        [-5, -2, 0, 1, 2, 4],
    ),
    alike_row(
        "torch.randint",
        "randint",
        lambda: torch.randint(-3, 5, (DRAWS,)),
        lambda: ik.randint(seed(), low=-3, high=5, shape=(DRAWS,), dtype="I64"),
        [-3, -2, 0, 4, 5],
    ),
    alike_row(
        "torch.bernoulli",
        "bernoulli",
        lambda: torch.bernoulli(torch.full((DRAWS,), 0.3)),
        lambda: ik.bernoulli(ik.fill(value=0.3, shape=(DRAWS,), dtype="F32"), seed(), dtype="F32"),
        [0.5],
    ),
    alike_row(
        "torch.multinomial",
        "multinomial",
        lambda: torch.multinomial(torch.tensor([1.0, 0, 3, 4]), DRAWS, replacement=True),
        lambda: ik.multinomial(ik.cast([1.0, 0, 3, 4], dtype="F32"), seed(), num_samples=DRAWS),
        [1, 2, 3, 4],
    ),
    alike_row(
        "torch.nn.functional.dropout",
        "dropout",
        lambda: F.dropout(torch.ones(DRAWS), 0.3),
        lambda: ik.dropout(ik.fill(value=1.0, shape=(DRAWS,), dtype="F32"), seed(), p=0.3)[0],
        [0.5, 1.4, 1.43],
    ),
]
