import subprocess
import sys

import pytest

from tilelang.testing.perf import build
from tilelang.testing.perf.build import BuildError, Trees, build_native


def worktrees(repository):
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=repository.folder, capture_output=True, text=True
    )
    return len(listed.stdout.splitlines())


def test_commits_with_the_same_native_sources_share_a_build(repository, tmp_path):
    repository.commit("python", SPILLS=8)
    repository.commit("native", file="src/native.cc", two=2)
    with Trees(repository.folder, tmp_path / "work", repository.build) as trees:
        found = [trees.add(ref) for ref in ("base", "python", "native", "base")]
        assert repository.builds == ["1", "1two = 2\n"]
        libraries = [(t.path / "tilelang/lib/libtilelang.so").read_text() for t in found]
        assert libraries == ["1", "1", "1two = 2\n", "1"]
        assert "SPILLS = 8" in (found[1].path / "tilelang/__init__.py").read_text()
        assert len({tree.path for tree in found}) == 4
        assert found[1].describe() == f"`python` ({found[1].commit[:12]}) It is python | so"
        assert worktrees(repository) == 5
    assert worktrees(repository) == 1
    assert not found[0].path.exists()
    with Trees(repository.folder, tmp_path / "work", repository.build) as trees:
        trees.add("native")
    assert len(repository.builds) == 2


@pytest.mark.parametrize("ref", ["nowhere", "--version"])
def test_a_ref_that_is_none(repository, tmp_path, ref):
    with (
        Trees(repository.folder, tmp_path / "work", repository.build) as trees,
        pytest.raises(BuildError, match="rev-parse"),
    ):
        trees.add(ref)


def test_a_build_that_fails_is_not_kept(repository, tmp_path):
    for make, why in [(lambda tree: None, "left no"), (lambda tree: 1 / 0, "division")]:
        with (
            pytest.raises((BuildError, ZeroDivisionError), match=why),
            Trees(repository.folder, tmp_path / "work", make) as trees,
        ):
            trees.add("base")
    assert worktrees(repository) == 1
    with Trees(repository.folder, tmp_path / "work", repository.build) as trees:
        trees.add("base")
    assert repository.builds == ["1"]


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Commands that note how they are called; cmake fails while $BROKEN is among the words."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cmake", "ninja", "ccache"):
        script = folder / name
        script.write_text(
            f"#!/bin/sh\n"
            f'/bin/mkdir -p build/native\necho "{name} $* base=$CCACHE_BASEDIR" >>{tmp_path}/log\n'
            f'[ -z "$BROKEN" ] || case "$*" in *$BROKEN*) echo no such header; exit 3;; esac\n'
        )
        script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return lambda: (tmp_path / "log").read_text().splitlines()


def test_ccache_is_used(tools, tmp_path):
    build_native(tmp_path)
    configured, built = tools()
    assert "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache" in configured
    assert "-G Ninja" in configured
    assert built.startswith(f"cmake --build {tmp_path}/build/native --parallel")
    assert built.endswith(f"base={tmp_path}")


def test_without_ccache(tools, tmp_path, monkeypatch):
    (tmp_path / "bin/ccache").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    build_native(tmp_path)
    assert "LAUNCHER" not in tools()[0]
    assert "PRECOMPILE" not in tools()[0]


def test_a_commit_that_needs_its_precompiled_header(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("BROKEN", "DISABLE_PRECOMPILE")
    build_native(tmp_path)
    assert ["DISABLE_PRECOMPILE" in line for line in tools()] == [True, False, False]


def test_a_commit_that_does_not_build(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("BROKEN", "--build")
    with pytest.raises(BuildError, match=r"ended with 3:\nno such header"):
        build_native(tmp_path)


def test_a_tool_that_is_not_there(tmp_path):
    with pytest.raises(BuildError, match="cannot run `no-such-tool`"):
        build.run_command(["no-such-tool"], tmp_path)
