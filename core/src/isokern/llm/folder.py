"""A Hugging Face folder as if it were a GGUF file: config.json, safetensors and tokenizer.json, used in place.

Tensors and sizes get the names that GGUF has for them, so that everything else reads one kind of model. Tensors that
transformers stores in a different form from GGUF (the rows of Llama's queries and keys, experts) are copied.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..arguments import read_text
from .folder_config import read_config, wrong
from .folder_tokenizer import add_tokenizer
from .folder_types import NO_TEXT_KEYS, OF_TEXT_AND_MORE, TEXT_KEYS, UNUSED
from .folder_weights import drop_drafts, rename_tensors
from .gguf import GGUF, GGUFTensor, quote_name
from .safetensors_file import parse_json, read_safetensors


def open_folder(path: str | os.PathLike[str]) -> GGUF:
    """Return the model in a folder as a GGUF object, of a model of text and images its part for text.

    InvalidArgument names the file and what is wrong or not known.
    """
    folder = Path(path)
    config = _read_json(folder / "config.json")
    text: Any = config.get("text_config") if config.get("model_type") in OF_TEXT_AND_MORE else None
    whole = not isinstance(text, dict)
    if not whole:
        known = (*UNUSED, *TEXT_KEYS)
        strange = [quote_name(k) for k in config if k not in known and not re.fullmatch(NO_TEXT_KEYS, k)]
        if strange:
            raise wrong("config.json", f"keys next to text_config are not known here: {', '.join(strange[:8])}")
        config = text | {key: config[key] for key in TEXT_KEYS if key in config}
    model, metadata, extra = read_config(config)
    sizes = {key.removeprefix(f"{model.architecture}."): value for key, value in metadata.items()}
    found = drop_drafts(_read_tensors(folder), model, config)
    tensors = rename_tensors(found, model, sizes, whole) | extra
    table, own = tensors.get("token_embd.weight"), tensors.get("output.weight")
    if {**model.defaults, **config}.get("tie_word_embeddings", False):
        if own and table and ((own.type, own.shape) != (table.type, table.shape) or (own.data != table.data).any()):
            raise wrong("safetensors", "lm_head.weight is not the table", "with tie_word_embeddings false")
        tensors.pop("output.weight", None)
    elif "output.weight" not in tensors and "token_embd.weight" in tensors:
        raise wrong("safetensors", "tensor lm_head.weight is missing", "with tie_word_embeddings alone")
    if (folder / "tokenizer.json").exists():
        files = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.json")
        read = [_read_json(folder / name, needed=name == files[0]) for name in files]
        add_tokenizer(metadata, folder, config, read, 0 if table is None else table.shape[0])
    return GGUF.from_parts(metadata, tensors)


def _read_json(path: Path, needed: bool = True) -> dict[str, Any]:
    """Return the JSON object of a file; an empty one if it is missing and not needed."""
    if not needed and not path.exists():
        return {}
    text = read_text("folder", path, allowed="a file with a JSON object")
    try:
        found = parse_json(text)
    except ValueError as error:
        raise wrong(path.name, f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise wrong(path.name, "it is not a JSON object")
    return found


def _read_tensors(folder: Path) -> Mapping[str, GGUFTensor]:
    """Return the tensors of a folder's files."""
    index = folder / "model.safetensors.index.json"
    files = ["model.safetensors"]
    places: dict[str, str] | None = None
    if index.exists():
        places = _read_json(index).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(f, str) and Path(f).name == f for f in places.values()):
            raise wrong(index.name, "weight_map is not a map of tensors to files in this folder")
        files = sorted(set(places.values()))
        if "model.safetensors" not in files and (folder / "model.safetensors").exists():
            raise wrong("model.safetensors", f"it is next to {index.name}, which has no tensor in it", "one of them")
    found: dict[str, GGUFTensor] = {}
    for file in files:
        part = read_safetensors(folder / file)
        if places is not None and part.keys() != {name for name, place in places.items() if place == file}:
            raise wrong(file, f"its tensors are not those that {index.name} lists", "files of one model")
        found |= part
    return found
