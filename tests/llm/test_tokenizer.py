"""Test tokenizers from metadata: text survives a round trip, and invalid metadata is named.

Text is split as by the reference libraries.
"""

import dataclasses
import functools
import json
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from gguf_write import write_gguf

from isokern.llm import GGUF, Tokenizer, tokenizer as tokenizers_file
from isokern.llm.chat import GUARD
from isokern.llm.pre_tokenizers import CUTS
from isokern.llm.tokenizer import WHOLE
from isokern.llm.vocabularies import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, _alphabet
from isokern.status import InvalidArgument

tokenizers = pytest.importorskip("tokenizers")

PROSE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces and a tail  ",
    "I'll say it's DON'T, we'Ve 12345 67 and 3.14",
    "line\nline\r\n\n\n  indented\ttab",
    "naïve café ÜBER straße ½ ²",
    "日本語のテキスト, русский текст, العربية",
    "👩‍👩‍👧‍👦 🦙🇩🇪 emoji",
    "</s><s> are text",
    "\x00\x01\x7f controls",
    "x" * 1000,
    PROSE[:2000],
]


@functools.cache
def trained():
    """Return (tokens, merges) of a byte-level vocabulary of 599: two control tokens, bytes, merges."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=599,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator([PROSE], trainer)
    model = json.loads(library.to_str())["model"]
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    return sorted(model["vocab"], key=model["vocab"].get), merges


def gpt2_metadata(pre="gpt-2", **changed):
    """Return metadata of that vocabulary and one user-defined token."""
    tokens, merges = trained()
    tokens = [*tokens, "<|mine|>"]
    keys = {"model": "gpt2", "pre": pre, "tokens": tuple(tokens), "merges": tuple(merges)}
    keys |= {"token_type": np.array([CONTROL, CONTROL, *[NORMAL] * 597, USER_DEFINED], np.int32)}
    keys |= {"bos_token_id": 0, "eos_token_id": 1, "add_bos_token": True} | changed
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def llama_metadata(**changed):
    """Return metadata of a vocabulary as SentencePiece makes it: unknown, BOS, EOS, 256 bytes, words, and letters."""
    words = ["▁t", "he", "▁the", "in", "ing", "▁th", "er", "▁▁", "ll", "▁a", "th", "▁he", "▁hell", "▁hello"]
    letters = ["▁", *"etaoinshrdlucmfwypvbgkjqxz"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words, *letters, "<|mine|>"]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(words) + len(letters)), USER_DEFINED]
    scores = [0.0] * 259 + [-float(i) for i in range(len(words) + len(letters))] + [0.0]
    keys = {"model": "llama", "tokens": tuple(tokens), "scores": np.array(scores, np.float32)}
    keys |= {
        "token_type": np.array(types, np.int32),
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | changed
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


MADE = {"gpt2": gpt2_metadata, "llama": llama_metadata}  # see also bert_metadata and gemma4_metadata


BYTE_LEVEL = {cut: name for name, cut in CUTS.items() if not cut.raw}  # one name of each way to cut


@pytest.fixture(params=["default", "gpt-2", "llama-bpe", "qwen2", "tekken", "superbpe", "llama"])
def tokenizer(request):
    return Tokenizer(llama_metadata() if request.param == "llama" else gpt2_metadata(request.param))


def test_text_comes_back(tokenizer):
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids[0] == tokenizer.bos
        assert tokenizer.decode(ids) == text
        assert tokenizer.encode(text, bos=False) == ids[1:]
        assert all(0 <= i < len(tokenizer) for i in ids)


@pytest.mark.parametrize("pre", BYTE_LEVEL.values())
def test_text_comes_back_however_it_is_cut(pre):
    tokenizer = Tokenizer(gpt2_metadata(pre, **{f"{name}_token_id": i for i, name in enumerate(("cls", "seperator"))}))
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert ids[0] == tokenizer.bos
        assert (ids[-1] == 1) == CUTS[pre].sep


def test_every_character_of_the_first_planes_comes_back(tokenizer):
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000, 7)]))
    if tokenizer.model == "llama":
        text = text.replace("▁", "")  # it stands for a space there
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", MADE)
def test_every_byte_has_a_token(kind):
    tokenizer = Tokenizer(MADE[kind]())
    of_byte = {
        tokenizer._vocabulary.pieces[i]: i for i in range(len(tokenizer)) if len(tokenizer._vocabulary.pieces[i]) == 1
    }
    assert set(of_byte) >= {bytes([byte]) for byte in range(256)}
    for text in ("é", "🦙", "\U0010ffff"):
        ids = [of_byte[bytes([byte])] for byte in text.encode()]
        assert tokenizer.decode(ids) == text
        stream = tokenizer.stream()
        assert [stream.push(i) for i in ids] == [""] * (len(ids) - 1) + [text]
        assert stream.end() == ""
    assert tokenizer.decode([of_byte[b"\xff"]]) == "\ufffd"


def test_the_stream_joined_is_the_text(tokenizer):
    for text in TEXTS:
        stream = tokenizer.stream()
        parts = [stream.push(i) for i in tokenizer.encode(text)]
        assert "".join([*parts, stream.end()]).removeprefix(" " if tokenizer.model == "llama" else "") == text
        assert "\ufffd" not in "".join(parts)


def test_a_character_cut_off_in_a_stream(tokenizer):
    ids = tokenizer.encode("🦙")
    stream = tokenizer.stream()
    assert "".join(stream.push(i) for i in ids[:-1]).strip() == ""
    assert stream.end() == "\ufffd"
    assert stream.push(ids[-1]) == "\ufffd"  # the stream starts afresh


def test_control_tokens_are_text_unless_asked(tokenizer):
    text = "a</s>b"
    plain = tokenizer.encode(text, bos=False)
    assert tokenizer.eos not in plain
    assert tokenizer.decode(plain) == text
    asked = tokenizer.encode(text, bos=False, special=True)
    assert asked.count(tokenizer.eos) == 1
    assert tokenizer.decode(asked).replace(" ", "") == "ab"
    assert tokenizer.decode(asked, special=True).replace(" ", "") == text
    assert tokenizer.encode(text, bos=False) == plain


def test_the_users_tokens_are_always_found(tokenizer):
    mine = tokenizer.tokens.index("<|mine|>")
    ids = tokenizer.encode("a<|mine|>b")
    assert ids.count(mine) == 1
    assert tokenizer.decode(ids).replace(" ", "") == "a<|mine|>b"


def test_a_long_text_has_the_tokens_that_it_has_in_one_piece(tokenizer, monkeypatch):
    long = "".join(TEXTS) * (1 + (WHOLE // len("".join(TEXTS)))) + "a</s>b<|mine|>" * 400
    found = tokenizer.encode(long, special=True), tokenizer.guard_text(long, GUARD)
    monkeypatch.setattr(tokenizers_file, "WHOLE", 1 << 30)
    monkeypatch.setattr(tokenizers_file, "STRETCH", 1 << 30)
    assert found == (tokenizer.encode(long, special=True), tokenizer.guard_text(long, GUARD))
    assert found[0].count(tokenizer.eos) == long.count("</s>") >= 400


def test_the_library_lets_other_threads_run_while_it_encodes_a_long_text(tokenizer, monkeypatch):
    """A server's streams go on meanwhile: the library holds Python's lock for one text, and not for a batch."""
    library, turns = tokenizer._vocabulary.library, []

    class Watched:
        def encode(self, text, **options):
            assert len(text) <= WHOLE
            return library.encode(text, **options)

        def encode_batch(self, texts, **options):
            began, ended = threading.Event(), threading.Event()

            def count():
                count = 0
                began.set()
                while not ended.wait(0.001):
                    count += 1
                turns.append(count)

            thread = threading.Thread(target=count)
            thread.start()
            began.wait()
            try:
                return library.encode_batch(texts, **options)
            finally:
                ended.set()
                thread.join()

    monkeypatch.setattr(tokenizer, "_vocabulary", dataclasses.replace(tokenizer._vocabulary, library=Watched()))
    tokenizer.encode("a" * (WHOLE - 1), special=True)
    assert not turns
    tokenizer.encode("and he said " * 20_000)
    assert len(turns) == 1 and turns[0] > 3


@pytest.mark.parametrize("stretch", range(1, 8))
def test_a_search_in_stretches_finds_what_one_search_finds(monkeypatch, stretch):
    monkeypatch.setattr(tokenizers_file, "STRETCH", stretch)
    rng, ids = random.Random(stretch), ["<a>", "<a", "aa<a", "<"]
    cutter = re.compile("|".join(sorted(ids, key=len, reverse=True)))
    for _ in range(300):
        text = "".join(rng.choice("<a>") for _ in range(rng.randrange(30)))
        each = [found.span() for found in tokenizers_file._find_each(cutter, ids, text)]
        assert each == [found.span() for found in cutter.finditer(text)], text


def test_no_token_is_longer_than_the_longest(tokenizer):
    assert tokenizer.longest == max(len(tokenizer.piece(i, special=True)) for i in range(len(tokenizer)))


def test_the_alphabet_is_the_librarys():
    assert set(_alphabet()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pieces = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("é \n\x00ÿ")
    assert bytes(_alphabet()[char] for piece, _ in pieces for char in piece) == "é \n\x00ÿ".encode()


def test_gpt2_cuts_as_the_librarys_byte_level():
    """The library's ByteLevel has its own pattern for GPT-2."""
    ours = Tokenizer(gpt2_metadata())
    ids = {text: i for i, text in enumerate(ours.tokens)}
    merges = [tuple(merge.split(" ")) for merge in gpt2_metadata()["tokenizer.ggml.merges"]]
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in TEXTS:
        assert ours.encode(text, bos=False) == theirs.encode(text).ids, text


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["I", "'m", " 12345", " ...", " HE", "'", "S", "\n\n", " x"]),
        ("default", ["I", "'", "m", " ", "123", "45", " ", "...", " HE", "'", "S", "\n\n", " x"]),
        ("llama-bpe", ["I", "'m", " ", "123", "45", " ...", " HE", "'S", "\n\n", " x"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", "5", " ...", " HE", "'S", "\n\n", " x"]),
        ("falcon", ["I", "'", "m", " ", "123", "45", " ", "...", " HE", "'", "S", "\n\n", " x"]),
        ("starcoder", ["I", "'m", " ", "1", "2", "3", "4", "5", " ...", " HE", "'", "S", "\n\n", " x"]),
        ("tekken", ["I", "'m", " ", "1", "2", "3", "4", "5", " ...", " HE", "'S", "\n\n", " x"]),
        ("gpt-4o", ["I'm", " ", "123", "45", " ...", " HE'S", "\n\n", " x"]),
        ("deepseek-llm", ["I", "'", "m", " ", "12345", " ...", " HE", "'", "S", "\n", "\n", " x"]),
        ("deepseek-coder", ["I", "'", "m", " ", "1", "2", "3", "4", "5", " ...", " HE", "'", "S", "\n", "\n", " x"]),
        ("deepseek-v3", ["I", "'m", " ", "123", "45", " ...", " HE", "'S", "\n\n", " x"]),
        ("bloom", ["I'm", " 12345", " ...", " HE'S", "\n\n", " x"]),
        ("afmoe", ["I", "'m", " ", "12", "345", " ...", " HE", "'S", "\n\n", " x"]),
        ("tiny_aya", ["I'm", " ", "12", "345", " ...", " HE'S", "\n\n", " x"]),
        ("superbpe", ["I'm ", "12", "345", " ... HE'S\n\n x"]),
        ("kimi-k2", ["I'm", " ", "123", "45", " ...", " HE'S", "\n\n", " x"]),
    ],
)
def test_how_each_kind_cuts(pre, pieces):
    library = Tokenizer(gpt2_metadata(pre))._vocabulary.library
    cut = [piece for piece, _ in library.pre_tokenizer.pre_tokenize_str("I'm 12345 ... HE'S\n\n x")]
    assert [piece.replace("Ġ", " ").replace("Ċ", "\n") for piece in cut] == pieces


