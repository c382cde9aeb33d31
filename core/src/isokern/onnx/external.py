"""Elements of tensors in files beside the model: read-only, and never outside the model's folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..status import InvalidArgument, quote
from .elements import NARROW, Array, array_of, bits_of, dims_of_tensor, element_name, numpy_dtype
from .library import proto


def map_external(where: str, tensor: Any, folder: Path | None) -> Array:
    """Return the elements, mapped, but for narrow ones, which are unpacked from a copy.

    Raises InvalidArgument where the file is elsewhere, missing, or too short.
    """
    said = {e.key: e.value if isinstance(e.value, str) else "" for e in tensor.external_data}  # else it is no UTF-8
    location = said.get("location", "")
    if folder is None:
        raise InvalidArgument(where, f"elements in the file {quote(location)}", hint="load the model from its path")
    path = _inside(where, location, folder)
    name, dims = element_name(where, tensor.data_type), dims_of_tensor(where, tensor)
    kind = numpy_dtype(name)
    size, wanted = path.stat().st_size, -(-math.prod(dims) * bits_of(name) // 8)
    offset = _number(where, "offset", said.get("offset", "0"))
    length = _number(where, "length", said.get("length", str(wanted)))
    if length != wanted:
        raise InvalidArgument(where, f"length {length} for {name}{list(dims)}", allowed=str(wanted))
    if offset + wanted > size:
        raise InvalidArgument(
            where, f"bytes {offset} to {offset + wanted} of {quote(location)}", allowed=f"0 to {size}"
        )
    if not wanted:
        return np.zeros(dims, kind)
    content = np.memmap(path, np.uint8, "r", offset, (wanted,))
    if name in NARROW:
        return array_of(where, proto.TensorProto(data_type=tensor.data_type, dims=dims), content)
    return content.view(kind).reshape(dims)


def _inside(where: str, location: str, folder: Path) -> Path:
    """Return the path of a regular file that lies in the folder, whatever links there are on the way."""
    allowed = "a regular file in the model's folder"
    if not location or "\0" in location or os.path.isabs(location):
        raise InvalidArgument(where, f"elements in the file {quote(location)}", allowed=allowed)
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        inside, there = path.is_relative_to(root), path.is_file()
    except (OSError, RuntimeError):  # a circle of links, or a name that no file system has
        raise InvalidArgument(where, f"elements in the file {quote(location)}", allowed=allowed) from None
    if not inside:
        raise InvalidArgument(where, f"elements in the file {quote(location)}, outside the folder", allowed=allowed)
    if not there:
        raise InvalidArgument(where, f"there is no file {quote(location)}", allowed=allowed)
    return path


def _number(where: str, key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidArgument(where, f"{key} {quote(text)}", allowed="a whole number")
    return int(text)
