"""Test that dispatch goes on where a variant accepts a call but cannot be built, and keeps its reason."""

import pytest

import isokern
from isokern.backend import Declined, Kernel, KernelVariant
from isokern.backend.dispatch import choose
from isokern.ops import find


class Other:
    """A device with only these variants."""

    name = "other:0"

    def __init__(self, *variants):
        self.of = variants

    def variants(self, stem):
        return self.of


class Slow(Kernel):
    """A kernel that does nothing."""

    def launch(self, handles, workspace, workspace_bytes, stream):
        pass


def variant(name, priority, kernel):
    def build(plan):
        if isinstance(kernel, Exception):
            raise kernel
        return kernel

    return KernelVariant("elementwise", name, priority, lambda plan: None, build)


@pytest.fixture
def resolved():
    desc = isokern.TensorDesc("F32", (4,))
    return find("neg").resolve([desc], [desc], {})


def test_the_next_variant_takes_over(resolved):
    device = Other(variant("slow", 0, Slow()), variant("fast", 1, Declined("its self-test failed")))
    _, kernel, answers = choose(device, resolved)
    assert isinstance(kernel, Slow)
    assert [(a.variant, a.reason, a.chosen) for a in answers] == [
        ("fast", "its self-test failed", False),
        ("slow", None, True),
    ]


def test_where_none_is_left_every_reason_is_told(resolved):
    device = Other(variant("slow", 0, Declined("no memory")), variant("fast", 1, Declined("its self-test failed")))
    with pytest.raises(isokern.NotImplementedOnDevice, match=r"fast: its self-test failed; slow: no memory"):
        choose(device, resolved)
    with pytest.raises(
        isokern.NotImplementedOnDevice, match=r"fast: its self-test failed; slow: variant fast was asked for"
    ):
        choose(device, resolved, "fast")


def test_any_other_error_is_raised(resolved):
    with pytest.raises(ZeroDivisionError):
        choose(Other(variant("slow", 0, Slow()), variant("fast", 1, ZeroDivisionError())), resolved)


def test_kernels_that_read_another_record_are_refused(monkeypatch):
    device = isokern.device("cpu:0")
    monkeypatch.setitem(device.library.fingerprints, "neg", 1)
    desc = isokern.TensorDesc("F32", (4,))
    with pytest.raises(isokern.NotImplementedOnDevice, match=r"reads attribute record 0x1, this isokern writes 0x\w+"):
        choose(device, find("neg").resolve([desc], [desc], {}))
