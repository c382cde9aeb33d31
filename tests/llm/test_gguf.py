"""Test GGUF files: what is written is read back in place, and errors name the field and its byte position."""

import gc
import mmap
import os
import struct
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from gguf_write import write_gguf

from isokern import dtypes
from isokern.layout import TensorDesc
from isokern.llm import GGUF
from isokern.llm.gguf import KNOWN, TYPES
from isokern.status import InvalidArgument

METADATA = {
    "general.architecture": "llama",
    "u8": np.uint8(200),
    "i8": np.int8(-100),
    "u16": np.uint16(60_000),
    "i16": np.int16(-30_000),
    "u32": 4_000_000_000,
    "i32": -2_000_000_000,
    "u64": 2**64 - 1,
    "i64": -(2**63),
    "f32": 0.5,
    "f64": np.float64(0.1),
    "yes": True,
    "no": np.bool_(False),
    "text": "Grüße 🦙",
    "empty": "",
    "strings": ("a", "", "ß"),
    "floats": np.array([1.5, -np.inf], np.float32),
    "bools": np.array([True, False]),
    "none": np.array([], np.int32),
    "nested": ((1, 2), (), (3,)),
}
METADATA["nested"] = tuple(np.array(part, np.int16) for part in METADATA["nested"])


def tensors():
    rng = np.random.default_rng(1)
    return {
        "f32": rng.standard_normal((3, 5)).astype(np.float32),
        "f16": rng.standard_normal(7).astype(np.float16),
        "bf16": rng.standard_normal((2, 3, 4)).astype(dtypes.BF16.numpy),
        "i8": rng.integers(-128, 128, (1, 2, 3, 4), dtype=np.int8),
        "f64": rng.standard_normal(1),
        "q4_0": ("Q4_0", (2, 64), rng.integers(0, 256, 72, dtype=np.uint8)),
        "nvfp4": ("NVFP4", (256,), rng.integers(0, 256, 144, dtype=np.uint8)),
    }


@pytest.fixture
def written(tmp_path):
    write_gguf(tmp_path / "m.gguf", METADATA, tensors())
    return tmp_path / "m.gguf"


def test_metadata_comes_back(written):
    found = GGUF.open(written).metadata
    assert list(found) == list(METADATA)
    for key, value in METADATA.items():
        if isinstance(value, np.ndarray):
            assert found[key].dtype == value.dtype
            assert found[key].tolist() == value.tolist()
        elif key != "nested":
            assert found[key] == value
            assert type(found[key]) in (bool, int, float, str, tuple, np.float64)
    assert [part.tolist() for part in found["nested"]] == [[1, 2], [], [3]]
    assert found["yes"] is True
    with pytest.raises(TypeError):
        found["new"] = 1


def test_tensors_lie_in_the_map(written):
    gguf = GGUF.open(written)
    content = written.read_bytes()
    given = tensors()
    assert list(gguf.tensors) == list(given)
    assert (gguf.version, gguf.alignment) == (3, 32)
    for name, tensor in gguf.tensors.items():
        wanted = given[name]
        shape, data = (
            (wanted.shape, wanted.tobytes()) if isinstance(wanted, np.ndarray) else (wanted[1], wanted[2].tobytes())
        )
        assert (tensor.name, tensor.shape) == (name, shape)
        assert tensor.data.tobytes() == data == content[tensor.offset : tensor.offset + len(data)]
        assert tensor.offset % 32 == 0
        assert not tensor.data.flags.writeable
        whole = tensor.data
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        assert isinstance(whole.base.obj, mmap.mmap)
    assert np.array_equal(gguf.tensors["bf16"].array, given["bf16"])
    assert np.shares_memory(gguf.tensors["f32"].array, gguf.tensors["f32"].data)
    assert gguf.tensors["q4_0"].desc == TensorDesc("Q4_0", (2, 64))


def test_views_outlive_the_file_object(written):
    tensor = GGUF.open(written).tensors["f32"]
    gc.collect()
    os.unlink(written)
    assert np.array_equal(tensor.array, tensors()["f32"])


