"""Test the mark `quick` of tests/conftest.py: which cases it leaves to full runs, and names that are no case."""

from types import SimpleNamespace

import pytest


class Item:
    """A case of a test that is marked `quick("a", "b")`."""

    def __init__(self, case):
        self.nodeid, self.callspec, self.marks = f"test_it.py::test_it[{case}]", SimpleNamespace(id=case), []

    def get_closest_marker(self, name):
        return SimpleNamespace(args=("a", "b")) if name == "quick" else None

    def add_marker(self, name):
        self.marks.append(name)


@pytest.fixture
def apply(request):
    """Return the function that judges the marks of some items, with some words of the command line."""
    (plugin,) = (p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "_find_device"))
    return lambda items, *words: plugin.pytest_collection_modifyitems(SimpleNamespace(args=words), items)


def test_cases_that_are_not_named_are_full(apply):
    items = [Item(case) for case in "abc"]
    apply(items, "tests")
    assert [item.marks for item in items] == [[], [], ["full"]]


def test_a_name_that_is_no_case_is_an_error(apply):
    with pytest.raises(pytest.UsageError, match=r"test_it has no case b; allowed: a"):
        apply([Item("a")], "tests")
    apply([Item("a")], "tests/test_it.py::test_it[a]")  # the other cases were not asked for
