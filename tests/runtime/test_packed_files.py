"""Test packed constants in files: on request only, found by content, mapped, verified, and never needed."""

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument, TensorDesc
from isokern.backend.native import NativeKernel
from isokern.call.packed_files import LEAST, SETTING

VALUES = np.random.default_rng(5).standard_normal((512, 512), np.float32)
X = np.random.default_rng(6).standard_normal((3, 512), np.float32)


def describe(w):
    given = [TensorDesc("F32", (3, w.shape[1])), w.desc]
    return isokern.create("matmul_transposed", given, device=w.device, prepacked=["w"], lhs_quantization="q8_0")


def compute(w):
    """Return x · wᵀ with w prepacked, and the memory of its packed form."""
    descriptor = describe(w)
    held = descriptor.prepack("w", w)
    y = isokern.zeros(descriptor.outputs[0].shape, device=w.device)
    descriptor.calculate([isokern.tensor(X, device=w.device), held], y, workspace="auto")
    return y.numpy(), held.buffer


@pytest.fixture
def packs(monkeypatch):
    """Count what kernels pack."""
    count, pack = [], NativeKernel.pack

    def counted(self, *arguments):
        count.append(arguments)
        return pack(self, *arguments)

    monkeypatch.setattr(NativeKernel, "pack", counted)
    return count


@pytest.fixture
def folder(monkeypatch, tmp_path, cpu):
    """Keep packed constants in a folder of the test's own."""
    monkeypatch.setenv("ISOKERN_CACHE", str(tmp_path))
    monkeypatch.setenv(SETTING, "1")
    return tmp_path / "isokern" / "prepacked"


def weight(cpu, values=VALUES):
    gc.collect()  # of the packed forms of other tests
    return isokern.tensor(values, "Q4_0", device=cpu)


def test_nothing_is_kept_unless_it_is_asked_for(monkeypatch, folder, cpu, packs):
    for asked in ("0", ""):
        monkeypatch.setenv(SETTING, asked)
        assert compute(weight(cpu))[1].writable
    assert len(packs) == 2 and not folder.exists()
    monkeypatch.setenv(SETTING, "yes")
    with pytest.raises(InvalidArgument, match="ISOKERN_KEEP_PREPACKED=yes; allowed: 0 or 1"):
        compute(weight(cpu))


def test_it_is_packed_once_and_then_mapped(folder, cpu, packs):
    wanted, first = compute(weight(cpu))
    again, second = compute(weight(cpu))
    assert len(packs) == 1 and len(list(folder.iterdir())) == 1
    np.testing.assert_array_equal(again, wanted)
    assert not first.writable and not second.writable
    maps = Path("/proc/self/maps")
    assert str(folder) in maps.read_text()
    (file,) = folder.iterdir()
    file.unlink()
    np.testing.assert_array_equal(second.view[:64], first.view[:64])  # the memory is there without its name
    del first, second
    gc.collect()
    assert str(folder) not in maps.read_text()


def test_other_content_shapes_and_layouts_have_files_of_their_own(monkeypatch, folder, cpu, packs):
    changed = VALUES.copy()
    changed[3, 7] += 1
    for values in (VALUES, changed, VALUES.reshape(256, 1024)):
        compute(weight(cpu, values)) if values.shape[1] == 512 else describe(weight(cpu, values)).prepack(
            "w", weight(cpu, values)
        )
    assert len(packs) == len(list(folder.iterdir())) == 3
    monkeypatch.setattr(cpu.library, "digest", "of another build")
    compute(weight(cpu))
    assert len(packs) == len(list(folder.iterdir())) == 4


def test_a_damaged_file_is_made_again(folder, cpu, packs):
    wanted, held = compute(weight(cpu))
    (file,) = folder.iterdir()
    del held
    for damaged in (b"", file.read_bytes()[:-100], bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:]):
        file.unlink()  # another process may have the old one mapped
        file.write_bytes(damaged)
        before = len(packs)
        np.testing.assert_array_equal(compute(weight(cpu))[0], wanted)
        assert len(packs) == before + 1
    compute(weight(cpu))
    assert len(packs) == 4


def test_small_constants_and_parts_of_others_are_not_kept(folder, cpu, packs):
    small = weight(cpu, VALUES[:64])
    assert describe(small).packed_layouts["w"].nbytes < LEAST
    describe(small).prepack("w", small)
    whole = weight(cpu)
    part = whole[100:400]
    describe(part).prepack("w", part)
    rest = isokern.tensor(VALUES[100:400], "Q4_0", device=cpu)
    describe(rest).prepack("w", rest)
    assert len(packs) == 2 and len(list(folder.iterdir())) == 1, "a part has the content of its copy"


def test_a_folder_that_cannot_be_written_costs_time_only(folder, cpu, packs):
    folder.parent.mkdir()
    folder.write_text("a file")
    wanted, _ = compute(weight(cpu))
    np.testing.assert_array_equal(compute(weight(cpu))[0], wanted)
    assert len(packs) == 2


def test_processes_share_one_file(folder, cpu):
    code = f"""
import numpy as np, isokern
from isokern import TensorDesc
w = isokern.tensor(np.random.default_rng(5).standard_normal((512, 512), np.float32), "Q4_0", device="cpu:0")
d = isokern.create("matmul_transposed", [TensorDesc("F32", (3, 512)), w.desc], device="cpu:0", prepacked=["w"],
                   lhs_quantization="q8_0")
held = d.prepack("w", w)
assert {str(folder)!r} in open("/proc/self/maps").read()
print(bytes(held.buffer.view).hex()[:200])
"""
    begun = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = {process.communicate()[0] for process in begun}
    assert len(told) == 1 and all(process.returncode == 0 for process in begun)
    assert len([f for f in folder.iterdir() if not f.name.startswith("tmp")]) == 1
