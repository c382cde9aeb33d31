"""The maps of loop nests: which loops the dims of each tensor are, as letters in einsum's notation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..layout import MAX_RANK, TensorDesc
from ..status import BadTensorShape, InvalidArgument

Maps = tuple[tuple[str, ...], str]


def parse_maps(where: str, given: str, inputs: int) -> Maps:
    """Return the letters of each input and of the output: `mk,nk->mn`.

    A letter is a loop. An input that has one twice is read along its diagonal: `ii->i`.
    """
    left, arrow, out = given.replace(" ", "").partition("->")
    ins = tuple(left.split(","))
    every = (*ins, out)
    if not arrow or any(m != "" and not m.isalpha() for m in every) or len(set(out)) != len(out):
        allowed = "letters of each input and of the output, as in 'mk,nk->mn', those of the output each once"
        raise InvalidArgument(where, f"maps {given!r}", allowed=allowed)
    if len(ins) != inputs:
        raise InvalidArgument(where, f"maps {given!r} for {inputs} inputs", allowed="letters of each input")
    strange = [c for c in out if c not in left]
    if strange:
        raise InvalidArgument(
            where, f"maps {given!r}: {min(strange)} of the output is in no input", allowed="one input"
        )
    return ins, out


def loops_of(maps: Maps) -> str:
    """Return all loops, those of the output first."""
    ins, out = maps
    return "".join(dict.fromkeys(out + "".join(ins)))


def sizes_of(where: str, maps: Maps, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Return the length of each loop."""
    sizes: dict[str, int] = {}
    for i, (letters, shape) in enumerate(zip(maps[0], shapes, strict=True)):
        if len(letters) != len(shape):
            raise BadTensorShape(
                where, f"x[{i}] is {list(shape)}", allowed=f"rank {len(letters)}, as the map {letters!r}"
            )
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise BadTensorShape(
                    where, f"x[{i}] is {list(shape)}: loop {letter} is {size}", allowed=f"{sizes[letter]}, as before"
                )
    if len(loops_of(maps)) > MAX_RANK:
        raise InvalidArgument(where, f"{len(loops_of(maps))} loops", allowed=f"up to {MAX_RANK}")
    return sizes


def over(d: TensorDesc, letters: str, loops: str, sizes: Mapping[str, int]) -> TensorDesc:
    """Return a tensor over all loops."""
    steps: dict[str, int] = {}
    for letter, stride in zip(letters, d.strides, strict=True):
        steps[letter] = steps.get(letter, 0) + stride
    return TensorDesc(d.dtype, [sizes[c] for c in loops], [steps.get(c, 0) for c in loops], d.offset)
