"""Test Hugging Face folders: the same logits as the same weights in a GGUF file, and refusals that name the file."""

import json
import shutil

import numpy as np
import pytest
from small_model import PROMPT, made

from isokern.llm import Chat, Model, Session, Tokenizer
from isokern.llm.folder import open_folder
from isokern.llm.folder_types import NAMES
from isokern.llm.metadata import Metadata
from isokern.status import BadTensorShape, InvalidArgument

safetensors = pytest.importorskip("safetensors.numpy")
tokenizers = pytest.importorskip("tokenizers")
CONFIG = {
    "architectures": ["X"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 48,
    "rms_norm_eps": 1e-5,
    "vocab_size": 97,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}


def original_name(name):
    """Return the name that transformers has for one of GGUF's."""
    *layer, part, kind = name.removeprefix("blk.").split(".")
    (theirs,) = [theirs for theirs, ours in NAMES.items() if ours == part]
    parts = ["model.layers", *layer] if layer else ["model"] if part != "output" else []
    return ".".join([*parts, theirs, kind])


def order_halves(array, heads):
    """Return the rows of each head with its even ones first, then its odd ones."""
    pairs = array.reshape(heads, -1, 2, *array.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)


def write_folder(folder, gguf, kind, parts=1, **changed):
    """Write the weights of a GGUF file as transformers would."""
    folder.mkdir(exist_ok=True)
    weights = {}
    for name, tensor in gguf.tensors.items():
        array, part = np.array(tensor.array), name.split(".")[-2]
        if kind in ("llama", "mistral") and part in ("attn_q", "attn_k"):
            array = order_halves(array, 4 if part == "attn_q" else 2)
        weights[original_name(name)] = array
    tied = "output.weight" not in gguf.tensors
    config = {**CONFIG, "model_type": kind, "tie_word_embeddings": tied, **changed}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
    if parts == 1:
        safetensors.save_file(weights, folder / "model.safetensors")
        return folder
    places = {name: f"model-{i % parts + 1:05}-of-{parts:05}.safetensors" for i, name in enumerate(weights)}
    for place in set(places.values()):
        safetensors.save_file({n: w for n, w in weights.items() if places[n] == place}, folder / place)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def logits(model):
    return Session(model, 48, "F32").logits(PROMPT, every=True)


@pytest.mark.parametrize(
    ("kind", "dtype", "tied", "parts"),
    [("llama", "F32", True, 1), ("mistral", "F16", False, 3), ("qwen2", "F32", False, 2), ("qwen3", "BF16", True, 1)],
)
def test_logits_are_those_of_the_gguf_file(tmp_path, kind, dtype, tied, parts):
    gguf = made(tmp_path / "m.gguf", "llama" if kind == "mistral" else kind, dtype, tied)
    folder = write_folder(tmp_path / "m", gguf, kind, parts)
    assert np.array_equal(logits(Model.open(folder, device="cpu:0")), logits(Model(gguf, device="cpu:0")))


@pytest.mark.parametrize(
    ("scaling", "keys"),
    [
        ({"rope_type": "linear", "factor": 2.0}, {"type": "linear", "factor": 2.0}),
        (
            {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12, "beta_fast": 16},
            {"type": "yarn", "factor": 4.0, "original_context_length": 12, "yarn_beta_fast": 16.0},
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12, "attention_factor": 1.0},
            {"type": "yarn", "factor": 4.0, "original_context_length": 12, "attn_factor": 1 / (0.1 * np.log(4.0) + 1)},
        ),
    ],
)
def test_rope_is_scaled_as_in_the_gguf_file(tmp_path, scaling, keys):
    metadata = {f"llama.rope.scaling.{key}": value for key, value in keys.items()} | {"llama.rope.freq_base": 500.0}
    gguf = made(tmp_path / "m.gguf", **metadata)
    wanted = Model(gguf, device="cpu:0").config
    for changed in (
        {"rope_scaling": scaling, "rope_theta": 500.0},
        {"rope_parameters": {**scaling, "rope_theta": 500.0}},
    ):
        folder = write_folder(tmp_path / "m", gguf, "llama", **changed)
        found = Model.open(folder, device="cpu:0").config
        assert np.allclose(found.frequencies, wanted.frequencies, rtol=1e-6, atol=0)
        assert found.magnitude == pytest.approx(wanted.magnitude)
    plain = Model.open(write_folder(tmp_path / "m", gguf, "llama"), device="cpu:0").config
    assert not np.allclose(plain.frequencies, wanted.frequencies, rtol=1e-2, atol=0)


