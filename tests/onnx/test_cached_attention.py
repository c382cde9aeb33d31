"""Test GroupQueryAttention and RotaryEmbedding of com.microsoft against ONNX Runtime, over drawn attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from onnx import TensorProto
from runtime_peer import MICROSOFT, assert_same, feeds, make, ours, theirs

from isokern.onnx import UnsupportedModel
from isokern.status import InvalidArgument

FLOAT = TensorProto.FLOAT


def tables(positions: int, angles: int) -> tuple[Any, Any]:
    """Return cosine and sine of each position's angles."""
    turns = np.arange(positions)[:, None] / 10.0 ** (np.arange(angles) / angles * 4)
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


@pytest.mark.parametrize("seed", range(24))
def test_rotary_embedding(seed: int) -> None:
    draw = np.random.default_rng(seed)
    batch, count, heads, size = 2, 3, int(draw.choice([1, 4])), 16
    partial = draw.random() < 0.4
    cosine, sine = tables(20, (4 if partial else 8))
    flat = bool(draw.integers(2))
    x = draw.standard_normal((batch, count, heads * size) if flat else (batch, heads, count, size)).astype(np.float32)
    places = draw.integers(0, 17, 1) if draw.random() < 0.4 else draw.integers(0, 20, (batch, count))
    attrs: dict[str, Any] = {"interleaved": int(draw.integers(2))}
    if partial:
        attrs |= {"rotary_embedding_dim": 8, "num_heads": heads}
    inputs = [x, places, cosine, sine]
    held = {2, 3} if draw.random() < 0.5 else {}
    assert_same(make("RotaryEmbedding", MICROSOFT, inputs, [FLOAT], held, **attrs), feeds(inputs, held))


class Call:
    """A drawn call of GroupQueryAttention."""

    def __init__(self, draw: np.random.Generator, kind: str) -> None:
        self.heads, self.groups = [(4, 2), (4, 4), (2, 1), (6, 2)][int(draw.integers(4))]
        size = int(draw.choice([16, 32]))
        self.kind, self.batch = kind, 1 if kind == "more" else int(draw.choice([1, 3]))
        self.count = {"prompt": 5, "next": 1, "more": 3}[kind]
        room = {
            "prompt": int(draw.choice([0, 5, 9])),
            "next": int(draw.choice([6, 11])),
            "more": int(draw.choice([4, 11])),
        }[kind]
        if kind == "prompt":
            self.seen = draw.integers(1, self.count + 1, self.batch)
            self.seen[0] = self.total = self.count
        else:
            self.seen = draw.integers(self.count, 8, self.batch)
            self.seen[0] = self.total = 7
            room = room if kind == "more" and room == 4 else max(room, self.total - self.count)
        packed = bool(draw.integers(2))

        def numbers(*shape: int) -> Any:
            return draw.standard_normal(shape).astype(np.float32)

        widths = [self.heads * size, self.groups * size, self.groups * size]
        qkv: list[Any] = [numbers(self.batch, self.count, w) for w in widths]
        if packed:
            qkv = [np.concatenate(qkv, 2), None, None]
        past = [numbers(self.batch, self.groups, room, size) if room else None for _ in range(2)]
        self.attrs: dict[str, Any] = {"num_heads": self.heads, "kv_num_heads": self.groups}
        angles: Any = (None, None)
        if draw.random() < 0.6:
            angles = tables(16, size // 2 if draw.random() < 0.6 else 8)
            self.attrs |= {"do_rotary": 1, "rotary_interleaved": int(draw.integers(2))}
        for name, value in (("local_window_size", 3), ("softcap", 1.5), ("scale", 0.4)):
            if draw.random() < 0.4:
                self.attrs[name] = value
        bias, sink = None, None
        if draw.random() < 0.3:
            bias = numbers(int(draw.choice([1, self.batch])), int(draw.choice([1, self.heads])), self.count, self.total)
        if draw.random() < 0.3:
            sink = numbers(self.heads)
        elif draw.random() < 0.2:
            self.attrs["smooth_softmax"] = 1
        lengths = [np.int32(self.seen - 1), np.int32(self.total).reshape(())]
        self.inputs = [*qkv, *past, *lengths, *angles, None, bias, sink]
        while self.inputs[-1] is None:
            self.inputs.pop()

    def model(self, **more: Any) -> Any:
        """Return the model of the node."""
        return make("GroupQueryAttention", MICROSOFT, self.inputs, [FLOAT] * 3, {6}, **self.attrs | more)

    def compare(self) -> None:
        """Check the result of all tokens that are not padding, and the caches as far as they are filled."""
        model, given = self.model(), feeds(self.inputs, {6})
        got, wanted = ours(model, given), theirs(model, given)
        for y, right in zip(got, wanted, strict=True):
            assert (y.dtype, y.shape) == (right.dtype, right.shape)
        for b, seen in enumerate(self.seen):
            count = min(seen, self.count)
            np.testing.assert_allclose(got[0][b, :count], wanted[0][b, :count], 2e-5, 2e-5)
            for y, right in zip(got[1:], wanted[1:], strict=True):
                np.testing.assert_allclose(y[b, :, :seen], right[b, :, :seen], 2e-5, 2e-5)


@pytest.mark.parametrize("kind", ["prompt", "next", "more"])
@pytest.mark.parametrize("seed", range(20))
def test_attention_with_a_cache(kind: str, seed: int) -> None:
    Call(np.random.default_rng(seed), kind).compare()


def test_a_prompt_in_two_calls_is_the_prompt() -> None:
    """The caches that a call gives go on in the next, as a decoder runs."""
    draw, size = np.random.default_rng(9), 16
    q, k, v = (draw.standard_normal((1, 6, n * size)).astype(np.float32) for n in (4, 2, 2))
    angles = tables(16, 8)
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}

    def run(first: int, last: int, past: Any) -> Any:
        inputs = [
            q[:, first:last],
            k[:, first:last],
            v[:, first:last],
            *past,
            np.int32([last - 1]),
            np.int32(last),
            *angles,
        ]
        made = make("GroupQueryAttention", MICROSOFT, inputs, [FLOAT] * 3, {6}, **attrs)
        return ours(made, feeds(inputs, {6}))

    whole = run(0, 6, (None, None))
    first = run(0, 4, (None, None))
    second = run(4, 6, first[1:])
    np.testing.assert_allclose(np.concatenate([first[0], second[0]], 1), whole[0], 1e-5, 1e-5)
    for y, right in zip(second[1:], whole[1:], strict=True):
        np.testing.assert_allclose(y, right, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("attrs", "error", "match"),
    [
        ({"k_quant_type": "PER_TENSOR"}, UnsupportedModel, "k_quant_type PER_TENSOR"),
        ({"causal": 0}, UnsupportedModel, "causal 0"),
        ({"qk_output": 1}, UnsupportedModel, "qk_output 1"),
        ({"num_heads": 5, "kv_num_heads": 2}, InvalidArgument, "5 heads"),
        ({"num_heads": 7, "kv_num_heads": 7}, InvalidArgument, "7 heads"),
    ],
)
def test_a_node_that_is_refused(attrs: dict[str, Any], error: type[Exception], match: str) -> None:
    call = Call(np.random.default_rng(3), "prompt")
    with pytest.raises(error, match=match):
        ours(call.model(**attrs), feeds(call.inputs, {6}))
