"""Test 100,000 encodings of drawn texts against the libraries of the formats: no difference.

SentencePiece has the models of the kinds `llama` and `t5`. The library `tokenizers` has the others, each from a
tokenizer.json that is written here; what cuts text for byte-level BPE is in pre_tokenizers.json, first as the models'
own files have it, then what is known from llama.cpp alone (afmoe with whole blocks, as they were before an editor
composed the characters at their borders).
"""

import io
import json
import re
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from drawn_text import draw_texts, read_sources
from test_tokenizer import BYTE_LEVEL, charsmap

from isokern.llm import Tokenizer
from isokern.llm.pre_tokenizers import CUTS
from isokern.llm.tokenizer import ENDS
from isokern.llm.vocabularies import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED

tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.full
STEPS = json.loads((Path(__file__).parent / "pre_tokenizers.json").read_text(encoding="utf-8"))
STEPS = {name: steps for source in STEPS.values() for name, steps in source.items()}
COMPOSED = ("qwen2", "qwen35")  # their own files compose characters first (NFC), of which GGUF says nothing
MINE = "<mine>"  # a token of the user's
BPE = [(prefix, fallback) for prefix in (True, False) for fallback in (True, False)]
UNIGRAM = [(rule, fallback) for rule in ("identity", "nmt_nfkc", "nfkc_cf") for fallback in (True, False)]
SHARES = {"llama": 20_000, "t5": 18_000, "bert": 12_000, "gemma4": 5_000, "gpt2": 1_500 * len(STEPS)}


def test_there_are_enough():
    assert sum(SHARES.values()) >= 100_000
    assert {CUTS[name] for name in STEPS} == {cut for cut in CUTS.values() if not cut.raw}
    assert {*BYTE_LEVEL} == {CUTS[name] for name in STEPS}


def check(ours, encode, texts, back=None, stripped=False):
    """Fail unless all texts are encoded as `encode` does, and streams are decoded as the whole.

    Decoded text is the text itself after `back`; no matter which where that is None.
    """
    for text in texts:
        ids = ours.encode(text, bos=False, eos=False)
        assert ids == encode(text), text
        decoded, stream = ours.decode(ids), ours.stream()
        assert back is None or decoded == back(text), text
        joined = "".join([*map(stream.push, ids), stream.end()])
        assert decoded in (joined, joined.removeprefix(" ") if stripped else joined), text


def make(model, tokens, types, **keys):
    keys |= {"model": model, "tokens": tuple(tokens), "token_type": np.array(types, np.int32), "add_bos_token": False}
    return Tokenizer({f"tokenizer.ggml.{key}": value for key, value in keys.items()})


def train_sentences(kind, **options):
    """Return SentencePiece's model, trained on this repository, and its tokens, their types and scores."""
    library = pytest.importorskip("sentencepiece")
    lines = [line for source in read_sources() for line in source.splitlines() if "\0" not in line][::4]
    made = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=made, model_type=kind, minloglevel=2, num_threads=1, **options
    )
    theirs = library.SentencePieceProcessor(model_proto=made.getvalue())
    count = range(theirs.vocab_size())
    tokens = [theirs.id_to_piece(i) for i in count]
    mine = options.get("user_defined_symbols", [])
    types = [
        UNKNOWN
        if theirs.is_unknown(i)
        else CONTROL
        if theirs.is_control(i)
        else BYTE
        if theirs.is_byte(i)
        else USER_DEFINED
        if tokens[i] in mine
        else NORMAL
        for i in count
    ]
    # As files have them: a token of the user's is what stands in the text
    tokens = [t.replace("▁", " ") if kind == USER_DEFINED else t for t, kind in zip(tokens, types, strict=True)]
    return theirs, tokens, types, np.array([theirs.get_score(i) for i in count], np.float32)


