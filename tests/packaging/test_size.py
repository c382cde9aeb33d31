"""Test how lines are counted and compared with their budgets; test_regenerate.py compares those of this tree."""

from __future__ import annotations

import pytest
import sizes


def test_an_excess_is_seen(tmp_path):
    for name in ("core/src/isokern/a.py", "core/src/isokern/ops/b.c", "plugins/x/src/y/c.py", "plugins/x/build/d.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n2\n")
    lines = sizes.count_lines(tmp_path)
    assert lines == {"core/.": 2, "core/ops": 2, "plugins/x": 2}
    budget = sizes.read_budget("folder\tlines\ncore/.\t2\ncore/ops\t1\nplugins/x\t1000\nplugins/z\t9\n")
    excess, unused = sizes.find_excess(lines, budget)
    assert excess.startswith("core/ops has 2 lines; allowed: 1; take something away")
    assert unused == "plugins/z has a budget and no lines"
    assert sizes.find_excess({"core/new": 1}, {}) != []


def test_a_budget_has_room_for_an_edit():
    assert sizes.read_budget(sizes.write_budget({"core/ops": 1000, "core/.": 1})) == {"core/.": 50, "core/ops": 1100}
    with pytest.raises(ValueError, match="its first line is 'core"):
        sizes.read_budget("core/ops\t1000\n")
