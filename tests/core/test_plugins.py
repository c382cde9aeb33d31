"""Test discovery: backends are available, unavailable or broken, and a broken plug-in never affects the others."""

import dataclasses
import subprocess
import sys
import types
from importlib.metadata import EntryPoint

import pytest
from numpy_backend import NumpyStream

from isokern import DeviceNotAvailable, InvalidArgument, hookimpl, ops, settings
from isokern.backend import (
    HOOK_VERSION,
    Device,
    HostMemory,
    Unavailable,
    discovery,
)
from isokern.declare import registry
from isokern.declare.attributes import attrs, number


class EmptyDevice(Device):
    """A device without kernels."""

    def stream(self):
        return NumpyStream(self)

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
    """Return a function that makes modules with a hook and discovers exactly these."""

    def install(**hooks):
        entries = []
        for name, hook in hooks.items():
            name = name.rstrip("_")  # allows two plug-ins of the same name
            module = types.ModuleType(f"plugin_{name}")
            if callable(hook):
                exec("def isokern_register_backends(register): return _hook(register)", module.__dict__)
                module._hook = hook
                module.isokern_register_backends = hookimpl(module.isokern_register_backends)
                monkeypatch.setitem(sys.modules, module.__name__, module)
            elif hook is not None:
                monkeypatch.setitem(sys.modules, module.__name__, module)
            entries.append(EntryPoint(name, module.__name__, discovery.GROUP))
        registry = discovery.discover(entries)
        monkeypatch.setattr(discovery, "_registry", lambda: registry)
        monkeypatch.setattr(discovery, "_by_name", {})
        return {b.name: b for b in registry.backends}

    monkeypatch.delenv("ISOKERN_DEVICE", raising=False)
    return install


def good(name, **options):
    return backend(name, lambda: open_device(f"{name}:0"), **options)


def backend(name, open, **options):
    return lambda register: register.backend(name, open, hook_version=HOOK_VERSION, **options)


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


class Stop(BaseException):
    """Neither an Exception nor SystemExit, as bindings of other languages raise on a panic."""


class Silent(Exception):
    """An error whose `__str__` raises an error."""

    def __str__(self):
        raise ValueError("no words")


class SilentlyUnavailable(Unavailable):
    """An Unavailable error whose `__str__` raises an error."""

    __str__ = Silent.__str__


class Noted(Exception):
    """An error whose traceback some versions of Python cannot print."""

    @property
    def __notes__(self):
        raise ValueError("no notes")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (Noted("it is"), "broken", "Noted: it is"),
        (Stop("panicked"), "broken", "Stop: panicked"),
        (GeneratorExit(), "broken", "GeneratorExit"),
        (Silent(), "broken", "Silent, which cannot say more: its text raises ValueError"),
        (SilentlyUnavailable(), "unavailable", "SilentlyUnavailable, which cannot say more"),
        (Unavailable(Silent()), "unavailable", "Unavailable, which cannot say more"),
        (InvalidArgument("environment", "X=1", allowed="2"), "broken", "environment: X=1; allowed: 2"),
    ],
)
def test_whatever_a_backend_raises_stops_it_alone(install, error, status, words):
    def raises(*arguments):
        raise error

    found = install(loads=raises, opens=backend("opens", raises), real=good("real"))
    assert (found["opens"].status, found["loads"].status, found["real"].status) == (status, "broken", "available")
    for name in ("opens", "loads"):
        assert words in found[name].reason
    assert type(error).__name__ in found["loads"].trace
    assert discovery.device("real").name == "real:0"
    assert [d.name for d in discovery.devices()] == ["real:0"]


def test_ctrl_c_is_nobodys_error(install):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(loads=interrupted)
    found = install(opens=backend("opens", interrupted))
    with pytest.raises(KeyboardInterrupt):
        _ = found["opens"].status


