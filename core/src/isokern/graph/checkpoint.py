"""load_state: parameters of a model from checkpoints of others, whose tensors have names of their own.

A checkpoint is a safetensors file, or several with an index that says which tensor is where, as Hugging Face's are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..arguments import read_text, regular_file
from ..status import InvalidArgument, quote
from .model import Model, import_safetensors

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
FIELD = re.compile(r"\\\{(\w+)\\\}")  # as re.escape leaves {name}
MOST_INDEX = 1 << 26  # bytes of an index that are read
Transform = Callable[[Any], Any]
Target = str | tuple[str, Transform] | None


def load_state(model: Model, path: str | os.PathLike[str], names: Mapping[str, Target] | None = None) -> None:
    """Load all parameters of a model from a checkpoint; needs the extra isokern[graph].

    `path` is a safetensors file, an index (`….safetensors.index.json`), or a folder with either, under the names that
    Hugging Face uses. `names` maps names of the checkpoint to parameters of the model; a field such as `{n}` stands for
    the same run of characters without dots on both sides: `{"model.layers.{n}.mlp.up_proj.weight": "{n}.up.weight"}`.
    The first key that matches counts, and a name that none matches is the model's own. Instead of a name, a pair gives
    a function too, which makes the parameter of the tensor, such as `("fc.weight", numpy.transpose)`, and None leaves
    the tensor out.

    Floats are converted to the parameter's type. A tensor that no parameter takes is an InvalidArgument, as is a
    parameter that none is for; then all parameters stay as they were. Nothing outside the index's folder is read.
    """
    rules = [(_pattern(key), target) for key, target in (names or {}).items()]
    known = {v.name for v in model.graph.parameters}
    taken: dict[str, Any] = {}
    strange: list[str] = []
    for name, read in _tensors(Path(path)):
        ours, transform = _find(name, rules)
        if ours is None:
            continue
        if ours not in known:
            strange.append(name if ours == name else f"{name} as {ours}")
            continue
        if ours in taken:
            raise InvalidArgument("load_state", f"two tensors for {quote(ours)}, {quote(name)} the second")
        array = read()
        taken[ours] = array if transform is None else transform(array)
    if strange:
        listed = f"{len(strange)} tensors for no parameter: {', '.join(strange[:8])}{', …' if strange[8:] else ''}"
        hint = "map them to parameters, or to None"
        raise InvalidArgument("load_state", listed, allowed=_some(known - taken.keys()), hint=hint)
    if missing := sorted(known - taken.keys()):
        raise InvalidArgument("load_state", f"{quote(os.fspath(path))} has no {_some(missing)}", allowed="all of them")
    model.set(taken)


def _some(names: Any) -> str:
    listed = sorted(names)
    return ", ".join([*listed[:8], *(["…"] if listed[8:] else [])]) or "none"


def _pattern(key: str) -> re.Pattern[str]:
    """Return what a key with fields matches; a field that comes again stands for the same text."""
    seen: set[str] = set()

    def field(found: re.Match[str]) -> str:
        name = found[1]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>[^.]+)"

    try:
        return re.compile(FIELD.sub(field, re.escape(key)))
    except re.error:
        raise InvalidArgument("load_state", f"the name {quote(key)}", allowed="fields such as {n}") from None


def _find(name: str, rules: list[tuple[re.Pattern[str], Target]]) -> tuple[str | None, Transform | None]:
    """Return the parameter that a tensor is for, None for none, and what makes it of the tensor."""
    for pattern, target in rules:
        found = pattern.fullmatch(name)
        if found is None:
            continue
        if target is None:
            return None, None
        wanted, transform = (target, None) if isinstance(target, str) else target
        try:
            return wanted.format_map(found.groupdict()), transform
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            given = f"the parameter {quote(wanted)} of {quote(pattern.pattern)}: {error}"
            raise InvalidArgument("load_state", given, allowed="fields of the name that it is for") from None
    return name, None


# Files


def _tensors(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of a checkpoint's tensors, each with a function that reads it."""
    if path.is_dir():
        there = [n for n in (INDEX, SINGLE) if (path / n).is_file()]
        if not there:
            raise InvalidArgument(
                "load_state", f"the folder {quote(str(path))}", allowed=f"one with {INDEX} or {SINGLE}"
            )
        path = path / there[0]
    if path.name.endswith(".json"):
        yield from _of_index(path)
        return
    regular_file("load_state", str(path), exists=True)
    yield from _of_file(path, None)


def _of_index(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    files: dict[str, list[str]] = {}
    for name, file in _read_index(path).items():
        files.setdefault(file, []).append(name)
    for file, wanted in files.items():
        where = path.parent / file
        if not file or Path(file).name != file or not where.is_file():
            raise InvalidArgument("load_state", f"{path.name} names the file {quote(file)}", allowed="files next to it")
        yield from _of_file(where, wanted)


def _read_index(path: Path) -> dict[str, str]:
    allowed = 'an index: {"weight_map": {tensor: file}}'
    text = read_text("load_state", path, allowed=allowed, most=MOST_INDEX)
    try:
        found = json.loads(text)["weight_map"]
        if not all(isinstance(t, str) for pair in found.items() for t in pair):
            raise TypeError("names of tensors and files are text")
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InvalidArgument("load_state", f"{quote(str(path))}: {error}", allowed=allowed) from None
    return dict(found)


def _of_file(path: Path, wanted: list[str] | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the tensors of a file, or those that an index says are there: it must have exactly these."""
    safe = import_safetensors()
    try:
        file = safe.safe_open(path, framework="np")
        there = list(file.keys())
    except Exception as error:  # not a safetensors file: the message is the library's
        raise InvalidArgument("load_state", f"{quote(str(path))}: {error}", allowed="a safetensors file") from None
    if wanted is not None and (wrong := set(wanted) ^ set(there)):
        given = f"{quote(path.name)} and the index differ in {_some(wrong)}"
        raise InvalidArgument("load_state", given, allowed="the tensors that the index says")
    with file:
        for name in there:

            def read(name: str = name) -> Any:
                try:
                    return file.get_tensor(name)
                except Exception as error:
                    given = f"{quote(path.name)}, {quote(name)}: {error}"
                    raise InvalidArgument("load_state", given, allowed="a type that NumPy or ml_dtypes has") from None

            yield name, read
