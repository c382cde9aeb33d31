"""Test the disk cache: files are made once and found again.

A file is not used where it is damaged, belongs to another key, or may have been written by another user.
"""

import os
import shutil
import stat
from pathlib import Path

import pytest

import isokern
from isokern.disk_cache import DiskCache, user_cache, user_root

OTHER = 54321  # a user id without an entry in the user database

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_what_was_put_is_found(tmp_path):
    disk_cache = DiskCache(tmp_path / "new")
    assert disk_cache.get("a") is None
    disk_cache.put("a", b"one")
    disk_cache.put("a", b"two")
    assert disk_cache.get("a") == b"two"
    assert disk_cache.damaged == 0
    assert [f.name for f in disk_cache.folder.iterdir()] == ["a"]
    assert disk_cache.path("a").read_bytes().startswith(b"two/* sha256 ")
    assert disk_cache.path("b") is None


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100], ids=["empty", "short", "garbage"])
def test_damage_is_counted_and_healed(tmp_path, damage):
    disk_cache = DiskCache(tmp_path)
    disk_cache.put("a", b"content")
    (tmp_path / "a").write_bytes(damage)
    assert disk_cache.get("a") is None
    assert disk_cache.damaged == 1
    disk_cache.put("a", b"content")
    assert disk_cache.get("a") == b"content"


def test_a_file_of_another_key(tmp_path):
    disk_cache = DiskCache(tmp_path)
    disk_cache.put("a", b"content")
    (tmp_path / "a").rename(tmp_path / "b")
    assert disk_cache.get("b") is None


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    disk_cache = DiskCache(tmp_path / "file" / "below")
    disk_cache.put("a", b"content")
    assert disk_cache.get("a") is None
    placed = disk_cache.place({"a": b"content"})
    assert placed != disk_cache.folder
    assert (placed / "a").read_bytes() == b"content"


def test_files_are_placed_in_the_folder(tmp_path):
    disk_cache = DiskCache(tmp_path)
    assert disk_cache.place({"a": b"content", "b": b"more"}) == tmp_path
    (tmp_path / "b").write_bytes(b"damaged")
    assert disk_cache.place({"a": b"content", "b": b"more"}) == tmp_path
    assert disk_cache.get("b") == b"more"


# Folders and files that other users could write to


def use(disk_cache):
    """Call every function of a disk cache that has to find nothing; return the folder where a file was placed."""
    assert disk_cache.get("a") is None
    disk_cache.put("a", b"content")
    disk_cache.put("b", b"content")
    return disk_cache.place({"a": b"content"})


def refused(disk_cache, reason):
    """Return whether the cache is left untouched, after checking that one warning says why."""
    before = {f: f.stat().st_mtime_ns for f in disk_cache.folder.parent.rglob("*")}
    with pytest.warns(RuntimeWarning, match=f"nothing is kept in .*{reason}.*set ISOKERN_CACHE") as told:
        placed = use(disk_cache)
    assert len(told) == 1
    assert placed != disk_cache.folder
    assert (placed / "a").read_bytes() == b"content"
    assert stat.S_IMODE(placed.stat().st_mode) == 0o700
    return {f: f.stat().st_mtime_ns for f in disk_cache.folder.parent.rglob("*")} == before


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702], ids=oct)
@pytest.mark.parametrize("below", [".", "isokern/opencl"])
def test_a_folder_that_others_can_write_to(tmp_path, mode, below):
    root = tmp_path / "cache"
    disk_cache = DiskCache(root / below, root)
    disk_cache.put("a", b"planted")
    assert disk_cache.get("a") == b"planted"
    if mode == 0o770 and os.geteuid() != 0:
        pytest.skip("the group may be this user's own")
    root.chmod(mode)
    assert refused(disk_cache, f"others can write to {root} .mode {mode:04o}")


def test_a_folder_above_may_be_open_where_it_is_sticky(tmp_path):
    """A sticky parent folder, such as /tmp, may be open to all; else others could replace the cache's folder."""
    tmp_path.chmod(0o1777)
    root = tmp_path / "cache"
    disk_cache = DiskCache(root / "isokern", root)
    disk_cache.put("a", b"content")
    assert disk_cache.get("a") == b"content"
    tmp_path.chmod(0o777)
    assert refused(disk_cache, f"others can write to {tmp_path}")


def test_what_is_made_is_the_users_alone(tmp_path):
    before = os.umask(0)
    try:
        disk_cache = DiskCache(tmp_path / "cache" / "isokern" / "opencl", tmp_path / "cache")
        disk_cache.put("a", b"content")
    finally:
        os.umask(before)
    assert disk_cache.get("a") == b"content"
    modes = {str(f.relative_to(tmp_path)): stat.S_IMODE(f.stat().st_mode) for f in tmp_path.rglob("*")}
    assert modes == {
        "cache": 0o700,
        "cache/isokern": 0o700,
        "cache/isokern/opencl": 0o700,
        "cache/isokern/opencl/a": 0o600,
    }


@needs_root
@pytest.mark.parametrize("part", ["cache", "cache/isokern"])
def test_a_folder_of_another_user(tmp_path, part):
    disk_cache = DiskCache(tmp_path / "cache" / "isokern", tmp_path / "cache")
    disk_cache.put("a", b"planted")
    os.chown(tmp_path / part, OTHER, OTHER)
    assert refused(disk_cache, f"{tmp_path / part} belongs to another user .{OTHER}")


