"""Text to tokens and back, as a GGUF file's metadata describes it, through the library `tokenizers`.

There are two kinds of vocabulary: `gpt2`, byte-level BPE from tokens and merges, and `llama`, SentencePiece's BPE,
whose merges follow from the scores, with byte tokens for what has no token.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..status import InvalidArgument
from .gguf import GGUF, Value, quote_name

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # tokenizer.ggml.token_type
SPACE = "\u2581"  # SentencePiece's sign for a space
MAX_PIECE = 512  # characters of a token whose merges have to be found: each place to cut it is tried

# Texts of tokens after which the models that have them write no more
ENDS = {
    *("</s>", "<eos>", "[EOS]", "<EOT>", "_<EOT>", "[EOT]", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "[e~["),
    *("<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_turn>"),
    *("<turn|>", "<|tool_response>", "<end_of_utterance>", "<｜end▁of▁sentence｜>", "<|fim_pad|>", "<fim-pad>"),
    *("<fim_pad>", "<|file_sep|>", "<|repo_name|>", "<|fim_repo|>"),
}

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# tokenizer.ggml.pre: the patterns that text is cut by before it is merged, one after the other
CUTS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "llama-bpe": (_LLAMA3 % "{1,3}",),
    "qwen2": (_LLAMA3 % "",),
}
_WHOLE = {"llama-bpe"}  # a piece that is a token is not merged from its parts
_BOS_FIRST = {"llama-bpe"}  # vocabularies that put BOS first where add_bos_token is missing


class Tokenizer:
    """The tokenizer of a GGUF file.

    `tokens` are the vocabulary's texts as the file has them; `bos`, `eos` and `unknown` are ids or None; `ends` are the
    ids after which there is nothing more to generate, some known by their texts; `add_bos` and `add_eos` are whether
    `encode` puts BOS first, and `last` at the end, by default; `len()` is the size of the vocabulary.
    """

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        """Build the tokenizer as `from_gguf` does, from metadata alone."""
        keys = _Keys(metadata)
        self.model = keys.get("model", str)
        if self.model not in ("gpt2", "llama"):
            raise keys.wrong("model", f"is {quote_name(self.model)}", "'gpt2' and 'llama'")
        self.tokens: tuple[str, ...] = keys.strings("tokens")
        if not self.tokens:
            raise keys.wrong("tokens", "is empty", "at least one token")
        types = keys.numbers("token_type", "i", len(self.tokens))
        self._types = [NORMAL] * len(self.tokens) if types is None else types.tolist()
        for i, kind in enumerate(self._types):
            if not NORMAL <= kind <= BYTE:
                raise keys.wrong("token_type", f"is {kind} for token {i}", "1 to 6")
        self.bos, self.eos = keys.token("bos_token_id", len(self.tokens)), keys.token("eos_token_id", len(self.tokens))
        self.unknown = keys.token("unknown_token_id", len(self.tokens))
        others = (keys.token(key, len(self.tokens)) for key in ("eot_token_id", "eom_token_id"))
        known = self._find_ends()
        self.ends = frozenset(i for i in (self.eos, *others) if i is not None) | known
        for i in known:  # some files give these tokens another type: they would be written as text
            self._types[i] = CONTROL
        own = {text: i for i, (text, kind) in enumerate(zip(self.tokens, self._types, strict=True)) if kind == NORMAL}
        pre = keys.get("pre", str, "default") if self.model == "gpt2" else ""
        if self.model == "gpt2":
            self._bytes = _byte_level(self.tokens, self._types)
            self._prefix = ""
            self._library = _gpt2(keys, own, pre)
        else:
            self._bytes = _sentence_piece(keys, self.tokens, self._types)
            self._prefix = SPACE if keys.get("add_space_prefix", bool, True) else ""
            self._library = _llama(keys, own, self)
        self.add_bos = keys.get("add_bos_token", bool, self.model == "llama" or pre in _BOS_FIRST)
        if self.add_bos and self.bos is None:
            raise keys.wrong("bos_token_id", "is missing, and add_bos_token asks for it", "the id of a token")
        self.last = self.eos
        self.add_eos = keys.get("add_eos_token", bool, False)
        if self.add_eos and self.last is None:
            raise keys.wrong("eos_token_id", "is missing, and add_eos_token asks for it", "the id of a token")
        self._cutters: dict[bool, tuple[re.Pattern[str] | None, dict[str, int]]] = {}

    def _find_ends(self) -> set[int]:
        """Return the tokens that end a text by what they are called, for files that do not name them all."""
        found = {text: i for i, text in enumerate(self.tokens) if text in ENDS}
        if "<|return|>" in found and "<|call|>" in found:  # harmony: there, an answer has several messages
            found.pop("<|end|>", None)
        return set(found.values())

    @classmethod
    def from_gguf(cls, gguf: GGUF) -> Tokenizer:
        """Return the tokenizer that `gguf.metadata` describes.

        Raises `InvalidArgument`, with the key, where one is missing, of another type or length, names something that
        does not exist, or asks for something unknown; also where the library is not installed.
        """
        return cls(gguf.metadata)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(
        self, text: str, bos: bool | None = None, special: bool = False, eos: bool | None = None, guard: str = ""
    ) -> list[int]:
        """Return the tokens of `text`, with BOS before them if `bos`, or where that is None if `add_bos`.

        `eos` and `add_eos` say the same of the token after them, which is EOS. The text of a control token, such as
        `</s>`, is text like any other unless `special`; with `special`, text may be kept apart from the tokens by
        `guard_text(text, guard)`. Raises `InvalidArgument` for what is not text.
        """
        if not isinstance(text, str):
            raise InvalidArgument("Tokenizer.encode", f"text is {type(text).__name__}", allowed="str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            found = f"text has U+{ord(text[error.start]):04X} at {error.start}, which is no character"
            raise InvalidArgument("Tokenizer.encode", found, allowed="what UTF-8 can hold") from None
        ids = []
        if self.add_bos if bos is None else bos:
            if self.bos is None:
                raise InvalidArgument("Tokenizer.encode", "bos=True, and the vocabulary names no BOS", allowed="False")
            ids.append(self.bos)
        for part in self._parts(text, special):
            ids += [part] if isinstance(part, int) else self._merge(part.replace(guard, "") if guard else part)
        if self.add_eos if eos is None else eos:
            if self.last is None:
                raise InvalidArgument("Tokenizer.encode", "eos=True, and the vocabulary names no EOS", allowed="False")
            ids.append(self.last)
        return ids

    def guard_text(self, text: str, guard: str) -> str:
        """Return `text` with `guard`, one character, inside each text of a control token: `encode` takes it out."""
        cutter, ids = self._cutter(special=True)
        parts = [text] if cutter is None else cutter.split(text)
        control = {found for found, i in ids.items() if self._types[i] != USER_DEFINED}
        return "".join(f"{part[0]}{guard}{part[1:]}" if part in control else part for part in parts)

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """Return the text of tokens that begin a text; what is not UTF-8 becomes U+FFFD.

        Control, unknown and unused tokens are left out unless `special`. Raises `InvalidArgument` for an id outside the
        vocabulary.
        """
        ids = list(ids)
        pieces = [self._piece(i, special) for i in ids]
        text = b"".join(pieces).decode(errors="replace")
        first = next((i for i, piece in zip(ids, pieces, strict=True) if piece), None)
        begins = self._prefix and first is not None and self._types[first] == NORMAL
        return text.removeprefix(" ") if begins else text

    def stream(self, special: bool = False) -> TextStream:
        """Return a decoder for tokens that come one by one after earlier text; see `TextStream`."""
        return TextStream(self, special)

    def _piece(self, i: int, special: bool) -> bytes:
        """Return the bytes of token `i`."""
        if not isinstance(i, int | np.integer) or isinstance(i, bool) or not 0 <= i < len(self.tokens):
            raise InvalidArgument("Tokenizer.decode", f"token {i!r}", allowed=f"0 to {len(self.tokens) - 1}")
        return b"" if self._types[i] in (CONTROL, UNKNOWN, UNUSED) and not special else self._bytes[i]

    def _parts(self, text: str, special: bool) -> Iterator[str | int]:
        """Cut `text` at tokens that are found as they stand: user-defined, and with `special` control tokens."""
        cutter, ids = self._cutter(special)
        for i, part in enumerate([text] if cutter is None else cutter.split(text)):
            if part:
                yield ids[part] if i % 2 else part

    def _cutter(self, special: bool) -> tuple[re.Pattern[str] | None, dict[str, int]]:
        """Return the pattern of tokens that are found as they stand, and their ids by text."""
        if special not in self._cutters:
            kinds = (USER_DEFINED, CONTROL, UNKNOWN) if special else (USER_DEFINED,)
            ids = {text: i for i, text in enumerate(self.tokens) if text and self._types[i] in kinds}
            longest_first = sorted(ids, key=len, reverse=True)
            cutter = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if ids else None
            self._cutters[special] = cutter, ids
        return self._cutters[special]

    def _merge(self, text: str) -> list[int]:
        """Return the tokens of text that holds none of the tokens found as they stand."""
        if self.model == "llama":
            text = self._prefix + text.replace(" ", SPACE)
        ids: list[int] = self._library.encode(text).ids
        return ids


class TextStream:
    """A decoder of tokens that come one by one.

    What `push` and `end` return, joined, is the text; each part has whole characters.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Return the characters that `token` completes, perhaps none.

        Raises `InvalidArgument` for an id outside the vocabulary.
        """
        return self._decoder.decode(self._tokenizer._piece(token, self._special))

    def end(self) -> str:
        """Return U+FFFD where the last character was not completed, else nothing; a new text may begin after it."""
        return self._decoder.decode(b"", final=True)


T = TypeVar("T")


class _Keys:
    """The metadata under `tokenizer.ggml.`, checked as it is read."""

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        self._metadata = metadata

    def wrong(self, key: str, found: str, allowed: str, hint: str = "") -> InvalidArgument:
        return InvalidArgument("Tokenizer", f"tokenizer.ggml.{key} {found}", allowed=allowed, hint=hint)

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Return a value of one type, or the default where it is missing; an error without a default."""
        value = self._metadata.get(f"tokenizer.ggml.{key}", default)
        if value is None:
            raise self.wrong(key, "is missing", f"a {kind.__name__}", "give a file that carries its tokenizer")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(key, f"is of type {type(value).__name__}", kind.__name__)
        return value

    def token(self, key: str, count: int) -> int | None:
        """Return the id of a token, or None."""
        if f"tokenizer.ggml.{key}" not in self._metadata:
            return None
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

    def numbers(self, key: str, kinds: str, count: int) -> npt.NDArray[Any] | None:
        """Return an array of numbers of NumPy's `kinds`, one a token, or None."""
        if f"tokenizer.ggml.{key}" not in self._metadata:
            return None
        array: npt.NDArray[Any] = self.get(key, np.ndarray)
        if array.dtype.kind not in kinds:
            raise self.wrong(key, f"is an array of {array.dtype}", "int32" if "i" in kinds else "float32")
        if len(array) != count:
            raise self.wrong(key, f"has length {len(array)}", f"{count}, as tokenizer.ggml.tokens")
        return array


