"""Two commits of a repository, each in a git worktree of its own with its native code built.

Nothing is installed: the native library and the call path's module are copied into the worktree,
where ``PYTHONPATH=worktree`` finds them. Commits with the same native sources share one build.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

# Commits before the runtime had a package of its own have the last one.
PRODUCT_FOLDERS = ("tilelang/lib", "tilelang/runtime/adapter/cython", "tilelang/jit/adapter/cython")
NATIVE_SOURCES = ("CMakeLists.txt", "cmake", "src", *PRODUCT_FOLDERS[1:])
_TOOLS = ("apache-tvm-ffi", "cython")
_LINES_OF_A_FAILURE = 30


class BuildError(RuntimeError):
    """A commit is not there or does not build; the text has the command and its last lines."""


@dataclass(frozen=True)
class Tree:
    """A commit that is ready to be imported.

    Attributes:
        ref: what it was asked for by.
        commit: its hash, in full.
        subject: the first line of its message.
        path: the worktree.
    """

    ref: str
    commit: str
    subject: str
    path: Path

    def describe(self) -> str:
        """One line: what was asked for, the hash, the subject."""
        return f"`{self.ref}` ({self.commit[:12]}) {self.subject}"


def run_command(words: list[str], cwd: Path, **variables: str) -> str:
    """What a command prints. Raises `BuildError` where it fails or is not there."""
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BuildError(f"cannot run `{words[0]}`: {error}") from error
    if done.returncode:
        end = "\n".join(done.stdout.splitlines()[-_LINES_OF_A_FAILURE:])
        raise BuildError(f"`{' '.join(words)}` ended with {done.returncode}:\n{end}")
    return done.stdout.strip()


def build_native(tree: Path) -> None:
    """Builds a worktree's native code into it as `make dev` does; with ccache, if there is one."""
    scripts = Path(sys.executable).parent  # cmake and ninja may come from wheels
    path = os.pathsep.join([str(scripts), os.environ.get("PATH", os.defpath)])
    cmake, build = shutil.which("cmake", path=path) or "cmake", tree / "build" / "native"
    options = [f"-DPython_EXECUTABLE={sys.executable}"]
    if ninja := shutil.which("ninja", path=path):
        options += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]

    def run(*launcher: str, **variables: str) -> None:
        run_command([cmake, "-S", str(tree), "-B", str(build), *options, *launcher], tree)
        jobs = str(len(os.sched_getaffinity(0)))
        run_command([cmake, "--build", str(build), "--parallel", jobs], tree, **variables)

    if not shutil.which("ccache"):
        run()
        return
    # It does not take what a precompiled header is in. Paths of other worktrees count as equal.
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON"]
    try:
        run(*launcher, CCACHE_BASEDIR=str(tree), CCACHE_NOHASHDIR="1")
    except BuildError:
        # A file may lack an include that the precompiled header has had: then as it is meant.
        shutil.rmtree(build)
        run()


class Trees:
    """Worktrees of commits of a repository. Use as a context, whose end removes them.

    Args:
        repository: a folder in the repository.
        folder: where worktrees are made and native builds are kept for later comparisons.
        build: makes the native products in a worktree.

    Example: ``with Trees(Path("."), Path("build/regression")) as trees: trees.add("HEAD~1")``
    """

    def __init__(
        self, repository: Path, folder: Path, build: Callable[[Path], None] = build_native
    ):
        self._repository = repository
        self._build = build
        self._native = folder.resolve() / "native"
        self._native.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="trees-", dir=folder.resolve()))
        self._added: list[Path] = []

    def __enter__(self) -> Trees:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for path in self._added:
            self._git("worktree", "remove", "--force", str(path))
        shutil.rmtree(self._folder)

    def add(self, ref: str) -> Tree:
        """A worktree of what git knows as `ref`, built. Raises `BuildError`."""
        commit = self._git("rev-parse", "--verify", f"{ref}^{{commit}}")
        path = self._folder / str(len(self._added))
        self._git("worktree", "add", "--quiet", "--detach", str(path), commit)
        self._added.append(path)
        kept = self._native / self._key(commit)
        if not kept.is_dir():
            self._build(path)
            self._keep(path, kept)
        for product in (p for p in kept.rglob("*") if p.is_file()):
            target = path / product.relative_to(kept)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(product, target)
        return Tree(ref, commit, self._git("log", "-1", "--format=%s", commit), path)

    def _key(self, commit: str) -> str:
        """What the native products depend on: sources, and what they are built with and for."""
        sources = self._git("ls-tree", commit, "--", *NATIVE_SOURCES)
        tools = [f"{tool} {_version(tool)}" for tool in _TOOLS]
        return hashlib.sha256("\n".join([sources, *tools, platform.machine()]).encode()).hexdigest()

    def _keep(self, tree: Path, kept: Path) -> None:
        """Copies what was built to a folder that appears at once, also to who builds the same."""
        products = [p for f in PRODUCT_FOLDERS for p in sorted((tree / f).glob("*.so"))]
        if not products:
            raise BuildError(f"the build of {tree} left no *.so in {', '.join(PRODUCT_FOLDERS)}")
        with tempfile.TemporaryDirectory(dir=self._native) as folder:
            whole = Path(folder) / "products"
            for product in products:
                target = whole / product.relative_to(tree)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(product, target)
            if not kept.is_dir():
                whole.rename(kept)

    def _git(self, *words: str) -> str:
        return run_command(["git", *words], self._repository)


def _version(distribution: str) -> str:
    """Of an installed one; nothing for one that is not, which the build then says."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