def fill_a_pipe(file):
    """Replace a file by a named pipe that holds the file's content."""
    content = file.read_bytes()
    file.unlink()
    os.mkfifo(file)
    os.write(os.open(file, os.O_RDWR), content)


@pytest.mark.parametrize(
    "give",
    [
        pytest.param(lambda f: os.chown(f, OTHER, OTHER), marks=needs_root, id="of another user"),
        pytest.param(lambda f: f.chmod(0o602), id="others may write"),
        pytest.param(lambda f: (f.rename(f.with_name("b")), f.symlink_to("b")), id="a link"),
        pytest.param(lambda f: (f.unlink(), os.mkfifo(f)), id="a pipe"),
        pytest.param(fill_a_pipe, id="a pipe with the content"),
        pytest.param(lambda f: (f.unlink(), f.mkdir()), id="a folder"),
    ],
)
def test_a_file_that_another_could_have_written_is_not_believed(tmp_path, give):
    disk_cache = DiskCache(tmp_path)
    disk_cache.put("a", b"content")
    give(tmp_path / "a")
    assert disk_cache.get("a") is None
    assert disk_cache.damaged == 1
    if (tmp_path / "a").is_dir():
        return
    disk_cache.put("a", b"content")
    assert disk_cache.get("a") == b"content"
    assert not (tmp_path / "a").is_symlink()


def test_a_link_to_a_folder_is_followed_and_judged_where_it_leads(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "cache").symlink_to("shared")
    disk_cache = DiskCache(tmp_path / "cache")
    disk_cache.put("a", b"content")
    assert disk_cache.get("a") == b"content"
    (tmp_path / "shared").chmod(0o777)
    assert refused(disk_cache, f"others can write to {tmp_path / 'shared'}")


# Where a user's disk caches are


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Make an empty home, and unset the variables that name another folder for caches."""
    for name in ("ISOKERN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_users_stores(home, monkeypatch):
    assert user_cache("opencl").folder == home / ".cache" / "isokern" / "opencl"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert user_root() == home / "xdg"
    monkeypatch.setenv("ISOKERN_CACHE", str(home / "asked"))
    assert user_root() == home / "asked"


def test_the_headers_are_made_once_and_again_where_one_is_damaged(home):
    folder = Path(isokern.get_include())
    assert folder.parent == home / ".cache" / "isokern" / "include"
    headers = sorted(folder.iterdir())
    assert [header.name for header in headers] == ["isokern.h", "isokern.hpp"]
    for header in headers:
        text = header.read_text()
        header.write_text(text.replace("softmax", "hardmax") + "\n")
        assert isokern.get_include() == str(folder)
        assert header.read_text() == text


def test_a_header_is_not_put_where_others_can_write(home, monkeypatch):
    monkeypatch.setenv("ISOKERN_CACHE", str(home))
    home.chmod(0o777)
    with pytest.raises(isokern.InvalidArgument, match=r"others can write to .*allowed: a folder that only you can"):
        isokern.get_include()
    assert list(home.iterdir()) == []


SAYS = "import isokern; from isokern.disk_cache import user_root; print(user_root(), isokern.get_include())"


@pytest.mark.parametrize("home", [None, "/proc", pytest.param("/nonexistent", marks=pytest.mark.full)])
def test_a_user_without_a_home_has_a_folder_among_the_temporary_ones(stranger, home):
    status, text = stranger(SAYS, **({} if home is None else {"HOME": home}))
    assert status == 0, text
    root, include = text.split()
    assert root == f"{stranger.folder}/isokern-{stranger.user}"
    assert include.startswith(f"{root}/isokern/include/")
    assert os.stat(root).st_uid == stranger.user
    assert stranger(SAYS)[1].split() == [root, include]


def test_the_folder_of_a_user_without_a_home_may_be_somebody_elses(stranger):
    """A temporary folder that belongs to another user is not used, and an error or a warning says so."""
    planted = stranger.folder / f"isokern-{stranger.user}"
    planted.mkdir()
    os.chown(planted, OTHER + 1, OTHER + 1)
    status, text = stranger(SAYS)
    assert status == 1
    assert f"InvalidArgument: get_include: {planted} belongs to another user ({OTHER + 1})" in text
    code = "from isokern.disk_cache import user_cache; s = user_cache('x'); s.put('a', b'b'); print(s.get('a'))"
    status, text = stranger(code)
    assert (status, "RuntimeWarning: nothing is kept in" in text, text.split()[0]) == (0, True, "None")
    assert list(planted.iterdir()) == []


def test_a_home_that_cannot_be_written_to_may_have_been_filled(stranger, tmp_path):
    """Files that belong to root are used: an image may have had its caches filled when it was built."""
    home = stranger.folder / "home"
    root = home / ".cache"
    DiskCache(tmp_path / "x").put("a", b"made before")
    shutil.copytree(tmp_path, root / "isokern")
    for path in (home, *home.rglob("*")):
        path.chmod(0o755)
    code = "from isokern.disk_cache import user_root, user_cache; print(user_root(), user_cache('x').get('a'))"
    status, text = stranger(code, HOME=str(home))
    assert (status, text.strip()) == (0, f"{root} b'made before'")