def _library() -> Any:
    """Import the package `tokenizers`."""
    try:
        import tokenizers
    except ImportError as error:
        hint = "pip install isokern[llm]"
        raise InvalidArgument("Tokenizer", f"the package tokenizers cannot be imported: {error}", hint=hint) from error
    return tokenizers


def _alphabet() -> dict[str, int]:
    """Return GPT-2's byte of each character: printable bytes are themselves, the others follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _byte_level(tokens: Sequence[str], types: Sequence[int]) -> list[bytes]:
    """Return the bytes of each token of a byte-level vocabulary."""
    alphabet = {ord(char): chr(byte) for char, byte in _alphabet().items()}
    found = []
    for text, kind in zip(tokens, types, strict=True):
        if kind == NORMAL and all(ord(char) in alphabet for char in text):
            found.append(text.translate(alphabet).encode("latin-1"))
        else:
            found.append(text.encode())
    return found


def _gpt2(keys: _Keys, ids: dict[str, int], pre: str) -> Any:
    """Return the library's byte-level BPE over the normal tokens."""
    if pre not in CUTS:
        raise keys.wrong("pre", f"is {quote_name(pre)}", ", ".join(CUTS))
    for char, byte in _alphabet().items():
        if char not in ids and byte not in (0xC0, 0xC1, *range(0xF5, 0x100)):  # bytes that do not occur in UTF-8
            raise keys.wrong("tokens", f"has no token for the byte 0x{byte:02X}", f"a token {char!r} among them")
    merges = []
    for i, merge in enumerate(keys.strings("merges")):
        left, _, right = merge.partition(" ")
        missing = [part for part in (left, right, left + right) if part not in ids]
        if missing:
            raise keys.wrong(
                "merges", f"has {quote_name(merge)} at {i}, and {quote_name(missing[0])} is no token", "two tokens"
            )
        merges.append((left, right))
    library = _library()
    made = library.Tokenizer(library.models.BPE(ids, merges, ignore_merges=pre in _WHOLE))
    cuts = [library.pre_tokenizers.Split(library.Regex(cut), "isolated") for cut in CUTS[pre]]
    last = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = library.pre_tokenizers.Sequence([*cuts, last])
    return made


