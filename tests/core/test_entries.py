"""Test that the entry points of installed distributions are those that importlib.metadata finds."""

import sys
from importlib.metadata import entry_points

import pytest

from isokern.backend import entries
from isokern.backend.entries import FoundEntry, find_entries


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Return two folders, which are the whole path, and forget what was found before."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(sys, "path", [*map(str, folders), str(tmp_path / "missing")])
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if f.__module__ == "_frozen_importlib_external"])
    return folders


def bring(folder, name, text, kind="dist-info"):
    info = folder / f"{name}.{kind}"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name.partition('-')[0]}\nVersion: {name.partition('-')[2]}\n")
    (info / "PKG-INFO").write_text((info / "METADATA").read_text())
    (info / "entry_points.txt").write_text(text)


def told(entries):
    return sorted((e.name, e.value, e.dist.version) for e in entries)


def test_they_are_those_of_importlib(path):
    first, second = path
    bring(
        first,
        "some_chip-1.2.post3",
        "[other]\nx = no\n\n[isokern]\n# a comment\nchip = some.chip:plug\nb=other [more]\n",
    )
    bring(second, "Some.Chip-9.0", "[isokern]\nlate = some.chip\n")  # the same distribution, hidden by the first
    bring(second, "plain-2", "[isokern]\n\n")
    (second / "empty-1.dist-info").mkdir()
    assert told(find_entries("isokern")) == [
        ("b", "other [more]", "1.2.post3"),
        ("chip", "some.chip:plug", "1.2.post3"),
    ]
    assert told(find_entries("isokern")) == told(entry_points(group="isokern"))
    assert find_entries("nobody's") == []


def test_what_is_installed_in_other_ways_is_found_by_importlib(path, monkeypatch):
    first, second = path
    bring(first, "old-1", "[isokern]\nold = old\n", kind="egg-info")
    assert told(find_entries("isokern")) == [("old", "old", "1")]
    bring(second, "new-1", "[isokern]\nnew = new\n")
    assert told(find_entries("isokern")) == [("new", "new", "1"), ("old", "old", "1")]
    (second / "archive.egg").mkdir()
    assert told(find_entries("isokern")) == [("new", "new", "1"), ("old", "old", "1")]


def test_sources_beside_an_installation_do_not_count(path, monkeypatch):
    first, second = path
    bring(first, "some_chip-2", "[isokern]\nchip = some\n")
    bring(second, "some_chip", "[isokern]\nchip = older\n", kind="egg-info")
    bring(second, "other", "[console_scripts]\nx = x\n", kind="egg-info")
    monkeypatch.setattr(entries, "_ask_importlib", lambda group: pytest.fail("importlib was asked"))
    assert told(find_entries("isokern")) == [("chip", "some", "2")]


def test_finders_of_others_are_asked(path, monkeypatch):
    class Finder:
        def find_distributions(self, context=None):
            asked.append(context)
            return []

        def find_spec(self, *_):
            return None

    asked = []
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert find_entries("isokern") == [] and asked


def test_an_entry_point_loads_what_it_names():
    import os.path

    assert FoundEntry("x", "os", None).load() is os
    assert FoundEntry("x", "os:path.join [more]", None).load() is os.path.join
    with pytest.raises(AttributeError):
        FoundEntry("x", "os:nothing", None).load()
    with pytest.raises(ModuleNotFoundError):
        FoundEntry("x", "no_such_module", None).load()
