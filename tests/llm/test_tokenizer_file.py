"""Test the tokenizer.json of folders: added tokens found as the library finds them, and what is refused by name."""

import json
import random

import pytest

from isokern.llm import Tokenizer
from isokern.llm.folder_tokenizer import add_tokenizer
from isokern.status import InvalidArgument

tokenizers = pytest.importorskip("tokenizers")
VOCABULARY = {char: i for i, char in enumerate([*"abcdehuz <>|/ABZ\t\n▁\u00a0\x1c", "he", "bos", "eos"])}
BPE = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
BPE |= {"fuse_unk": False, "byte_fallback": False, "vocab": VOCABULARY, "merges": [["h", "e"]]}


def write_file(added=(), **parts):
    """Return a tokenizer.json; `added` are texts and flags of its added tokens, which are special."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    ids = dict(VOCABULARY)
    tokens = [flags | {"id": ids.setdefault(text, len(ids)), "content": text} | more for text, more in added]
    none = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return none | {"version": "1.0", "model": BPE, "added_tokens": tokens} | parts


def read(folder, file, more=(), config=(), template=()):
    """Return the tokenizer of a folder with such files."""
    metadata = {}
    add_tokenizer(metadata, folder, dict(config), [file, dict(more), {}, dict(template)], 64)
    return Tokenizer(metadata)


NORMALIZERS = {
    "none": None,
    "empty": {"type": "Sequence", "normalizers": []},
    "lowercase": {"type": "Lowercase"},
    "NFC": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    "signs": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    },
}
FLAGS = [{}, {"rstrip": True}, {"lstrip": True}, {"lstrip": True, "rstrip": True}]
TEXTS = ["<u>", "<b>", "<b><", "u><", "  ", "he", "Zz", "\n", "a<"]


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_added_tokens_are_found_as_the_library_finds_them(tmp_path, normalizer):
    draw, found = random.Random(normalizer), 0
    for _ in range(40):
        added = [(t, draw.choice(FLAGS if t.strip() else FLAGS[:2])) for t in draw.sample(TEXTS, 4)]  # else it panics
        late = [draw.random() < 0.5 for _ in added]
        left = NORMALIZERS[normalizer] is None or normalizer == "empty"  # else a special one must not be normalized
        special = [draw.random() < 0.5 and (left or not second) for second in late]
        kinds = zip(added, late, special, strict=True)
        added = [(t, flags | {"normalized": second, "special": own}) for (t, flags), second, own in kinds]
        scheme = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
        file = write_file(added, normalizer=NORMALIZERS[normalizer], pre_tokenizer=draw.choice([None, scheme]))
        ours, theirs = read(tmp_path, file), tokenizers.Tokenizer.from_str(json.dumps(file))
        for _ in range(40):
            parts = draw.choices([*TEXTS, *"abhez <>Z\n\t", "\u00a0", "\x1c", "  \n"], k=draw.randrange(9))
            text = "".join(parts)
            wanted = theirs.encode(text, add_special_tokens=False).ids
            assert ours.encode(text, special=True) == wanted, (text, file["added_tokens"])
            found += len({*wanted} - {*VOCABULARY.values()})
    assert found > 500


def test_texts_of_special_tokens_are_text(tmp_path):
    added = [("<u>", {"rstrip": True}), ("<b>", {"normalized": True, "special": False}), ("zz", {"special": False})]
    ours = read(tmp_path, write_file(added, normalizer={"type": "Lowercase"}))
    first = len(VOCABULARY)
    assert ours.encode("<u> <B>zz") == [*map(VOCABULARY.get, "<u> "), first + 1, first + 2]
    assert ours.encode("<u> <B>zz", special=True) == [first, first + 1, first + 2]
    guarded = ours.guard_text("<u> ", "\x1c")
    assert ours.encode(guarded, special=True, guard="\x1c") == [*map(VOCABULARY.get, "<u> ")]


def put_around(before, behind=()):
    """Return a post-processor that puts tokens before and behind a text."""
    tokens = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before]
    single = [*tokens, {"Sequence": {"id": "A", "type_id": 0}}]
    single += [{"SpecialToken": {"id": t, "type_id": 0}} for t in behind]
    special = {t: {"id": t, "ids": [VOCABULARY[t]], "tokens": [t]} for t in (*before, *behind)}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


@pytest.mark.parametrize("more", [{}, {"bos_token": "bos", "eos_token": "eos"}])
@pytest.mark.parametrize("around", [([], []), (["bos"], []), ([], ["eos"]), (["bos"], ["eos"])])
def test_tokens_around_a_text_are_the_library_s(tmp_path, around, more):
    padding = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    padding |= {"pad_type_id": 0, "pad_token": "a"}
    file = write_file(post_processor=put_around(*around))
    wanted = tokenizers.Tokenizer.from_str(json.dumps(file)).encode("bad").ids
    assert read(tmp_path, file | {"padding": padding}, more).encode("bad") == wanted


def nest(depth):
    made = {"type": "Sequence", "normalizers": []}
    for _ in range(depth):
        made = {"type": "Sequence", "normalizers": [made]}
    return made


TWO = put_around(["bos", "a"])
FIXED, TABLE = {"type": "FixedLength", "length": 0}, {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
LOST = [[{"id": 60, "content": "x"}], [{"id": 0, "content": "x"}]]
LOST = [[write_file([("x", {})])["added_tokens"][0] | token for token in each] for each in LOST]
WRONG = [
    (write_file([("x", {"single_word": True})]), "token 'x' has single_word; allowed: false"),
    (write_file([("X", {"normalized": True})], normalizer={"type": "Lowercase"}), "token 'X' has normalized; allowed"),
    (write_file(added_tokens=LOST[0]), "the library gives its added_tokens other ids"),
    (write_file(added_tokens=LOST[1]), "the library gives its added_tokens other ids"),
    (write_file(post_processor=TWO), "post_processor makes .* before a text .*; allowed: BOS before"),
    (write_file(post_processor=put_around([], ["a"])), r"makes \[\] before a text and \[0\] behind it"),
    (write_file(model=BPE | {"dropout": 0.5}), "dropout is 0.5: .*; allowed: 0"),
    (write_file(model=BPE | {"vocab": {"a": float("inf")}}), "not of the known form"),
    (write_file(model=BPE | {"vocab": {"a": 0, "b": 0}}), "an id twice"),
    (write_file(model=BPE | {"continuing_subword_prefix": "####"}), "tokenizer.json cannot be read: range end"),
    (write_file(normalizer=nest(900)), "nests too deeply|recursion"),
    (write_file(pre_tokenizer=FIXED), "tokenizer.json cannot be read: chunk size"),
    (write_file(normalizer=TABLE), "tokenizer.json cannot be read: Precompiled"),
]


@pytest.mark.parametrize(("file", "message"), WRONG, ids=[m for _, m in WRONG])
def test_files_that_are_refused(tmp_path, file, message):
    with pytest.raises(InvalidArgument, match=message):
        read(tmp_path, file, {"bos_token": "bos", "eos_token": "eos"})


MODELS = [
    {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9},
    {"type": "WordLevel", "unk_token": "?"},
]
MODELS = [{**model, "vocab": {"a": 0}} for model in MODELS]
MODELS += [{"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]], "byte_fallback": False}]


@pytest.mark.parametrize("model", MODELS, ids=[m["type"] for m in MODELS])
def test_text_without_tokens(tmp_path, model):
    ours = read(tmp_path, write_file(model=model))
    assert ours.encode("a") == [0]
    with pytest.raises(InvalidArgument, match=r"Tokenizer\.encode: the text has no tokens"):
        ours.encode("b")


SETTINGS = [
    ({"add_bos_token": "yes"}, "add_bos_token is of type str; allowed: bool"),
    ({"bos_token": ["a"]}, "bos_token is .*; allowed: the text of a token"),
    ({"eos_token": "strange"}, "eos_token is 'strange'; allowed: the text of a token"),
    ({"chat_template": 5}, "chat_template is not a list of name and template"),
    ({"chat_template": [{"name": "default", "template": 5}]}, "chat_template is not a list of name and template"),
    ({"chat_template": [{"name": "default", "template": "a"}] * 2}, "chat_template is not a list of name and template"),
]


@pytest.mark.parametrize(("more", "message"), SETTINGS, ids=[str(m) for m, _ in SETTINGS])
def test_settings_that_are_refused(tmp_path, more, message):
    with pytest.raises(InvalidArgument, match=message):
        read(tmp_path, write_file(), more)


def test_templates_that_cannot_be_read(tmp_path):
    path = tmp_path / "chat_template.jinja"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgument, match=r"chat_template\.jinja.: .*; allowed: text in UTF-8"):
        read(tmp_path, write_file())
    path.unlink()
    path.mkdir()
    with pytest.raises(InvalidArgument, match=r"chat_template\.jinja. is not a regular file"):
        read(tmp_path, write_file())
