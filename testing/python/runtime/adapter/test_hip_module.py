"""Launches through HIP's C interface, against a stand-in that notes its calls."""

import ctypes
import pathlib
import subprocess

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.hip.compile import compile_code_object
from tilelang.runtime.adapter import hip_adapter, hip_module
from tilelang.runtime.adapter.hip_module import HipRuntime
from tilelang.runtime.file import read_kernel

ROOT = pathlib.Path(__file__).resolve().parents[4]
STREAM = 0x5000
M = T.dynamic("m")


@T.prim_func
def two_kernels(
    A: T.Tensor((M, 64), "float32"),
    factor: T.int32,
    C: T.Tensor((M, 64), "float32"),
    D: T.Tensor((M, 64), "float32"),
):
    with T.Kernel(M, threads=64) as row:
        for j in T.Parallel(64):
            C[row, j] = A[row, j] * T.cast(factor, "float32")
    with T.Kernel(T.ceildiv(M, 2), 2, threads=128) as (bx, by):
        tile = T.alloc_shared((2, 32), "float32")
        T.copy(C[bx * 2, by * 32], tile)
        for i, j in T.Parallel(2, 32):
            D[bx * 2 + i, by * 32 + j] = tile[i, j] + T.cast(factor, "float32")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("hip") / "libamdhip64.so"
    source = ROOT / "testing" / "driver" / "libamdhip64.c"
    flags = ("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["cc", *flags, "-o", str(found), str(source)], check=True)
    return found


class StandIn:
    """The library, and what it has noted."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.stand_in_notes.restype = ctypes.c_char_p
        self.library.stand_in_fail.argtypes = [ctypes.c_char_p]

    def notes(self):
        return self.library.stand_in_notes().decode().splitlines()

    def fail(self, function):
        self.library.stand_in_fail(function.encode())


@pytest.fixture
def stand_in(path):
    found = StandIn(path)
    found.library.stand_in_reset(0)
    return found


@pytest.fixture(scope="module")
def lowered():
    return tilelang.compile(two_kernels, target="hip -mcpu=gfx942", execution_backend="tvm_ffi")


@pytest.fixture
def launcher(path, stand_in, lowered):
    runtime = HipRuntime(path, lambda device: STREAM + device)
    kernel = lowered.for_any_sizes
    return hip_adapter(kernel.launch_plan, kernel.cubin, runtime=runtime, device="cpu")


def test_a_call_is_launched_with_its_arguments(launcher, stand_in, lowered):
    first, second = lowered.launch_plan.kernels
    stand_in.library.stand_in_reset(1)
    a, c, d = (torch.full((77, 64), x) for x in (1.0, 0.0, 0.0))
    assert launcher(a, 3, c, d) is None
    device, load, *functions, back, one, two = stand_in.notes()
    assert (device, load, back) == ("device 0", "load ELF on 0", "device 0")
    assert functions == [f"function {first.name}", f"function {second.name}"]
    assert one.startswith(
        f"launch {first.name} grid 10 1 1 block 64 1 1 shared 0 stream {STREAM:#x} args"
    )
    assert two.startswith(
        f"launch {second.name} grid 3 2 1 block 128 1 1 shared 4096 stream {STREAM:#x} args"
    )


def test_the_arguments_are_addresses_and_numbers(launcher, stand_in, lowered):
    kernels = lowered.for_any_sizes.launch_plan.kernels
    names = [[arg[1] for arg in kernel.args] for kernel in kernels]
    shown = min(map(len, names))
    stand_in.library.stand_in_reset(shown)
    a, c, d = (torch.full((5, 64), x) for x in (1.0, 0.0, 0.0))
    launcher(a, 3, c, d)
    wanted = {"A": a.data_ptr(), "factor": 3, "C": c.data_ptr(), "D": d.data_ptr()}
    noted = [line for line in stand_in.notes() if line.startswith("launch")]
    for kernel, line in zip(names, noted, strict=True):
        values = dict(zip(kernel[:shown], map(int, line.split("args ")[1].split()), strict=True))
        assert values.items() >= {name: wanted[name] for name in kernel if name in wanted}.items()
        assert {"factor", "C"} <= {*values}


def test_a_second_call_loads_nothing(launcher, stand_in):
    a, c, d = (torch.full((5, 64), x) for x in (1.0, 0.0, 0.0))
    launcher(a, 3, c, d)
    before = len(stand_in.notes())
    launcher(a, 3, c, d)
    assert [line.split()[0] for line in stand_in.notes()[before:]] == ["launch", "launch"]


def test_an_empty_grid_launches_nothing(launcher, stand_in):
    launcher(torch.ones(0, 64), 3, torch.zeros(0, 64), torch.zeros(0, 64))
    assert not [line for line in stand_in.notes() if line.startswith("launch")]


def test_another_device_is_current_during_the_launch(path, stand_in, lowered):
    """The thread's own device is current again behind a call."""
    runtime = HipRuntime(path, lambda device: STREAM + device)
    kernel = lowered.for_any_sizes
    launcher = hip_adapter(kernel.launch_plan, kernel.cubin, runtime=runtime, device="cpu")
    runtime.call("hipSetDevice", 1)
    a, c, d = (torch.full((2, 64), x) for x in (1.0, 0.0, 0.0))
    launcher(a, 3, c, d)
    words = [" ".join(line.split()[:2]) for line in stand_in.notes()]
    first, second = (k.name for k in kernel.launch_plan.kernels)
    assert words == [
        "device 1",
        *("device 0", "load ELF", f"function {first}", f"function {second}", "device 1"),
        *("device 0", f"launch {first}", f"launch {second}", "device 1"),
    ]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("hipModuleLoadData", r"HIP refuses .*hipModuleLoadData failed: hipErrorNoBinaryForGpu"),
        ("hipModuleGetFunction", r"hipModuleGetFunction failed: hipErrorUnknown \(it was asked"),
        ("hipGetDevice", r"hipGetDevice failed: hipErrorUnknown"),
        (
            "hipModuleLaunchKernel",
            r"launching `\w+` with grid \(1, 1, 1\), block \(64, 1, 1\) and 0 bytes of .* failed: "
            r"hipErrorUnknown \(it was asked to fail\)\. .*AMD_SERIALIZE_KERNEL=3",
        ),
    ],
)
def test_errors_have_the_name_that_hip_gives(launcher, stand_in, function, message):
    stand_in.fail(function)
    with pytest.raises(RuntimeError, match=rf"test_hip_module\.py:\d+\): .*{message}"):
        launcher(torch.ones(5, 64), 3, torch.zeros(5, 64), torch.zeros(5, 64))