def rubbish(**attributes):
    """Return a device some of whose attributes are replaced; a function becomes a property."""
    (device,) = open_device("odd:0")
    kept = {k: v for k, v in attributes.items() if not callable(v)}
    made = {k: property(v) for k, v in attributes.items() if callable(v)}
    device.__class__ = type("Odd", (EmptyDevice,), made)
    for name, value in kept.items():
        setattr(device, name, value)
    return device


def fails(self):
    raise Stop("when it is asked")


@pytest.mark.parametrize(
    ("opened", "words"),
    [
        (lambda: None, "TypeError"),
        (lambda: [object()], "opened a object, which is not an isokern.backend.Device"),
        (lambda: [None], "opened a NoneType"),
        (lambda: [object.__new__(EmptyDevice)], "name"),
        (lambda: [rubbish(name=7)], "names are odd:INDEX"),
        (lambda: [rubbish(name="odd:first")], "names are odd:INDEX"),
        (lambda: open_device("odd:0") * 2, "each once"),
        (lambda: [rubbish(properties=None)], "`properties` is a NoneType, not a Mapping"),
        (lambda: [rubbish(properties={"it": Silent()})], "no words"),
        (lambda: [rubbish(properties=fails)], "Stop: when it is asked"),
        (lambda: [rubbish(conditions=["slow"])], "`conditions` is a list"),
        (lambda: [rubbish(aliases="odd:alias")], "`aliases` is a str"),
        (lambda: [rubbish(memory=None)], "`memory` is a NoneType, not a Memory"),
        (lambda: [rubbish(default_stream=None)], "`default_stream` is a NoneType"),
    ],
)
def test_what_is_no_device_is_broken_with_the_reason(install, opened, words):
    found = install(odd=backend("odd", opened), real=good("real"))
    assert found["odd"].status == "broken"
    assert words in found["odd"].reason
    assert [d.name for d in discovery.devices()] == ["real:0"]


def test_a_device_that_can_be_shown_once_is_broken_when_it_is_shown_again(install, monkeypatch):
    asked = []

    def fails_later(self):
        asked.append(1)
        return {} if len(asked) <= 2 else fails(self)

    monkeypatch.setattr("isokern.debug.LEVEL", 1)
    found = install(odd=backend("odd", lambda: [rubbish(properties=fails_later)]))
    assert (found["odd"].status, found["odd"].reason) == ("broken", "Stop: when it is asked")


@pytest.mark.parametrize(
    "hook",
    [
        backend(7, list),
        backend("a:0", list),
        backend("", list),
        backend("odd", "no function"),
        lambda register: [good("odd")(register) for _ in range(2)],
    ],
)
def test_what_is_no_backend_is_broken_with_the_reason(install, hook):
    found = install(odd=hook, real=good("real"))
    assert found["odd"].status == "broken"
    assert "backend" in found["odd"].reason
    assert discovery.device("real").name == "real:0"


def test_one_device_name_twice_quarantines_both(install):
    found = install(a=good("same"), b=good("same"))
    assert found["same"].status == "broken"
    assert "plug-ins a and b both" in found["same"].reason


def test_a_name_belongs_to_the_plug_in_that_is_called_so(install):
    install(a=good("same"), same=good("same"), z=good("same"))
    assert [b.status for b in discovery.backends()] == ["broken", "available", "broken"]
    for usurper in discovery.backends()[::2]:
        assert f"plug-in {usurper.plugin} provides devices called same, a name that belongs" in usurper.reason
        assert f"uninstall {usurper.plugin}" in usurper.reason
    assert discovery.device("same") is discovery.device("same:0") is discovery.device()
    with pytest.raises(DeviceNotAvailable, match="no device is called 'same:1'"):
        discovery.device("same:1")