def test_types_have_isokerns_sizes():
    known = {name: (block, size) for name, block, size in TYPES.values()}
    plain = {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"}
    assert {d.name for d in KNOWN} == {*plain, *(d.name for d in (*dtypes.BLOCKS, *dtypes.STORED_BLOCKS))}
    for d in KNOWN:
        assert known[d.name] == (d.block, d.itemsize)


def test_a_type_that_isokern_has_not(written):
    tensor = GGUF.open(written).tensors["nvfp4"]
    assert (tensor.type, len(tensor.data)) == ("NVFP4", 144)
    with pytest.raises(InvalidArgument, match=r"tensor 'nvfp4' is of type NVFP4.*allowed: .*Q4_0.*convert") as refused:
        _ = tensor.dtype
    assert "F16" in refused.value.allowed and not {"F64", "I8", "I64"} & {*refused.value.allowed.split(", ")}
    with pytest.raises(InvalidArgument, match="blocks, not elements"):
        _ = GGUF.open(written).tensors["q4_0"].array


def test_tensors_of_another_file_are_written_as_they_are(written, tmp_path):
    old = GGUF.open(written)
    write_gguf(tmp_path / "n.gguf", old.metadata, old.tensors)
    new = GGUF.open(tmp_path / "n.gguf")
    assert [(t.type, t.shape, t.data.tobytes()) for t in new.tensors.values()] == [
        (t.type, t.shape, t.data.tobytes()) for t in old.tensors.values()
    ]
    assert str(new.metadata) == str(old.metadata)


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_alignment(tmp_path, alignment):
    write_gguf(tmp_path / "a.gguf", {"general.alignment": alignment}, tensors())
    gguf = GGUF.open(tmp_path / "a.gguf")
    assert gguf.alignment == alignment
    assert all(t.offset % alignment == 0 for t in gguf.tensors.values())
    assert np.array_equal(gguf.tensors["f16"].array, tensors()["f16"])


def string(text):
    text = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(text)) + text


def pair(key, kind, packed):
    return string(key) + struct.pack("<I", kind) + packed


def record(name="t", dims=(4,), kind=0, offset=0, rank=None):
    rank = len(dims) if rank is None else rank
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", rank, *dims, kind, offset)


def file(*pairs, records=(), data=64, magic=b"GGUF", version=3, counts=None):
    n_tensors, n_pairs = counts or (len(records), len(pairs))
    head = magic + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join(pairs) + b"".join(records)
    return head + bytes(-len(head) % 32) + bytes(data)


U32 = struct.Struct("<I").pack
ARRAY = 9
DEEP = pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 4 + struct.pack("<IQ", 0, 1) + b"x")
TOO_DEEP = pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 5)


def test_the_raw_files_of_these_tests_are_sound():
    gguf = GGUF(file(pair("k", 4, U32(7)), records=[record(), record("u", offset=32)]))
    assert gguf.metadata["k"] == 7
    assert [t.shape for t in gguf.tensors.values()] == [(4,), (4,)]
    assert GGUF(file(version=2)).version == 2
    assert GGUF(file(pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 3 + struct.pack("<IQ", 0, 1) + b"x"))).metadata[
        "k"
    ]
    assert GGUF(file(data=0)).tensors == {}


