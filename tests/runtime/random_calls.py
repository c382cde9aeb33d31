"""Random valid and invalid calls of every operator, for comparing C with Python and as seeds of a driver in C."""

from isokern import IsokernError, TensorDesc, dtypes
from isokern.declare.samples import assignments, describe, fits

INTEGERS = (-(2**63), -5, -2, -1, 0, 1, 2, 3, 4, 8, 31, 32, 2**31, 2**62, 2**63 - 1)
NUMBERS = (0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), 1e-3, -0.0, 3e20)
MAPS = (
    "",
    "a->a",
    "ab,bc->ac",
    "ab->",
    "a",
    "aa->a",
    "a1->a",
    "ab,c->z",
    "it's,b->b",
    "\"'->",
    "mk,nk->mn",
    "a , b->ab",
)
BODIES = (
    "x0 + x1",
    "x7 * 2",
    "x0 / x0",
    "quotient(x0, x1)",
    "exp(x0) + 1.5",
    "x0 if x1 > 3 else 1e300 * x0",
    "abs(x0) + 12345678901234568",
    "minimum(x0, 0.1)",
    "x0 + 1e16",
    "x0 + 2e-5",
)


def draw(op, rng):
    """Draw (inputs, outputs, attributes) of a call: a sample in some layout, often with something changed."""
    samples = [s for s in op.samples() if s.size == "small"]
    sample = rng.choice(samples)
    together = [types for types in assignments(op) if fits(op, sample, types)]
    while not together:
        sample = rng.choice(samples)
        together = [types for types in assignments(op) if fits(op, sample, types)]
    inputs, outputs = describe(op, sample, rng.choice(together))
    attrs = dict(op.attrs.check(op.name, sample.attrs))
    inputs, outputs = [laid_out(d, rng) for d in inputs], [laid_out(d, rng) for d in outputs]
    for _ in range(rng.choice((0, 0, 0, 1, 1, 1, 1, 2, 3))):
        kind = rng.random()
        if kind < 0.4 and inputs:
            at = rng.randrange(len(inputs))
            inputs[at] = changed(inputs[at], rng)
        elif kind < 0.6:
            at = rng.randrange(len(outputs))
            outputs[at] = changed(outputs[at], rng) or outputs[at]
        elif kind < 0.9 and op.attrs.attrs:
            attr = rng.choice(op.attrs.attrs)
            attrs[attr.name] = changed_attribute(attr, attrs[attr.name], rng)
        elif kind < 0.95 and inputs:
            inputs.pop(rng.randrange(len(inputs)))
        else:
            inputs.insert(rng.randrange(len(inputs) + 1), rng.choice([None, TensorDesc("F32", (3,))]))
    return inputs, outputs, attrs


def laid_out(desc, rng):
    """Return the tensor in another layout: permuted, with gaps and an offset, repeating, or backwards."""
    if desc is None or desc.dtype.block > 1 or desc.ndim == 0:
        return desc
    kind = rng.random()
    try:
        if kind < 0.5:
            return desc
        if kind < 0.7:
            order = list(range(desc.ndim))
            rng.shuffle(order)
            back = [order.index(i) for i in range(desc.ndim)]
            return TensorDesc(desc.dtype, [desc.shape[a] for a in order]).permute(back)
        if kind < 0.85:
            return TensorDesc(desc.dtype, desc.shape, [2 * s for s in desc.strides], rng.randrange(5))
        if kind < 0.93:
            return TensorDesc(desc.dtype, desc.shape, [0 if rng.random() < 0.4 else s for s in desc.strides])
        start = sum((d - 1) * s for d, s in zip(desc.shape, desc.strides, strict=True) if d)
        return TensorDesc(desc.dtype, desc.shape, [-s for s in desc.strides], start)
    except IsokernError:
        return desc


def changed(desc, rng):
    """Return a changed description, which may not fit any more."""
    if desc is None:
        return rng.choice([None, TensorDesc("F32", (3,)), TensorDesc("I64", ())])
    shape, strides = list(desc.shape), list(desc.strides)
    kind = rng.randrange(6)
    try:
        if kind == 0:
            return None
        if kind == 1:
            return TensorDesc(rng.choice(dtypes.ALL), shape, strides, desc.offset)
        if kind == 2 and shape:
            shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 3, 7, 32, 64, 1 << 20, 1 << 40))
            return TensorDesc(desc.dtype, shape)
        if kind == 3 and shape and rng.random() < 0.5:
            shape.pop(rng.randrange(len(shape)))
            return TensorDesc(desc.dtype, shape)
        if kind == 3:
            shape.insert(rng.randrange(len(shape) + 1), rng.choice((0, 1, 2, 5, 32)))
            return TensorDesc(desc.dtype, shape)
        if kind == 4 and strides:
            strides[rng.randrange(len(strides))] = rng.choice((0, 1, 2, 32, -1, 100))
            return TensorDesc(desc.dtype, shape, strides, rng.choice((0, 0, 32, 1000)))
        rng.shuffle(shape)
        return TensorDesc(desc.dtype, shape)
    except IsokernError:
        return desc


def changed_attribute(attr, value, rng):
    """Return another value that the record can hold, allowed or not."""
    if attr.kind == "int":
        return rng.choice(INTEGERS)
    if attr.kind == "float":
        return rng.choice(NUMBERS)
    if attr.kind == "bool":
        return rng.random() < 0.5
    if attr.kind == "choice":
        return rng.choice(attr.choices)
    if attr.kind == "text":
        return rng.choice((value, *MAPS))
    if attr.kind == "body":
        return rng.choice((value, *BODIES))
    items, kind = list(value), rng.randrange(4)
    if kind == 0 and items:
        items[rng.randrange(len(items))] = rng.choice(INTEGERS)
    elif kind == 1 and items:
        items.pop()
    elif kind == 2 and len(items) < 8:
        items.append(rng.choice(INTEGERS[2:11]))
    else:
        rng.shuffle(items)
    return tuple(items)