def test_llama_3_s_rope(tmp_path):
    from isokern.ops.rope import frequencies

    gguf = made(tmp_path / "m.gguf")
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}
    scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = Model.open(write_folder(tmp_path / "m", gguf, "llama", rope_scaling=scaling), device="cpu:0")
    wanted = frequencies(32, 10000.0, "llama3", factor=8.0, original_length=32, low=1.0, high=4.0)
    assert np.allclose(model.config.frequencies, wanted, rtol=1e-6, atol=0)
    logits(model)


def test_yarn_whose_ramp_is_not_rounded(tmp_path):
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12, "truncate": False}
    folder = write_folder(tmp_path / "m", made(tmp_path / "m.gguf"), "llama", rope_scaling=scaling)
    found = Model.open(folder, device="cpu:0").config
    pairs, plain = np.arange(16), 10000.0 ** (-np.arange(16) / 16)
    first, last = (32 * np.log(12 / (turns * 2 * np.pi)) / (2 * np.log(10000.0)) for turns in (32, 1))
    share = np.clip((pairs - max(first, 0)) / (last - max(first, 0)), 0, 1)
    assert np.allclose(found.frequencies, plain * (1 - share) + plain / 4 * share, rtol=1e-5, atol=0)
    assert found.magnitude == pytest.approx(0.1 * np.log(4.0) + 1)


def test_a_share_of_rope_under_either_key(tmp_path):
    gguf = made(tmp_path / "m.gguf", **{"llama.rope.dimension_count": 16})
    wanted = Model(gguf, device="cpu:0").config.frequencies
    for changed in ({"partial_rotary_factor": 0.5}, {"rope_scaling": {"partial_rotary_factor": 0.5}}):
        folder = write_folder(tmp_path / "m", gguf, "llama", **changed)
        assert np.array_equal(Model.open(folder, device="cpu:0").config.frequencies, wanted)


def test_a_tied_table_may_stand_twice(tmp_path):
    gguf = made(tmp_path / "m.gguf", "qwen2", tied=False)
    folder = write_folder(tmp_path / "m", gguf, "qwen2", tie_word_embeddings=True)
    with pytest.raises(InvalidArgument, match=r"lm_head.weight is not the table; allowed: with tie_word_embeddings"):
        open_folder(folder)
    weights = safetensors.load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    safetensors.save_file(weights, folder / "model.safetensors")
    assert "output.weight" not in open_folder(folder).tensors


