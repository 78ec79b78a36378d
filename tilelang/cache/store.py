"""Compiled things on disk, shared by all processes of a user.

An entry is a folder ``<root>/<kind>/<key>`` with its files and ``manifest.json``: the parts of its
key, and size and SHA-256 of each file. The key is the SHA-256 of the parts. An entry appears as a
whole, by the rename of a folder in ``.staging``; it never changes afterwards. Any number of
processes may read, write and remove at once, and be killed: what is half done is in ``.staging``,
where it is cleared away later. What does not agree with its manifest or its name is removed and not
used.

Nothing here raises because of the disk. Where it is full, read-only or not to be trusted (another
user owns it, or others may write to it), there is one warning, and things are not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilelang.utils.log import logger

MANIFEST = "manifest.json"
_STAGING = ".staging"
_ABANDONED_SECONDS = 3600
"""What lies in `.staging` for longer is of a process that was killed."""
_KEPT_SHARE = 0.9
"""What an eviction leaves of the limit, so that not every write is followed by one."""
_KEY_DIGITS = 64
_warned: set[str] = set()
_written: dict[str, int] = {}
"""Bytes that this process has written under a root since it last looked at the limit."""
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


# A thread that does not exist in the child may hold it.
os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True)
class Entry:
    """An entry as it was found or written: the parts of its key, and its files by name."""

    path: Path
    parts: Mapping[str, Any]
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class Listed:
    """An entry of a listing. `used` is when it was last written or found, in nanoseconds since
    the epoch; `size` counts all its bytes; `parts` is None where the manifest cannot be read."""

    kind: str
    path: Path
    size: int
    used: int
    parts: Mapping[str, Any] | None = None


class Damaged(Exception):
    """An entry is not what was written."""


def key_of(parts: Mapping[str, Any]) -> str:
    """The name of the entry with these parts, which are JSON values.

    Raises `TypeError` where they are not.
    """
    return hashlib.sha256(_canonical(parts)).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Store:
    """The entries under `root`, of at most `limit` bytes together (0: no limit).

    Example::

        store = Store(Path("~/.tilelang/cache").expanduser(), 4 << 30)
        store.put("cubin", {"source": digest}, {"kernel.cubin": binary})
        store.get("cubin", {"source": digest}).files["kernel.cubin"]
    """

    def __init__(self, root: Path, limit: int = 0):
        self.root = root
        self.limit = limit

    def path(self, kind: str, parts: Mapping[str, Any]) -> Path:
        """The folder of the entry with these parts, whether there is one or not."""
        return self.root / kind / key_of(parts)

    def get(self, kind: str, parts: Mapping[str, Any]) -> Entry | None:
        """The entry with these parts, whole and as it was written, or None."""
        path = self.path(kind, parts)
        found = None
        try:
            if not self._is_trusted(path):
                return None
            found = _identity(path)
            files = _read(path, parts)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (Damaged, OSError) as error:
            # Another process may have removed it after the first of its files was read.
            if found is not None and found == _identity(path):
                self._warn(f"{path} is damaged ({error}); it is made again", str(path))
                self._remove(path)
            return None
        with contextlib.suppress(OSError):  # one that may not be written to has no order of use
            os.utime(path / MANIFEST)
        return Entry(path, parts, files)

    def put(self, kind: str, parts: Mapping[str, Any], files: Mapping[str, bytes]) -> Entry | None:
        """Writes an entry. None where it cannot be kept, which was said in a warning. One that
        another process has written meanwhile stays."""
        path = self.path(kind, parts)
        staging = None
        try:
            _make_private(path.parent)
            if not self._is_trusted(path.parent):
                return None
            _make_private(self.root / _STAGING)
            staging = Path(tempfile.mkdtemp(dir=self.root / _STAGING))
            for name, content in files.items():
                _write(staging / name, content)
            _write(staging / MANIFEST, _manifest(parts, files))
            self._publish(staging, path)
        except OSError as error:
            self._warn(
                f"cannot keep what is compiled in {self.root}: {error}. Name a folder that can be "
                "written to in the environment variable TILELANG_CACHE_DIR",
                str(self.root),
            )
            return None
        finally:
            if staging is not None:
                shutil.rmtree(staging, ignore_errors=True)
        self._limit_size(sum(map(len, files.values())), path)
        return Entry(path, parts, files)

    def remove(self, kind: str, parts: Mapping[str, Any]) -> None:
        """Removes the entry with these parts, if there is one."""
        self._remove(self.path(kind, parts))

    @staticmethod
    def _publish(staging: Path, path: Path) -> None:
        try:
            os.rename(staging, path)
        except NotADirectoryError:
            path.unlink(missing_ok=True)  # none of ours
            os.rename(staging, path)
        except OSError:
            # A folder that has files is not replaced: somebody was faster, with the same.
            if not (path / MANIFEST).is_file():
                shutil.rmtree(path, ignore_errors=True)
                os.rename(staging, path)

    def entries(self) -> list[Listed]:
        """All entries, those that were used last at the end."""
        found = []
        for path in self._folders():
            with contextlib.suppress(OSError):  # removed meanwhile
                sizes = [file.stat().st_size for file in path.iterdir()]
                found.append(Listed(path.parent.name, path, sum(sizes), _used(path)))
        return sorted(found, key=lambda entry: entry.used)

    def described(self) -> list[Listed]:
        """As `entries`, with the parts of their keys."""
        return [Listed(e.kind, e.path, e.size, e.used, _parts_of(e.path)) for e in self.entries()]

    def prune(self, limit: int, keep: Path | None = None) -> list[Listed]:
        """Removes the entries that were not used for longest until all together have at most
        `limit` bytes, and what killed processes have left. Returns what was removed."""
        self._clear_staging()
        entries = self.entries()
        size = sum(entry.size for entry in entries)
        removed = []
        for entry in entries:
            if size <= limit:
                break
            if entry.path != keep:
                self._remove(entry.path)
                size -= entry.size
                removed.append(entry)
        return removed

    def clear(self) -> None:
        """Removes all entries."""
        for path in self._folders():
            self._remove(path)
        self._clear_staging(0)

    def _folders(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for kind in sorted(self.root.iterdir()):
                if kind.name.startswith(".") or not kind.is_dir():
                    continue
                for path in kind.iterdir():
                    if len(path.name) == _KEY_DIGITS and path.is_dir():
                        yield path

    def _limit_size(self, written: int, keep: Path) -> None:
        """Looks at the limit after the first write of a process, and whenever it has written
        another part of it: a look costs some microseconds for each entry."""
        if not self.limit:
            return
        root = str(self.root)
        with _lock:
            _written[root] = _written.get(root, self.limit) + written
            if _written[root] < (1 - _KEPT_SHARE) * self.limit:
                return
            _written[root] = 0
        if sum(entry.size for entry in self.entries()) > self.limit:
            self.prune(int(self.limit * _KEPT_SHARE), keep)
        else:
            self._clear_staging()

    def _clear_staging(self, seconds: float = _ABANDONED_SECONDS) -> None:
        with contextlib.suppress(OSError):
            for path in (self.root / _STAGING).iterdir():
                if path.stat().st_mtime < time.time() - seconds:
                    shutil.rmtree(path, ignore_errors=True)

    def _remove(self, path: Path) -> None:
        """An entry goes as a whole, too: readers find all of it or nothing."""
        with contextlib.suppress(OSError):
            _make_private(self.root / _STAGING)
            folder = tempfile.mkdtemp(dir=self.root / _STAGING)
            with contextlib.suppress(OSError):
                os.rename(path, Path(folder, path.name))
            shutil.rmtree(folder, ignore_errors=True)

    def _is_trusted(self, path: Path) -> bool:
        """Whether only this user can have put there what is there. Raises `FileNotFoundError` where
        a folder is missing."""
        folders = [self.root]
        for name in path.relative_to(self.root).parts:
            folders.append(folders[-1] / name)
        for folder in folders:
            # The root may be a link of the user's.
            status = folder.stat() if folder == self.root else folder.lstat()
            if not stat.S_ISDIR(status.st_mode):
                if folder == path:
                    return True  # reading finds out
                reason = "is no folder"
            elif status.st_uid != os.geteuid():
                reason = f"belongs to the user {status.st_uid}, and this is {os.geteuid()}"
            elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                reason = f"may be written to by others; repair: chmod go-w {folder}"
            else:
                continue
            self._warn(f"{folder} is not used: it {reason}", str(folder))
            return False
        return True

    @staticmethod
    def _warn(message: str, about: str) -> None:
        """Says something about a folder once in this process."""
        with _lock:
            if about in _warned:
                return
            _warned.add(about)
        logger.warning("kernel cache: %s", message)


def _identity(path: Path) -> tuple[int, int] | None:
    """Tells an entry from another one that takes its place; None where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _make_private(path: Path) -> None:
    """Makes a folder, and those above it, that nobody else can use."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _manifest(parts: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    sums = {n: [len(b), hashlib.sha256(b).hexdigest()] for n, b in files.items()}
    body = {"parts": parts, "files": sums}
    whole = {**body, "sha256": hashlib.sha256(_canonical(body)).hexdigest()}
    return json.dumps(whole, indent=1).encode()


def _body(text: bytes) -> dict[str, Any]:
    """What a manifest says. Raises `Damaged`."""
    try:
        body = json.loads(text)
        wanted = body.pop("sha256")
    except (ValueError, KeyError, AttributeError, RecursionError):
        raise Damaged(f"{MANIFEST} is cut off or none of ours") from None
    if hashlib.sha256(_canonical(body)).hexdigest() != wanted:
        raise Damaged(f"{MANIFEST} was changed")
    return body


def _read(path: Path, parts: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of an entry. Raises `FileNotFoundError` where there is none, `Damaged` where it is
    not what was written."""
    try:
        text = (path / MANIFEST).read_bytes()
    except FileNotFoundError:
        if path.exists():
            raise Damaged(f"it has no {MANIFEST}") from None
        raise
    except NotADirectoryError:
        raise Damaged("it is no folder") from None
    body = _body(text)
    if body["parts"] != json.loads(_canonical(parts)):
        raise Damaged("it is of another key")
    files = {}
    for name, (size, digest) in body["files"].items():
        try:
            content = (path / name).read_bytes()
        except FileNotFoundError:
            raise Damaged(f"{name} is missing") from None
        if len(content) != size or hashlib.sha256(content).hexdigest() != digest:
            raise Damaged(f"{name} has {len(content)} bytes that are not the {size} written")
        files[name] = content
    return files


def _used(path: Path) -> int:
    try:
        return (path / MANIFEST).stat().st_mtime_ns
    except FileNotFoundError:
        return path.stat().st_mtime_ns


def _parts_of(path: Path) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = _body((path / MANIFEST).read_bytes())["parts"]
        return found
    except (OSError, Damaged):
        return None
