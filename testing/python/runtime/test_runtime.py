"""Kernels that were exported are called as those that were compiled, without the compiler."""

import dataclasses
import subprocess
import sys
import threading
import zipfile

import pytest
import torch

import tilelang
import tilelang.language as T
import tilelang.runtime
from tilelang.runtime import KernelFileError
from tilelang.runtime.file import read_kernel

M = T.dynamic("m")


@T.prim_func
def scale_rows(A: T.Tensor((M, 64), "float32"), factor: T.float32, C: T.Tensor((M, 64), "float32")):
    with T.Kernel(M, threads=64) as row:
        for j in T.Parallel(64):
            C[row, j] = A[row, j] * factor


@pytest.fixture(scope="module")
def kernel():
    return tilelang.compile(
        scale_rows, out_idx=-1, execution_backend="emulate", target="cuda -arch=sm_80"
    )


@pytest.fixture(scope="module")
def path(kernel, tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "scale.tlk"
    kernel.export(path, archs=["sm_80", "sm_90a", "emulate"])
    return path


@pytest.fixture(scope="module")
def loaded(path):
    return tilelang.runtime.load(path, "emulate")


def test_the_result_is_that_of_the_kernel(kernel, loaded):
    a = torch.randn(5, 64)
    assert torch.equal(loaded(a, 3.0), a * 3)
    assert torch.equal(loaded(factor=3.0, A=a), kernel(a, 3.0))
    assert (loaded.archs, loaded.arch) == (("sm_80", "sm_90a", "emulate"), "emulate")
    plan = kernel.for_any_sizes.launch_plan
    assert loaded.launch_plan == dataclasses.replace(plan, others=())


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(torch.ones(5, 64)),
        lambda f: f(torch.ones(5, 63), 1.0),
        lambda f: f(torch.ones(5, 64).half(), 1.0),
        lambda f: f(torch.ones(64, 5).t(), 1.0),
        lambda f: f(torch.ones(5, 64), "x"),
        lambda f: f([1], 1.0),
        lambda f: f(torch.ones(5, 64), scale=1.0),
    ],
)
def test_the_errors_are_those_of_the_kernel(kernel, loaded, call):
    with pytest.raises((ValueError, TypeError)) as wanted:
        call(kernel)
    with pytest.raises(wanted.type) as found:
        call(loaded)
    assert str(found.value) == str(wanted.value)


def test_a_defect_of_the_kernel_is_reported_as_by_the_kernel(tmp_path):
    @T.prim_func
    def race(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            thread = T.get_thread_binding()
            A[thread // 2] = thread

    kernel = tilelang.compile(race, execution_backend="emulate", checks=True)
    kernel.export(tmp_path / "race.tlk")
    texts = []
    for called in (kernel, tilelang.runtime.load(tmp_path / "race.tlk", "emulate")):
        with pytest.raises(RuntimeError, match=r"test_runtime\.py") as error:
            called(torch.zeros(64, dtype=torch.int32))
        texts.append(str(error.value))
    assert texts[0] == texts[1]


def test_it_holds_the_binaries_of_its_architectures(kernel, path):
    variants = {v.arch: v for v in read_kernel(path).variants}
    assert {v.binary[:4] for a, v in variants.items() if a != "emulate"} == {b"\x7fELF"}
    assert variants["sm_80"].binary == kernel.for_any_sizes.cubin
    assert variants["sm_90a"].binary != kernel.for_any_sizes.cubin


def test_what_this_machine_does_not_run_is_refused(kernel, path, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="found variants sm_80, sm_90a, emulate, wanted 'sm_100a'"):
        tilelang.runtime.load(path, "sm_100a")
    kernel.export(tmp_path / "gpu.tlk", archs=["sm_80"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="sm_80, and torch finds no GPU"):
        tilelang.runtime.load(tmp_path / "gpu.tlk")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (12, 0))
    with pytest.raises(RuntimeError, match=r"the GPU here is sm_120\. Export it"):
        tilelang.runtime.load(path)


@pytest.mark.parametrize(
    ("gpu", "archs", "wanted"),
    [
        ((9, 0), ["sm_80", "sm_90", "sm_90a", "emulate"], "sm_90a"),
        ((8, 6), ["sm_80", "sm_86", "sm_90a"], "sm_86"),
        ((8, 9), ["sm_86", "sm_80"], "sm_86"),
    ],
)
def test_the_variant_for_a_gpu(monkeypatch, gpu, archs, wanted):
    from tilelang.runtime.file import KernelFile, Variant
    from tilelang.runtime.kernel import _chosen

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: gpu)
    file = KernelFile("f", "1", tuple(Variant(arch, None, b"") for arch in archs))
    assert _chosen(file, "f.tlk", None).arch == wanted


def test_a_damaged_file_is_refused(path, tmp_path):
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("emulate/kernel.cu")
    content[member.header_offset + member.compress_size // 2] ^= 1
    (tmp_path / "damaged.tlk").write_bytes(content)
    with pytest.raises(KernelFileError, match="damaged"):
        tilelang.runtime.load(tmp_path / "damaged.tlk")


@pytest.mark.parametrize("archs", [[], "sm_90a", ["hopper"], ["sm_90a", "sm_90a"]])
def test_wrong_architectures(kernel, tmp_path, archs):
    with pytest.raises(ValueError, match="arch"):
        kernel.export(tmp_path / "a.tlk", archs=archs)
    assert list(tmp_path.iterdir()) == []


def test_other_names_of_the_same(kernel, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    kernel.export_library(tmp_path / "a.tlk")
    assert read_kernel(tmp_path / "a.tlk").archs == ("sm_80", "emulate")
    a = torch.randn(2, 64)
    assert torch.equal(tilelang.JITKernel.from_database(tmp_path / "a.tlk")(a, 2.0), a * 2)


def test_threads_load_and_call_at_once(path):
    kernel, wrong = tilelang.runtime.load(path, "emulate"), []
    a = torch.randn(3, 64)

    def work():
        if not torch.equal(kernel(a, 2.0), a * 2):
            wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


WITHOUT_COMPILER = """
import sys
class Refused:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("tvm", "tvm_ffi") or name == "cuda.bindings.nvrtc":
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Refused())
import torch
import tilelang.runtime
kernel = tilelang.runtime.load(sys.argv[1], "emulate")
assert kernel(torch.ones(3, 64), 2.0).sum() == 384
from tilelang import runtime
assert runtime.load is tilelang.runtime.load
try:
    tilelang.jit
except ImportError as error:
    print(error)
"""


def test_it_needs_no_compiler(path):
    command = [sys.executable, "-c", WITHOUT_COMPILER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tvm is not installed here\n"


def test_its_import_takes_little_time():
    """50 ms of a core beyond torch; the best of a few, since this machine does other things."""
    program = (
        "import torch, time; start = time.process_time(); import tilelang.runtime;"
        "print(time.process_time() - start)"
    )
    command = [sys.executable, "-c", program]
    times = (
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    )
    assert any(seconds < 0.05 for seconds in times)
