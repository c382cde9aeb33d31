"""The kinds of vocabulary that GGUF's metadata describe, each as a model of the library `tokenizers`.

`tokenizer.ggml.model` is `gpt2`, byte-level BPE from tokens and merges; `llama`, SentencePiece's BPE, whose merges
follow from the scores, with byte tokens for what has no token; `t5`, SentencePiece's unigram model; `bert`, WordPiece;
`gemma4`, BPE of plain text from tokens and merges; and `rwkv`, the longest token at each place. For `huggingface` see
`isokern.llm.tokenizer_file`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..status import InvalidArgument
from .gguf import Value, quote_name
from .longest_match import LongestMatch, unescape
from .pre_tokenizers import CUTS
from .unigram import NormalForms, Unigram

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # tokenizer.ggml.token_type
SPACE = "\u2581"  # SentencePiece's sign for a space
MAX_PIECE = 512  # characters of a token whose merges have to be found: each place to cut it is tried


@dataclass(frozen=True)
class Vocabulary:
    """A model of the library, and what text needs before and after it.

    `pieces` are the bytes of each token. With `prefix`, text begins with it, and decoded text loses its first space;
    with `spaces`, U+2581 stands for a space. `first` and `last` are the tokens that may enclose a text, `add_first` and
    `add_last` whether they do by default; with `sep`, the last is SEP and not EOS. `rest` is the library's model for
    pieces that do not begin a text, if that differs. Of tokens that are found before the text is split, the library
    finds `inner` in normalized text; `late` are found in text without others; `strips` is which of them take the spaces
    before and after them.
    """

    library: Any
    pieces: list[bytes]
    first: int | None
    last: int | None
    add_first: bool
    add_last: bool
    unknown: int | None = None
    prefix: str = ""
    spaces: bool = False
    drop_space: bool = False
    sep: bool = False
    rest: Any = None
    inner: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()
    strips: Mapping[int, tuple[bool, bool]] = field(default_factory=dict)


T = TypeVar("T")


class Keys:
    """The metadata under `tokenizer.ggml.`, checked as it is read."""

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        self._metadata = metadata

    def wrong(self, key: str, found: str, allowed: str, hint: str = "") -> InvalidArgument:
        """Return the error that names a key."""
        return InvalidArgument("Tokenizer", f"tokenizer.ggml.{key} {found}", allowed=allowed, hint=hint)

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Return a value of one type, or the default if it is missing; an error without a default."""
        value = self._metadata.get(f"tokenizer.ggml.{key}", default)
        if value is None:
            raise self.wrong(key, "is missing", f"a {kind.__name__}", "give a file that carries its tokenizer")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(key, f"is of type {type(value).__name__}", kind.__name__)
        return value

    def text(self, key: str) -> str:
        """Return a string whose key is given in full."""
        value = self._metadata.get(key)
        if not isinstance(value, str):
            raise InvalidArgument("Tokenizer", f"{key} is {type(value).__name__}", allowed="a string")
        return value

    def token(self, key: str, count: int, default: int | None = None) -> int | None:
        """Return the id of a token, or the default if it is missing."""
        if f"tokenizer.ggml.{key}" not in self._metadata:
            return default
        i = self.get(key, int)
        if not 0 <= i < count:
            raise self.wrong(key, f"is {i}", f"0 to {count - 1}: {count} tokens")
        return i

    def strings(self, key: str) -> tuple[str, ...]:
        """Return an array of strings."""
        texts: tuple[Any, ...] = self.get(key, tuple)
        if not all(isinstance(text, str) for text in texts):
            raise self.wrong(key, "has other things than strings", "an array of strings")
        return texts

    def numbers(self, key: str, kinds: str, count: int | None) -> npt.NDArray[Any] | None:
        """Return an array of numbers of NumPy's `kinds`, with `count` one a token, or None."""
        if f"tokenizer.ggml.{key}" not in self._metadata:
            return None
        array: npt.NDArray[Any] = self.get(key, np.ndarray)
        if array.dtype.kind not in kinds:
            raise self.wrong(key, f"is an array of {array.dtype}", "int32" if "i" in kinds else "float32")
        if count is not None and len(array) != count:
            raise self.wrong(key, f"has length {len(array)}", f"{count}, as tokenizer.ggml.tokens")
        return array