@pytest.mark.parametrize(
    ("pre", "pattern"),
    [
        ("superbpe", (r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
        ("tiny_aya", (r"\d{1,3}(?=(?:\d{3})*\b)", *CUTS["tiny_aya"].patterns[2:])),
        ("afmoe", (r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd}))", *CUTS["afmoe"].patterns[3:])),
    ],
)
def test_numbers_are_cut_in_threes_as_by_the_models_own_patterns(pre, pattern):
    library = tokenizers.pre_tokenizers
    ours, theirs = (
        library.Sequence([library.Split(tokenizers.Regex(p), "isolated") for p in patterns])
        for patterns in (CUTS[pre].patterns, pattern)
    )
    draw = random.Random(pre)
    for _ in range(2000):
        letters = draw.choice(["0123456789", "01a", "12½", "1 a.½Ⅷ_", "1٣a é\n,-", "12中あa'", "1\u0301_4"])
        text = "".join(draw.choice(letters) * draw.choice((1, 1, 2, 3, 7)) for _ in range(draw.randrange(14)))
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), text
    for text in ("1" * 300_001, "1" * 300_000 + "x"):  # where the models' own take hours
        assert max(len(piece) for piece, _ in ours.pre_tokenize_str(text)) == 3


def test_a_whole_token_needs_no_merges_in_llama_bpe():
    tokens = (*gpt2_metadata()["tokenizer.ggml.tokens"], "qqqq")
    types = np.append(gpt2_metadata()["tokenizer.ggml.token_type"], np.int32(NORMAL))
    assert Tokenizer(gpt2_metadata("llama-bpe", tokens=tokens, token_type=types)).encode("qqqq", bos=False) == [600]
    assert 600 not in Tokenizer(gpt2_metadata("qwen2", tokens=tokens, token_type=types)).encode("qqqq", bos=False)


