"""Whose work a compiled kernel is: versions and contents of what has made it."""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from tilelang._paths import device_include_dirs
from tilelang.cache.store import Store

_SETTLED_NS = 2_000_000_000
"""A file that changed this recently may change again without a new time."""
_PACKAGE = Path(__file__).resolve().parents[1]


def digest_of(files: Iterable[str | Path], store: Store) -> str:
    """SHA-256 of the names and contents of files. It is remembered by their inodes, sizes and
    times, of which every write changes one."""
    paths = sorted(map(str, files))
    statuses = [os.stat(path) for path in paths]
    times = [
        (path, s.st_ino, s.st_dev, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        for path, s in zip(paths, statuses, strict=True)
    ]
    parts = {"files": hashlib.sha256(repr(times).encode()).hexdigest()}
    found = _remembered.get(parts["files"])
    if found is None:
        entry = store.get("stamp", parts)
        if entry is not None:
            found = entry.files["digest"].decode()
        else:
            found = _digest(paths)
            newest = max((s.st_ctime_ns for s in statuses), default=0)
            if newest > time.time_ns() - _SETTLED_NS:
                return found
            store.put("stamp", parts, {"digest": found.encode()})
        _remembered[parts["files"]] = found
    return found


_remembered: dict[str, str] = {}


def _digest(paths: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for path in map(Path, paths):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def headers_digest(body: Literal["cuda", "hip", "emu"], store: Store) -> str:
    """The digest of the device headers for a body, and the emulator's runtime."""
    folders = device_include_dirs(body)
    return digest_of((path for folder in folders for path in files_below(folder)), store)


def files_below(folder: str | Path, suffix: str = "") -> Iterator[str]:
    """The files below a folder whose names end so. A process does this before its first kernel:
    pathlib takes ten times as long."""
    for entry in os.scandir(folder):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from files_below(entry.path, suffix)
        elif entry.name.endswith(suffix):
            yield entry.path


@functools.cache
def _compiler_files() -> tuple[str, ...]:
    return (*files_below(_PACKAGE, ".py"), *files_below(_PACKAGE / "lib", ".so"))


@functools.cache
def compiler_digest(root: Path) -> str:
    """The digest of the compiler that this process has loaded: tilelang's Python and its native
    library. It is remembered in the store under `root`."""
    return digest_of(_compiler_files(), Store(root))


def compiler_versions(store: Store) -> dict[str, str]:
    """What lowers programs: TVM, and this compiler by its contents."""
    import tvm
    import tvm_ffi

    return {
        "tilelang": compiler_digest(store.root),
        "tvm": tvm.__version__,
        "tvm_ffi": tvm_ffi.__version__,
    }


@functools.cache
def nvrtc_version() -> str:
    """The version of the NVRTC that compiles here. That of its package is known without loading
    it."""
    try:
        return version("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        return loaded_nvrtc_version()


def loaded_nvrtc_version() -> str:
    """Major and minor version of NVRTC as it says itself, for which it is loaded."""
    from tilelang.cuda import nvrtc_library

    return ".".join(map(str, nvrtc_library.version()))


def environment(names: Iterable[str]) -> dict[str, str]:
    """The environment variables of these names that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}