def import_library() -> Any:
    """Import the package `tokenizers`."""
    try:
        import tokenizers
    except ImportError as error:
        hint = "pip install isokern[llm]"
        raise InvalidArgument("Tokenizer", f"the package tokenizers cannot be imported: {error}", hint=hint) from error
    return tokenizers


@contextmanager
def refuse_errors(name: str, problem: str) -> Iterator[None]:
    """Raise InvalidArgument for errors of the library, which have no own type; its panics are not an Exception."""
    try:
        yield
    except BaseException as error:
        if type(error) is Exception or isinstance(error, UnicodeError) or type(error).__name__ == "PanicException":
            raise InvalidArgument(name, f"{problem}: {error}") from error
        raise


def _alphabet() -> dict[str, int]:
    """Return GPT-2's byte of each character: printable bytes are themselves, the others follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def list_byte_level(tokens: Sequence[str], types: Sequence[int]) -> list[bytes]:
    """Return the bytes of each token of a byte-level vocabulary."""
    alphabet = {ord(char): chr(byte) for char, byte in _alphabet().items()}
    found = []
    for text, kind in zip(tokens, types, strict=True):
        if kind == NORMAL and all(ord(char) in alphabet for char in text):
            found.append(text.translate(alphabet).encode("latin-1"))
        else:
            found.append(text.encode())
    return found


def _gpt2(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> Vocabulary:
    """Return BPE over the normal tokens, with the merges of the file."""
    pre = "gemma4" if keys.get("model", str) == "gemma4" else keys.get("pre", str, "default")
    if pre not in CUTS:
        raise keys.wrong("pre", f"is {quote_name(pre)}", ", ".join(CUTS))
    cut, ids = CUTS[pre], _normal(tokens, types)
    known = {text: i for i, text in enumerate(tokens)} | ids
    if not cut.raw and not any(char in ids for char in _alphabet()):
        raise keys.wrong("tokens", "has no token for any byte", "one for each byte of the input")
    merges = []
    for i, merge in enumerate(keys.strings("merges")):
        at = merge.find(" ", 1)
        if at < 0:
            raise keys.wrong("merges", f"has {quote_name(merge)} at {i}", "two tokens with a space between them")
        parts = merge[:at], merge[at + 1 :], merge[:at] + merge[at + 1 :]
        # Merges also make tokens that a text may not name, such as `</s>` in Qwen's vocabulary. A merge of strings that
        # are not tokens has no effect, as in every implementation
        if all(part in known for part in parts):
            ids.update((part, known[part]) for part in parts)
            merges.append(parts[:2])
    library = import_library()
    bytes_ = _byte_tokens(keys, tokens, types) if cut.raw else {}
    unknown = keys.token("unknown_token_id", len(tokens))
    named = {"unk_token": tokens[unknown]} if cut.raw and not bytes_ and unknown is not None else {}
    options: dict[str, Any] = {"ignore_merges": cut.whole, "byte_fallback": bool(bytes_), **named}
    vocabulary = ids | bytes_ | dict.fromkeys(named.values(), unknown or 0)
    made = library.Tokenizer(library.models.BPE(vocabulary, merges, **options))
    cuts = [library.pre_tokenizers.Split(library.Regex(pattern), "isolated") for pattern in cut.patterns]
    if not cut.raw:
        cuts.append(library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    made.pre_tokenizer = library.pre_tokenizers.Sequence(cuts)
    pieces = list_sentence_piece(keys, tokens, types) if cut.raw else list_byte_level(tokens, types)
    first, last = find_ends(keys, len(tokens), sep=cut.sep)
    return Vocabulary(made, pieces, first, last, cut.bos, cut.sep, unknown, spaces=cut.raw, sep=cut.sep)


def find_ends(keys: Keys, count: int, sep: bool, bos: int | None = None, eos: int | None = None) -> tuple[Any, Any]:
    """Return the tokens that may enclose a text; with `sep` CLS and SEP, if the file names them."""
    first, last = keys.token("bos_token_id", count, bos), keys.token("eos_token_id", count, eos)
    if not sep:
        return first, last
    ended = keys.token("seperator_token_id", count)  # GGUF's spelling
    return keys.token("cls_token_id", count, first), last if ended is None else ended


def _normal(tokens: Sequence[str], types: Sequence[int]) -> dict[str, int]:
    return {text: i for i, (text, kind) in enumerate(zip(tokens, types, strict=True)) if kind == NORMAL}


def _byte_tokens(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> dict[str, int]:
    """Return the tokens of bytes, all of them or none."""
    found = {tokens[i]: i for i, kind in enumerate(types) if kind == BYTE}
    if found and len(found) < 256:
        raise keys.wrong("tokens", f"has {len(found)} of the bytes <0x00> to <0xFF>", "all of them or none")
    return found


def list_sentence_piece(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> list[bytes]:
    """Return the bytes of each token of a SentencePiece vocabulary."""
    found = []
    for i, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind == BYTE:
            if not re.fullmatch("<0x[0-9A-F]{2}>", text):
                raise keys.wrong(
                    "tokens", f"has {quote_name(text)} at {i}, a byte by its token_type", "<0x00> to <0xFF>"
                )
            found.append(bytes([int(text[3:5], 16)]))
        else:
            found.append(text.replace(SPACE, " ").encode() if kind == NORMAL else text.encode())
    return found


def _scores(keys: Keys, count: int) -> npt.NDArray[Any]:
    scores = keys.numbers("scores", "f", count)
    if scores is None:
        raise keys.wrong("scores", "is missing", "a float32 for each token", "give a file that carries its tokenizer")
    if not np.isfinite(scores).all():
        raise keys.wrong("scores", f"has {scores[~np.isfinite(scores)][0]}", "finite numbers")
    return scores


def _llama(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> Vocabulary:
    """Return BPE with the merges that the scores stand for.

    A merge is two tokens that make a third; the highest score comes first.
    """
    ids, scores, unknown = (
        _normal(tokens, types),
        _scores(keys, len(tokens)),
        keys.token("unknown_token_id", len(tokens)),
    )
    pieces = list_sentence_piece(keys, tokens, types)
    merges = []
    for text, i in ids.items():
        if len(text) > MAX_PIECE:
            raise keys.wrong("tokens", f"has {len(text)} characters at {i}", f"at most {MAX_PIECE}")
        for cut in range(1, len(text)):
            if text[:cut] in ids and text[cut:] in ids:
                merges.append((-float(scores[i]), i, text[:cut], text[cut:]))
    merges.sort()
    byte_ids = _byte_tokens(keys, tokens, types)
    if not byte_ids and unknown is None:
        raise keys.wrong("unknown_token_id", "is missing, and there are no bytes among the tokens", "the id of a token")
    library = import_library()
    named = {} if byte_ids else {"unk_token": tokens[unknown or 0]}
    vocabulary = ids | byte_ids | dict.fromkeys(named.values(), unknown or 0)
    pairs = [(left, right) for _, _, left, right in merges]
    made = library.Tokenizer(
        library.models.BPE(vocabulary, pairs, byte_fallback=bool(byte_ids), fuse_unk=True, **named)
    )
    prefix = SPACE if keys.get("add_space_prefix", bool, True) else ""
    first, last = find_ends(keys, len(tokens), sep=False)
    return Vocabulary(made, pieces, first, last, True, False, unknown, prefix, spaces=True, drop_space=bool(prefix))


def _t5(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> Vocabulary:
    """Return SentencePiece's unigram model: of all ways to cut a text, the one with the highest sum of scores.

    Text is normalized by `precompiled_charsmap`, and with `remove_extra_whitespaces` spaces are single.
    """
    count, scores = len(tokens), _scores(keys, len(tokens))
    unknown = keys.token("unknown_token_id", count, 2 if count > 2 else None)
    if unknown is None:
        raise keys.wrong("unknown_token_id", "is missing", "the id of a token")
    pieces, forms = list_sentence_piece(keys, tokens, types), None
    of_bytes = {pieces[i][0]: i for i in _byte_tokens(keys, tokens, types).values()}
    charsmap = keys.numbers("precompiled_charsmap", "iu", None)
    if charsmap is not None and len(charsmap):
        try:
            forms = NormalForms(charsmap.astype(np.uint8).tobytes())
        except ValueError as error:
            raise keys.wrong("precompiled_charsmap", f"cannot be read: {error}", "SentencePiece's table") from None
    prefix, single = keys.get("add_space_prefix", bool, True), keys.get("remove_extra_whitespaces", bool, False)
    made = Unigram(_normal(tokens, types), scores.tolist(), unknown, of_bytes, forms, prefix, single)
    first, last = find_ends(keys, count, sep=False, eos=1 if count > 1 else None)
    return Vocabulary(made, pieces, first, last, False, True, unknown, drop_space=prefix)


def _bert(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> Vocabulary:
    """Return WordPiece. In GGUF a token that begins a word has U+2581 before it, and others are as they stand."""
    count = len(tokens)
    unknown = keys.token("unknown_token_id", count, 100 if count > 100 else None)
    if unknown is None:
        raise keys.wrong("unknown_token_id", "is missing", "the id of a token")
    ids = {tokens[unknown]: unknown}
    for text, i in _normal(tokens, types).items():
        ids[text[1:] if text.startswith(SPACE) else f"##{text}"] = i
    library = import_library()
    made = library.Tokenizer(library.models.WordPiece(ids, unk_token=tokens[unknown]))
    lower = keys.get("normalizer.lowercase", bool, True)
    accents = keys.get("normalizer.strip_accents", bool, lower)
    made.normalizer = library.normalizers.BertNormalizer(lowercase=lower, strip_accents=accents)
    made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    pieces = [text.replace(SPACE, " ").encode() for text in tokens]
    first, last = find_ends(keys, count, sep=True, bos=101 if count > 101 else None, eos=102 if count > 102 else None)
    return Vocabulary(made, pieces, first, last, True, True, unknown, drop_space=True, sep=True)


def _rwkv(keys: Keys, tokens: Sequence[str], types: Sequence[int]) -> Vocabulary:
    """Return the longest token at each place, of the normal ones."""
    pieces = [unescape(t) if kind == NORMAL else t.encode() for t, kind in zip(tokens, types, strict=True)]
    found = [(i, pieces[i]) for i, kind in enumerate(types) if kind == NORMAL and pieces[i]]
    lacking = {*range(256)} - {piece[0] for _, piece in found if len(piece) == 1}
    if lacking:
        raise keys.wrong("tokens", f"has no token for the byte 0x{min(lacking):02X}", "all 256 among them")
    first, last = find_ends(keys, len(tokens), sep=False)
    return Vocabulary(
        LongestMatch(found), pieces, first, last, False, False, keys.token("unknown_token_id", len(tokens))
    )


_BUILDERS = {"gpt2": _gpt2, "llama": _llama, "t5": _t5, "bert": _bert, "gemma4": _gpt2, "rwkv": _rwkv}


def build(keys: Keys, model: str, tokens: Sequence[str], types: Sequence[int]) -> Vocabulary:
    """Return the vocabulary that the metadata describe."""
    if model not in _BUILDERS:
        raise keys.wrong("model", f"is {quote_name(model)}", ", ".join((*_BUILDERS, "huggingface")))
    return _BUILDERS[model](keys, tokens, types)