def test_merges_of_scores():
    tokenizer = Tokenizer(llama_metadata())
    assert [tokenizer.tokens[i] for i in tokenizer.encode("the hello", bos=False)] == ["▁the", "▁hello"]
    assert [tokenizer.tokens[i] for i in tokenizer.encode("thing é", bos=False)] == [
        "▁th",
        "ing",
        "▁",
        "<0xC3>",
        "<0xA9>",
    ]
    assert Tokenizer(llama_metadata(add_space_prefix=False)).encode("the", bos=False) == [
        tokenizer.tokens.index(t) for t in ("t", "he")
    ]


def test_sentencepiece_agrees(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "text").write_text(PROSE)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"),
        model_prefix=str(tmp_path / "m"),
        vocab_size=700,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    count = range(theirs.vocab_size())
    kinds = [
        UNKNOWN if theirs.is_unknown(i) else CONTROL if theirs.is_control(i) else BYTE if theirs.is_byte(i) else NORMAL
        for i in count
    ]
    ours = Tokenizer(
        llama_metadata(
            tokens=tuple(theirs.id_to_piece(i) for i in count),
            scores=np.array([theirs.get_score(i) for i in count], np.float32),
            token_type=np.array(kinds, np.int32),
        )
    )
    for text in [*TEXTS, *PROSE.splitlines()]:
        if "\x00" not in text and text:
            assert ours.encode(text, bos=False) == theirs.encode(text), text
            assert ours.decode(ours.encode(text)) == text


