"""Files that are made once: found again, and not believed where they are damaged or of another key."""

import pytest

from isokern.store import Store


def test_what_was_put_is_found(tmp_path):
    store = Store(tmp_path / "new")
    assert store.get("a") is None
    store.put("a", b"one")
    store.put("a", b"two")
    assert store.get("a") == b"two"
    assert store.damaged == 0
    assert [f.name for f in store.folder.iterdir()] == ["a"]


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100], ids=["empty", "short", "garbage"])
def test_damage_is_counted_and_healed(tmp_path, damage):
    store = Store(tmp_path)
    store.put("a", b"content")
    (tmp_path / "a").write_bytes(damage)
    assert store.get("a") is None
    assert store.damaged == 1
    store.put("a", b"content")
    assert store.get("a") == b"content"


def test_a_file_of_another_key(tmp_path):
    store = Store(tmp_path)
    store.put("a", b"content")
    (tmp_path / "a").rename(tmp_path / "b")
    assert store.get("b") is None


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "below")
    store.put("a", b"content")
    assert store.get("a") is None