def byte_level():
    """Return a tokenizer of bytes, merges and dialogue tokens, 90 in all, and its file."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=280, initial_alphabet=sorted(alphabet), show_progress=False)
    library.train_from_iterator(["the words that there are in there and then"] * 9, trainer)
    library.add_special_tokens(["<s>", "<|im_start|>", "<|im_end|>"])
    library.add_tokens(["<think>"])
    begin = library.token_to_id("<s>")
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", begin)]
    )
    return library


def metaspace():
    """Return a tokenizer as of Mistral: a space before the first part alone, and bytes."""
    pieces = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"<0x{b:02X}>": 3 + b for b in range(256)}}
    for text in ("▁", *"thews", "▁t", "he", "▁the"):
        pieces[text] = len(pieces)
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    model = tokenizers.models.BPE(pieces, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    return library


@pytest.mark.parametrize("build", [byte_level, metaspace])
def test_tokens_are_the_library_s(tmp_path, build):
    library, size = build(), 300
    gguf = made(
        tmp_path / "m.gguf", change=lambda f, held: held.update({"token_embd.weight": np.zeros((size, 64), "f")})
    )
    folder = write_folder(tmp_path / "m", gguf, "llama", vocab_size=size)
    library.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": {"content": "<|im_end|>"}} if build is byte_level else {}
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    model = Model.open(folder, device="cpu:0")
    ours = model.tokenizer()
    for text in ("", "the words", " the", "thé\n🦙 <think>the", "the<s>the <s> the</s>the", "x <|im_end|>y"):
        assert ours.encode(text, special=True) == library.encode(text).ids, text
        if text != " the":  # which is the same as "the" to Metaspace
            assert ours.decode(ours.encode(text)) == text
    assert ours.add_bos == (build is byte_level)
    assert len(ours) == size
    if build is byte_level:
        assert ours.tokens[ours.eos] == "<|im_end|>"
        assert "".join(Chat(Session(model, 40), max_tokens=2).say("the"))
        (folder / "chat_template.jinja").write_text("the{{ messages[0].content }}")
        assert (
            len(
                Chat(Session(Model.open(folder, device="cpu:0"), 40)).template.encode(
                    [{"role": "user", "content": "n"}]
                )
            )
            < 5
        )


def test_ends_and_templates_of_several_kinds(tmp_path):
    gguf = made(
        tmp_path / "m.gguf", change=lambda f, held: held.update({"token_embd.weight": np.zeros((300, 64), "f")})
    )
    folder = write_folder(tmp_path / "m", gguf, "llama", vocab_size=300, eos_token_id=[5, 6])
    byte_level().save(str(folder / "tokenizer.json"))
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    opened = open_folder(folder)
    tokenizer = Tokenizer.from_gguf(opened)
    assert tokenizer.eos == 5 and tokenizer.ends >= {5, 6}
    templates = {k: v for k, v in opened.metadata.items() if k.startswith("tokenizer.chat_template")}
    assert templates == {"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": "tools"}
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    (folder / "chat_template.json").write_text('{"chat_template": "of a file"}')
    opened = open_folder(folder)
    assert Tokenizer.from_gguf(opened).ends >= {7, 8}
    assert opened.metadata["tokenizer.chat_template"] == "of a file"
    (folder / "generation_config.json").write_text('{"eos_token_id": [300]}')
    with pytest.raises(InvalidArgument, match=r"eos_token_id is \[300\]; allowed: tokens below 300"):
        open_folder(folder)
    (folder / "generation_config.json").write_text("{}")
    (folder / "chat_template.json").write_text('{"chat_template": [1]}')
    with pytest.raises(InvalidArgument, match="chat_template is not a list of name and template"):
        open_folder(folder)


WRONG = [
    ({"model_type": "gemma7"}, "config.json: model_type is 'gemma7'; allowed: llama, mistral, mixtral, qwen2"),
    ({"model_type": []}, r"config.json: model_type is '\[\]'"),
    ({"num_attention_heads": True}, "allowed: even rows"),
    ({"vocab_size": 2**70}, "vocab_size is '1180591620717411303424'; allowed: integers within 2..53"),
    ({"rms_norm_eps": 10**400}, "rms_norm_eps is '1000.*'; allowed: integers within 2..53 and numbers within 1e38"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 1e39}}, "rope_scaling is '1e.39'; allowed: integers within"),
    ({"head_dim": 10**12}, "head_dim is '1000000000000'; allowed: an integer from 1 to 16777216"),
    ({"partial_rotary_factor": 1e30}, "partial_rotary_factor is '1e.30'; allowed: a number above 0 to 1"),
    ({"partial_rotary_factor": "x"}, "partial_rotary_factor is 'x'; allowed: a number above 0 to 1"),
    ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; allowed: False, True"),
    ({"tie_word_embeddings": 0}, "tie_word_embeddings is '0'; allowed: False, True"),
    ({"use_sliding_window": "no"}, "use_sliding_window is 'no'; allowed: False, True"),
    ({"num_nextn_predict_layers": 1}, "not known here: 'num_nextn_predict_layers'"),
    (
        {"rope_parameters": {"rope_theta": 10000.0}, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "rope_scaling is .*; allowed: {'rope_theta': 10000.0}, as rope_parameters has it",
    ),
    ({"rope_parameters": {"rope_theta": 10000.0}, "rope_theta": 5.0}, "rope_theta is '5.0'; allowed: 10000.0, as rope"),
    (
        {"rope_scaling": {"partial_rotary_factor": 0.5}, "partial_rotary_factor": 0.25},
        "partial_rotary_factor is '0.25'; allowed: 0.5, as rope",
    ),
    ({"rope_scaling": {"rope_type": []}}, r"rope_type is '\[\]'; allowed: default, linear"),
    ({"rope_scaling": {"rope_type": "linear", "type": "yarn"}}, "rope_type is 'linear and yarn'; allowed: default"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": "no"}}, "rope of type yarn has truncate=no"),
    ({"rms_norm_epsilon": 1}, "config.json: 1 keys are not known here: 'rms_norm_epsilon'"),
    ({"quantization_config": {}}, "not known here: 'quantization_config'"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; allowed: silu"),
    ({"hidden_size": "x"}, "embedding_length is 'x'"),
    ({"hidden_size": ...}, "embedding_length is missing"),
    ({"num_attention_heads": 0}, "allowed: even rows|attention.head_count"),
    ({"vocab_size": 96}, "vocab_size is '96'; allowed: 97"),
    ({"sliding_window": "x"}, "sliding_window is 'x'"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has others than full_attention"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'; allowed: default, linear"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "more": 1}}, "rope of type linear has more=1"),
    ({"rope_scaling": {"rope_type": "linear", "factor": "x"}}, "rope of type linear has .*x"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "rope of type llama3 lacks keys"),
    ({"rope_scaling": [1]}, "rope_scaling is not a JSON object"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("folder")
    return write_folder(where / "m", made(where / "m.gguf"), "llama")


@pytest.mark.parametrize(("changed", "message"), WRONG, ids=[str(c)[:90] for c, _ in WRONG])
def test_configurations_that_are_refused(folder, tmp_path, changed, message):
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text()) | changed
    (copy / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
    with pytest.raises((InvalidArgument, BadTensorShape), match=message):
        Model.open(copy, device="cpu:0")


def test_a_number_that_no_float_can_be():
    with pytest.raises(InvalidArgument, match=r"eps is '1000.*; allowed: a number from 0"):
        Metadata({"eps": 10**400}).real("eps")


def header(**tensors):
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
FILES = [
    ("config.json", None, "config.json. does not exist"),
    ("config.json", b"[", "config.json: it is not JSON"),
    ("config.json", b"[]", "config.json: it is not a JSON object"),
    ("config.json", b'{"a": {"b": 1, "c": 2, "b": 3}}', "config.json: it is not JSON: it has the key 'b' twice"),
    ("model.safetensors", None, "model.safetensors.* does not exist"),
    ("model.safetensors", b"", "model.safetensors: it is cut off"),
    (
        "model.safetensors",
        b"\xff" * 20,
        "safetensors: its header has 18446744073709551615 bytes; allowed: 2 to 12",
    ),
    ("model.safetensors", b"\x02" + bytes(7) + b"[]", "its header is not a JSON object"),
    ("model.safetensors", b"\x02" + bytes(7) + b"{]", "its header is not JSON"),
    ("model.safetensors", header(x={"dtype": "F32"}), "tensor 'x' has no dtype, shape and data_offsets"),
    ("model.safetensors", header(x=F32 | {"dtype": "I64"}), "tensor 'x' is of type 'I64'; allowed: F32, F16, BF16"),
    ("model.safetensors", header(x=F32 | {"shape": [-1]}), "are not integers from 0"),
    ("model.safetensors", header(x=F32 | {"shape": []}), "1 to 4 dims"),
    ("model.safetensors", header(x=F32), "tensor 'x' has the bytes 0 to 4; allowed: 4 bytes within the 0"),
    ("model.safetensors", header(x=F32 | {"shape": [2]}) + bytes(8), "'x' has the bytes 0 to 4; allowed: 8 bytes"),
    ("model.safetensors", header(x=F32) + bytes(4), "tensor 'x' is not known here"),
    ("model.safetensors", header(x=F32) + bytes(5), "its tensors end at 4; allowed: 5, the end of the file"),
    ("model.safetensors", header(x=F32, y=F32) + bytes(4), "tensor 'y' begins at 0; allowed: 4, after another"),
    ("model.safetensors", header(x=F32 | {"data_offsets": [4, 8]}) + bytes(8), "tensor 'x' begins at 4; allowed: 0"),
    ("model.safetensors", header(x=F32, y=F32).replace(b'"y"', b'"x"') + bytes(4), "it has the key 'x' twice"),
    ("model.safetensors.index.json", b'{"weight_map": {"x": "y"}}', "model.safetensors: it is next to .*index.json"),
    ("model.safetensors.index.json", b'{"weight_map": {"x": "../y"}}', "weight_map is not a map"),
    ("model.safetensors.index.json", b'{"weight_map": {"x": "model.safetensors"}}', "its tensors are not those that"),
    ("tokenizer.json", b"{}", "tokenizer.json: it has no model with a vocab"),
    (
        "tokenizer.json",
        b'{"model": {"vocab": {"a": 99}}}',
        "tokenizer.json: it has token 99; allowed: below 97, the rows",
    ),
    ("tokenizer.json", b'{"model": {"vocab": [3]}}', "not of the known form"),
    ("tokenizer.json", b'{"model": {"vocab": {"a": 0}}}', "tokenizer.json cannot be read"),
]


@pytest.mark.parametrize(("name", "content", "message"), FILES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(FILES)])
def test_files_that_are_refused(folder, tmp_path, name, content, message):
    copy = shutil.copytree(folder, tmp_path / "copy")
    if content is None:
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(content)
    with pytest.raises(InvalidArgument, match=message):
        Model.open(copy, device="cpu:0").tokenizer()