def charsmap(proto):
    """Return `precompiled_charsmap` of a serialized SentencePiece model: field 2 of the message in its field 3."""

    def fields(data):
        at = 0
        while at < len(data):
            numbers = []
            for _ in range(2):  # the key, and the length or value
                value = shift = 0
                while True:
                    byte = data[at]
                    at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
                    if byte < 128:
                        break
                numbers.append(value)
                if value & 7 == 5 and len(numbers) == 1:
                    numbers.append(4)
                    break
            kind, size = numbers[0] & 7, numbers[1] if numbers[0] & 7 in (2, 5) else 0
            yield numbers[0] >> 3, kind, data[at : at + size]
            at += size

    (spec,) = [part for field, kind, part in fields(proto) if (field, kind) == (3, 2)]
    return next((part for field, kind, part in fields(spec) if (field, kind) == (2, 2)), b"")


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc", "nfkc_cf"])
def test_sentencepiece_s_unigram_agrees(tmp_path, rule, fallback):
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "text").write_text(PROSE)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"),
        model_prefix=str(tmp_path / "m"),
        vocab_size=600,
        model_type="unigram",
        byte_fallback=fallback,
        normalization_rule_name=rule,
        pad_id=3,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    count = range(theirs.vocab_size())
    kinds = [
        UNKNOWN if theirs.is_unknown(i) else CONTROL if theirs.is_control(i) else BYTE if theirs.is_byte(i) else NORMAL
        for i in count
    ]
    keys = {
        "model": "t5",
        "tokens": tuple(theirs.id_to_piece(i) for i in count),
        "scores": np.array([theirs.get_score(i) for i in count], np.float32),
        "token_type": np.array(kinds, np.int32),
        "unknown_token_id": theirs.unk_id(),
        "eos_token_id": theirs.eos_id(),
        "precompiled_charsmap": np.frombuffer(charsmap(theirs.serialized_model_proto()), np.int8),
        "remove_extra_whitespaces": True,
    }
    ours = Tokenizer({f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    for text in [*TEXTS, *PROSE.splitlines(), "ﬁ ① Ⅷ ｱ", " \t a \u3000 b  "]:
        if "\x00" not in text:
            assert ours.encode(text) == [*theirs.encode(text), theirs.eos_id()], text
            assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text)).replace(" \u2047 ", "")


def write_charsmap(forms):
    """Return a table of SentencePiece of what keys become; each node of its trie has 256 units for its children."""
    units, texts = [0] * 256, bytearray()

    def add(place, keys):
        base = len(units)
        units.extend([0] * 256)
        units[place] |= (place ^ base) << 10
        if b"" in keys:
            units[place] |= 256
            units[base] = 1 << 31 | len(texts)
            texts.extend(keys[b""] + b"\0")
        for byte in {key[0] for key in keys if key}:
            units[base ^ byte] = byte
            add(base ^ byte, {key[1:]: text for key, text in keys.items() if key[:1] == bytes([byte])})

    add(0, {key.encode(): text.encode() for key, text in forms.items()})
    return np.frombuffer(np.uint32([4 * len(units), *units]).tobytes() + texts, np.int8)


