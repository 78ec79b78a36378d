"""A producer that gathers rows: loops over elements that are all that fills operands of MMAs."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.explain_roles import roles_text

PASSES = ("HoistViews", "ProducerConsumerWarpSpecialized")
SM90 = {"kind": "cuda", "arch": "sm_90a"}


def product(fill="rows", threads=256):
    """Rows of B that `Rows` names, multiplied with A; what is no row is zero."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((100, 64), "float16"),
        Rows: T.Tensor((4, 64), "int32"),
        C: T.Tensor((4, 64, 64), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            unused = T.alloc_shared((64, 64), "float16")
            out = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            for k in T.Pipelined(4, num_stages=2):
                for i, j in T.Parallel(64, 64):
                    if fill == "doubled":
                        b[i, j] = B[Rows[k, i], j] * 2
                    else:
                        row = Rows[k, i]
                        b[i, j] = B[row, j]
                if fill == "others":
                    for i, j in T.Parallel(64, 64):
                        unused[i, j] = A[i, j]
                    for i, j in T.Parallel(64, 64):
                        C[k, i, j] = unused[i, j]
                T.gemm(a, b, out, transpose_B=True, clear_accum=True)
                T.copy(out, C[k, 0, 0])

    return main


@pytest.fixture
def plan(tile_passes):
    def run(func):
        (entry,) = tile_passes(func, *PASSES, arch="sm_90a")["main"].attrs["tl.warp_roles"]
        return [line.strip() for line in roles_text(entry)]

    return run


def test_one_warp_group_gathers(plan, statements):
    lines = plan(product())
    assert lines[0] == "warp specialised: threads 0 to 127 produce, 128 to 383 consume"
    assert any("producer, by all its threads, cp.async where" in line for line in lines)
    # Each thread's copies, and each warp's stores.
    assert any("full after 132, empty after 8 arrivals" in line for line in lines)
    text = statements(product(), *PASSES, arch="sm_90a")
    producer = text[text.index('"producer"') : text.index('"consumer"')]
    assert producer.index("acquire(b_empty") < producer.index('"async_copy"')
    assert producer.index('"async_copy"') < producer.index("cp_async_mbarrier_arrive_noinc")


def test_one_warp_group_gathers_beside_tma(plan):
    """The weights of a convolution come by TMA, its pixels by cp.async."""

    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"),
        B: T.Tensor((100, 64), "float16"),
        Rows: T.Tensor((4, 64), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            out = T.alloc_fragment((64, 64), "float32")
            T.clear(out)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64, 0], a)
                for i, j in T.Parallel(64, 64):
                    row = Rows[k, i]
                    b[i, j] = T.if_then_else(row >= 0, B[row, j], 0)
                T.gemm(a, b, out, transpose_B=True)
            T.copy(out, C)

    lines = plan(main)
    assert lines[0] == "warp specialised: threads 0 to 127 produce, 128 to 255 consume"
    assert any("producer, by all its threads, cp.async where" in line for line in lines)
    assert any("by TMA" in line for line in lines)
    a, b = torch.randn(256, 64).half(), torch.randn(100, 64).half()
    rows, c = torch.randint(-5, 100, (4, 64), dtype=torch.int32), torch.empty(64, 64)
    tilelang.compile(main, target=SM90, execution_backend="emulate")(a, b, rows, c)
    taken = b.double()[rows.clamp(min=0).long()] * (rows >= 0)[..., None]
    wanted = (a.double().reshape(4, 64, 64) @ taken.mT).sum(0)
    assert torch.allclose(c.double(), wanted, atol=1e-2)


@pytest.mark.parametrize(("fill", "threads"), [("doubled", 256), ("others", 256), ("rows", 512)])
def test_other_kernels_have_no_such_producer(plan, fill, threads):
    """Loops that compute, tiles that no MMA reads, and more threads than registers are moved to."""
    (line,) = plan(product(fill, threads))
    assert "TMA makes no copy of a pipelined loop: it is a loop over elements" in line


def test_registers_of_one_that_gathers():
    source = tilelang.compile(product(), target=SM90).get_kernel_source()
    assert "warpgroup_reg_dealloc<48>" in source
    assert "cp_async_gs_conditional<16>" in source


def test_rows_and_none():
    kernel = tilelang.compile(product(), out_idx=-1, target=SM90)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = (torch.randn(n, 64, device=device).half() for n in (64, 100))
    rows = torch.randint(-1, 101, (4, 64), device=device, dtype=torch.int32)
    seen = (rows >= 0) & (rows < 100)
    gathered = b[rows.clamp(0, 99).long()] * seen[..., None]
    wanted = a.float() @ gathered.float().transpose(1, 2)
    torch.testing.assert_close(kernel(a, b, rows), wanted, rtol=1e-2, atol=1e-2)