def test_a_bad_call_launches_nothing(launcher, stand_in):
    with pytest.raises(ValueError, match="C"):
        launcher(torch.ones(5, 64), 3, torch.zeros(4, 64), torch.zeros(5, 64))
    assert not stand_in.notes()


class Properties:
    gcnArchName = "gfx942:sramecc+:xnack-"


@pytest.fixture
def rocm(monkeypatch, path, stand_in):
    """A torch that is built for ROCm and finds an MI300."""
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=0: Properties)
    monkeypatch.setattr(hip_module, "LIBRARIES", (str(path),))
    hip_module.hip_runtime.cache_clear()
    yield
    hip_module.hip_runtime.cache_clear()


def test_a_torch_of_rocm_is_launched_on(rocm):
    kernel = tilelang.compile(two_kernels)
    assert (kernel.execution_backend, kernel.target.attrs["mcpu"]) == ("tvm_ffi", "gfx942")
    assert kernel.adapter.device == "cuda"
    # Tensors of ROCm are DLPack's kDLROCM; the emulator's are refused.
    with pytest.raises(ValueError, match="cuda"):
        kernel(torch.ones(5, 64), 3, torch.zeros(5, 64), torch.zeros(5, 64))


def test_another_architecture_is_refused(rocm):
    kernel = tilelang.compile(two_kernels, target="hip -mcpu=gfx950", execution_backend="tvm_ffi")
    with pytest.raises(RuntimeError, match=r"compiled for gfx950, and the GPU here is gfx942\."):
        kernel(torch.ones(5, 64), 3, torch.zeros(5, 64), torch.zeros(5, 64))


def test_a_file_of_several_architectures_loads_the_one_that_is_here(rocm, tmp_path, lowered):
    file = tmp_path / "two.tlk"
    lowered.export(file, archs=["gfx942", "gfx90a", "sm_80", "emulate"])
    found = read_kernel(file)
    assert found.archs == ("gfx942", "gfx90a", "sm_80", "emulate")
    assert found.variants[0].binary == lowered.for_any_sizes.cubin
    loaded = tilelang.runtime.load(file)
    assert (loaded.arch, loaded.adapter.device) == ("gfx942", "cuda")
    a, c, d = (torch.full((5, 64), x) for x in (1.0, 0.0, 0.0))
    tilelang.runtime.load(file, "emulate")(a, 3, c, d)
    assert torch.equal(c, 3 * a)
    assert torch.equal(d, 3 * a + 3)
    lowered.export(file, archs=["gfx90a"])
    with pytest.raises(RuntimeError, match="found variants gfx90a, and the GPU here is gfx942"):
        tilelang.runtime.load(file)


def test_a_machine_without_hip_says_so(monkeypatch):
    monkeypatch.setattr(hip_module, "LIBRARIES", ("libnowhere.so",))
    hip_module.hip_runtime.cache_clear()
    with pytest.raises(RuntimeError, match=r"found no libamdhip64 .* wanted that of ROCm"):
        hip_module.hip_runtime()


def test_a_kernel_of_the_programs_own_text_is_refused(path, stand_in):
    source = 'extern "C" __global__ void own(float* x) { x[threadIdx.x] = 1; }'

    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        T.CUDASourceCodeKernel(1, threads=64, source_code_or_path=source, entry_name="own")

    lowered = tilelang.lower(main, target="hip -mcpu=gfx942")
    code = compile_code_object(lowered.kernel_source, "gfx942", ["own"])
    with pytest.raises(ValueError, match=r"found kernel `own` of the program's own text"):
        hip_adapter(lowered.launch_plan, code.cubin, runtime=HipRuntime(path))