def test_of_two_plug_ins_of_one_name_the_first_that_loads_is_taken(install):
    def broken(register):
        raise ImportError("it does not load")

    for hooks in ({"same": good("same"), "same_": good("same")}, {"same": broken, "same_": good("same")}):
        install(**hooks)
        assert sorted(b.status for b in discovery.backends()) == ["available", "broken"]
        assert discovery.device().name == discovery.device("same").name == "same:0"
    install(same=good("same"), same_=good("same"))
    assert "second plug-in called same: uninstall one" in discovery.backends()[1].reason


def test_device_names_begin_with_the_backend(install):
    found = install(a=lambda r: r.backend("a", lambda: open_device("b:0"), hook_version=HOOK_VERSION))
    assert found["a"].status == "broken"
    assert "a:INDEX" in found["a"].reason


def test_fingerprint_mismatch_names_operator_and_versions(install):
    right = registry.find("softmax").attrs.fingerprint
    found = install(
        fresh=good("fresh", fingerprints={"softmax": right}), stale=good("stale", fingerprints={"softmax": 1})
    )
    assert found["fresh"].status == "available"
    assert "operator softmax" in found["stale"].reason
    assert f"{right:#x}" in found["stale"].reason
    assert "rebuild" in found["stale"].reason


def test_a_plug_in_may_bring_an_operator(install, monkeypatch):
    ops.all_operators()
    monkeypatch.setattr(registry, "_BY_NAME", dict(registry._BY_NAME))
    monkeypatch.setattr(registry, "_FOUND", dict(registry._FOUND))
    monkeypatch.setattr(registry, "_BY_KIND", dict(registry._BY_KIND))
    monkeypatch.setattr(registry, "_BY_SCHEMA", {schema: list(own) for schema, own in registry._BY_SCHEMA.items()})
    own = dataclasses.replace(registry.find("relu"), name="their_relu", kind="TREL")

    def hook(register):
        register.operator(own)
        good("theirs")(register)

    install(theirs=hook)
    assert registry.find("their_relu") is own
    clash = install(clash=lambda r: r.operator(dataclasses.replace(own, kind="RELU", name="x")))
    assert "clashes" in clash["clash"].reason
    record = attrs(registry.find("softmax").attrs.schema, number("other", 1.0))
    other = dataclasses.replace(own, name="x", kind="XXXX", attrs=record)
    shared = install(shared=lambda r: r.operator(other))
    assert "has another record than <operator" in shared["shared"].reason and "SMX1" in shared["shared"].reason


def test_operators_go_with_a_plug_in_that_is_quarantined(install):
    ops.all_operators()
    before = ops.all_operators()

    def bring(register):
        for name, kind in (("their_relu", "TREL"), ("their_other", "TOTH")):
            register.operator(dataclasses.replace(registry.find("relu"), name=name, kind=kind))

    def fails(register):
        bring(register)
        raise RuntimeError("later")

    def interrupted(register):
        bring(register)
        raise KeyboardInterrupt

    def stop(register):
        raise KeyboardInterrupt

    def past_the_register(register):
        registry.register(dataclasses.replace(registry.find("relu"), name="their_relu", kind="TREL"))
        sys.exit(1)

    def claims(register):
        bring(register)
        good("same")(register)

    for hook in (fails, past_the_register):
        install(odd=hook)
        assert ops.all_operators() == before
    for hooks in ({"odd": interrupted}, {"same": claims, "odd": stop}):
        with pytest.raises(KeyboardInterrupt):
            install(**hooks)
        assert ops.all_operators() == before
    install(odd=claims, same=good("same"))
    assert ops.all_operators() == before
    with pytest.raises(InvalidArgument, match="no operator is called 'their_relu'"):
        registry.find("their_relu")
    with pytest.raises(InvalidArgument, match="no operator has kind"):
        ops.by_kind(int.from_bytes(b"TREL", "little"))
    try:  # operators of a broken backend stay: other backends may have kernels, and each operator has a reference
        install(same=claims)
        assert {"their_relu", "their_other"} == {o.name for o in ops.all_operators()} - {o.name for o in before}
    finally:
        for operator in set(ops.all_operators()) - set(before):
            registry.withdraw(operator)