BAD = {
    "empty": (b"", "magic at byte 0 needs 4 bytes; allowed: 0, which are left"),
    "magic": (file(magic=b"GGML"), "magic at byte 0 is b'GGML'; allowed: b'GGUF'"),
    "version 1": (file(version=1), "version at byte 4 is 1; allowed: 2 and 3"),
    "version 4": (file(version=4), "version at byte 4 is 4; allowed: 2 and 3"),
    "big-endian": (file(version=0x03000000), "version at byte 4 is 50331648.*big-endian file"),
    "cut in the header": (
        file()[:20],
        "metadata count at byte 16 needs 8 bytes; allowed: 4, which are left: the file is cut off",
    ),
    "tensor count": (file(counts=(2**63, 0)), f"tensor count at byte 8 is {2**63}; allowed: at most 2"),
    "metadata count": (file(counts=(0, 2**60)), f"metadata count at byte 16 is {2**60}; allowed: at most"),
    "empty key": (file(pair("", 4, U32(1))), "length of metadata key at byte 24 is 0; allowed: 1 to 65535"),
    "long key": (file(pair("k" * 65_536, 4, U32(1))), "length of metadata key at byte 24 is 65536"),
    "key's length": (
        file(struct.pack("<Q", 200)),
        "metadata count at byte 16|length of metadata key at byte 24 is 200; allowed: at most",
    ),
    "key's UTF-8": (file(pair(b"a\xff", 4, U32(1))), "metadata key at byte 33 is not UTF-8"),
    "key twice": (file(pair("k", 4, U32(1)), pair("k", 4, U32(2))), "metadata key at byte 49 is 'k' once more"),
    "value type": (file(pair("k", 13, U32(1))), "value type of 'k' at byte 33 is 13; allowed: 0 to 12"),
    "value cut off": (file(pair("k", 10, b""), data=0)[:37], "metadata count|'k' at byte 37 needs 8 bytes; allowed: 0"),
    "bool": (file(pair("k", 7, b"\x02")), "'k' at byte 37 is the bool 2; allowed: 0 and 1"),
    "string's length": (
        file(pair("k", 8, struct.pack("<Q", 2**64 - 1))),
        f"length of 'k' at byte 37 is {2**64 - 1}; allowed: at most",
    ),
    "string's UTF-8": (file(pair("k", 8, string(b"ab\xc3("))), "'k' at byte 47 is not UTF-8"),
    "element type": (
        file(pair("k", ARRAY, struct.pack("<IQ", 99, 0))),
        "element type of 'k' at byte 37 is 99; allowed: 0 to 12",
    ),
    "array's length": (
        file(pair("k", ARRAY, struct.pack("<IQ", 12, 2**61))),
        f"length of 'k' at byte 41 is {2**61}; allowed: at most",
    ),
    "strings' length": (
        file(pair("k", ARRAY, struct.pack("<IQ", 8, 2**40))),
        f"length of 'k' at byte 41 is {2**40}; allowed: at most",
    ),
    "arrays' length": (file(pair("k", ARRAY, struct.pack("<IQ", ARRAY, 2**40))), "length of 'k' at byte 41 is"),
    "bool in an array": (
        file(pair("k", ARRAY, struct.pack("<IQ", 7, 3) + b"\1\0\x7f")),
        "'k' at byte 51 has the bool 127",
    ),
    "nested too deep": (file(TOO_DEEP), "'k' at byte 85 nests arrays more than 4 deep"),
    "alignment 0": (
        file(pair("general.alignment", 4, U32(0))),
        "'general.alignment' at byte 53 is 0; allowed: a power of two from 8",
    ),
    "alignment 24": (file(pair("general.alignment", 4, U32(24))), "'general.alignment' at byte 53 is 24"),
    "alignment 2**31": (file(pair("general.alignment", 4, U32(2**31))), "'general.alignment' at byte 53 is 2147483648"),
    "alignment's type": (
        file(pair("general.alignment", 8, string("32"))),
        "'general.alignment' at byte 53 is of value type 8",
    ),
    "empty name": (file(records=[record("")]), "length of tensor name at byte 24 is 0"),
    "name twice": (file(records=[record(), record(offset=32)]), "tensor name at byte 65 is 't' once more"),
    "rank 0": (file(records=[record(dims=())], counts=(1, 0)), "rank of tensor 't' at byte 33 is 0; allowed: 1 to 4"),
    "rank 5": (file(records=[record(dims=(1,) * 5)]), "rank of tensor 't' at byte 33 is 5; allowed: 1 to 4"),
    "rank 2**32": (file(records=[record(rank=2**32 - 1)]), "rank of tensor 't' at byte 33 is 4294967295"),
    "zero dim": (
        file(records=[record(dims=(4, 0))]),
        r"dims of tensor 't' at byte 37 are \[4, 0\]; allowed: dims from 1",
    ),
    "dims overflow": (
        file(records=[record(dims=(2**32, 2**32))]),
        r"dims of tensor 't' at byte 37 are \[4294967296, 4294967296\]",
    ),
    "dims wrap to 4": (file(records=[record(dims=(2**62 + 1, 4))]), "dims of tensor 't' at byte 37 are"),
    "tensor type": (
        file(records=[record(kind=4)]),
        "type of tensor 't' at byte 45 is 4; allowed: 0 \\(F32\\), 1 \\(F16\\)",
    ),
    "block": (
        file(records=[record(dims=(33,), kind=2)]),
        "innermost dim of tensor 't' at byte 37 is 33; allowed: multiples of 32, for Q4_0",
    ),
    "offset unaligned": (
        file(records=[record(offset=16)]),
        "offset of tensor 't' at byte 49 is 16; allowed: multiples of 32",
    ),
    "offset outside": (
        file(records=[record(offset=64)]),
        "offset of tensor 't', 16 bytes, at byte 49 is 64; allowed: at most 48",
    ),
    "offset wraps": (
        file(records=[record(offset=2**64 - 32)]),
        "offset of tensor 't', 16 bytes, at byte 49 is 18446744073709551584",
    ),
    "tensor too long": (
        file(records=[record(dims=(17,))]),
        "offset of tensor 't', 68 bytes, at byte 49 is 0; allowed: at most 0",
    ),
    "no data": (file(records=[record()], data=0), "offset of tensor 't', 16 bytes, at byte 49 is 0"),
    "overlap": (
        file(records=[record("t", (9,), offset=0), record("u", offset=32)]),
        "offset of tensor 'u' at byte 82 is 32, inside tensor 't'; allowed: tensors that do not overlap",
    ),
    "same place": (file(records=[record("t"), record("u")]), "offset of tensor 'u' at byte 82 is 0, inside tensor 't'"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_files(content, message, tmp_path):
    with pytest.raises(InvalidArgument, match=message):
        GGUF(content)
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=message if content else "is empty") as refused:
        GGUF.open(path)
    assert content or str(refused.value) == f"GGUF: {path} is empty"  # and nothing is said around it


def test_every_truncation_of_a_file_is_refused(written):
    content = written.read_bytes()
    last = max(t.offset + len(t.data) for t in GGUF(content).tensors.values())
    GGUF(content[:last])  # the padding behind the last tensor may be missing
    for length in range(last):
        with pytest.raises(InvalidArgument, match=r" at byte \d+ .*allowed: "):
            GGUF(content[:length])


def test_names_in_messages_are_escaped_and_cut():
    with pytest.raises(InvalidArgument) as error:
        GGUF(file(pair("\x1b[31m\n" + "é" * 500, 77, b"")))
    assert "'\\x1b[31m\\n\\xe9" in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.gguf", "none.gguf cannot be opened: No such file"),
        ("", "cannot be opened: Is a directory"),
        ("pipe", "not a regular file"),
        ("a\0b", r"a\\x00b' cannot be opened: embedded null"),
    ],
)
def test_what_is_no_file(tmp_path, name, message):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgument, match=message):
        GGUF.open(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        file(pair("k", ARRAY, struct.pack("<IQ", ARRAY, 10_000) + struct.pack("<IQ", 0, 0) * 10_000)),
        file(pair("k", ARRAY, struct.pack("<IQ", 8, 50_000) + string("ab") * 50_000)),
        file(*(pair(f"{i:x}", 0, b"x") for i in range(10_000))),
        file(records=[record(f"{i:x}", (1,), offset=32 * i) for i in range(5000)], data=160_000),
        file(records=[record(f"{i:x}") for i in range(5000)]),
    ],
    ids=["empty arrays", "short strings", "many keys", "many tensors", "tensors in one place"],
)
def test_memory_is_a_small_multiple_of_the_file(content):
    tracemalloc.start()
    try:
        with suppress(InvalidArgument):
            _ = GGUF(content)
        peak = tracemalloc.get_traced_memory()[1]
        assert peak < 16 * len(content), peak / len(content)
    finally:
        tracemalloc.stop()


