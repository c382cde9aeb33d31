"""Test that operators are declared when they are asked for, and found whatever the index says."""

import subprocess
import sys

import pytest

from isokern import ops

BEGIN = """
import sys
from isokern.declare import registry
from isokern.declare.registry import list_declared, find
import isokern.ops as ops

def loaded():
    return {name.rpartition(".")[2] for name in sys.modules if name.startswith("isokern.ops.")}
"""


def run(*lines):
    """Run lines in a process of their own."""
    done = subprocess.run([sys.executable, "-c", "\n".join([BEGIN, *lines])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_operator_brings_its_module_and_no_more():
    run(
        "assert loaded() == set() and list_declared() == []",
        "assert find('softmax').name == 'softmax'",
        "assert 'softmax' in loaded() and len(loaded()) < 20",
        "assert registry.by_kind(registry.fourcc('ROPE')).name == 'rope'",
        "assert len(ops.all_operators()) > 400",
    )


def test_language_models_load_no_more_than_they_need():
    run(
        "from isokern.llm import Model, Session, tokens",
        "assert len(loaded()) < 30, loaded()",
        # NumPy brings it on Python 3.10, where `platform` needs it
        "assert sys.version_info < (3, 11) or 'subprocess' not in sys.modules",
    )


def test_what_the_index_lacks_is_found():
    run(
        "known = registry._OFFERS.pop('softmax')",
        "del registry._OFFERED_KINDS[registry.fourcc(known.kind)]",
        "assert registry.fingerprint_of('softmax') == known.fingerprint",
        "assert registry.by_kind(registry.fourcc(known.kind)) is find('softmax')",
    )
    run("registry._OFFERS.pop('softmax')", "import isokern", "assert isokern.softmax.__name__ == 'softmax'")


def test_what_the_index_has_wrong_is_found():
    run(
        "for name in ('softmax', 'rope'):",
        "    registry._OFFERS[name] = registry.Offer('XXXX', 'fill' if name == 'rope' else 'gone', 1)",
        "from isokern.backend.register import check_fingerprints",
        "check_fingerprints('some', '1', {'softmax': find('softmax').attrs.fingerprint})",
        "check_fingerprints('some', '1', {'rope': find('rope').attrs.fingerprint})",
    )


@pytest.mark.parametrize("how", ["name='relu', kind='OTHR'", "name='other', kind='RELU'"])
def test_a_plug_in_cannot_take_what_is_not_declared_yet(how):
    lines = [
        "import dataclasses",
        f"other = dataclasses.replace(find('softmax'), {how})",
        "assert 'relu' not in [o.name for o in list_declared()]",
        "try:",
        "    registry.register(other)",
        "except ValueError as error:",
        "    print(error)",
        "assert find('relu').kind == 'RELU' and find('softmax').name == 'softmax'",
    ]
    assert "clashes with <operator relu" in run(*lines)


def test_threads_ask_at_once():
    run(
        "import threading",
        "names = sorted(registry._OFFERS)",
        "failed = []",
        "def ask(own):",
        "    try:",
        "        assert [find(n).name for n in own] == own",
        "    except BaseException as error:",
        "        failed.append(error)",
        "parts = [names, names[::-1], names[::2], names[1::2][::-1]]",
        "threads = [threading.Thread(target=ask, args=(p,)) for p in parts]",
        "[t.start() for t in threads]",
        "[t.join() for t in threads]",
        "assert not failed, failed",
    )


def test_an_unknown_name_is_refused():
    with pytest.raises(Exception, match="no operator is called 'sofmax'; allowed: softmax"):
        ops.find("sofmax")
