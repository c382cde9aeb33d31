"""Test files in parts: read as one, and parts that are missing or of other files are named."""

import numpy as np
import pytest
from gguf_write import write_gguf
from small_model import PROMPT, made

from isokern.llm import GGUF, Model, Session
from isokern.status import InvalidArgument

COUNT = 3


@pytest.fixture
def whole(tmp_path):
    return made(tmp_path / "whole.gguf")


def write_parts(folder, gguf, **changed):
    """Write a file's tensors in parts, the metadata in the first one; `changed` are keys of the second."""
    names, paths = list(gguf.tensors), []
    for i in range(COUNT):
        own = {"split.no": np.uint16(i), "split.count": np.uint16(COUNT), "split.tensors.count": np.int32(len(names))}
        if i == 0:
            own = {**gguf.metadata, **own}
        if i == 1:
            own |= {key.replace("_", "."): value for key, value in changed.items()}
        paths.append(folder / f"m-{i + 1:05}-of-{COUNT:05}.gguf")
        write_gguf(paths[-1], own, {name: gguf.tensors[name] for name in names[i::COUNT]})
    return paths


def test_any_part_is_the_whole(whole, tmp_path):
    wanted = Session(Model(whole, device="cpu:0")).logits(PROMPT)
    for path in write_parts(tmp_path, whole):
        gguf = GGUF.open(path)
        assert dict(gguf.metadata) == dict(whole.metadata)
        assert gguf.tensors.keys() == whole.tensors.keys()
        assert all(np.array_equal(t.data, whole.tensors[name].data) for name, t in gguf.tensors.items())
    assert np.array_equal(Session(Model.open(path, device="cpu:0")).logits(PROMPT), wanted)


def test_parts_that_are_missing(whole, tmp_path):
    paths = write_parts(tmp_path, whole)
    for i, path in enumerate(paths):
        kept = path.read_bytes()
        path.unlink()
        with pytest.raises(InvalidArgument, match=f"m-0000{i + 1}-of-00003.gguf cannot be opened.*; all 3 parts have"):
            GGUF.open(paths[i - 1])
        path.write_bytes(b"GGUF")
        with pytest.raises(InvalidArgument, match=f"m-0000{i + 1}-of-00003.gguf: version at byte 4"):
            GGUF.open(paths[i - 1])
        path.write_bytes(kept)
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(InvalidArgument, match=r"m-00003-of-.*: split.no is '1'; allowed: 2; it belongs to other"):
        GGUF.open(paths[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"split_no": np.uint16(2)}, "m-00002-of-00003.gguf: split.no is '2'; allowed: 1; it belongs to other parts"),
        ({"split_count": np.uint16(4)}, "m-00002-of-00003.gguf: split.count is '4'; allowed: 3"),
        ({"split_tensors.count": np.int32(3)}, "m-00002-of-00003.gguf: split.tensors.count is '3'; allowed: 20"),
        ({"split_no": "x"}, "m-00002-of-00003.gguf: split.no is 'x'"),
        (
            {"general_architecture": "qwen2"},
            "m-00002-of-.*: 'general.architecture' is not as in the first part",
        ),
    ],
)
def test_parts_of_other_files(whole, tmp_path, changed, message):
    for path in write_parts(tmp_path, whole, **changed):
        with pytest.raises(InvalidArgument, match=message):
            GGUF.open(path)


def test_parts_whose_tensors_do_not_add_up(whole, tmp_path):
    paths = write_parts(tmp_path, whole)
    keys = {"split.no": np.uint16(2), "split.count": np.uint16(COUNT), "split.tensors.count": np.int32(20)}
    write_gguf(paths[2], keys, {})
    with pytest.raises(InvalidArgument, match=r"m-00001-of-00003.gguf: split.tensors.count is 20; allowed: 14"):
        GGUF.open(paths[0])
    write_gguf(paths[2], keys, {"output_norm.weight": whole.tensors["output_norm.weight"]})
    with pytest.raises(InvalidArgument, match=r"m-00003-of.*: tensor 'output_norm.weight' is in an earlier part, too"):
        GGUF.open(paths[0])


def test_files_with_such_a_name_alone(whole, tmp_path):
    path = tmp_path / "n-00001-of-00002.gguf"
    path.write_bytes((tmp_path / "whole.gguf").read_bytes())
    assert GGUF.open(path).tensors.keys() == whole.tensors.keys()
    parts = write_parts(tmp_path, whole)
    single = tmp_path / "part.gguf"
    single.write_bytes(parts[0].read_bytes())
    with pytest.raises(InvalidArgument, match=r"split\.count is '3'"):
        Model.open(single, device="cpu:0")
    odd = tmp_path / "m-00009-of-00003.gguf"
    odd.write_bytes(parts[0].read_bytes())
    with pytest.raises(InvalidArgument, match="part 9 of 3; allowed: 1 to 3"):
        GGUF.open(odd)
