"""Products of rows that begin at any byte, which are loaded by TMA where they lie."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.macros import OddRows, load_odd_rows, shift_odd_rows


@tilelang.jit
def product(N, K, dtype, width):
    """8 rows of A, which are long enough, times all of B."""
    odd = OddRows(K, dtype, 128)
    steps = -(-K // width)

    @T.prim_func
    def main(A: T.Tensor((8, steps * width), dtype), B: T.Tensor((N, K), dtype)):
        C = T.empty((8, N), T.float32)
        with T.Kernel(T.ceildiv(N, 128), threads=128) as tile:
            rows, raw = odd.view(B), odd.alloc(width)
            B_local = T.alloc_fragment((128, width), dtype)
            A_shared = T.alloc_shared((8, width), dtype)
            local = T.alloc_fragment((128, 8), T.float32)
            T.clear(local)
            for k in T.Pipelined(steps, num_stages=2):
                load_odd_rows(odd, rows, tile * odd.of_phase, k * width, raw)
                T.copy(A[0, k * width], A_shared)
                shift_odd_rows(odd, raw, k * width, B_local)
                T.gemm(B_local, A_shared, local, transpose_B=True)
            for i, j in T.Parallel(128, 8):
                if tile * 128 + odd.place(i) < N:
                    C[j, tile * 128 + odd.place(i)] = local[i, j]
        return C

    return main


@pytest.mark.parametrize(
    ("N", "K", "dtype", "width"),
    [
        pytest.param(144, 131, T.float8_e4m3fn, 128, id="sixteen phases, a tile that ends early"),
        pytest.param(128, 70, T.bfloat16, 64, id="four phases"),
    ],
)
def test_rows_are_multiplied_where_they_lie(monkeypatch, device, N, K, dtype, width):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    kernel = product(N, K, dtype, width)
    assert kernel.get_kernel_source().count("tma_load<tl::evict_normal>(B_desc") == (
        OddRows(K, dtype, 128).phases
    )
    a, b = (torch.randint(-2, 3, shape, device=device).float() for shape in ((8, K), (N, K)))
    # What is behind the end of the row in front of it.
    b[77, 0] = torch.nan
    longer = torch.nn.functional.pad(a, (0, -K % width))
    found = kernel(longer.to(dtype.as_torch()), b.to(dtype.as_torch()))
    assert torch.equal(found.nan_to_num(99), (a @ b.T).nan_to_num(99))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OddRows(131, T.float32, 128), "dtype is float32, wanted one of 8 or 16 bits"),
        (
            lambda: OddRows(131, T.float8_e4m3fn, 64),
            "height is 64, wanted a multiple of 128: 8 rows of each of the 16 bytes",
        ),
        (lambda: product.get_tir(100, 131, T.float8_e4m3fn, 128), "found 100 rows, wanted a mult"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
