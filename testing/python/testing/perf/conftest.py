"""A repository whose commits hold a stand-in for the package: comparing them costs little."""

import pathlib
import subprocess

import pytest

PACKAGE = {
    "torch/__init__.py": "from . import cuda\ndevice = None\ndef manual_seed(seed): cuda.init()\n",
    "torch/cuda.py": '''
import os

is_used = False

def is_initialized():
    return is_used

def init():
    """As torch does in the fork of a process that has asked for GPUs without this variable."""
    global is_used
    assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    is_used = True

def synchronize():
    assert is_used
''',
    "tilelang/profiler/__init__.py": "",
    "tilelang/testing/__init__.py": "",
    "tilelang/cuda/__init__.py": "",
    "tilelang/cuda/disassembler.py": "def find_nvdisasm(): raise RuntimeError('there is none')\n",
    "tilelang/__init__.py": '''
import os
from types import SimpleNamespace

REGISTERS, SPILLS, LOOPS, MILLISECONDS, TROUBLE = 40, 0, 1, 2.0, ""

def kernel():
    """What a `JITKernel` says of itself."""
    print("a kernel may print what it likes")
    if TROUBLE == "error":
        raise ValueError("not | this\\nnor that")
    if TROUBLE == "crash":
        os.abort()
    if TROUBLE == "hang":
        while True: pass
    for _ in range(LOOPS * 100_000): pass
    usage = {"main": SimpleNamespace(static_shared=16)}
    launches = [SimpleNamespace(name="main", shared_bytes=1024)]
    artifact = SimpleNamespace(
        launch_plan=SimpleNamespace(kernels=launches), device_mod=SimpleNamespace(functions={})
    )
    return SimpleNamespace(
        get_profiler=None, artifact=artifact, resource_usage=usage, n_regs=REGISTERS,
        n_spills=SPILLS, cubin=b"1234", kernel_source="a line\\n\\nanother",
    )
''',
    "src/native.cc": "1",
}
CASES = """
import random
import tilelang
from tilelang.testing import process_func

def regression_kernels():
    process_func(tilelang.kernel, "a kernel")

def regression_times():
    process_func(lambda: tilelang.MILLISECONDS * random.uniform(0.999, 1.001), "a time")
"""


def git(folder, *words):
    user = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    subprocess.run(["git", *user, *words], cwd=folder, check=True, capture_output=True)


class Repository:
    """A git repository of the stand-in, with one commit called `base`, and a folder of cases."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder / "repository"
        self.builds: list[str] = []
        for name, text in {**PACKAGE, "benchmark/regression_some.py": CASES}.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git(self.folder, "init", "--quiet", "--initial-branch", "trunk")
        self.commit("base")

    def commit(self, name, file="tilelang/__init__.py", **changes):
        """A commit, called `name`, on top of base with other values of the package's numbers."""
        git(self.folder, "checkout", "--quiet", "base") if name != "base" else None
        path = self.folder / file
        path.write_text(path.read_text() + "".join(f"{k} = {v!r}\n" for k, v in changes.items()))
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--allow-empty", "--message", f"It is {name} | so")
        git(self.folder, "tag", name)
        return name

    def build(self, tree):
        """In the place of the compiler: the library is the source."""
        source = (tree / "src/native.cc").read_text()
        self.builds.append(source)
        (tree / "tilelang/lib").mkdir(parents=True, exist_ok=True)
        (tree / "tilelang/lib/libtilelang.so").write_text(source)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)
