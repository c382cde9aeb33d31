"""A folder's tokenizer.json as a vocabulary: the library's own tokenizer, apart from its added tokens and its ends."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..status import InvalidArgument
from .gguf import quote_name
from .vocabularies import (
    SPACE,
    USER_DEFINED,
    Keys,
    Vocabulary,
    find_ends,
    import_library,
    list_byte_level,
    list_sentence_piece,
    refuse_errors,
)

MAX_GROWTH = 256  # letters of a text for each one of its own


def build_file(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> Vocabulary:
    """Return the library's own tokenizer, of the text of a `tokenizer.json` in the key tokenizer.huggingface.json.

    Its added tokens and the tokens around a text are left to `Tokenizer`, which knows them from the other keys.
    """
    library, text = import_library(), keys.text("tokenizer.huggingface.json")
    with refuse_errors("Tokenizer", "tokenizer.json cannot be read"):
        whole = library.Tokenizer.from_str(text)
        whole.no_padding()
        whole.no_truncation()
        file, added = json.loads(text), whole.get_added_tokens_decoder()
        _check_growth([file.get("normalizer"), file.get("pre_tokenizer")])
        inner = _check_added(file, added, tokens, types)
        made, rest = (library.Tokenizer.from_str(json.dumps(_strip(file, scheme, inner))) for scheme in (None, "never"))
        made.encode_special_tokens = rest.encode_special_tokens = True
        probes = ((t, whole.encode(t, add_special_tokens=False).ids) for t in ("a", *tokens))
        probe, plain = next(((t, ids) for t, ids in probes if ids), ("", []))
        enclosed = whole.encode(probe).ids
    letters = "ByteLevel" in json.dumps([file.get("pre_tokenizer"), file.get("decoder")])
    pieces = list_byte_level(tokens, types) if letters else list_sentence_piece(keys, tokens, types)
    first, last = find_ends(keys, len(tokens), sep=False)
    at = next((i for i in range(len(enclosed)) if enclosed[i : i + len(plain)] == plain), 0)
    before, behind = enclosed[:at], enclosed[at + len(plain) :]
    first = before[0] if first is None and len(before) == 1 else first
    last = behind[0] if last is None and len(behind) == 1 else last
    if before not in ([], [first]) or behind not in ([], [last]):
        found = f"tokenizer.json: its post_processor makes {before} before a text and {behind} behind it"
        raise InvalidArgument("Tokenizer", found, allowed=f"BOS before, {first}, and EOS behind, {last}")
    drops = not letters and (made.encode("a").tokens or [""])[0].startswith(SPACE)
    unknown = keys.token("unknown_token_id", len(tokens))
    options: dict[str, Any] = {"late": frozenset(i for i, t in added.items() if t.normalized) - inner, "inner": inner}
    options["strips"] = {i: (t.lstrip, t.rstrip) for i, t in added.items()}
    return Vocabulary(
        made, pieces, first, last, bool(before), bool(behind), unknown, drop_space=drops, rest=rest, **options
    )


def _check_added(
    file: Mapping[str, Any], added: Mapping[int, Any], tokens: Sequence[str], types: Sequence[int]
) -> frozenset[int]:
    """Return the added tokens that are found in normalized text, which the library computes."""
    records = {token["id"]: token["content"] for token in file.get("added_tokens") or []}
    known = {i: tokens[i] for i in records if i < len(tokens)}
    if not records == known == {i: token.content for i, token in added.items()}:
        problem = "the library gives its added_tokens other ids"
        raise InvalidArgument("Tokenizer", f"tokenizer.json: {problem}", allowed="ids of the vocab, or behind it")
    inner = frozenset(i for i, token in added.items() if token.normalized and _changes(file.get("normalizer")))
    for i, token in added.items():
        if token.single_word or (i in inner and types[i] != USER_DEFINED):
            found = f"token {quote_name(token.content)} has {'single_word' if token.single_word else 'normalized'}"
            raise InvalidArgument("Tokenizer", f"tokenizer.json: {found}", allowed="false for such a token")
    return inner


def _changes(normalizer: dict[str, Any] | None) -> bool:
    """Return whether there is a normalizer, other than a sequence of none; older files state no type."""
    parts = normalizer.get("normalizers") if normalizer and normalizer.get("type", "Sequence") == "Sequence" else None
    return normalizer is not None and (parts is None or any(map(_changes, parts)))


def _check_growth(parts: Any) -> None:
    """Raise InvalidArgument if the steps together could make a text longer than `MAX_GROWTH` times its letters.

    Steps that replace a letter by ten, one after the other, need memory without end for a short text. Those of Unicode
    count nothing: they are idempotent.
    """
    growth, byte_levels, waiting = 1.0, 0, [parts]
    while waiting:
        part = waiting.pop()
        waiting += part if isinstance(part, list) else part.values() if isinstance(part, dict) else ()
        if not isinstance(part, dict):
            continue
        pattern, content = part.get("pattern"), part.get("content")
        if isinstance(content, str) and isinstance(pattern, dict):
            growth *= max(1.0, _measure_replacement(pattern, content))
        # Each byte of a letter becomes a letter of two bytes, most of them
        byte_levels += part.get("type") == "ByteLevel" or ("trim_offsets" in part and "type" not in part)
    growth *= 2.0 ** max(0, byte_levels - 1)
    if growth > MAX_GROWTH:
        found = f"tokenizer.json: its normalizer and pre_tokenizer make a text up to {growth:.3g} times longer"
        raise InvalidArgument("Tokenizer", found, allowed=f"up to {MAX_GROWTH} times")


def _measure_replacement(pattern: Mapping[str, Any], content: str) -> float:
    """Return how many letters stand for one after a replacement; a regular expression may match between letters."""
    plain = pattern.get("String")
    if isinstance(plain, str) and plain:
        return len(content) / len(plain)
    return len(content) + 1.0


def _strip(file: dict[str, Any], scheme: str | None, inner: Collection[int]) -> dict[str, Any]:
    """Return a tokenizer.json without post-processor, and of whose added tokens none but `inner` are found.

    They keep their ids only along with the others, which become special: `encode_special_tokens` has the library encode
    special tokens like other text.
    With `scheme`, a Metaspace that puts a space before the first part of a text alone has that scheme instead.
    """

    def change(part: Any) -> Any:
        if isinstance(part, list):
            return [change(p) for p in part]
        if isinstance(part, dict):
            if scheme is not None and part.get("prepend_scheme") == "first":
                part = part | {"prepend_scheme": scheme}
            return {key: change(value) for key, value in part.items()}
        return part

    parts = {key: change(file.get(key)) for key in ("normalizer", "pre_tokenizer")}
    unfound = {"special": True, "normalized": False}
    added = [t if t["id"] in inner else t | unfound for t in file.get("added_tokens") or []] if inner else []
    return file | parts | {"added_tokens": added, "post_processor": None, "truncation": None, "padding": None}
