"""Nodes of decoders with a cache, as ONNX Runtime's model builder writes them: GroupQueryAttention, RotaryEmbedding."""

from __future__ import annotations

from ..dtypes import I64
from ..status import InvalidArgument
from .node import Handler, Node, Operand, Output, dtype_of, shape_of

# Attributes that have a counterpart only with one value: caches of fewer bits, scores as a result, other masks
PLAIN = {"k_quant_type": "NONE", "v_quant_type": "NONE", "qk_output": 0, "kv_cache_bit_width": 0, "causal": 1}
PLAIN["sliding_window_cache"] = 0
INPUTS = 12  # further ones are scales of such caches, and norms of queries and keys


# Rotation


def rotate(node: Node, x: Operand, places: Operand, tables: tuple[Operand, Operand], *, adjacent: bool) -> Operand:
    """Rotate pairs of the first elements of heads [batch, position, head, element] by angles that tables have.

    `places` are the rows of the tables, [batch, position]. A pair is two elements side by side, or one of each half.
    """
    batch, count, heads, size = shape_of(x)
    pairs = shape_of(tables[0])[1]
    if 2 * pairs > size or shape_of(tables[1]) != shape_of(tables[0]):
        given = f"tables {list(shape_of(tables[0]))} and {list(shape_of(tables[1]))}"
        raise InvalidArgument(node.op_type, given, allowed=f"the same dims, up to {size // 2} angles")
    cosine, sine = (
        node.reshape(node.emit("gather", table, places, axis=0), (batch, count, 1, pairs)) for table in tables
    )

    def part(y: Operand, start: int, end: int, axis: int = 3) -> Operand:
        return node.emit("slice", y, starts=(start,), ends=(end,), axes=(axis,))

    turned = part(x, 0, 2 * pairs)
    if adjacent:
        split = node.reshape(turned, (batch, count, heads, pairs, 2))
        first, second = (node.reshape(part(split, n, n + 1, 4), (batch, count, heads, pairs)) for n in (0, 1))
    else:
        first, second = part(turned, 0, pairs), part(turned, pairs, 2 * pairs)
    made = [
        node.emit("sub", node.emit("mul", first, cosine), node.emit("mul", second, sine)),
        node.emit("add", node.emit("mul", second, cosine), node.emit("mul", first, sine)),
    ]
    if adjacent:
        y = node.reshape(node.emit("stack", *made, axis=4), (batch, count, heads, 2 * pairs))
    else:
        y = node.emit("concat", *made, axis=3)
    return y if 2 * pairs == size else node.emit("concat", y, part(x, 2 * pairs, size), axis=3)


