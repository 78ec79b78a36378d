"""Operands of 32 bits that descriptors of wgmma do not reach are read to registers."""

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    tilelang.set_log_level("WARNING")
    yield
    tilelang.set_log_level("INFO")


def product(transposed=(False, False), dtype="tfloat32", end="copy", size=(72, 88, 72)):
    """C = A B, A or B `transposed` in memory; `end`: what becomes of the accumulators."""
    M, N, K = size
    (of_a, A_shape), (of_b, B_shape) = (((64, 32), (M, K)), ((32, 64), (K, N)))
    if transposed[0]:
        of_a, A_shape = of_a[::-1], A_shape[::-1]
    if transposed[1]:
        of_b, B_shape = of_b[::-1], B_shape[::-1]

    @T.prim_func
    def main(
        A: T.Tensor(A_shape, dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            a = T.alloc_shared(of_a, dtype)
            b = T.alloc_shared(of_b, dtype)
            total = T.alloc_fragment((64, 64), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[k * 32, by * 64] if transposed[0] else A[by * 64, k * 32], a)
                T.copy(B[bx * 64, k * 32] if transposed[1] else B[k * 32, bx * 64], b)
                T.gemm(a, b, total, transpose_A=transposed[0], transpose_B=transposed[1])
            if end == "sum":
                sums = T.alloc_fragment((64,), "float32")
                T.reduce_sum(total, sums, dim=1)
                for i, j in T.Parallel(64, 64):
                    total[i, j] += sums[i]
            T.copy(total, C[by * 64, bx * 64])

    return main


def gemms(tile_passes, program, arch="sm_90a"):
    text = tile_passes(program, "RegisterOperands", arch=arch)["main"].script(show_meta=False)
    return [line.strip() for line in text.splitlines() if "gemm" in line or "_read" in line]


def test_the_program(tile_passes):
    """B, which lies along N, is the left operand of the product turned."""
    assert gemms(tile_passes, product()) == [
        'b_read = T.sblock_alloc_buffer((32, 64), scope="local.fragment")',
        "T.tl.copy(b[0:32, 0:64], b_read[0:32, 0:64])",
        'T.Call("tl.tileop.gemm", [b_read[0:32, 0:64], a[0:64, 0:32], total[0:64, 0:64], '
        "T.bool(True), T.bool(True), 1, T.bool(False)], "
        'attrs={"allow_tf32": True, "transpose_C": 1}, ret_ty="void")',
    ]


@pytest.mark.parametrize("transposed", [(False, False), (True, True)])
def test_results(transposed, device):
    kernel = tilelang.compile(product(transposed), target=HOPPER)
    assert "tl::wgmma_rs<" in kernel.get_kernel_source()
    torch.manual_seed(0)
    # Whole numbers, which tf32 has.
    a, b = (torch.randint(-8, 9, s, device=device).float() for s in ((72, 72), (72, 88)))
    found = torch.full((72, 88), float("nan"), device=device)
    kernel(
        a.T.contiguous() if transposed[0] else a, b.T.contiguous() if transposed[1] else b, found
    )
    assert torch.equal(found, a @ b)


@pytest.mark.parametrize(
    ("options", "arch"),
    [
        pytest.param({}, "sm_90", id="no wgmma"),
        pytest.param({"dtype": "float32"}, "sm_90a", id="bits that tf32 has not"),
        pytest.param({"dtype": "float16"}, "sm_90a", id="descriptors reach it"),
        pytest.param({"transposed": (False, True)}, "sm_90a", id="descriptors reach both"),
        pytest.param({"transposed": (True, False)}, "sm_90a", id="descriptors reach none"),
        pytest.param({"end": "sum"}, "sm_90a", id="sums of rows of the accumulators"),
    ],
)
def test_what_stays(tile_passes, options, arch):
    assert not any("_read" in line for line in gemms(tile_passes, product(**options), arch))
