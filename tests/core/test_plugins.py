"""Discovery: available, unavailable, broken; one bad plug-in never stops the others."""

import subprocess
import sys
import types
from importlib.metadata import EntryPoint

import pytest

from isokern import DeviceNotAvailable, InvalidArgument, hookimpl, ops, plugins, settings
from isokern.backend import HOOK_VERSION, Device, Event, Recording, Stream, Unavailable
from isokern.buffer import HostMemory


class NowStream(Stream):
    """A stream with nothing ever pending."""

    def synchronize(self):
        pass

    def record(self):
        return Event()

    def _begin_capture(self):
        raise NotImplementedError

    def _end_capture(self, recording: Recording):
        raise NotImplementedError


class EmptyDevice(Device):
    """A device without kernels."""

    def stream(self):
        return NowStream(self)

    def variants(self, stem):
        return []


def open_device(name):
    memory = HostMemory()
    device = EmptyDevice(name, {}, memory)
    return [device]


def test_a_stream_that_is_nothing_of_a_native_library_has_a_number_of_its_own():
    (device,) = open_device("now:0")
    first, second = device.stream(), device.stream()
    assert len({device.default_stream.handle, first.handle, second.handle, 0}) == 4
    assert device.stream_of(second.handle) is second
    assert device.stream_of(0) is device.default_stream
    with first:
        assert device.stream_of(0) is first


@pytest.fixture
def install(monkeypatch):
    """Make modules with a hook, and discover exactly them."""

    def install(**hooks):
        entries = []
        for name, hook in hooks.items():
            module = types.ModuleType(f"plugin_{name}")
            if callable(hook):
                exec("def isokern_register_backends(register): return _hook(register)", module.__dict__)
                module._hook = hook
                module.isokern_register_backends = hookimpl(module.isokern_register_backends)
                monkeypatch.setitem(sys.modules, module.__name__, module)
            elif hook is not None:
                monkeypatch.setitem(sys.modules, module.__name__, module)
            entries.append(EntryPoint(name, module.__name__, plugins.GROUP))
        return {b.name: b for b in plugins.discover(entries).backends}

    return install


def good(name, **options):
    return lambda register: register.backend(
        name, lambda: open_device(f"{name}:0"), hook_version=HOOK_VERSION, **options
    )


def test_three_outcomes_side_by_side(install):
    def unavailable():
        raise Unavailable("no card in this machine")

    def raises():
        raise RuntimeError("driver exploded")

    found = install(
        fine=good("fine"),
        absent=lambda r: r.backend("absent", unavailable, hook_version=HOOK_VERSION),
        probe=lambda r: r.backend("probe", raises, hook_version=HOOK_VERSION),
        importing=None,
        hookless="module",
        old=lambda r: r.backend("old", list, hook_version=HOOK_VERSION + 1),
        quits=lambda r: sys.exit(3),
        leaves=lambda r: r.backend("leaves", lambda: sys.exit(4), hook_version=HOOK_VERSION),
        none=lambda r: r.backend("none", list, hook_version=HOOK_VERSION),
    )
    assert (found["fine"].status, [d.name for d in found["fine"].devices]) == ("available", ["fine:0"])
    assert (found["absent"].status, found["absent"].reason) == ("unavailable", "no card in this machine")
    assert (found["none"].status, found["none"].reason) == ("unavailable", "it has no device")
    for name, words in {
        "probe": "driver exploded",
        "importing": "No module named",
        "hookless": "registered nothing",
        "old": f"hook version {HOOK_VERSION + 1}; this isokern has {HOOK_VERSION}",
        "quits": "SystemExit",
        "leaves": "SystemExit: 4",
    }.items():
        assert found[name].status == "broken"
        assert words in found[name].reason
        assert "Traceback" in found[name].trace
        assert found[name].devices == []


def test_one_device_name_twice_quarantines_both(install):
    found = install(a=good("same"), b=good("same"))
    assert found["same"].status == "broken"
    assert "plug-ins a and b both" in found["same"].reason


def test_device_names_begin_with_the_backend(install):
    found = install(a=lambda r: r.backend("a", lambda: open_device("b:0"), hook_version=HOOK_VERSION))
    assert found["a"].status == "broken"
    assert "a:INDEX" in found["a"].reason


def test_fingerprint_mismatch_names_operator_and_versions(install):
    right = ops.find("softmax").attrs.fingerprint
    found = install(
        fresh=good("fresh", fingerprints={"softmax": right}), stale=good("stale", fingerprints={"softmax": 1})
    )
    assert found["fresh"].status == "available"
    assert "operator softmax" in found["stale"].reason
    assert f"{right:#x}" in found["stale"].reason
    assert "rebuild" in found["stale"].reason


def test_a_plug_in_may_bring_an_operator(install, monkeypatch):
    monkeypatch.setattr(ops, "_BY_NAME", dict(ops._BY_NAME))
    monkeypatch.setattr(ops, "_BY_KIND", dict(ops._BY_KIND))
    ops.all_operators()
    import dataclasses

    own = dataclasses.replace(ops.find("relu"), name="their_relu", kind="TREL")

    def hook(register):
        register.operator(own)
        good("theirs")(register)

    install(theirs=hook)
    assert ops.find("their_relu") is own
    clash = install(clash=lambda r: r.operator(dataclasses.replace(own, kind="RELU", name="x")))
    assert "clashes" in clash["clash"].reason


def test_chosen_plug_ins(monkeypatch):
    monkeypatch.setenv("ISOKERN_PLUGINS", "")
    assert plugins._chosen() == []
    monkeypatch.setenv("ISOKERN_PLUGINS", "nonsense")
    with pytest.raises(DeviceNotAvailable, match="nonsense"):
        plugins._chosen()


def test_unknown_setting_is_an_error(monkeypatch):
    monkeypatch.setenv("ISOKERN_DEVIC", "cpu:0")
    with pytest.raises(InvalidArgument, match="ISOKERN_DEVICE"):
        settings.check()
    with pytest.raises(KeyError):
        settings.get("ISOKERN_DEVIC")


def test_threads_that_ask_first_at_once_find_the_same_devices():
    """Two registries would give one device's name to two devices, and refuse the tensors of the one on the other."""
    source = """
import sys, threading
from isokern import backends, ops
sys.setswitchinterval(1e-6)
found, together = [], threading.Barrier(8)
def ask():
    together.wait()
    ops.find("softmax")
    found.append(backends())
threads = [threading.Thread(target=ask) for _ in range(8)]
[t.start() for t in threads], [t.join() for t in threads]
assert len(found) == 8 and all(f is found[0] for f in found), len(found)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
