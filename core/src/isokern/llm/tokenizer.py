"""Text to tokens and back, as a GGUF file's metadata describes it, through the library `tokenizers`."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from ..status import InvalidArgument
from .gguf import GGUF, Value
from .tokenizer_file import build_file
from .vocabularies import BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, UNUSED, USER_DEFINED, Keys, build, refuse_errors

# The contents of tokens after which the models that have them write no more
ENDS = {
    *("</s>", "<eos>", "[EOS]", "<EOT>", "_<EOT>", "[EOT]", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "[e~["),
    *("<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_turn>"),
    *("<turn|>", "<|tool_response>", "<end_of_utterance>", "<｜end▁of▁sentence｜>", "<|fim_pad|>", "<fim-pad>"),
    *("<fim_pad>", "<|file_sep|>", "<|repo_name|>", "<|fim_repo|>"),
}
# What tokens of a folder that strip take: Unicode's White_Space
WHITE_SPACE = "".join(c for c in map(chr, range(0x3001)) if c.isspace() and not "\x1c" <= c <= "\x1f")
WHITE_SPACES = re.compile(f"[{WHITE_SPACE}]*")
# While the library encodes a text, or a pattern is searched for, no other thread of Python runs: for 10 ms at most with
# these lengths, whatever the text is
WHOLE = 1 << 14  # letters that are encoded as one text; for a batch, the library lets other threads run
STRETCH = 1 << 12  # letters that are searched at once


class Tokenizer:
    """The tokenizer of a GGUF file.

    `tokens` are the strings of the vocabulary, as in the file; `bos`, `eos` and `unknown` are ids or None; `ends` are
    the ids after which there is nothing more to generate, some known by their strings; `add_bos` and `add_eos` are
    whether `encode` puts BOS first, and `last` at the end, by default; `longest` is the bytes of the
    longest token; `len()` is the size of the vocabulary.
    """

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        """Build the tokenizer as `from_gguf` does, from metadata alone."""
        keys = Keys(metadata)
        self.model = keys.get("model", str)
        self.tokens: tuple[str, ...] = keys.strings("tokens")
        if not self.tokens:
            raise keys.wrong("tokens", "is empty", "at least one token")
        types = keys.numbers("token_type", "i", len(self.tokens))
        self._types = [NORMAL] * len(self.tokens) if types is None else types.tolist()
        for i, kind in enumerate(self._types):
            if not NORMAL <= kind <= BYTE:
                raise keys.wrong("token_type", f"is {kind} for token {i}", "1 to 6")
        known = self._find_ends()
        for i in known:  # some files give these tokens another type: they would be written as text
            self._types[i] = CONTROL
        own = build_file if self.model == "huggingface" else partial(build, model=self.model)
        self._vocabulary = made = own(keys, tokens=self.tokens, types=self._types)
        self.bos, self.last, self.unknown = made.first, made.last, made.unknown
        self.eos = keys.token("eos_token_id", len(self.tokens), made.last)
        others = (keys.token(key, len(self.tokens)) for key in ("eot_token_id", "eom_token_id"))
        more = keys.numbers("end_token_ids", "i", None)  # as folders have them
        self.ends = frozenset(i for i in (self.eos, *others, *(() if more is None else more.tolist())) if i is not None)
        self.ends |= known
        self.add_bos = keys.get("add_bos_token", bool, made.add_first)
        if self.add_bos and self.bos is None:
            raise keys.wrong("bos_token_id", "is missing, and add_bos_token asks for it", "the id of a token")
        self.add_eos = keys.get("add_sep_token" if made.sep else "add_eos_token", bool, made.add_last)
        if self.add_eos and self.last is None:
            raise keys.wrong("eos_token_id", "is missing, and add_eos_token asks for it", "the id of a token")
        self.longest = max(map(len, made.pieces))
        self._cutters: dict[bool, list[tuple[re.Pattern[str], dict[str, int]]]] = {}

    def _find_ends(self) -> set[int]:
        """Return the tokens that end a text by what they are called, for files that do not name them all."""
        found = {text: i for i, text in enumerate(self.tokens) if text in ENDS}
        if "<|return|>" in found and "<|call|>" in found:  # harmony: there, an answer has several messages
            found.pop("<|end|>", None)
        return set(found.values())

    @classmethod
    def from_gguf(cls, gguf: GGUF) -> Tokenizer:
        """Return the tokenizer that `gguf.metadata` describes.

        Raises `InvalidArgument`, with the key, if one is missing, has a wrong type or length, names something that does
        not exist, or asks for something unknown; also if the library is not installed.
        """
        return cls(gguf.metadata)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(
        self, text: str, bos: bool | None = None, special: bool = False, eos: bool | None = None, guard: str = ""
    ) -> list[int]:
        """Return the tokens of `text`, with BOS before them if `bos`, or, if that is None, if `add_bos`.

        `eos` and `add_eos` say the same of the token after them, which is EOS. The text of a control token, such as
        `</s>`, is text like any other unless `special`; with `special`, text may be kept apart from the tokens by
        `guard_text(text, guard)`. Raises `InvalidArgument` for what is not text.
        """
        if not isinstance(text, str):
            raise InvalidArgument("Tokenizer.encode", f"text is {type(text).__name__}", allowed="str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            found = f"text has U+{ord(text[error.start]):04X} at {error.start}, which is not a character"
            raise InvalidArgument("Tokenizer.encode", found, allowed="what UTF-8 can hold") from None
        ids = []
        if self.add_bos if bos is None else bos:
            if self.bos is None:
                raise InvalidArgument("Tokenizer.encode", "bos=True, and the vocabulary names no BOS", allowed="False")
            ids.append(self.bos)
        for i, part in enumerate(self._parts(text, special)):
            ids += [part] if isinstance(part, int) else self._merge(part.replace(guard, "") if guard else part, i == 0)
        if self.add_eos if eos is None else eos:
            if self.last is None:
                raise InvalidArgument("Tokenizer.encode", "eos=True, and the vocabulary names no EOS", allowed="False")
            ids.append(self.last)
        return ids

    def guard_text(self, text: str, guard: str) -> str:
        """Return `text` with `guard`, one character, inside each text of a control token: `encode` takes it out."""
        for cutter, ids in self._list_cutters(special=True):
            control = {found for found, i in ids.items() if self._types[i] != USER_DEFINED}
            inside = [found.start() + 1 for found in _find_each(cutter, ids, text) if found[0] in control]
            parts = [text[at:stop] for at, stop in zip([0, *inside], [*inside, len(text)], strict=True)]
            text = guard.join(parts)
        return text

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """Return the text of tokens that begin a text; what is not UTF-8 becomes U+FFFD.

        Control, unknown and unused tokens are left out unless `special`. Raises `InvalidArgument` for an id outside the
        vocabulary.
        """
        ids = list(ids)
        pieces = [self.piece(i, special) for i in ids]
        text = b"".join(pieces).decode(errors="replace")
        first = next((i for i, piece in zip(ids, pieces, strict=True) if piece), None)
        begins = self._vocabulary.drop_space and first is not None and self._types[first] == NORMAL
        return text.removeprefix(" ") if begins else text

    def stream(self, special: bool = False) -> TextStream:
        """Return a decoder for tokens that come one by one after earlier text; see `TextStream`."""
        return TextStream(self, special)

    def piece(self, i: int, special: bool = False) -> bytes:
        """Return the bytes of token `i` in a text; none of a control, unknown or unused one unless `special`."""
        if not isinstance(i, int | np.integer) or isinstance(i, bool) or not 0 <= i < len(self.tokens):
            raise InvalidArgument("Tokenizer.decode", f"token {i!r}", allowed=f"0 to {len(self.tokens) - 1}")
        return b"" if self._types[i] in (CONTROL, UNKNOWN, UNUSED) and not special else self._vocabulary.pieces[i]

    def _parts(self, text: str, special: bool) -> list[str | int]:
        """Cut `text` at tokens that are found as they stand: user-defined, and with `special` control tokens."""
        parts: list[str | int] = [text] if text else []
        for cutter, ids in self._list_cutters(special):
            cut = ([part] if isinstance(part, int) else self._cut(part, cutter, ids) for part in parts)
            parts = [part for each in cut for part in each]
        return parts

    def _cut(self, text: str, cutter: re.Pattern[str], ids: Mapping[str, int]) -> Iterator[str | int]:
        """Give the tokens that the cutter finds, with the spaces that they take, and the text between them."""
        at = 0
        for found in _find_each(cutter, ids, text):
            start, stop = found.span()
            left, right = self._vocabulary.strips.get(ids[found[0]], (False, False))
            if left:
                start = at + len(text[at:start].rstrip(WHITE_SPACE))
            if right:
                stop = WHITE_SPACES.match(text, stop).end()  # type: ignore[union-attr]  # it matches nothing, too
            if at < start:
                yield text[at:start]
            if start < stop:  # else the token before has all of it
                yield ids[found[0]]
                at = stop
        if at < len(text):
            yield text[at:]

    def _list_cutters(self, special: bool) -> list[tuple[re.Pattern[str], dict[str, int]]]:
        """Return the patterns of tokens that are found as they stand, one after the other, and their ids by text."""
        if special not in self._cutters:
            made, cutters = self._vocabulary, []
            kinds = (USER_DEFINED, CONTROL, UNKNOWN) if special else (USER_DEFINED,)
            found = {t: i for i, t in enumerate(self.tokens) if t and self._types[i] in kinds and i not in made.inner}
            for late in (False, True):
                ids = {text: i for text, i in found.items() if (i in made.late) == late}
                longest_first = sorted(ids, key=len, reverse=True)
                if ids:
                    cutters.append((re.compile(f"({'|'.join(map(re.escape, longest_first))})"), ids))
            self._cutters[special] = cutters
        return self._cutters[special]

    def _merge(self, text: str, first: bool) -> list[int]:
        """Return the tokens of text that holds none of the tokens found as they stand."""
        made = self._vocabulary
        if made.spaces:
            text = made.prefix + text.replace(" ", SPACE)
        library = made.library if first or made.rest is None else made.rest
        with refuse_errors("Tokenizer.encode", "the text has no tokens"):
            if len(text) > WHOLE and hasattr(library, "encode_batch"):  # not our own, which are written in Python
                found = library.encode_batch([text], add_special_tokens=False)[0]
            else:
                found = library.encode(text, add_special_tokens=False)
            ids: list[int] = found.ids
        return ids


def _find_each(cutter: re.Pattern[str], ids: Collection[str], text: str) -> Iterator[re.Match[str]]:
    """Yield what `cutter.finditer(text)` yields, in stretches; the cutter finds the strings `ids` and nothing else."""
    longest, at = max(map(len, ids)), 0
    while at < len(text):
        end = at + STRETCH
        for found in cutter.finditer(text, at, end + longest):
            if found.start() >= end:  # it may be cut off
                break
            yield found
            at = found.end()
        at = max(at, end)


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
        return self._decoder.decode(self._tokenizer.piece(token, self._special))

    def end(self) -> str:
        """Return U+FFFD if the last character was not completed, else nothing; a new text may begin after it."""
        return self._decoder.decode(b"", final=True)
