"""Test that results share memory as PyTorch's do: with one another and with arguments, at the same strides and offsets.

Eager PyTorch is the oracle: for functions that are written here, and for programs of views that are drawn.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import isokern.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's own


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield


class Module(torch.nn.Module):
    """A module of a function and a buffer."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("held", torch.arange(6.0))

    def forward(self, *args: Any) -> Any:
        return tuple(self.function(self, *args))


def layouts(tensors: Any) -> list[Any]:
    """Return which memory each tensor has, by the first that has it, and how it is laid out there."""
    first: dict[int, int] = {}
    return [
        (first.setdefault(t.untyped_storage().data_ptr(), n), t.shape, t.stride(), t.storage_offset())
        for n, t in enumerate(tensors)
    ]


def write(tensors: Any) -> list[Any]:
    """Write to each tensor that can be written, and return what all of them hold after each write."""
    seen = []
    for n, t in enumerate(tensors):
        if torch._debug_has_internal_overlap(t) != 1:
            t.fill_(100 + n)
        seen.append([u.tolist() for u in tensors])
    return seen


def make_input() -> Any:
    return torch.arange(24.0).reshape(4, 6)


def compare(function: Any, how: str, make: Any = make_input) -> None:
    """Compare the buffer, the argument and the results of a module with those in eager PyTorch."""
    eager, module = Module(function), Module(function)
    x, y = make(), make()
    wanted = [eager.held, x, *eager(x)]
    if how == "compile":
        found = [module.held, y, *torch.compile(module, backend="isokern")(y)]
    else:
        loaded = isokern.torch.load(torch.export.export(module, (make(),)))
        found = [loaded._exported.state_dict["held"], y, *loaded(y)]
    assert [t.tolist() for t in found] == [t.tolist() for t in wanted]
    assert layouts(found) == layouts(wanted)
    assert write(found) == write(wanted)


FUNCTIONS = {
    "parts of a result": lambda m, x: ((y := x * 2)[0], y[1:], y.t(), y),
    "a part alone": lambda m, x: ((x * 2)[:, 1::2],),
    "a broadcast part": lambda m, x: ((x.sum(0, keepdim=True)).expand(3, 6),),
    "overlapping windows": lambda m, x: ((x * 2).unfold(1, 3, 1),),
    "pieces": lambda m, x: (*(x + 1).split(2, 1), *(x - 1).unbind(0)),
    "a result detached": lambda m, x: ((y := x + 1), y.detach()),
    "one tensor twice": lambda m, x: ((y := x + 1), y),
    "a copy of an argument": lambda m, x: (x.clone(), x + 0),
    "a copy of a result": lambda m, x: ((y := x * 2), y.clone(), y.contiguous()),
    "equal results": lambda m, x: (x * 2, x * 2),
    "parts of an argument": lambda m, x: (x[1], x.t(), x.view(-1), x.diagonal()),
    "parts of a buffer": lambda m, x: (m.held[2:], m.held.view(2, 3), x + 1),
    "parts of a known array": lambda m, x: ((z := torch.zeros(3)), z[1:], torch.zeros(3)),
    "parts of another order": lambda m, x: ((y := x.t() + 1)[1], y.t()),
    "a buffer that is written to": lambda m, x: (m.held.add_(1), m.held[2:], x + 1),
    "what a buffer is written": lambda m, x: ((y := x[0] + 1), m.held.copy_(y)[1:]),
    "an argument that is written to": lambda m, x: (x.mul_(2)[1:], x.t(), m.held[2]),
    "a part that is written to": lambda m, x: ((y := x * 2)[0].zero_(), y, y[0:1]),
}


