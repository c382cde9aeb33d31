"""Test isokern.build: what it says of kernels and machines, and that it compiles a kernel as it says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from isokern import build
from isokern.ops import find

ROOT = Path(__file__).parents[2]
FILL = "/* IK_PACK(fill) is none: this is a comment */\nIK_KERNEL(fill)\n{\n}\n"


def write(folder: Path, *names: str, text: str = FILL) -> Path:
    """Write kernel files of these names, and return their folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_file_in_a_levels_folder_replaces_the_kernel_there_and_above(tmp_path):
    write(tmp_path, "fill.c", "rearrange.c", "wide/fill.c")
    found = build.list_kernels(tmp_path, {"narrow": [], "wide": ["-mavx2"], "wider": ["-mavx512f"]})
    assert [(level, priority, str(path.relative_to(tmp_path))) for level, priority, path in found] == [
        ("narrow", 0, "fill.c"),
        ("narrow", 0, "rearrange.c"),
        ("wide", 10, "wide/fill.c"),
        ("wide", 10, "rearrange.c"),
        ("wider", 20, "wide/fill.c"),
        ("wider", 20, "rearrange.c"),
    ]


def test_a_folder_without_kernels_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"has no kernels: a kernel is a file STEM\.c there"):
        build.list_kernels(tmp_path / "nowhere", {"c": []})


def test_a_misspelt_stem_is_refused_by_its_file(tmp_path):
    write(tmp_path, "fill.c", "rearange.c")
    with pytest.raises(SystemExit, match=r"rearange\.c: no operator has the stem 'rearange'; allowed: rearrange"):
        build.list_kernels(tmp_path, {"c": []})


def test_symbols_are_those_that_the_file_defines_outside_comments(tmp_path):
    kernel = write(tmp_path, "fill.c") / "fill.c"
    assert build.list_symbols(kernel, "wide") == {"kernel": "fill__wide"}
    write(tmp_path, "fill.c", text=f"IK_SUPPORTED(fill) {{ return 0; }}\n{FILL}")
    assert build.list_symbols(kernel, "c") == {"kernel": "fill__c", "supported": "fill_supported__c"}


@pytest.mark.parametrize("text", ["// IK_KERNEL(fill)\n", "/*\nIK_KERNEL(fill)\n*/", "ik_status fill__c(int a) {}\n"])
def test_a_file_without_a_kernel_is_refused_by_its_name(tmp_path, text):
    write(tmp_path, "fill.c", text=text)
    with pytest.raises(SystemExit, match=r"fill\.c defines no IK_KERNEL\(fill\): a kernel begins with this"):
        build.list_symbols(tmp_path / "fill.c", "c")


def test_a_machine_without_a_compiler_gives_one_sentence(monkeypatch):
    monkeypatch.setenv("CC", "nocc -O1")
    with pytest.raises(SystemExit, match=r"no C compiler `nocc` is found: install one .*, or set CC to yours$"):
        build.find_compiler()


