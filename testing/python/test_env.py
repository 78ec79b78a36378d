from pathlib import Path

import pytest

from tilelang.env import Environment, parse_size


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("Yes", True), ("ON", True), ("0", False), ("", False)]
)
def test_booleans(monkeypatch, text, value):
    monkeypatch.setenv("TILELANG_VERBOSE", text)
    assert Environment().TILELANG_VERBOSE is value


def test_the_environment_is_read_at_every_access(monkeypatch):
    env = Environment()
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda")
    assert env.TILELANG_DEFAULT_TARGET == "cuda"
    monkeypatch.delenv("TILELANG_DEFAULT_TARGET")
    assert env.TILELANG_DEFAULT_TARGET == "auto"


def test_an_assignment_wins_until_none(monkeypatch):
    env = Environment()
    monkeypatch.setenv("TILELANG_PRINT_ON_COMPILATION", "1")
    env.TILELANG_PRINT_ON_COMPILATION = False
    assert env.TILELANG_PRINT_ON_COMPILATION is False
    env.TILELANG_PRINT_ON_COMPILATION = None
    assert env.TILELANG_PRINT_ON_COMPILATION is True


def test_the_cache_directory_is_a_path(monkeypatch):
    monkeypatch.setenv("TILELANG_CACHE_DIR", "~/somewhere")
    assert Path.home() / "somewhere" == Environment().TILELANG_CACHE_DIR


@pytest.mark.parametrize(
    ("name", "default"),
    [("TILELANG_DEFAULT_TARGET", "auto"), ("TILELANG_EXECUTION_BACKEND", "auto")],
)
def test_an_empty_variable_is_not_set(monkeypatch, name, default):
    monkeypatch.setenv(name, "")
    assert getattr(Environment(), name) == default


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("4G", 4 << 30), ("1.5 MiB", 3 << 19), ("500k", 500 << 10)]
)
def test_a_size_has_a_unit(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "4X", "-1"])
def test_other_sizes_are_errors(text):
    with pytest.raises(ValueError, match=r"expected a number of bytes such as 500M or 4G"):
        parse_size(text)
