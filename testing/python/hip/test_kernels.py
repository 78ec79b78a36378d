"""Programs for AMD's GPUs: what they become, what they need, and what is refused."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.cache import memory
from tilelang.hip import compile as hip
from tilelang.utils.target import kind_of

ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100"]
THREADS = 256


def compiled(program, arch="gfx942", backend="tvm_ffi", **options):
    return tilelang.compile(
        program, target=f"hip -mcpu={arch}", execution_backend=backend, **options
    )


def vector_add():
    @T.prim_func
    def main(A: T.Tensor((4096,), "float32"), B: T.Tensor((4096,), "float32")):
        with T.Kernel(4, threads=THREADS) as bx:
            for i in T.Parallel(1024):
                B[bx * 1024 + i] += A[bx * 1024 + i]

    return main


def softmax():
    @T.prim_func
    def main(X: T.Tensor((64, 1024), "float16"), Y: T.Tensor((64, 1024), "float16")):
        with T.Kernel(16, threads=THREADS) as bx:
            x = T.alloc_fragment((4, 1024), "float32")
            most, total = T.alloc_fragment((4,), "float32"), T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], x)
            T.reduce_max(x, most, dim=1)
            for i, j in T.Parallel(4, 1024):
                x[i, j] = T.exp(x[i, j] - most[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(4, 1024):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * 4, 0])

    return main


def rms_norm():
    @T.prim_func
    def main(
        X: T.Tensor((64, 1024), "bfloat16"),
        W: T.Tensor((1024,), "bfloat16"),
        Y: T.Tensor((64, 1024), "bfloat16"),
    ):
        with T.Kernel(16, threads=THREADS) as bx:
            x, squares = T.alloc_fragment((4, 1024), "float32"), T.alloc_fragment((4,), "float32")
            product = T.alloc_fragment((4, 1024), "float32")
            T.copy(X[bx * 4, 0], x)
            for i, j in T.Parallel(4, 1024):
                product[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(product, squares, dim=1)
            for i, j in T.Parallel(4, 1024):
                x[i, j] *= T.rsqrt(squares[i] / 1024 + 1e-6) * W[j]
            T.copy(x, Y[bx * 4, 0])

    return main


def reductions():
    @T.prim_func
    def main(X: T.Tensor((64, 256), "int32"), Y: T.Tensor((4, 64), "int32")):
        with T.Kernel(1, threads=THREADS):
            x, row = T.alloc_fragment((64, 256), "int32"), T.alloc_fragment((64,), "int32")
            line = T.alloc_shared((64,), "int32")
            T.copy(X, x)
            T.reduce_sum(x, row, dim=1)
            T.copy(row, Y[0, :])
            T.copy(row, line)
            T.cumsum(line)
            T.copy(line, Y[1, :])
            T.reduce_bitxor(x, row, dim=1)
            T.copy(row, Y[2, :])
            T.reduce_abssum(x, row, dim=1)
            T.copy(row, Y[3, :])

    return main


def casts():
    @T.prim_func
    def main(
        X: T.Tensor((4096,), "float32"),
        A: T.Tensor((4096,), "float8_e4m3fn"),
        B: T.Tensor((4096,), "float8_e5m2fnuz"),
        C: T.Tensor((4096,), "int8"),
        D: T.Tensor((4096,), "float16"),
    ):
        with T.Kernel(1, threads=THREADS):
            for i in T.Parallel(4096):
                A[i] = T.cast(X[i], "float8_e4m3fn")
                B[i] = T.cast(X[i], "float8_e5m2fnuz")
                C[i] = T.cast(X[i], "int8")
                D[i] = T.cast(A[i], "float16") + T.cast(B[i], "float16")

    return main


def gemm():
    @T.prim_func
    def main(
        A: T.Tensor((128, 256), "float16"),
        B: T.Tensor((256, 128), "float16"),
        C: T.Tensor((128, 128), "float16"),
    ):
        with T.Kernel(2, 2, threads=THREADS) as (bx, by):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


PROGRAMS = [vector_add, softmax, rms_norm, reductions, casts, gemm]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_program_on_each_architecture(program, arch):
    kernel = compiled(program(), arch)
    (usage,) = kernel.resource_usage.values()
    assert (usage.spill_stores, usage.stack) == (0, 0)
    assert 0 < usage.registers <= 256
    assert kernel.cubin[:4] == b"\x7fELF"
    assert re.search(rf'amdgcn_target "amdgcn-amd-amdhsa--{arch}"', kernel.sass)


@pytest.mark.parametrize(("arch", "lanes"), [("gfx942", 64), ("gfx1100", 32)])
def test_reductions_are_over_the_lanes_of_a_wavefront(arch, lanes):
    source = compiled(softmax(), arch).get_kernel_source()
    assert f"tl::AllReduce<tl::MaxOp, {lanes}, 1>" in source
    assert f"tx % {lanes} == 0" in source


def test_accesses_are_vectors_of_16_bytes():
    assembly = compiled(vector_add()).sass
    assert "global_load_dwordx4" in assembly
    assert "global_store_dwordx4" in assembly
    assert not re.search(r"\bflat_(load|store)", assembly)


def test_shared_memory_is_the_local_data_share():
    kernel = compiled(gemm())
    assert kernel.launch_plan.kernels[0].shared_bytes > 0
    assert "ds_read" in kernel.sass
    assert "s_barrier" in kernel.sass


def lanes_of_a_warp():
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "uint64")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            B[tx] = T.ballot(A[tx] > 0) + T.ballot_sync(A[tx] > 1, 0x0F)
            A[tx] = T.shfl_xor(A[tx], 1) + T.warp_reduce_sum(A[tx])
            T.sync_warp()
            if tx < 80:
                A[tx] = T.warp_reduce_max(A[tx])

    return main


def test_a_mask_of_all_lanes_is_that_of_the_target():
    all_lanes = "uint64_t(18446744073709551615u)"
    wide = compiled(lanes_of_a_warp()).get_kernel_source()
    assert f"tl::ballot_sync({all_lanes}, A[tx] > 0.0f)" in wide
    assert "tl::ballot_sync(15u, A[tx] > 1.0f)" in wide
    assert f"tl::sync_warp({all_lanes})" in wide
    assert "tl::AllReduce<tl::SumOp, 64, 1>" in wide
    assert f"tl::reduce_lanes<tl::MaxOp>(tx / 64 == 1 ? uint64_t(65535u) : {all_lanes}" in wide
    narrow = compiled(lanes_of_a_warp(), "gfx1100").get_kernel_source()
    assert "tl::sync_warp(4294967295u)" in narrow
    assert "tl::AllReduce<tl::SumOp, 32, 1>" in narrow


def test_in_a_parallel_loop_all_lanes_are_those_of_the_target():
    """There masks had 32 lanes, and reductions were over 32."""

    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((2, 256), "float32")):
        with T.Kernel(1, threads=256):
            a = T.alloc_fragment((256,), "float32")
            T.copy(A, a)
            for i in T.Parallel(256):
                before = T.shfl_up(a[i], 1, 64)
                B[0, i] = before
                B[1, i] = T.warp_reduce_sum(a[i])

    kernel = tilelang.compile(main, target="hip -mcpu=gfx942", execution_backend="emulate")
    a, b = torch.randint(-9, 9, (256,)).float(), torch.empty(2, 256)
    kernel(a, b)
    warps = a.view(4, 64)
    assert torch.equal(b[0].view(4, 64), torch.cat([warps[:, :1], warps[:, :-1]], dim=1))
    assert torch.equal(b[1].view(4, 64), warps.sum(1, keepdim=True).expand(4, 64))


def test_a_mask_that_not_all_lanes_follow_is_refused():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx < 48:
                A[tx] = T.shfl_xor(A[tx], 1)

    text = "lanes 0xFFFFFFFFFFFFFFFF, of which only 0xFFFFFFFFFFFF .*call it; give the block"
    with pytest.raises(ValueError, match=text):
        compiled(main)


def test_a_tile_larger_than_the_local_data_share_is_refused():
    @T.prim_func
    def main(A: T.Tensor((96, 256), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((96, 256), "float32")
            T.copy(A, s)
            for i, j in T.Parallel(96, 256):
                A[i, j] = s[95 - i, j]

    assert compiled(main, "gfx950").cubin
    with pytest.raises(ValueError, match=r"98304 bytes.*65536"):
        compiled(main, "gfx942")


def test_a_call_says_that_there_is_no_launcher():
    kernel = compiled(vector_add())
    assert kind_of(kernel.target) == "hip"
    with pytest.raises(RuntimeError, match=r"for gfx942, and torch finds no AMD GPU.*emulate"):
        kernel(torch.zeros(4096), torch.zeros(4096))
    with pytest.raises(RuntimeError, match="gfx942, wanted one for an NVIDIA GPU: there is no PTX"):
        _ = kernel.ptx


def test_the_backend_is_the_emulator_by_default():
    assert compiled(vector_add(), backend="auto").execution_backend == "emulate"


def test_a_code_object_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    memory.forget()
    first = compiled(vector_add(), "gfx90a")
    binary, usage = first.cubin, first.resource_usage
    memory.forget()

    def compiled_again(*args, **keywords):
        raise AssertionError("compiled again")

    monkeypatch.setattr(hip, "compile_code_object", compiled_again)
    again = compiled(vector_add(), "gfx90a")
    assert (again.cubin, again.resource_usage, again.sass) == (binary, usage, first.sass)
    with pytest.raises(AssertionError, match="compiled again"):
        _ = compiled(vector_add(), "gfx90a", compile_flags="-DX").cubin


def refused(body):
    """A program whose kernel of 128 threads has the statements of `body(A)`."""

    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            body(A)

    return main


@T.macro
def tma(A):
    s, bar = T.alloc_shared((128,), "float32"), T.alloc_barrier(1)
    T.tma_copy(A, s, barrier=bar[0])


@T.macro
def mbarrier(A):
    bar = T.alloc_barrier(128)
    T.mbarrier_arrive(bar[0])


@T.macro
def wgmma(A):
    a, c = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
    T.wgmma_gemm(a, a, c)


@T.macro
def cp_async(A):
    s = T.alloc_shared((128,), "float32")
    T.ptx_cp_async(s[T.get_thread_binding()], A[T.get_thread_binding()], 4)


@T.macro
def grid(A):
    T.sync_grid()


@T.macro
def named_barrier(A):
    T.sync_threads(1, 64)


@T.macro
def some_warps(A):
    s, tx = T.alloc_shared((128,), "float32"), T.get_thread_binding()
    if tx < 64:
        s[tx] = A[tx]
        A[tx] = s[63 - tx]


@T.macro
def match(A):
    A[T.get_thread_binding()] = T.match_any_sync(A[T.get_thread_binding()])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (tma, r"T\.tma_copy: found a target without TMA \(gfx942\).*use T\.copy without"),
        (
            mbarrier,
            r"found bar in memory 'shared\.barrier' for gfx942, wanted .*sm_90 or later; allo",
        ),
        (wgmma, r"T\.wgmma_gemm: .*needs sm_90a, found gfx942; change it, or use T\.gemm"),
        (cp_async, r"found tl::cp_async_gs for gfx942, wanted sm_80 or later\. Leave it out"),
        (grid, r"found tl::sync_grid for gfx942, wanted sm_75 or later\. Leave it out"),
        (named_barrier, r"found tl::sync_threads_partial for gfx942, wanted sm_75 or later"),
        (some_warps, r"that not all threads of the block run together, .*move one access out"),
        (match, r"found a match of lanes for a target with warps of 64 threads, .*T\.shfl_sync"),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_what_amd_does_not_have_is_refused_by_name(body, message):
    with pytest.raises(ValueError, match=message) as error:
        compiled(refused(body))
    assert f"{__file__}:" in str(error.value)


def test_clusters_are_refused():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=128):
            A[0] = 0

    with pytest.raises(ValueError, match="clusters of blocks for gfx942, wanted sm_90 or later"):
        compiled(main)


def test_text_from_a_kernel_needs_the_emulator():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            T.print(A[0])

    with pytest.raises(RuntimeError, match=r"found T\.print, wanted a kernel without it"):
        _ = compiled(main).cubin
