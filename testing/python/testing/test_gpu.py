"""Watched calls, with the CPU in the place of the GPU, and batches whose launches are emulated."""

import pytest
import torch

import tilelang.language as T
from tilelang.emulator.compiler import build_emulated
from tilelang.runtime import adapter
from tilelang.runtime.adapter import cuda_module, emulated_adapter
from tilelang.testing import batch, gpu
from tilelang.testing.batch import Batch, lower_one, merged_source
from tilelang.testing.gpu import DeviceLost, GuardedCall
from tilelang.utils import target


def beyond(tensor, first, count):
    """Elements from `first` on, whether they are the tensor's or not."""
    return tensor.as_strided((count,), (1,), tensor.storage_offset() + first)


def test_arguments_arrive_and_results_come_back():
    a, b = torch.arange(10, dtype=torch.float16), torch.zeros(3, 5, dtype=torch.int8)
    strided = torch.arange(12.0).as_strided((3, 2), (4, 1))

    def launch(x, y, z, number):
        assert x.tolist() == a.tolist()
        assert z.tolist() == [[0, 1], [4, 5], [8, 9]]
        assert all(t.data_ptr() % 16 == 0 for t in (x, y, z))
        y.fill_(number)

    GuardedCall([a, b, strided, 7], "cpu").run(launch)
    assert (b == 7).all()


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda x, y: beyond(x, 10, 1).fill_(1), "2 bytes .* 1 behind the last byte of argument 0"),
        (
            lambda x, y: beyond(y, -1, 1).fill_(1),
            "1 bytes .* 1 before the first byte of argument 1",
        ),
        (
            lambda x, y: beyond(y, 300, 1).fill_(1),
            "1 bytes .* 286 behind the last byte of argument 1",
        ),
    ],
)
def test_writes_outside_of_tensors_are_told(write, told):
    a, b = torch.arange(10, dtype=torch.float16), torch.zeros(15, dtype=torch.int8)
    with pytest.raises(AssertionError, match=f"out of bounds: {told}"):
        GuardedCall([a, b], "cpu").run(write)


def test_what_is_read_outside_is_no_ordinary_number():
    """And it is another value around another tensor: a copy from one to the other shows."""
    seen = []
    tensors = [torch.zeros(6, dtype=torch.float16), torch.zeros(6, dtype=torch.float16)]
    GuardedCall(tensors, "cpu").run(
        lambda x, y: seen.extend(beyond(t, 6, 1).clone() for t in (x, y))
    )
    assert all(not value.abs() < 6e4 for value in seen)
    first, second = (value.view(torch.int16).item() for value in seen)
    assert first != second


def fake_cuda(monkeypatch, done, synchronize):
    class Event:
        def record(self):
            pass

        def query(self):
            return done()

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    call = GuardedCall([torch.zeros(4)], "cpu")
    call._watched = True
    return call


def test_a_kernel_that_does_not_end_loses_the_gpu(monkeypatch):
    call = fake_cuda(monkeypatch, lambda: False, lambda: None)
    with pytest.raises(DeviceLost, match=r"hang: the kernel runs for more than 0.01 s"):
        call.run(lambda x: None, seconds=0.01)


def test_an_error_that_stays_loses_the_gpu(monkeypatch):
    def fails():
        raise RuntimeError("an illegal memory access was encountered")

    call = fake_cuda(monkeypatch, fails, fails)
    with pytest.raises(DeviceLost, match="illegal memory access"):
        call.run(lambda x: None)
    call = fake_cuda(monkeypatch, fails, lambda: None)
    with pytest.raises(RuntimeError, match="illegal memory access") as error:
        call.run(lambda x: None)
    assert not isinstance(error.value, DeviceLost)


def copies(threads, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=threads):
            T.copy(A, B)

    return main


def product(n):
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, n), "float16"),
        C: T.Tensor((64, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, n), "float16")
            c = T.alloc_fragment((64, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    return main


def test_one_source_has_the_products_of_all():
    """And NVRTC takes it: a kernel for an older architecture is among them."""
    from tilelang.cuda.nvrtc import compile_cubin

    functions = [(product(64), "sm_90a"), (product(128), "sm_90a"), (product(32), "sm_80")]
    artifacts = [lower_one(f, i, f"cuda -arch={arch}") for i, (f, arch) in enumerate(functions)]
    source = merged_source(artifacts)
    (head,) = [line for line in source.splitlines() if line.startswith("#define")]
    assert head.count("shared(float") == 2
    names = [kernel.name for artifact in artifacts for kernel in artifact.launch_plan.kernels]
    assert set(compile_cubin(source, "sm_90a", names).resource_usage) == set(names)


class Copying:
    """A trial: copies 64 elements with some threads; `bad` says how it fails."""

    def __init__(self, threads, bad=""):
        self.threads, self.bad = threads, bad

    def lower(self, index, device):
        if self.bad == "newer":
            return None
        return lower_one(copies(self.threads), index)

    def arguments(self):
        return [torch.arange(64.0), torch.zeros(64)]

    def launch(self, of, position, arguments):
        if self.bad == "lost":
            raise DeviceLost("an illegal memory access")
        of.run(position, arguments)

    def difference(self, arguments):
        same = torch.equal(arguments[0], arguments[1]) and self.bad != "wrong"
        return "" if same else "B differs"


@pytest.fixture
def emulated_cuda(monkeypatch):
    """A GPU of which all is real up to the driver: NVRTC compiles, the emulator launches."""
    monkeypatch.setattr(target, "cuda_arch", lambda: "sm_90a")
    monkeypatch.setattr(cuda_module, "CudaLibrary", lambda cubin: cubin)
    monkeypatch.setattr(batch, "GuardedCall", lambda given: GuardedCall(given, "cpu"))
    sources = []

    def source_of(artifacts):
        sources.append(merged_source(artifacts))
        return sources[-1]

    def launcher(plan, cubin):
        assert cubin.startswith(b"\x7fELF")
        module = build_emulated(sources[-1], [kernel.name for kernel in plan.kernels])
        return emulated_adapter(plan, module.address)

    monkeypatch.setattr(batch, "merged_source", source_of)
    monkeypatch.setattr(adapter, "cuda_adapter", launcher)


def test_a_batch_on_a_gpu(emulated_cuda):
    a, b = torch.arange(64.0), torch.zeros(64)
    compiled = Batch([lower_one(copies(64), 0), lower_one(copies(32), 1)], "cuda")
    for number in range(2):
        compiled.run(number, [a, b.zero_()])
        assert torch.equal(a, b)


def test_outcomes_of_a_batch(emulated_cuda):
    trials = [Copying(32), Copying(32, "newer"), Copying(64, "wrong"), Copying(64, "lost")]
    told = []
    found = batch.check([*trials, Copying(32)], "cuda", lambda artifact, place: told.append(place))
    assert [o and o.status for o in found] == ["equal", "skipped", "failed", "failed", None]
    assert told == ["printed"] * 4 + ["cuda"] * 2


def test_what_does_not_compile_fails_alone(monkeypatch):
    real = batch.build_emulated

    def build(source, names, folder, **how):
        if "case1_kernel" in source:
            raise RuntimeError("no\nkernel.cu:3: error: a type is missing")
        return real(source, names, folder, **how)

    monkeypatch.setattr(batch, "build_emulated", build)
    found = batch.check([Copying(32), Copying(32)])
    assert [o.status for o in found] == ["equal", "failed"]
    assert found[1].reason == "does not compile: a type is missing"


def test_without_a_gpu_the_tools_say_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="torch finds no CUDA device"):
        gpu.require_gpu()
