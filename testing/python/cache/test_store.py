"""Entries on disk: whole or not there, whoever writes, dies, or has put something else there."""

import errno
import os
import resource
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilelang.cache.store import MANIFEST, Store, key_of

PARTS = {"name": "main", "source": "abc"}
FILES = {"kernel.cubin": b"\x7fELF" * 100, "log.txt": b""}
STRESS = Path(__file__).with_name("stress.py")


def test_what_is_put_is_got(store, root):
    assert store.get("cubin", PARTS) is None
    assert not root.exists()
    put = store.put("cubin", PARTS, FILES)
    got = Store(root).get("cubin", PARTS)
    assert got == put
    assert (got.files, got.path.name) == (FILES, key_of(PARTS))
    assert store.get("program", PARTS) is None
    assert store.get("cubin", {**PARTS, "source": "abd"}) is None


def test_only_the_user_can_use_it(store, root):
    previous = os.umask(0)
    try:
        path = store.put("cubin", PARTS, FILES).path
    finally:
        os.umask(previous)
    for folder in (root, path.parent, path):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}


def cut(path):
    path.joinpath("kernel.cubin").write_bytes(FILES["kernel.cubin"][:100])


def change(path):
    path.joinpath("kernel.cubin").write_bytes(FILES["kernel.cubin"][::-1])


def lose(path):
    path.joinpath("kernel.cubin").unlink()


def empty_manifest(path):
    path.joinpath(MANIFEST).write_bytes(b"")


def other_manifest(path):
    path.joinpath(MANIFEST).write_text('{"sha256": "", "parts": {}, "files": {}}')


def lose_manifest(path):
    path.joinpath(MANIFEST).unlink()


def other_entry(path):
    other = Store(path.parents[1]).put("cubin", {"name": "other"}, {"kernel.cubin": b"other"})
    shutil.rmtree(path)
    shutil.copytree(other.path, path)


def be_a_file(path):
    shutil.rmtree(path)
    path.write_text("foreign")


@pytest.mark.parametrize(
    "damage",
    [cut, change, lose, empty_manifest, other_manifest, lose_manifest, other_entry, be_a_file],
)
def test_what_is_damaged_is_not_used_and_made_again(store, said, damage):
    damage(store.put("cubin", PARTS, FILES).path)
    assert store.get("cubin", PARTS) is None
    (warning,) = said
    assert "is damaged" in warning
    store.put("cubin", PARTS, FILES)
    assert store.get("cubin", PARTS).files == FILES
    assert len(said) == 1


def test_what_a_removal_leaves_half_read_is_just_missing(store, said, monkeypatch):
    path = store.put("cubin", PARTS, FILES).path
    read = Path.read_bytes

    def removed_between(file):
        content = read(file)
        if file.name == MANIFEST:
            shutil.rmtree(path)
        return content

    monkeypatch.setattr(Path, "read_bytes", removed_between)
    assert store.get("cubin", PARTS) is None
    assert said == []


def may_be_written_to_by_others(path):
    path.chmod(0o775)


def belongs_to_another(path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("planted", [may_be_written_to_by_others, belongs_to_another])
def test_what_others_could_have_planted_is_not_used(store, root, said, planted, level):
    path = store.put("cubin", PARTS, FILES).path
    folder = [root, path.parent, path][level]
    planted(folder)
    assert store.get("cubin", PARTS) is None
    assert Store(root).get("cubin", PARTS) is None
    (warning,) = said
    assert str(folder) in warning
    assert ("chmod go-w" in warning) == (planted is may_be_written_to_by_others)
    if level < 2:
        assert store.put("cubin", {"name": "new"}, FILES) is None
        assert len(said) == 1


def test_a_full_disk_is_done_without(store, root, said):
    """A limit on the size of files: the write fails half way, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))
    try:
        put = [store.put("cubin", PARTS, FILES) for _ in range(2)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert put == [None, None]
    (warning,) = said
    assert "TILELANG_CACHE_DIR" in warning
    assert list((root / ".staging").iterdir()) == []
    assert store.get("cubin", PARTS) is None
    assert store.put("cubin", PARTS, FILES)


@pytest.mark.parametrize("call", ["mkdir", "rename"])
def test_a_read_only_folder_is_read(store, said, monkeypatch, call):
    """root may write everywhere, so the system calls say no themselves."""
    store.put("cubin", PARTS, FILES)

    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, call, refuse)
    monkeypatch.setattr(os, "utime", refuse)
    assert store.get("cubin", PARTS).files == FILES
    assert store.put("cubin", {"name": "new"}, FILES) is None
    assert "Read-only file system" in said[0]
    assert len(said) == 1


def test_what_was_not_used_for_longest_goes_first(store, root):
    for number in range(4):
        store.put("cubin", {"name": number}, FILES)
    names = [e.parts["name"] for e in store.described()]
    assert names == [0, 1, 2, 3]
    store.get("cubin", {"name": 1})
    size = store.entries()[0].size
    removed = store.prune(2 * size)
    assert len(removed) == 2
    assert [e.parts["name"] for e in store.described()] == [3, 1]


def test_writing_keeps_the_limit(root):
    one = Store(root)
    one.put("cubin", {"name": -1}, FILES)
    size = one.entries()[0].size
    store = Store(root, limit=5 * size)
    for number in range(40):
        assert store.put("cubin", {"name": number}, FILES).path.is_dir()
        assert sum(e.size for e in store.entries()) <= 5 * size
    names = [e.parts["name"] for e in store.described()]
    assert names == list(range(40))[-len(names) :]
    assert len(names) >= 3


def test_the_newest_stays_whatever_its_size(root):
    store = Store(root, limit=10)
    for number in range(2):
        store.put("cubin", {"name": number}, FILES)
    assert [e.parts["name"] for e in store.described()] == [1]


def test_what_killed_processes_left_is_cleared_away(store, root):
    store.put("cubin", PARTS, FILES)
    left = root / ".staging" / "left"
    left.mkdir()
    store.prune(10**9)
    assert left.exists()
    os.utime(left, (0, 0))
    store.prune(10**9)
    assert not left.exists()
    assert store.get("cubin", PARTS)
    store.clear()
    assert store.entries() == []


def test_many_write_and_are_killed():
    """A small run of `stress.py`: nothing is lost, nothing wrong is read."""
    found = runpy.run_path(str(STRESS))["stress"](writers=4, kills=12, seconds=0.05)
    assert found.wrong == []
    assert found.lost == 0
    assert found.whole > 0
    assert found.killed == 12


def test_a_lock_held_while_forking_is_free_in_the_child(root):
    program = """
import os, sys
from tilelang.cache import store as module
from tilelang.cache.store import _lock, Store
import pathlib
with _lock:
    child = os.fork()
    if child == 0:
        Store(pathlib.Path(sys.argv[1]), 100).put("cubin", {"name": 1}, {"a": b"b"})
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program, str(root)], timeout=60)
    assert done.returncode == 0
    assert Store(root).get("cubin", {"name": 1})