def test_the_reader_of_gguf_agrees(written):
    gguf = pytest.importorskip("gguf")
    theirs = gguf.GGUFReader(written)
    ours = GGUF.open(written)
    assert [f for f in theirs.fields if not f.startswith("GGUF.")] == list(METADATA)
    for key, value in METADATA.items():
        if key != "nested":  # the reference library flattens nested arrays
            found = theirs.fields[key].contents()
            assert found == (list(value) if isinstance(value, tuple | np.ndarray) else value), key
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert tensor.tensor_type.name == mine.type
        assert tuple(reversed(tensor.shape.tolist())) == mine.shape
        assert tensor.data_offset == mine.offset
        assert tensor.data.tobytes() == mine.data.tobytes()


def test_the_writer_of_gguf_is_read(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "llama")
    writer.add_custom_alignment(64)
    writer.add_context_length(512)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["<s>", "Ġthe", "é"])
    writer.add_token_scores([0.0, -1.0, -2.5])
    writer.add_add_bos_token(True)
    given = {name: array for name, array in tensors().items() if isinstance(array, np.ndarray) and name != "bf16"}
    for name, array in given.items():
        writer.add_tensor(name, array)
    raw = tensors()["q4_0"][2].reshape(2, 36)
    writer.add_tensor("q4_0", raw, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours = GGUF.open(tmp_path / "w.gguf")
    assert ours.metadata["general.architecture"] == "llama"
    assert ours.metadata["llama.context_length"] == 512
    assert ours.metadata["llama.attention.layer_norm_rms_epsilon"] == np.float32(1e-5)
    assert ours.metadata["tokenizer.ggml.tokens"] == ("<s>", "Ġthe", "é")
    assert ours.metadata["tokenizer.ggml.scores"].tolist() == [0.0, -1.0, -2.5]
    assert ours.metadata["tokenizer.ggml.add_bos_token"] is True
    assert ours.alignment == 64
    for name, array in given.items():
        assert np.array_equal(ours.tensors[name].array, array)
        assert ours.tensors[name].shape == array.shape
    assert ours.tensors["q4_0"].shape == (2, 64)
    assert ours.tensors["q4_0"].data.tobytes() == raw.tobytes()


def test_the_table_of_types_is_that_of_gguf():
    gguf = pytest.importorskip("gguf")
    theirs = {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: TYPES[number] for number in theirs if number in TYPES} == theirs