def t5_metadata(words, **changed):
    """Return metadata of a unigram model: what ends and what is unknown, all bytes, and words with their scores."""
    tokens = ["</s>", "<unk>", *(f"<0x{b:02X}>" for b in range(256)), *words]
    types = [CONTROL, UNKNOWN, *[BYTE] * 256, *[NORMAL] * len(words)]
    keys = {"model": "t5", "tokens": tuple(tokens), "scores": np.float32([0] * 258 + [*words.values()])}
    keys |= {"token_type": np.int32(types), "unknown_token_id": 1, "eos_token_id": 0} | changed
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def test_the_best_way_to_cut():
    words = {"▁": -1.0, "a": -2.0, "b": -2.5, "ab": -3.5, "▁a": -2.1, "c": -9.0, "▁ab": -6.2}
    tokenizer = Tokenizer(t5_metadata(words))
    for text, wanted in (("ab", "▁ ab"), ("a", "▁a"), ("b a", "▁ b ▁a"), (" c", "▁ ▁ c"), ("<0x0A>", "▁ < 0 x 0 A >")):
        ids = [tokenizer.tokens.index(w if w in words else f"<0x{ord(w):02X}>") for w in wanted.split(" ")]
        assert tokenizer.encode(text, eos=False) == ids, text
    assert tokenizer.decode(tokenizer.encode("é\n ab")) == "é\n ab"
    one = Tokenizer(t5_metadata(words, token_type=np.int32([CONTROL, UNKNOWN, *[5] * 256, *[NORMAL] * 7])))
    assert [one.tokens[i] for i in one.encode("xyaz")] == ["▁", "<unk>", "a", "<unk>", "</s>"]


def test_scores_are_rounded_as_they_are_added():
    """In float64 both ways to cut have the same sum, and the first one found would be it."""
    tokenizer = Tokenizer(t5_metadata({"▁": 2.0**24, "x": 1.0, "xx": 2.0}, add_space_prefix=False))
    assert [tokenizer.tokens[i] for i in tokenizer.encode(" xxx", eos=False)] == ["▁", "xx", "x"]


@pytest.mark.parametrize("single", [False, True])
def test_normal_forms_are_the_longest_keys(single):
    forms = {"a": "b", "ab": "xyz", "abcd": "", "é": "e", "e\u0301": "e", "T": "t", "\u3000": " "}
    words = dict.fromkeys([*"▁abcdexyzt-"], -1.0)
    keys = {"precompiled_charsmap": write_charsmap(forms), "remove_extra_whitespaces": single}
    tokenizer = Tokenizer(t5_metadata(words, **keys))
    for text, wanted in (
        ("abc", "xyzc"),
        ("abcdabca", "xyzcb"),
        ("T\u200d-", "t\u200d-"),
        ("ée\u0301\u0301", "ee\u0301"),
        (" \u3000a  b \n", "b b \n" if single else "  b  b \n"),
        ("\u3000", "" if single else " "),
    ):
        assert tokenizer.decode(tokenizer.encode(text)) == wanted, text


@pytest.mark.parametrize("table", [b"abc", b"\4\0\0\0", b"\5\0\0\0" + bytes(8), b"\xff\xff\xff\xff" + bytes(8)])
def test_normal_forms_that_are_none(table):
    with pytest.raises(InvalidArgument, match=r"precompiled_charsmap cannot be read: its trie has \d+ bytes of \d"):
        Tokenizer(t5_metadata({"a": 0.0}, precompiled_charsmap=np.frombuffer(table, np.int8)))


def test_normal_forms_of_random_bytes():
    """Whatever the table says, text becomes some text."""
    random, whole = np.random.default_rng(5), write_charsmap({"a": "b", "ab": "xyz", "é": "e"}).view(np.uint8)
    for _ in range(200):
        table = whole.copy()
        places = np.concatenate([random.integers(4, len(table), 9), 4 * random.choice(np.flatnonzero(table[4::4]), 9)])
        table[places] = random.integers(0, 256, len(places))
        table[:4] = whole[:4]
        tokenizer = Tokenizer(t5_metadata({"a": 0.0}, precompiled_charsmap=table.view(np.int8)))
        assert isinstance(tokenizer.decode(tokenizer.encode("abé \x80ÿa")), str)