def test_fingerprints_are_those_that_a_library_has():
    if importlib.util.find_spec("isokern_cpu") is None:
        pytest.skip("isokern_cpu is not installed: there is no native library")
    from isokern_cpu._native import ffi, lib

    from isokern.backend.native import NativeLibrary

    assert build.fingerprints() == NativeLibrary(ffi, lib).fingerprints
    assert build.fingerprints()["softmax"] == find("softmax").attrs.fingerprint


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_sources_that_plug_ins_share_are_written_with_the_host_side(tmp_path):
    written = build.generate(tmp_path)
    assert {p.name for p in build.list_sources(tmp_path)} == {
        "isokern_attributes.c",
        "isokern_expressions.c",
        "isokern_host.c",
        "isokern_inference.c",
        "isokern_lowering.c",
        "isokern_native.c",
    }
    assert {*build.list_sources(tmp_path), tmp_path / "host_device.c", tmp_path / "isokern_convert.h"} <= {*written}
    assert "ik_status ik_op_create(" in build.declarations()


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """Return the native template, built in place without optimisation, as a distribution that is on no path yet."""
    pytest.importorskip("cffi")
    pytest.importorskip("ninja")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("a b") / "isokern-acme"  # a space in the path
    shutil.copytree(ROOT / "core/src/isokern/scaffold/native", folder)
    command = [sys.executable, "setup.py", "-q", "egg_info", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "CFLAGS": "-O0"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(package: Path, script: str, status: int = 0) -> str:
    """Return what a script prints, with the package on its path and no other plug-in."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ISOKERN_")}
    environment = {**inherited, "PYTHONPATH": str(package / "src"), "ISOKERN_PLUGINS": "acme"}
    command = [sys.executable, "-c", f"import isokern\n{script}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return (done.stdout + done.stderr).strip()


FILLED = "print(isokern.fill(value=3, shape=(2,), dtype='I8', device='acme:0').numpy())"


def test_what_is_edited_is_built_again_when_it_is_loaded(package):
    kernel = package / "src/isokern_acme/kernels/fill.c"
    text = kernel.read_text(encoding="utf-8")
    assert run(package, FILLED) == "[3 3]"
    kernel.write_text(text.replace("(attrs->value,", "(attrs->value + 4,"), encoding="utf-8")
    assert run(package, FILLED) == "[7 7]"
    kernel.write_text(f"{text}misspelt\n", encoding="utf-8")
    refused = run(package, FILLED, status=1)
    assert re.search(r"backend acme is broken: .* does not compile:.*kernels/fill\.c:\d+:\d+: error:", refused, re.S)
    kernel.write_text(text, encoding="utf-8")
    assert run(package, FILLED) == "[3 3]"


def test_a_kernel_that_is_added_or_deleted_counts(package):
    added = package / "src/isokern_acme/kernels/iota.c"
    script = "print(len(isokern.device('acme:0').variants('iota')))"
    assert run(package, script) == "0"
    added.write_text('#include "isokern_native.h"\nIK_KERNEL(iota)\n{\n    IK_UNUSED;\n    return IK_SUCCESS;\n}\n')
    assert run(package, script) == "1"
    added.unlink()
    assert run(package, script) == "0"


def test_many_processes_load_an_edited_package_at_once(package):
    header = package / "src/isokern_acme/kernels/elements.h"
    header.write_text(header.read_text(encoding="utf-8") + "/* edited */\n", encoding="utf-8")
    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(lambda _: run(package, FILLED), range(4))} == {"[3 3]"}


def test_a_library_of_other_records_is_refused_with_both_versions(package):
    script = """
from isokern.backend import check_fingerprints
from isokern_acme._native import ffi, lib
from isokern.backend.native import NativeLibrary
built = NativeLibrary(ffi, lib).fingerprints
check_fingerprints("isokern-acme", "0.1.0", built)
for wrong in ({**built, "softmax": 7}, {**built, "of_a_later_core": 7}):
    try: check_fingerprints("isokern-acme", "0.1.0", wrong)
    except RuntimeError as error: print(error)
"""
    first, second = run(package, script).splitlines()
    own = version("isokern")
    assert re.fullmatch(
        r"operator softmax: plug-in isokern-acme 0\.1\.0 was built with attribute record 0x7, this isokern "
        rf"{re.escape(own)} has 0x\w+: rebuild the plug-in",
        first,
    )
    assert second.startswith("operator of_a_later_core: plug-in isokern-acme 0.1.0 was built with attribute record 0x7")
    assert second.endswith(f"this isokern {own} has none: rebuild the plug-in")


@pytest.mark.parametrize(
    ("told", "refusal"),
    [
        ({"sources": "chip.c"}, r"sources is the string 'chip\.c'; allowed: a list of strings"),
        ({"flags": "-O3"}, "flags is the string '-O3'; allowed: a list of strings"),
        ({"levels": {"wide": "-mavx2"}}, "wide is the string '-mavx2'; allowed: a list of strings"),
        ({"levels": {"x86-v3": []}}, r"levels \['x86-v3'\]; allowed: one or more, each a name as C has them"),
        ({"levels": {}}, r"levels \[\]; allowed: one or more"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(told, refusal):
    pytest.importorskip("setuptools")
    with pytest.raises(SystemExit, match=refusal):
        build.setup_arguments("isokern_acme._native", "kernels", **told)


def test_what_the_build_lacks_is_named(package, monkeypatch, tmp_path):
    monkeypatch.chdir(package)  # to come back from it
    folder = tmp_path / "build"
    shutil.copytree(package / "build/editable", folder)
    given = json.loads((folder / "plugin.json").read_text(encoding="utf-8"))
    (folder / "plugin.json").write_text(json.dumps({**given, "sources": ["src/chop.c"]}), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"isokern_acme\._native: there is no src/chop\.c in "):
        build.configure(folder)
    (folder / "plugin.json").write_text(json.dumps(given), encoding="utf-8")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match=r"Python\.h is missing, which a C extension of Python includes: install it"):
        build.configure(folder)


@pytest.mark.parametrize("lacking", ["cffi", "ninja"])
def test_a_build_without_its_requirements_says_which(package, monkeypatch, lacking):
    given = json.loads((package / "build/editable/plugin.json").read_text(encoding="utf-8"))
    monkeypatch.setitem(sys.modules, lacking, None)
    with pytest.raises(SystemExit, match=rf"{lacking}.*: write isokern\[build\] among build-system\.requires"):
        build._build(build._Plugin(**given), package / "build/editable")


def test_several_levels_are_built_and_the_last_one_is_preferred(package, monkeypatch, tmp_path):
    monkeypatch.chdir(package)
    given = json.loads((package / "build/editable/plugin.json").read_text(encoding="utf-8"))
    levels = {"plain": [], "other": ["-O1"]}
    (tmp_path / "plugin.json").write_text(
        json.dumps({**given, "levels": levels, "target": f"{tmp_path}/_native.so"}), encoding="utf-8"
    )
    build.configure(tmp_path)
    ninja = [sys.executable, "-m", "ninja", "-f", str(tmp_path / "build.ninja")]
    listed = subprocess.run([*ninja, "-t", "commands"], capture_output=True, text=True, check=True).stdout
    assert listed.count("/objects/plain/fill.o") == listed.count("/objects/other/fill.o") > 0
    objects = [str(tmp_path / f"objects/{level}/fill.o") for level in levels]
    subprocess.run([*ninja, *objects], capture_output=True, check=True)
    table = (tmp_path / "variants.c").read_text()
    assert '{ "fill", "plain", 0, fill__plain,' in table
    assert '{ "fill", "other", 10, fill__other,' in table


def test_an_editable_install_whose_build_folder_is_gone_says_so(package):
    shutil.move(package / "build", package / "moved")
    refused = run(package, FILLED, status=1)
    assert re.search(r"backend acme is broken: .*/build/editable is gone, where .* was built: pip install -e ", refused)
    shutil.move(package / "moved", package / "build")
