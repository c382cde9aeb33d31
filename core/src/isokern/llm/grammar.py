"""Output that matches a grammar, a JSON schema or a regular expression: which tokens may come next, by llguidance."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..status import InvalidArgument, quote
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance

STATES = 20_000  # the limit of a grammar's lexer, 2 KB each: a client of a server may give one
KINDS = ("lark", "gbnf", "json_schema", "regex")
_SPACE = r" |\n[ \t]{0,20}"  # between the parts of JSON: a model that likes line ends would write nothing else
_KNOWN: weakref.WeakKeyDictionary[Tokenizer, llguidance.LLTokenizer] = weakref.WeakKeyDictionary()


class Grammar:
    """A grammar of one of KINDS that the output has to match, from its first token to the end.

    `lark` is a grammar in Lark's notation, `gbnf` one in llama.cpp's, `json_schema` a JSON schema, as text or as a
    mapping ({} allows all JSON), and `regex` a regular expression that the whole text matches. InvalidArgument for
    unknown kinds, or if llguidance is not installed; errors in the grammar itself are raised by `begin`.
    """

    def __init__(self, kind: str, text: str | Mapping[str, Any]) -> None:
        if kind not in KINDS:
            raise InvalidArgument("Grammar", f"kind {quote(kind)}", allowed=", ".join(KINDS))
        if isinstance(text, Mapping) and kind == "json_schema":
            text = json.dumps(dict(text))
        if not isinstance(text, str):
            raise InvalidArgument("Grammar", f"{kind} is {type(text).__name__}", allowed="str")
        library = _library()
        try:
            if kind == "json_schema":
                self.rules = library.LLMatcher.grammar_from_json_schema(text, {"whitespace_pattern": _SPACE})
            else:
                self.rules = library.grammar_from(kind, text)
        except Exception as error:  # the library's own types and others
            raise InvalidArgument("Grammar", f"{kind}: {error}", allowed=f"a grammar in {kind}") from error
        self.kind = kind

    def begin(self, tokenizer: Tokenizer) -> GrammarState:
        """Return the constraint of a text that begins; InvalidArgument says what is wrong with the grammar."""
        return GrammarState(self, tokenizer)


class GrammarState:
    """Which tokens may come next in one text: `mask` says it, `add` goes on after a token."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer) -> None:
        if not tokenizer.ends:
            raise InvalidArgument("Grammar", "the vocabulary names no token that ends a text", allowed="one that does")
        if tokenizer not in _KNOWN:
            _KNOWN[tokenizer] = _library().LLTokenizer(
                _library().TokenizerWrapper(_Vocabulary(tokenizer)), eos_token=sorted(tokenizer.ends)
            )
        self._tokenizer = tokenizer
        self.size = len(tokenizer)
        """The tokens of the vocabulary."""
        limits = _library().LLParserLimits(max_lexer_states=STATES)
        self._matcher = _library().LLMatcher(_KNOWN[tokenizer], grammar.rules, log_level=0, limits=limits)
        self._check(grammar.kind)

    def mask(self) -> npt.NDArray[np.bool_]:
        """Return for each token of the vocabulary whether it may be next; a token that ends the text is among them.

        InvalidArgument where finding that out takes more than the library's limits.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check("grammar")
        return np.unpackbits(bits, bitorder="little")[: self.size].astype(np.bool_)

    def add(self, token: int) -> None:
        """Go on after a token that was allowed."""
        self._matcher.consume_token(token)
        self._check("grammar")

    def _check(self, what: str) -> None:
        if self._matcher.is_error():
            problem = self._matcher.get_error().strip()
            raise InvalidArgument("Grammar", f"{what}: {problem}", allowed="what llguidance can follow")


class _Vocabulary:
    """A tokenizer as llguidance reads it: the bytes of each token, and which ones stand for no text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokens: Sequence[bytes] = [tokenizer.piece(i) for i in range(len(tokenizer))]
        self.special_token_ids = [i for i, text in enumerate(self.tokens) if not text]
        self.eos_token_id, self.bos_token_id = min(tokenizer.ends), tokenizer.bos
        self._tokenizer = weakref.ref(tokenizer)  # which _KNOWN would keep otherwise

    def __call__(self, text: str) -> list[int]:
        if isinstance(text, bytes):
            raise TypeError("text")  # the library asks which of both it may give
        tokenizer = self._tokenizer()
        assert tokenizer is not None  # a GrammarState holds it
        return tokenizer.encode(text, bos=False, eos=False)


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise InvalidArgument(
            "Grammar",
            "llguidance is not installed",
            allowed="a package that follows grammars",
            hint="pip install 'isokern[grammar]'",
        ) from error
    return llguidance
