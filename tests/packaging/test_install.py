"""Test that an environment of tox finds the wheels of an earlier one: builds leave nothing that changes their keys."""

import install
import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a distribution in a checkout of its own."""
    monkeypatch.setattr(install, "ROOT", tmp_path)
    made = tmp_path / "plugins" / "acme"
    (made / "src").mkdir(parents=True)
    (made / "src" / "kernel.c").write_text("int one = 1;\n")
    return made


def test_what_a_build_leaves_is_no_source(folder):
    before = install.fingerprint(folder)
    (folder / "LICENSE").write_text("copied by the build")
    for name in ("generated", "build", "src/acme.egg-info", "src/__pycache__"):
        (folder / name).mkdir()
        (folder / name / "left.txt").write_text("left by the build")
    (folder / "src" / "library.so").write_text("left by the build")
    assert install.fingerprint(folder) == before


def test_an_edit_is_built(folder):
    before = install.fingerprint(folder)
    (folder / "src" / "kernel.c").write_text("int one = 2;\n")
    assert install.fingerprint(folder) != before
