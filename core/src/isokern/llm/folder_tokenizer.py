"""The tokenizer and the chat template of a Hugging Face folder, in GGUF's keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import read_text
from .folder_config import wrong
from .gguf import Value, quote_name
from .vocabularies import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED


def add_tokenizer(
    metadata: dict[str, Value], folder: Path, config: Mapping[str, Any], files: Sequence[dict[str, Any]], size: int
) -> None:
    """Add the facts of tokenizer.json and of the files next to it.

    `files` are tokenizer.json, tokenizer_config.json, generation_config.json and chat_template.json, `size` the rows of
    the embedding table.
    """
    file, more, generation, _ = files
    model, added = file.get("model"), file.get("added_tokens") or []
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
        raise wrong("tokenizer.json", "it has no model with a vocab")
    vocabulary = model["vocab"]
    if model.get("dropout") not in (None, 0):
        raise wrong("tokenizer.json", f"dropout is {model['dropout']}: a text would become other tokens each time", "0")
    try:
        listed = vocabulary.items() if isinstance(vocabulary, dict) else ((t, i) for i, (t, _) in enumerate(vocabulary))
        texts = {i: text for text, i in listed}
        special = {token["id"]: (token["content"], token["special"]) for token in added}
    except (KeyError, TypeError, ValueError):
        raise wrong("tokenizer.json", "its vocab or added_tokens are not of the known form") from None
    each = [(i, text, True) for i, text in texts.items()] + [(i, *token) for i, token in special.items()]
    if not all(type(i) is int and isinstance(t, str) and isinstance(flag, bool) for i, t, flag in each):
        raise wrong("tokenizer.json", "its vocab or added_tokens are not of the known form")
    if len(each) < len(vocabulary) + len(added):
        raise wrong("tokenizer.json", "it has an id twice", "one text of each")
    texts |= {i: text for i, (text, _) in special.items()}
    if not all(0 <= i < size for i in texts):
        raise wrong(
            "tokenizer.json", f"it has token {max(texts, key=abs)}", f"below {size}, the rows of the embedding table"
        )
    fallback = bool(model.get("byte_fallback"))
    types = np.full(size, UNUSED, np.int32)
    for i, text in texts.items():
        types[i] = BYTE if fallback and re.fullmatch("<0x[0-9A-F]{2}>", text) else NORMAL
    for i, (_, control) in special.items():
        types[i] = CONTROL if control else USER_DEFINED
    ids = {text: i for i, text in texts.items()}
    own: dict[str, Any] = {"model": "huggingface", "token_type": types}
    own["tokens"] = tuple(texts.get(i, f"[PAD{i}]") for i in range(size))
    ends = _list_ends(generation, size) or _list_ends(config, size)
    for name in ("bos", "eos", "unk"):
        given = more.get(f"{name}_token")
        content = given.get("content") if isinstance(given, dict) else given
        if given is not None and (not isinstance(content, str) or (content not in ids and name != "unk")):
            raise wrong("tokenizer_config.json", f"{name}_token is {quote_name(str(content))}", "the text of a token")
        token = ids.get(content) if isinstance(content, str) else config.get(f"{name}_token_id")
        token = ends[0] if isinstance(token, list) and ends else token
        if token is not None:
            own["unknown_token_id" if name == "unk" else f"{name}_token_id"] = token
    if ends:
        own["end_token_ids"] = np.array(ends, np.int32)
    for key in ("add_bos_token", "add_eos_token"):
        if more.get(key) is not None:
            own[key] = more[key]
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in own.items()}
    try:
        metadata["tokenizer.huggingface.json"] = json.dumps(file)
    except RecursionError:
        raise wrong("tokenizer.json", "it nests too deeply") from None
    metadata |= _find_templates(folder, more, files[3])


def _list_ends(file: Mapping[str, Any], size: int) -> list[int]:
    """Return the tokens after which nothing more is generated, as config.json or generation_config.json has them."""
    found = file.get("eos_token_id")
    each = found if isinstance(found, list) else [] if found is None else [found]
    if not all(type(i) is int and 0 <= i < size for i in each):
        raise wrong("config.json or generation_config.json", f"eos_token_id is {found}", f"tokens below {size}")
    return each


def _find_templates(folder: Path, more: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Value]:
    """Return the chat templates of chat_template.jinja, else of the .json, else of tokenizer_config.json."""
    path, key = folder / "chat_template.jinja", "tokenizer.chat_template"
    if path.exists():
        return {key: read_text("folder", path, allowed="text in UTF-8")}
    found = file.get("chat_template", more.get("chat_template"))
    if found is None:
        return {}
    found = [{"name": "default", "template": found}] if isinstance(found, str) else found
    try:
        named = {t["name"]: t["template"] for t in found}
        if len(named) < len(found) or not all(isinstance(text, str) for pair in named.items() for text in pair):
            raise TypeError
    except (KeyError, TypeError):
        raise wrong("tokenizer_config.json", "chat_template is not a list of name and template") from None
    return {key if name == "default" else f"{key}.{name}": text for name, text in named.items()}