def rwkv_metadata(words):
    """Return (tokens as bytes, metadata) of RWKV's kind: an end, all bytes, words and a place that is not used."""
    made = [*(bytes([byte]) for byte in range(256)), *words]
    shown = ["<s>", *(repr(token)[2:-1] for token in made), "[PAD]"]
    types = np.int32([CONTROL, *[NORMAL] * len(made), 5])
    keys = {"model": "rwkv", "tokens": tuple(shown), "token_type": types, "bos_token_id": 0, "eos_token_id": 0}
    return [None, *made, None], {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def test_the_longest_token_at_each_place():
    """RWKV's tokenizer beside a search that tries each length, and escapes as Python writes them."""
    cut = PROSE[2000:].split(" ")
    words = {text[:n].encode() for text in [*cut, *(f" {word}" for word in cut)] for n in (2, 3, 5, 9)}
    words |= {"日本".encode(), "日本語のテ".encode(), b"\n\n", b"\\", b'\t"', b"'\"", b"\xff\x00", b"don't"}
    words = sorted(word for word in words if len(word) > 1)
    tokens, metadata = rwkv_metadata(words)
    ids = {token: i for i, token in enumerate(tokens) if token is not None}
    tokenizer = Tokenizer(metadata)
    assert (tokenizer.add_bos, tokenizer.eos, len(tokenizer)) == (False, 0, len(tokens))
    for text in [*TEXTS, "\\ don't \t\" '\" \n\n"]:
        data, expected = text.encode(), []
        while data:
            length = max(n for n in range(1, 20) if data[:n] in ids)
            expected.append(ids[data[:length]])
            data = data[length:]
        assert tokenizer.encode(text) == expected, text
        assert tokenizer.decode(expected) == text
    assert [tokenizer.piece(ids[word]) for word in words] == words
    assert tokenizer.encode("<s>", special=True) == [0] != tokenizer.encode("<s>")


def bert_metadata(**changed):
    """Return (vocabulary, metadata) of WordPiece, its tokens as GGUF has them."""
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    library.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=changed.get("normalizer.lowercase", True))
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    library.train_from_iterator([PROSE], trainer)
    vocabulary = library.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    shown = [t if t in special else t[2:] if t.startswith("##") else f"▁{t}" for t in tokens]
    keys = {"model": "bert", "tokens": tuple(shown), "unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3}
    kinds = [CONTROL, UNKNOWN, CONTROL, CONTROL, *[NORMAL] * (len(tokens) - 4)]
    keys |= {"token_type": np.array(kinds, np.int32), "bos_token_id": 2} | changed
    return vocabulary, {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece_is_the_librarys(lowercase):
    vocabulary, metadata = bert_metadata(**{"normalizer.lowercase": lowercase})
    theirs = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=lowercase)
    ours = Tokenizer(metadata)
    for text in [*TEXTS, *PROSE.splitlines()]:
        assert ours.encode(text) == theirs.encode(text).ids, text
        assert ours.encode(text, bos=False, eos=False) == ours.encode(text)[1:-1]
    assert ours.decode(ours.encode("The test, twice")) == "the test , twice" if lowercase else "The test , twice"


def gemma4_metadata(**changed):
    """Return metadata of BPE over plain text: letters, merges with spaces, and bytes."""
    keys = {key.removeprefix("tokenizer.ggml."): value for key, value in llama_metadata().items()}
    tokens = keys["tokens"]
    keys |= {"model": "gemma4", "merges": ("▁ t", "h e", "▁t he", "i n"), "tokens": (*tokens[:-1], "<|mine|>")}
    return {f"tokenizer.ggml.{key}": value for key, value in (keys | changed).items() if key != "scores"}


def test_merges_of_plain_text():
    tokenizer = Tokenizer(gemma4_metadata())
    assert [tokenizer.tokens[i] for i in tokenizer.encode(" the\n thin é")] == (
        ["<s>", "▁the", "<0x0A>", "▁t", "h", "in", "▁", "<0xC3>", "<0xA9>"]
    )
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_are_cut_as_by_the_librarys():
    """StarCoder's own tokenizer cuts digits by the library's Digits, and the rest by its ByteLevel."""
    ours = Tokenizer(gpt2_metadata("starcoder"))._vocabulary.library.pre_tokenizer
    library = tokenizers.pre_tokenizers
    theirs = library.Sequence([library.Digits(individual_digits=True), library.ByteLevel(add_prefix_space=False)])
    for text in TEXTS:
        if "²" not in text:  # a digit to the pattern alone
            assert [p for p, _ in ours.pre_tokenize_str(text)] == [p for p, _ in theirs.pre_tokenize_str(text)]


def test_without_bytes_the_unknown_token():
    metadata = llama_metadata(
        tokens=("<unk>", "<s>", "</s>", "▁", "a"),
        scores=np.zeros(5, np.float32),
        token_type=np.array([UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL], np.int32),
    )
    assert Tokenizer(metadata).encode("aéßa") == [1, 3, 4, 0, 4]  # one token for both, as with SentencePiece


@pytest.mark.parametrize("kind", MADE)
def test_through_a_file(kind, tmp_path):
    metadata = MADE[kind]()
    write_gguf(tmp_path / "t.gguf", metadata, {})
    tokenizer = Tokenizer.from_gguf(GGUF.open(tmp_path / "t.gguf"))
    direct = Tokenizer(metadata)
    assert tokenizer.encode(PROSE) == direct.encode(PROSE)
    assert (tokenizer.bos, tokenizer.eos, tokenizer.ends, len(tokenizer)) == (
        direct.bos,
        direct.eos,
        direct.ends,
        len(direct),
    )
    assert tokenizer.add_bos


def test_when_bos_comes_first():
    assert not Tokenizer(gpt2_metadata(add_bos_token=None)).add_bos
    assert Tokenizer(gpt2_metadata("llama-bpe", add_bos_token=None)).add_bos
    assert Tokenizer(llama_metadata()).add_bos
    tokenizer = Tokenizer(gpt2_metadata(bos_token_id=None, add_bos_token=None, eot_token_id=7))
    assert tokenizer.bos is None
    assert tokenizer.ends == {1, 7}
    with pytest.raises(InvalidArgument, match="names no BOS"):
        tokenizer.encode("a", bos=True)


GPT2_TOKENS = gpt2_metadata()["tokenizer.ggml.tokens"]
WRONG = [
    ("gpt2", {"model": None}, "tokenizer.ggml.model is missing; allowed: a str; give a file"),
    ("gpt2", {"model": "plamo2"}, "tokenizer.ggml.model is 'plamo2'; allowed: gpt2, llama, t5, bert, gemma4, rwkv"),
    ("gpt2", {"model": "rwkv"}, "tokenizer.ggml.tokens has no token for the byte 0x00; allowed: all 256 among them"),
    ("gpt2", {"model": 3}, "tokenizer.ggml.model is of type int; allowed: str"),
    ("gpt2", {"pre": "tiktoken"}, "tokenizer.ggml.pre is 'tiktoken'; allowed: default, gpt-2, phi-2"),
    ("gpt2", {"tokens": None}, "tokenizer.ggml.tokens is missing"),
    ("gpt2", {"tokens": ()}, "tokenizer.ggml.tokens is empty"),
    ("gpt2", {"tokens": np.zeros(3)}, "tokenizer.ggml.tokens is of type ndarray"),
    ("gpt2", {"tokens": (("a",),)}, "tokenizer.ggml.tokens has other things than strings"),
    (
        "gpt2",
        {"tokens": GPT2_TOKENS[:-1]},
        "tokenizer.ggml.token_type has length 600; allowed: 599, as tokenizer.ggml.tokens",
    ),
    ("gpt2", {"tokens": tuple(t * 3 for t in GPT2_TOKENS)}, "has no token for any byte; allowed: one for each byte"),
    ("gpt2", {"token_type": np.full(600, 9, np.int32)}, "tokenizer.ggml.token_type is 9 for token 0; allowed: 1 to 6"),
    (
        "gpt2",
        {"token_type": np.ones(600, np.float32)},
        "tokenizer.ggml.token_type is an array of float32; allowed: int32",
    ),
    ("gpt2", {"merges": None}, "tokenizer.ggml.merges is missing"),
    ("gpt2", {"merges": ("ab",)}, "tokenizer.ggml.merges has 'ab' at 0; allowed: two tokens with a space between"),
    ("gpt2", {"bos_token_id": 600}, "tokenizer.ggml.bos_token_id is 600; allowed: 0 to 599: 600 tokens"),
    ("gpt2", {"eos_token_id": -1}, "tokenizer.ggml.eos_token_id is -1"),
    ("gpt2", {"eos_token_id": "x"}, "tokenizer.ggml.eos_token_id is of type str; allowed: int"),
    ("gpt2", {"bos_token_id": None}, "tokenizer.ggml.bos_token_id is missing, and add_bos_token asks for it"),
    ("gpt2", {"add_bos_token": 1}, "tokenizer.ggml.add_bos_token is of type int; allowed: bool"),
    ("llama", {"scores": None}, "tokenizer.ggml.scores is missing"),
    ("llama", {"scores": np.zeros(3, np.float32)}, "tokenizer.ggml.scores has length 3; allowed: 301"),
    ("llama", {"scores": np.full(301, np.nan, np.float32)}, "tokenizer.ggml.scores has nan; allowed: finite"),
    (
        "llama",
        {"token_type": np.full(301, BYTE, np.int32)},
        "tokenizer.ggml.tokens has '<unk>' at 0, a byte by its token_type",
    ),
    (
        "llama",
        {"tokens": ("a" * 600, *llama_metadata()["tokenizer.ggml.tokens"][1:]), "token_type": None},
        "has 600 characters at 0",
    ),
    (
        "llama",
        {"token_type": None, "unknown_token_id": None},
        "tokenizer.ggml.unknown_token_id is missing, and there are no bytes",
    ),
]


@pytest.mark.parametrize(
    ("kind", "changed", "message"), WRONG, ids=[f"{k}-{'-'.join(c)}-{i}" for i, (k, c, _) in enumerate(WRONG)]
)
def test_metadata_that_is_wrong(kind, changed, message):
    with pytest.raises(InvalidArgument, match=message):
        Tokenizer(MADE[kind](**changed))


ODD = [
    None,
    True,
    -1,
    0,
    3,
    2**64 - 1,
    0.5,
    "",
    "x y",
    (),
    ("a",) * 600,
    ((),),
    np.zeros(0),
    np.full(600, 3),
    np.full(301, 3, np.int8),
]
ODD += [
    np.full(600, 2**63, np.uint64),
    np.full(301, -1.0, np.float32),
    np.full(301, 6, np.int32),
    ("\x00", "\U0010ffff") * 300,
    ("a" * 512,) * 301,
]


def huggingface_metadata():
    """Return metadata as a folder's tokenizer.json becomes: BPE of bytes."""
    tokens, merges = trained()
    library = tokenizers.Tokenizer(
        tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges])
    )
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    own = {key: value for key, value in gpt2_metadata().items() if not key.endswith(("merges", "pre"))}
    own["tokenizer.ggml.model"] = "huggingface"
    return own | {"tokenizer.huggingface.json": library.to_str()}


