"""Test properties of vocabularies that people have, each in a small one of our own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_tokenizer import gpt2_metadata, trained

from isokern.llm import Tokenizer

tokenizers = pytest.importorskip("tokenizers")
CONTROL, NORMAL = 3, 1


def make(more: list[str], merges: list[str], drop: str = "", kinds: list[int] | None = None) -> Tokenizer:
    """Return the tokenizer of a byte-level vocabulary with more tokens and merges, and without one token."""
    tokens, known = trained()
    first = ["<s>", "<|endoftext|>"] + [t if t != drop else "\u0100\u0100\u0100" for t in tokens[2:]]
    types = np.array([CONTROL, CONTROL, *[NORMAL] * (len(tokens) - 2), *(kinds or [NORMAL] * len(more))], np.int32)
    every: dict[str, Any] = {"tokens": (*first, *more), "token_type": types, "merges": (*known, *merges)}
    return Tokenizer(gpt2_metadata("qwen2", **every))


def test_a_token_that_ends_texts_by_its_name_may_stand_in_merges() -> None:
    """In Qwen's vocabulary `</s>` is a normal token of three merges; by its name it ends a text in other models."""
    made = make(["</", "</s", "</s>"], ["< /", "</ s", "</s >"])
    end = made.tokens.index("</s>")
    assert end not in made.encode("a</s>", bos=False), "the cut goes through it"
    assert made.encode("a</s>", bos=False, special=True)[-1] == end
    assert end in made.ends
    assert made.decode([end]) == ""
    assert made.decode([end], special=True) == "</s>"


def test_a_control_token_without_merges_is_text_like_any_other() -> None:
    made = make(["</s>"], [], kinds=[CONTROL])
    assert made.tokens.index("</s>") not in made.encode("a</s>", bos=False)
    assert made.encode("a</s>", bos=False, special=True)[-1] == made.tokens.index("</s>")


def test_a_vocabulary_without_a_token_for_every_byte() -> None:
    """As StarCoder's, Refact's, Granite's and Falcon's: a byte that no token has makes none, as in other tools."""
    lead = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("\U00040000")
    made, whole = make([], [], drop=lead[0][0][0]), make([], [])
    assert made.encode("the hello é", bos=False) == whole.encode("the hello é", bos=False)
    assert made.encode("\U00040000", bos=False) == whole.encode("\U00040000", bos=False)[1:]
    assert len(whole.encode("\U00040000", bos=False)) == 4


def test_a_merge_of_what_is_no_token_makes_nothing() -> None:
    made, whole = make([], ["q zz", "zz q", "q q"]), make([], [])
    assert made.encode("qzzqq", bos=False) == whole.encode("qzzqq", bos=False)