def rotary_embedding(node: Node) -> Output:
    """Rotate the heads of [batch, position, elements of all heads], or of [batch, head, position, element]."""
    attrs, shape = node.attrs, node.shape()
    if attrs.get("is_packed_batching", 0):
        raise node.refuse("packed batches", "is_packed_batching 0")
    tables = node.x(2), node.x(3)
    heads, size = int(attrs.get("num_heads", 0)), 2 * shape_of(tables[0])[1]
    if len(shape) == 4:
        x = node.transpose(node.x(), (0, 2, 1, 3))
    elif len(shape) == 3:
        heads = heads or shape[2] // size
        if heads < 1 or shape[2] % heads:
            raise InvalidArgument(node.op_type, f"{heads} heads of {shape[2]} elements", allowed="a divisor")
        x = node.reshape(node.x(), (*shape[:2], heads, shape[2] // heads))
    else:
        raise InvalidArgument(node.op_type, f"dims {list(shape)}", allowed="rank 3 or 4")
    if attrs.get("rotary_embedding_dim", 0) not in (0, size):
        given = f"rotary_embedding_dim {attrs['rotary_embedding_dim']}"
        raise InvalidArgument(node.op_type, given, allowed=f"{size}, as the tables have angles")
    batch, count = shape_of(x)[:2]
    places = node.cast(node.x(1), I64)
    if node.shape(1) == (1,):  # of the first position
        places = node.emit("add", node.reshape(places, (1, 1)), node.emit("iota", shape=(1, count), to=I64))
        places = node.expand(places, (batch, count))
    y = rotate(node, x, places, tables, adjacent=bool(attrs.get("interleaved", 0)))
    return node.transpose(y, (0, 2, 1, 3)) if len(shape) == 4 else node.reshape(y, shape)


# Attention


def group_query_attention(node: Node) -> list[Output]:
    """Return attention to the keys and values of a cache and of this call, and the caches with these written.

    A prompt is a call of as many positions as there are in all, and it fills the cache from its start; another one goes
    on where each sequence ended. `seqlens_k` is one less than what each sequence then has.
    """
    attrs = node.attrs
    heads, groups = int(attrs.get("num_heads", 0)), int(attrs.get("kv_num_heads", 0))
    if heads < 1 or groups < 1 or heads % groups or node.rank != 3:
        given = f"{heads} heads, {groups} of keys, and dims {list(node.shape())}"
        raise InvalidArgument(node.op_type, given, allowed="rank 3, and a multiple of the heads of keys")
    if named := [f"{name} {attrs[name]}" for name, usual in PLAIN.items() if attrs.get(name, usual) != usual]:
        raise node.refuse(named[0], ", ".join(f"{name} {usual}" for name, usual in PLAIN.items()))
    if any(node.has(n) for n in range(INPUTS, len(node.inputs))) or any(node.wanted[3:]):
        raise node.refuse("further inputs, or the scores as a result", f"{INPUTS} inputs and 3 results")
    q, k, v = _split_heads(node, heads, groups)
    batch, count, _, size = shape_of(q)
    total = int(node.number(6))
    prompt = total == count
    ends = node.emit("add", node.cast(node.reshape(node.x(5), (batch,)), I64), node.full((), 1, I64))
    begins = node.full((batch,), 0, I64) if prompt else node.emit("sub", ends, node.full((), count, I64))
    if attrs.get("do_rotary", 0):
        places = _places(node, begins, (batch, count), prompt=prompt)
        tables, adjacent = (node.x(7), node.x(8)), bool(attrs.get("rotary_interleaved", 0))
        q, k = (rotate(node, x, places, tables, adjacent=adjacent) for x in (q, k))
    caches = [_write(node, x, n, begins, total, prompt=prompt) for x, n in ((k, 3), (v, 4))]
    seen = [k, v] if prompt else [_first(node, cache, total) for cache in caches]
    sinks = node.tensor(11)
    if sinks is None and attrs.get("smooth_softmax", 0):
        sinks = node.full((heads,), 0, dtype_of(q))
    y = node.emit(
        "attention",
        q,
        *seen,
        node.tensor(10),
        None if prompt else ends,
        None,
        sinks,
        causal=True,
        window=max(0, int(attrs.get("local_window_size", -1))),
        scale=float(attrs.get("scale", 0.0)),
        softcap=float(attrs.get("softcap", 0.0)),
    )
    return [node.reshape(y, (batch, count, heads * size)), *(node.transpose(c, (0, 2, 1, 3)) for c in caches)]


def _split_heads(node: Node, heads: int, groups: int) -> list[Operand]:
    """Return queries, keys and values as [batch, position, head, element]; one tensor may hold all of them."""
    if node.has(1) != node.has(2):
        raise InvalidArgument(node.op_type, "keys without values, or values without keys", allowed="both, or neither")
    counts = [heads, groups, groups]
    if node.has(1):
        given = [node.x(n) for n in range(3)]
    else:
        width = node.shape()[2] // sum(counts)
        if node.shape()[2] != width * sum(counts):
            allowed = f"{heads} heads of queries, {groups} of keys and of values"
            raise InvalidArgument(node.op_type, f"dims {list(node.shape())}", allowed=allowed)
        ends = [width * sum(counts[: n + 1]) for n in range(3)]
        given = [
            node.emit("slice", node.x(), starts=(end - width * n,), ends=(end,), axes=(2,))
            for end, n in zip(ends, counts, strict=True)
        ]
    size, found = shape_of(given[0])[2] // heads, []
    for x, n in zip(given, counts, strict=True):
        if shape_of(x) != (*node.shape()[:2], n * size):
            raise InvalidArgument(node.op_type, f"dims {list(shape_of(x))}", allowed=f"{n} heads of {size}")
        found.append(node.reshape(x, (*node.shape()[:2], n, size)))
    return found


def _places(node: Node, begins: Operand, dims: tuple[int, int], *, prompt: bool) -> Operand:
    """Return the position of each token, [batch, position]; of what pads a prompt it does not matter."""
    if node.has(9):
        return node.reshape(node.cast(node.x(9), I64), dims)
    batch, count = dims
    line = node.emit("iota", shape=(1, count), to=I64)
    if prompt:
        return node.expand(line, dims)
    return node.emit("add", node.reshape(begins, (batch, 1)), line)


def _first(node: Node, x: Operand, count: int) -> Operand:
    """Return the first positions."""
    return x if shape_of(x)[1] == count else node.emit("slice", x, starts=(0,), ends=(count,), axes=(1,))


def _write(node: Node, new: Operand, past: int, begins: Operand, total: int, *, prompt: bool) -> Operand:
    """Return a cache [batch, position, head, element]: of the past what each sequence has, then what is new, then 0."""
    batch, count, heads, size = shape_of(new)
    held = node.shape(past)[2] if node.has(past) else 0
    length, rest = max(total, held), (heads, size)
    if node.has(past) and node.shape(past) != (batch, heads, held, size):
        given = f"a cache {list(node.shape(past))}"
        raise InvalidArgument(node.op_type, given, allowed=f"[{batch}, {heads}, positions, {size}]")
    if prompt:
        if length == count:
            return new
        return node.emit("concat", new, node.full((batch, length - count, *rest), 0, dtype_of(new)), axis=1)
    parts = [node.transpose(node.x(past), (0, 2, 1, 3))] if held else []
    parts += [new, node.full((batch, 1, *rest), 0, dtype_of(new))]
    rows = node.emit("concat", *parts, axis=1)
    line = node.emit("iota", shape=(1, length), to=I64)
    start = node.reshape(begins, (batch, 1))
    # Row `held` is the first new one, and row `held + count` is of zeros
    place = node.emit("sub", line, start)
    fresh = node.emit("add", place, node.full((), held, I64))
    late = node.emit("less", place, node.full((), count, I64))
    fresh = node.emit("where", late, fresh, node.full((), held + count, I64))
    index = node.emit("where", node.emit("less", line, start), line, fresh)
    first = node.emit("iota", shape=(batch, 1), axis=0, step=held + count + 1, to=I64)
    index = node.emit("add", index, first)
    flat = node.reshape(rows, (batch * (held + count + 1), heads * size))
    return node.reshape(node.emit("gather", flat, index, axis=0), (batch, length, *rest))


MICROSOFT: dict[str, Handler] = {"GroupQueryAttention": group_query_attention, "RotaryEmbedding": rotary_embedding}