FUZZED = MADE | {
    "t5": lambda: t5_metadata({"a": -1.0, "\u2581": -2.0}, precompiled_charsmap=write_charsmap({"a": "b"})),
    "bert": lambda: bert_metadata(**{"normalizer.lowercase": True})[1],
    "gemma4": gemma4_metadata,
    "rwkv": lambda: rwkv_metadata([b"ab", b" a"])[1],
    "huggingface": huggingface_metadata,
}
ODD += [np.zeros(8, np.int8), np.int8([4, *[0] * 15]), "{}", "[" * 100_000, '{"model": {"type": "BPE"}}']


@pytest.mark.parametrize("kind", FUZZED)
def test_metadata_of_any_kind_is_taken_or_refused(kind):
    taken, made = 0, FUZZED[kind]()
    for key in made:
        for i, value in enumerate(ODD):
            metadata = made | {key: value}
            if value is None:
                del metadata[key]
            try:
                tokenizer = Tokenizer(metadata)
            except InvalidArgument as error:
                assert re.search(r"tokenizer\.(ggml|huggingface|json)", str(error)), (key, i)  # noqa: PT017  # a key
                continue
            taken += 1
            ids = tokenizer.encode("Hello </s> é", special=True)
            assert all(0 <= i < len(tokenizer) for i in ids)
            assert isinstance(tokenizer.decode(ids, special=True), str)
    assert taken > 0