@pytest.mark.parametrize(("prefix", "fallback"), BPE)
def test_sentencepiece(prefix, fallback):
    mine = [] if prefix else [MINE, "▁▁▁▁"]  # after a token of the user's llama.cpp puts the prefix once more
    theirs, tokens, types, scores = train_sentences(
        "bpe",
        vocab_size=2000,
        byte_fallback=fallback,
        normalization_rule_name="identity",
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=mine,
    )
    ours = make("llama", tokens, types, scores=scores, unknown_token_id=0, add_space_prefix=prefix)
    back = (lambda text: text.replace("▁", " ")) if fallback else None
    check(ours, theirs.encode, draw_texts(1 + prefix, SHARES["llama"] // len(BPE)), back, prefix)


@pytest.mark.parametrize(("rule", "fallback"), UNIGRAM)
def test_unigrams(rule, fallback):
    theirs, tokens, types, scores = train_sentences(
        "unigram", vocab_size=1500, byte_fallback=fallback, normalization_rule_name=rule, pad_id=3
    )
    table = np.frombuffer(charsmap(theirs.serialized_model_proto()), np.int8)
    keys = {"scores": scores, "unknown_token_id": theirs.unk_id(), "eos_token_id": theirs.eos_id()}
    keys |= {"precompiled_charsmap": table, "remove_extra_whitespaces": True}
    ours = make("t5", tokens, types, **keys)
    check(ours, theirs.encode, draw_texts(3, SHARES["t5"] // len(UNIGRAM)), None, True)


def load(model, **parts):
    """Return the library's tokenizer of a tokenizer.json."""
    file = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    file |= {"version": "1.0", "added_tokens": [], "model": model, **parts}
    return tokenizers.Tokenizer.from_str(json.dumps(file))


def encode_with(theirs):
    return lambda text: theirs.encode(text, add_special_tokens=False).ids


def train(model, trainer, pre_tokenizer):
    """Return the `model` of a tokenizer.json that the library trained on this repository and on drawn texts."""
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = pre_tokenizer
    lines = [source[at : at + 400] for source in read_sources() for at in range(0, min(len(source), 20_000), 400)]
    ends = re.compile("|".join(map(re.escape, ENDS)))  # which are control tokens wherever a vocabulary has them
    made.train_from_iterator([ends.sub("", line) for line in [*lines, *draw_texts(4, 3000)]], trainer)
    return json.loads(made.to_str())["model"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces(lowercase):
    library, special = tokenizers, ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = library.trainers.WordPieceTrainer(vocab_size=1500, special_tokens=special, show_progress=False)
    model = train(library.models.WordPiece(unk_token="[UNK]"), trainer, library.pre_tokenizers.BertPreTokenizer())
    normal = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    theirs = load(model, normalizer={**normal, "lowercase": lowercase}, pre_tokenizer={"type": "BertPreTokenizer"})
    words = sorted(model["vocab"], key=model["vocab"].get)
    tokens = [t if t in special else t[2:] if t.startswith("##") and len(t) > 2 else f"▁{t}" for t in words]
    types = [UNKNOWN if t == "[UNK]" else CONTROL if t in special else NORMAL for t in words]
    keys = {"unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3, "normalizer.lowercase": lowercase}
    ours = make("bert", tokens, types, **keys)
    check(ours, encode_with(theirs), draw_texts(5 + lowercase, SHARES["bert"] // 2), None, True)


@cache
def train_bytes(name=""):
    """Return the `model` of byte-level BPE: with merges over any border, or over those of the cut `name` alone."""
    library = tokenizers.pre_tokenizers
    whole = library.ByteLevel(add_prefix_space=False, use_regex=False)
    if name:
        whole = load({"type": "BPE", "vocab": {}, "merges": []}, pre_tokenizer=write_steps(name)).pre_tokenizer
    alphabet = sorted(library.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False)
    return train(tokenizers.models.BPE(), trainer, whole)


def write_steps(name):
    """Return the `pre_tokenizer` of a tokenizer.json."""
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    steps = [{**split, "pattern": {"Regex": s}} if isinstance(s, str) else s for s in STEPS[name]]
    return {"type": "Sequence", "pretokenizers": steps}


@cache
def find_newer():
    """Return the characters of which a Regex knows less than the steps of the library: from Unicode 10 on."""
    library, found = tokenizers.pre_tokenizers, set()
    every = "a".join(chr(i) for i in range(0x20000) if not 0xD800 <= i < 0xE000)
    for steps, pattern in (
        (library.Digits(individual_digits=True), r"\p{N}"),
        (library.Punctuation("isolated"), r"[\p{P}\$\+<=>\^~\|`]"),
    ):
        split = library.Split(tokenizers.Regex(pattern), "isolated")
        cuts = [{p for p, _ in each.pre_tokenize_str(every) if len(p) == 1} for each in (steps, split)]
        found |= cuts[0] ^ cuts[1]
    assert len(found) < 200
    return dict.fromkeys(map(ord, found))


@pytest.mark.parametrize("name", STEPS)
def test_bytes(name):
    # Falcon's cuts digits of what stands for bytes, too: no merge crosses that where it was trained so
    model = train_bytes("falcon" if name == "falcon" else "")
    vocabulary = dict(model["vocab"])
    for word in ("Ġtestimony", "æĹ¥æľ¬èªŀ", "QWERTY", "ĊĊĊĊĊĊĊĊĊĊ"):  # tokens of no merge
        vocabulary.setdefault(word, len(vocabulary))
    whole = {**model, "vocab": vocabulary, "ignore_merges": CUTS[name].whole}
    theirs = load(whole, pre_tokenizer=write_steps(name), decoder=write_steps("qwen2")["pretokenizers"][-1])
    merges = tuple(" ".join(pair) for pair in model["merges"])
    tokens = sorted(vocabulary, key=vocabulary.get)
    types = [NORMAL] * len(tokens)
    ours = make("gpt2", [*tokens, MINE], [*types, CONTROL], pre=name, merges=merges, eos_token_id=0)
    texts = draw_texts(sorted(STEPS).index(name) + 10, SHARES["gpt2"] // len(STEPS))
    texts += ["", " testimony 日本語 QWERTY" + "\n" * 10]
    if any(isinstance(step, dict) and step["type"] != "ByteLevel" for step in STEPS[name]):
        texts = [text.translate(find_newer()) for text in texts]
    if name in COMPOSED:
        texts = [unicodedata.normalize("NFC", text) for text in texts]
    check(ours, encode_with(theirs), texts, str)
    assert all(theirs.decode(encode_with(theirs)(text)) == text for text in texts[:100])


def test_plain_text():
    """Gemma's own tokenizer.json: a sign for spaces, and BPE of characters with bytes for what is unknown."""
    library = tokenizers
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    split = library.pre_tokenizers.Split(library.Regex("\n+"), "isolated")
    trainer = library.trainers.BpeTrainer(
        vocab_size=2500, special_tokens=["<unk>", "<bos>", "<eos>", *bytes_], show_progress=False, limit_alphabet=150
    )
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer, made.normalizer = split, library.normalizers.Replace(" ", "▁")
    made.train_from_iterator([s[at : at + 300] for s in read_sources() for at in range(0, 9000, 300)], trainer)
    model = json.loads(made.to_str())["model"]
    whole = {**model, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    theirs = load(
        whole,
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    )
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(tokens) - 259)]
    merges = tuple(" ".join(pair) for pair in model["merges"])
    ours = make("gemma4", tokens, types, merges=merges, unknown_token_id=0, bos_token_id=1)
    texts = [text.replace("▁", "") for text in draw_texts(7, SHARES["gemma4"])]
    check(ours, encode_with(theirs), texts, str)