def _sentence_piece(keys: _Keys, tokens: Sequence[str], types: Sequence[int]) -> list[bytes]:
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


def _llama(keys: _Keys, ids: dict[str, int], tokenizer: Tokenizer) -> Any:
    """Return the library's BPE with the merges that the scores stand for.

    A merge is two tokens that make a third; the highest score comes first.
    """
    scores = keys.numbers("scores", "f", len(tokenizer.tokens))
    if scores is None:
        raise keys.wrong("scores", "is missing", "a float32 for each token", "give a file that carries its tokenizer")
    if not np.isfinite(scores).all():
        raise keys.wrong("scores", f"has {scores[~np.isfinite(scores)][0]}", "finite numbers")
    merges = []
    for text, i in ids.items():
        if len(text) > MAX_PIECE:
            raise keys.wrong("tokens", f"has {len(text)} characters at {i}", f"at most {MAX_PIECE}")
        for cut in range(1, len(text)):
            if text[:cut] in ids and text[cut:] in ids:
                merges.append((-float(scores[i]), i, text[:cut], text[cut:]))
    merges.sort()
    byte_ids = {tokenizer.tokens[i]: i for i, kind in enumerate(tokenizer._types) if kind == BYTE}
    if byte_ids and len(byte_ids) < 256:
        raise keys.wrong("tokens", f"has {len(byte_ids)} of the bytes <0x00> to <0xFF>", "all of them or none")
    if not byte_ids and tokenizer.unknown is None:
        raise keys.wrong("unknown_token_id", "is missing, and there are no bytes among the tokens", "the id of a token")
    library = _library()
    named = {} if byte_ids else {"unk_token": tokenizer.tokens[tokenizer.unknown or 0]}
    vocabulary = ids | byte_ids | dict.fromkeys(named.values(), tokenizer.unknown or 0)
    pairs = [(left, right) for _, _, left, right in merges]
    return library.Tokenizer(
        library.models.BPE(vocabulary, pairs, byte_fallback=bool(byte_ids), fuse_unk=True, **named)
    )