def test_some_bytes_are_not_enough():
    metadata = llama_metadata()
    metadata["tokenizer.ggml.token_type"][3] = USER_DEFINED
    with pytest.raises(InvalidArgument, match="has 255 of the bytes"):
        Tokenizer(metadata)


@pytest.mark.parametrize("i", [-1, 600, 2**70, 1.0, "a", None, True])
def test_tokens_that_are_none(i):
    tokenizer = Tokenizer(gpt2_metadata())
    with pytest.raises(InvalidArgument, match=r"token .*; allowed: 0 to 599"):
        tokenizer.decode([5, i])
    with pytest.raises(InvalidArgument, match=r"token .*; allowed: 0 to 599"):
        tokenizer.stream().push(i)
    assert tokenizer.decode(np.array([5], np.int64)) == tokenizer.decode([5])


@pytest.mark.parametrize(
    ("text", "message"), [(b"a", "text is bytes"), (None, "text is NoneType"), ("a\ud800", r"U\+D800 at 1")]
)
def test_what_is_no_text(text, message):
    with pytest.raises(InvalidArgument, match=message):
        Tokenizer(gpt2_metadata()).encode(text)


def test_without_the_library():
    """Without the library the package can still be imported, and the error says what to install."""
    script = """
import sys
sys.modules["tokenizers"] = None
from isokern.llm import Tokenizer
from isokern.status import InvalidArgument
names = [f"<0x{b:02X}>" for b in range(256)]
import numpy as np
keys = {"model": "llama", "tokens": tuple(names), "scores": np.zeros(256), \
"token_type": np.full(256, 6), "add_bos_token": False}
try:
    Tokenizer({f"tokenizer.ggml.{key}": value for key, value in keys.items()})
except InvalidArgument as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install isokern[llm]" in done.stdout, done.stderr