def test_chosen_plug_ins(monkeypatch):
    monkeypatch.setenv("ISOKERN_PLUGINS", "")
    assert discovery._choose_entries() == []
    monkeypatch.setenv("ISOKERN_PLUGINS", "nonsense")
    with pytest.raises(DeviceNotAvailable, match="nonsense"):
        discovery._choose_entries()


def test_unknown_setting_is_an_error(monkeypatch):
    monkeypatch.setenv("ISOKERN_DEVIC", "cpu:0")
    with pytest.raises(InvalidArgument, match="ISOKERN_DEVICE"):
        settings.check()
    with pytest.raises(KeyError):
        settings.get("ISOKERN_DEVIC")


def test_threads_that_ask_first_at_once_find_the_same_devices():
    """Two registries would open a device twice under one name, and refuse each other's tensors."""
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


# The default device


@pytest.fixture
def opened():
    """Return the list of the backends that were opened, in order."""
    return []


@pytest.fixture
def counted(opened):
    """Return a function that makes a backend which records that it was opened; `gives` returns devices or raises."""

    def make(name, gives=None, **options):
        def open():
            opened.append(name)
            return open_device(f"{name}:0") if gives is None else gives()

        return backend(name, open, **options)

    return make


def absent():
    raise Unavailable("no card")


def wrong():
    raise InvalidArgument("environment", "ISOKERN_REAL_LEVEL=nonsense", allowed="high or low")


def test_the_default_is_the_first_that_is_no_emulator_and_no_more_is_opened(install, opened, counted):
    (told,) = open_device("said:0")
    told.properties = {"emulated": True}
    install(
        a=counted("a", emulated=True),
        b=counted("absent", absent),
        c=counted("said", lambda: [told]),
        d=counted("real"),
        e=counted("later"),
    )
    assert discovery.device().name == "real:0"
    assert opened == ["absent", "said", "real"]
    assert discovery.device("later").name == "later:0"
    assert opened == ["absent", "said", "real", "later"]


def test_an_emulator_is_used_where_it_is_asked_for(install, opened, counted, monkeypatch):
    install(absent=counted("absent", absent), sim=counted("sim", emulated=True))
    with pytest.raises(DeviceNotAvailable, match=r"absent: unavailable, no card.*by ISOKERN_DEVICE: sim$"):
        discovery.device()
    assert opened == ["absent"]
    assert discovery.device("sim").name == "sim:0"
    monkeypatch.setenv("ISOKERN_DEVICE", "sim:0")
    assert discovery.device().name == "sim:0"


@pytest.mark.parametrize("other", ["real", "sim"])
def test_a_default_that_is_broken_is_an_error_and_no_other_takes_its_place(install, opened, counted, other):
    install(first=counted("first", wrong), second=counted(other, emulated=other == "sim"))
    with pytest.raises(DeviceNotAvailable) as raised:
        discovery.device()
    text = str(raised.value)
    assert "backend first, which would be the default, is broken: environment: ISOKERN_REAL_LEVEL=nonsense" in text
    assert "allowed: high or low" in text
    assert text.endswith(f"by its name, or by ISOKERN_DEVICE: {other}{' (emulated)' if other == 'sim' else ''}")
    assert opened == ["first"]
    assert discovery.device(other).name == f"{other}:0"


def test_a_plug_in_that_does_not_load_is_not_passed_over_for_another(install, opened, counted):
    def fails(register):
        raise ImportError("libfirst.so is not there")

    install(first=fails, second=counted("second"))
    with pytest.raises(
        DeviceNotAvailable, match="backend first, which would be the default, is broken: ImportError: lib"
    ):
        discovery.device()
    install(second=counted("second"), third=fails)
    assert discovery.device().name == "second:0"


def test_without_any_backend(install):
    install()
    with pytest.raises(DeviceNotAvailable, match="no device is available; install a backend"):
        discovery.device()
