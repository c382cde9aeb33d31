"""Test the self-tests of variants: a planted miscompilation is disabled permanently, with a warning, by dtype."""

import warnings

import numpy as np
import pytest

import isokern
from isokern import NotImplementedOnDevice
from isokern.simt import Folder
from isokern.simt.device import PORTABLE
from isokern.simt.kernel import SimtKernel
from isokern.simt.selftest import SelfTests, suspend
from isokern.simt.source import KERNELS


@pytest.fixture
def planted(device, tmp_path, monkeypatch):
    """Add a variant `planted` of rms_norm: the portable kernel, but its F32 results are multiplied by 1.0001."""
    text = (KERNELS / "rms_norm.c").read_text()
    assert "IK_STORE(y," in text
    wrong = (
        '#include "simt.h"\n#if IK_SIZE_x == 4\n#undef ik_store_F32\n'
        "#define ik_store_F32(p, i, v) (p)[i] = (v) * 1.0001f\n#endif"
    )
    (tmp_path / "rms_norm.c").write_text(text.replace('#include "simt.h"', wrong))
    (tmp_path / "group.h").write_text((KERNELS / "group.h").read_text())
    folder = Folder("planted", 99, tmp_path)
    monkeypatch.setattr(device, "folders", (folder, PORTABLE))
    monkeypatch.setattr(device, "_variants", {})
    monkeypatch.setattr(device, "selftests", SelfTests(device, "a driver of this test", device.programs.disk_cache))
    return folder


def create(device, dtype="F32", **options):
    return isokern.create("rms_norm", [isokern.TensorDesc(dtype, (3, 40))], device=device, **options)


def test_a_miscompiled_variant_is_disabled(device, planted):
    with pytest.warns(
        RuntimeWarning, match=r"opencl:0: variant planted of rms_norm is disabled for F32: self-test .*wrong"
    ):
        made = create(device)
    assert made.variant == "portable"
    (first, _) = made.why()
    assert first.variant == "planted"
    assert "instead of" in first.reason
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    y = isokern.zeros((3, 40), device=device)
    made.calculate(isokern.tensor(x, device=device), y)
    assert np.allclose(y.numpy(), x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6), rtol=1e-5)
    ran = device.selftests.ran
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert create(device).variant == "portable"
        assert create(device, "F64").variant == "planted"  # correct in F64
    assert device.selftests.ran == ran + 1
    with pytest.raises(NotImplementedOnDevice, match="self-test"):
        create(device, variant="planted")


def test_the_verdict_is_kept_on_disk(device, planted, monkeypatch):
    with pytest.warns(RuntimeWarning, match="planted"):
        create(device)
    again = SelfTests(device, "a driver of this test", device.programs.disk_cache)
    monkeypatch.setattr(device, "selftests", again)
    with pytest.warns(RuntimeWarning, match="planted"):
        assert create(device).variant == "portable"
    assert again.ran == 0
    another = SelfTests(device, "another driver", device.programs.disk_cache)
    monkeypatch.setattr(device, "selftests", another)
    with pytest.warns(RuntimeWarning, match="planted"):
        create(device)
    assert another.ran == 2  # `planted` and `portable`


def test_why_says_it(device, planted):
    from isokern.backend.dispatch import consider
    from isokern.cli.why import resolve
    from isokern.ops import find

    with pytest.warns(RuntimeWarning, match="planted"):
        create(device)
    _, chosen, answers = consider(device, resolve(find("rms_norm"), [], "F32"))
    assert chosen.name == "portable"
    assert "self-test rms_norm/F32" in answers[0].reason


def test_conformance_sees_what_a_self_test_would_hide(device, planted):
    from isokern.conformance.derive import operator_cases
    from isokern.conformance.run import Runner
    from isokern.ops import find
    from isokern.oracle.verdicts import Verdict

    case = next(c for c in operator_cases(find("rms_norm")) if c.calls and c.dtype == "F32" and c.values == "drawn")
    assert Runner(device).run(case).verdict is Verdict.FAIL_VALUE
    assert device.selftests.ran == 0


def test_it_may_be_switched_off(device, planted, monkeypatch):
    monkeypatch.setenv("ISOKERN_SIMT_SELFTEST", "0")
    assert create(device).variant == "planted"
    monkeypatch.setenv("ISOKERN_SIMT_SELFTEST", "yes")
    with pytest.raises(isokern.InvalidArgument, match="0 or 1"):
        create(device)


def test_errors_and_accounts_of_others_are_left_alone(device, planted):
    memory = device.memory
    live, peak, copied = memory.live, memory.peak, memory.copied
    with pytest.warns(RuntimeWarning, match="planted"), device.default_stream.capture() as recording:
        create(device)
    assert len(recording) == 0
    assert (memory.live, memory.peak, memory.copied) == (live, peak, copied)


def test_every_first_sample_passes(device):
    """One operator of each of several families passes: shipped kernels are not disabled on the driver in use."""
    from isokern.declare.samples import assignments, describe
    from isokern.ops import find

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, dtype in (("exp", "F16"), ("add", "I32"), ("softmax", "F32"), ("reduce_sum", "F32"), ("gemm", "F32")):
            op = find(name)
            types = next(t for t in assignments(op) if next(iter(t.values())).name == dtype)
            sample = op.samples()[0]
            inputs, outputs = describe(op, sample, types)
            isokern.create(op, inputs, outputs, device=device, **sample.attrs)


def test_a_suspension_ends(device, planted):
    with suspend():
        assert isinstance(create(device)._kernel, SimtKernel)
        assert create(device).variant == "planted"
    with pytest.warns(RuntimeWarning, match="planted"):
        assert create(device).variant == "portable"


@pytest.mark.parametrize("dtypes", [("I64", "F32"), ("I16", "F64", "F64"), ("BOOL", "U8", "U16")])
def test_dtypes_that_no_sample_has(device, monkeypatch, dtypes):
    """A loop nest of other dtypes than the samples' is not judged by a sample of theirs."""
    monkeypatch.setattr(device, "selftests", SelfTests(device, "a driver of this test", None))
    *inputs, y = dtypes
    wanted = np.arange(-4, 4).astype(isokern.dtype(inputs[0]).numpy)
    given = [isokern.tensor(wanted.astype(isokern.dtype(d).numpy), device=device) for d in inputs]
    names = ",".join("a" * len(given))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = isokern.generic(None, given, maps=f"{names}->a", body="x0", dtype=y)
    assert np.array_equal(made.numpy(), wanted.astype(made.numpy().dtype))