@pytest.mark.parametrize("how", ["compile", "load"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_share_memory_as_in_eager_pytorch(name, how):
    compare(FUNCTIONS[name], how)


def test_one_tensor_that_is_returned_twice_is_one_object():
    program = torch.export.export(Module(lambda m, x: ((y := x + 1), y, x, x)), (make_input(),))
    x = make_input()
    a, b, c, d = isokern.torch.load(program)(x)
    assert a is b and c is d and c is x


class Swapping(torch.nn.Module):
    """Two buffers, of which the one that is declared first is written last."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.ones(2))
        self.register_buffer("a", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        kept = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(kept)
        return x + 1


def test_buffers_that_are_swapped_are_read_before_one_is_written():
    program = torch.export.export(Swapping(), (torch.ones(2),))
    isokern.torch.load(program)(torch.ones(2))
    assert program.state_dict["a"].tolist() == [1, 1] and program.state_dict["b"].tolist() == [0, 0]


def test_a_write_after_a_graph_break_is_seen():
    """pytorch/pytorch#97083: what is written to a tensor after a break is seen in the view that was made before."""

    def function(x):
        y = x * 2
        v = y[0]
        torch._dynamo.graph_break()
        y.zero_()
        return v

    assert torch.compile(function, backend="isokern")(torch.ones(2, 2)).tolist() == [0, 0]


def test_open_dims_have_their_own_strides():
    function = torch.compile(lambda x: ((y := x.t() * 2)[1:], y[:, 0], y.t()), backend="isokern", dynamic=True)
    for rows, columns in ((4, 6), (7, 3), (3, 9)):
        x = torch.rand(rows, columns)
        y = x.t() * 2
        wanted, found = [y[1:], y[:, 0], y.t()], function(x)
        assert layouts(found) == layouts(wanted) and all(map(torch.equal, found, wanted))


def test_an_argument_of_other_strides_is_copied_as_reshape_does():
    program = torch.export.export(Module(lambda m, x: (x.reshape(-1), x + 1)), (make_input(),))
    x = torch.arange(24.0).reshape(6, 4).t()
    assert torch.equal(isokern.torch.load(program)(x)[0], x.reshape(-1))


def test_results_may_be_changed_in_place_while_gradients_are_wanted():
    """A view that was made under no_grad refuses this, so results that PyTorch does not make as views are none."""
    found = torch.compile(lambda x: (x.clone(), x.t() + 1), backend="isokern")(make_input())
    with torch.enable_grad():
        for y in found:
            y.mul_(torch.ones((), requires_grad=True)).sum().backward()


# Programs of views that are drawn


def draw_step(rng: random.Random, x: Any) -> tuple[str, tuple[Any, ...], int]:
    """Return a method of a tensor, its arguments, and which of several results is meant."""
    dims = range(x.dim())
    steps: list[tuple[str, tuple[Any, ...], int]] = [("detach", (), 0), ("clone", (), 0), ("reshape", (-1,), 0)]
    steps += [("mul", (2,), 0), ("contiguous", (), 0), ("unsqueeze", (rng.randint(0, x.dim()),), 0), ("squeeze", (), 0)]
    for d in dims:
        n = x.shape[d]
        at = rng.randrange(n)
        steps += [("select", (d, at), 0), ("narrow", (d, at, rng.randint(1, n - at)), 0), ("unbind", (d,), at)]
        steps += [("split", (1 + at, d), 0), ("unfold", (d, 1 + at, rng.randint(1, 2)), 0), ("flip", (d,), 0)]
        steps += [("transpose", (d, rng.choice(dims)), 0)] * 3
        steps += [("__getitem__", ((*[slice(None)] * d, slice(at, None, 2)),), 0)] * 2
        if n == 1:
            steps += [("expand", (*x.shape[:d], 3, *x.shape[d + 1 :]), 0)] * 4
    if x.dim() > 1:
        steps += [("diagonal", (), 0), ("flatten", (), 0), ("permute", (rng.sample(dims, x.dim()),), 0)]
    return rng.choice(steps)


def draw_program(seed: int) -> tuple[list[Any], list[int]]:
    """Return the steps of a program, each with the number of its tensor, and the numbers of its results."""
    rng = random.Random(seed)
    tensors, steps = [make_input()], []
    while len(tensors) < 24:
        source = rng.randrange(len(tensors))
        x = tensors[source]
        name, args, pick = draw_step(rng, x)
        made = getattr(x, name)(*args)
        made = made[pick] if isinstance(made, (tuple, list)) else made
        if made.numel() and made.dim() < 6 and made.numel() < 500:
            tensors.append(made)
            steps.append((source, name, args, pick))
    return steps, rng.sample(range(1, len(tensors)), 12)


@pytest.mark.parametrize("how", ["compile", "load"])
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.full) for n in range(3, 40))])
def test_drawn_programs_of_views_share_memory_as_in_eager_pytorch(seed, how):
    steps, results = draw_program(seed)

    def function(_module: Any, x: Any) -> Any:
        tensors = [x]
        for source, name, args, pick in steps:
            made = getattr(tensors[source], name)(*args)
            tensors.append(made[pick] if isinstance(made, (tuple, list)) else made)
        return [tensors[n] for n in results]

    compare(function, how)
