"""Tests of the cache keep kernels, in a folder of their own."""

from pathlib import Path

import pytest

from tilelang.cache import memory
from tilelang.cache.store import Store


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels are kept during the test; nothing is kept in the process yet."""
    root = tmp_path / "cache"
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(root))
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    memory.forget()
    return root


@pytest.fixture
def store(root: Path) -> Store:
    return Store(root)
