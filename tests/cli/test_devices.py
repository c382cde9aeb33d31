"""Test isokern devices: one object per device or backend, available, unavailable or broken; nothing else on stdout."""

import re
from pathlib import Path

import pytest

from isokern.ops import all_operators

HOOK = (
    "from isokern import hookimpl\nfrom isokern.backend import Unavailable\n\n"
    "@hookimpl\ndef isokern_register_backends(register):\n"
)
ABSENT = (
    HOOK + "    def open():\n        raise Unavailable('no such hardware on this bench')\n"
    "    register.backend('absent', open, hook_version=1)\n"
)
RAISES = HOOK + "    def open():\n        return [1 / 0]\n    register.backend('raises', open, hook_version=1)\n"
OLD = HOOK + "    register.backend('old', lambda: [], hook_version=0)\n"
BROKEN = "raise ImportError('libfoo.so.3: cannot open shared object file')\n"
LOUD = "import os\nprint('loud in Python')\nos.write(1, b'loud in C')\n" + ABSENT.replace("'absent'", "'loud'")
RUBBISH = HOOK + "    register.backend('rubbish', lambda: [object()], hook_version=1)\n"
FICKLE = (
    (Path(__file__).parent / "numpy_backend.py").read_text()
    + """

class Fickle(NumpyDevice):
    asked = 0

    @property
    def properties(self):
        Fickle.asked += 1
        if Fickle.asked > 2:
            raise SystemExit("it has gone")
        return {}

def _open(opens=_open):
    (device,) = opens()
    device.__class__ = Fickle
    return [device]
"""
)
KEYS = {"backend", "device", "status", "reason", "properties", "operators"}


@pytest.fixture(scope="module")
def several(tmp_path_factory, start_in):
    """Return how `isokern devices --json` ended with one plug-in of each kind, and the rows by backend."""
    plugins = {"absent": ABSENT, "broken": BROKEN, "raises": RAISES, "old": OLD, "loud": LOUD, "rubbish": RUBBISH}
    done = start_in(tmp_path_factory.mktemp("several"), "devices", "--json", fickle=FICKLE, **plugins)
    return done, {row["backend"]: row for row in done.document}


def test_available(isokern_here, device):
    rows = isokern_here("devices", "--json").document
    assert all(set(row) == KEYS for row in rows)
    (row,) = [row for row in rows if row["device"] == device.name]
    assert row["status"] == "available"
    assert row["backend"] == device.name.split(":")[0]
    assert row["properties"].keys() >= device.properties.keys()
    assert sum(row["operators"].values()) == len(all_operators())
    assert row["operators"]["kernels"] > 100


def test_table_without_a_terminal(isokern_there, device):
    done = isokern_there("devices", absent=ABSENT, rubbish=RUBBISH, fickle=FICKLE)
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    assert device.name in done.out
    assert "no such hardware on this bench" in done.out
    assert "it has gone" in done.out
    assert "\x1b[" not in done.out


def test_three_outcomes_side_by_side(several):
    done, rows = several
    assert done.code == 0
    assert all(set(row) == KEYS for row in rows.values())
    assert rows["absent"] == {
        "backend": "absent",
        "device": None,
        "status": "unavailable",
        "reason": "no such hardware on this bench",
        "properties": {},
        "operators": None,
    }
    assert rows["broken"]["status"] == rows["raises"]["status"] == rows["old"]["status"] == "broken"
    assert "libfoo.so.3" in rows["broken"]["reason"]
    assert "ZeroDivisionError" in rows["raises"]["reason"]
    assert "hook version 0" in rows["old"]["reason"]
    assert "Traceback" not in done.err


def test_what_is_no_device_does_not_stop_the_list(several, device):
    done, rows = several
    assert device.name in done.out
    assert rows["rubbish"]["status"] == rows["numpy"]["status"] == "broken"
    assert "not an isokern.backend.Device" in rows["rubbish"]["reason"]
    assert rows["numpy"]["reason"] == "SystemExit: it has gone"


def test_what_plugins_print_is_not_in_the_document(several):
    done, rows = several
    assert "loud" in rows
    assert "loud in Python" in done.err
    assert "loud in C" in done.err


def test_debugging_says_what_every_backend_answers(isokern_there, device):
    done = isokern_there("devices", "--json", absent=ABSENT, broken=BROKEN, env={"ISOKERN_DEBUG": "1"})
    assert re.search(rf"isokern: \w+ \(.*\) is available: {device.name} ", done.err)
    assert "isokern: absent (absent 1.0) is unavailable: no such hardware" in done.err
    assert "isokern: broken (broken 1.0) is broken: ImportError: libfoo" in done.err
    assert done.document
    assert "Traceback" in done.err


def test_settings_of_a_plugin_that_fails_do_not_stop_the_others(isokern_there, device):
    done = isokern_there("devices", "--json", absent=ABSENT, env={"ISOKERN_BROKEN_LEVEL": "2"})
    assert done.code == 2
    assert "ISOKERN_BROKEN_LEVEL" in done.err
    done = isokern_there("devices", "--json", broken=BROKEN, env={"ISOKERN_BROKEN_LEVEL": "2"})
    assert device.name in {row["device"] for row in done.document}


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_none_installed(isokern_there, flags):
    done = isokern_there("devices", *flags, env={"ISOKERN_PLUGINS": ""})
    assert done.code == 0
    assert done.document == [] if flags else "no backend is installed" in done.out


def test_conditions_are_shown(isokern_there):
    source = (Path(__file__).parent / "numpy_backend.py").read_text()
    (row,) = isokern_there("devices", "--json", numpy=source, env={"ISOKERN_PLUGINS": "numpy"}).document
    assert row["properties"] == {"emulated": True, "conditions": {"slow": "it is NumPy"}}


DEADLY = {
    "leaves": "import os\nos._exit(0)\n",
    "crashes": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "aborts": "import os\nos.abort()\n",
}


@pytest.mark.quick("leaves", "crashes")
@pytest.mark.parametrize("name", DEADLY)
def test_a_plugin_whose_import_ends_the_process_is_named(isokern_there, name):
    """Every other command ends with it; `isokern devices` imports each in a process of its own first."""
    env = {"ISOKERN_PLUGINS": f"{name},absent"}
    done = isokern_there("devices", "--json", env=env, absent=ABSENT, **{name: DEADLY[name]})
    assert done.code == 0, done.err
    rows = {row["backend"]: row for row in done.document}
    assert (rows["absent"]["status"], rows[name]["status"]) == ("unavailable", "broken")
    cause = {"leaves": "status 0", "crashes": "the signal SIGSEGV", "aborts": "the signal SIGABRT"}[name]
    assert f"its import ends the process, with {cause}" in rows[name]["reason"]
    done = isokern_there("why", "abs", env=env)
    assert f"plugin_{name}" in done.err
    if name == "leaves":
        assert done.err == "isokern: the import of plug-in leaves (plugin_leaves) ends the process by os._exit(0)\n"
