"""A @ B^T in 8-bit floats, plain or with a scale for each 128 x 128 block: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch
from gemm import inputs, processors, relative_error

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def scaled_matmul(
    M,
    N,
    K,
    rows_of_B=False,
    block_M=128,
    block_N=128,
    num_stages=4,
    threads=256,
    group=128,
    panel=8,
    parts=1,
    out_dtype=T.bfloat16,
):
    """C (M, N) of A (M, K) with a scale for each `group` of a row, (K / group, M) of them, and B
    (N, K) with one for each square of `group`, (N / group, K / group), or with `rows_of_B` as A has
    them, (K / group, N); the scales are applied to float32 sums of `group` products.

    Blocks for all multiprocessors take the tiles in turn, so that the loads of one run during the
    end of another. `panel` tiles of rows go through the columns together. A tile has `parts` times
    `block_N` columns, one product after the other: the wider it is, the fewer bytes come from L2,
    and the sums of all parts, but the product of one, are in registers.
    """
    groups, blocks = -(-K // group), processors()
    rows, columns = -(-M // block_M), -(-N // (parts * block_N))
    # Columns that share a scale of B, as those of a tile of 192 do in parts.
    shared = math.gcd(block_N, group)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float8_e4m3fn),
        B: T.Tensor((N, K), T.float8_e4m3fn),
        scale_A: T.Tensor((groups, M), T.float32),
        scale_B: T.Tensor((groups, N) if rows_of_B else (-(-N // group), groups), T.float32),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(blocks, threads=threads) as block:
            A_shared = T.alloc_shared((block_M, group), T.float8_e4m3fn)
            B_shared = [T.alloc_shared((block_N, group), T.float8_e4m3fn) for _ in range(parts)]
            C_shared = [T.alloc_shared((block_M, block_N), out_dtype) for _ in range(parts)]
            scale = T.alloc_shared((block_M,), T.float32)
            scale_of_B = T.alloc_shared((parts * block_N,), T.float32) if rows_of_B else None
            square = T.alloc_local((parts * block_N // shared,), T.float32)
            product = T.alloc_fragment((block_M, block_N), T.float32)
            C_local = [T.alloc_fragment((block_M, block_N), T.float32) for _ in range(parts)]

            for above, bx, y in T.Persistent([-(-rows // panel), columns, panel], blocks, block):
                first, left = (above * panel + y) * block_M, bx * parts * block_N
                if first < M:
                    for sums in C_local:
                        T.clear(sums)
                    for k in T.Pipelined(groups, num_stages=num_stages):
                        T.copy(A[first, k * group], A_shared)
                        for n, tile in enumerate(B_shared):
                            T.copy(B[left + n * block_N, k * group], tile)
                        T.copy(scale_A[k, first], scale)
                        if rows_of_B:
                            T.copy(scale_B[k, left], scale_of_B)
                        else:
                            # Under way during the product.
                            for p in T.unroll(parts * block_N // shared):
                                square[p] = scale_B[(left + p * shared) // group, k]
                        for n, tile in enumerate(B_shared):
                            T.gemm(
                                A_shared,
                                tile,
                                product,
                                transpose_B=True,
                                clear_accum=True,
                                policy=T.GemmWarpPolicy.FullRow,
                            )
                            for p in T.unroll(block_N // shared):
                                for i, j in T.Parallel(block_M, shared):
                                    at = p * shared + j
                                    of_B = square[n * (block_N // shared) + p]
                                    if rows_of_B:
                                        of_B = scale_of_B[n * block_N + at]
                                    C_local[n][i, at] += product[i, at] * (scale[i] * of_B)
                    for n, sums in enumerate(C_local):
                        T.copy(sums, C_shared[n])
                        T.copy(C_shared[n], C[first, left + n * block_N])

    return main


def scaled_inputs(M, N, K, device="cpu", group=128):
    """A, B, and scales for each `group` of a row of A and each square of B."""
    torch.manual_seed(0)
    a, b = inputs(M, N, K, T.float8_e4m3fn, True, device)
    blocks = -(-K // group)
    scale_a = torch.rand(blocks, M, device=device) + 0.5
    scale_b = torch.rand(-(-N // group), blocks, device=device) + 0.5
    return a, b, scale_a, scale_b


def scaled_reference(a, b, scale_a, scale_b, group=128):
    """The same product in float64."""
    (N, K) = b.shape
    x = a.double() * scale_a.double().T.repeat_interleave(group, 1)[:, :K]
    y = scale_b.double().repeat_interleave(group, 0)[:N].repeat_interleave(group, 1)[:, :K]
    return x @ (y * b.double()).T


def scaled_relative_error(M, N, K, device="cpu", group=128, **tile):
    """||ours - reference|| / ||reference|| of the product with scales."""
    tensors = scaled_inputs(M, N, K, device, group)
    found = scaled_matmul(M, N, K, group=group, **tile)(*tensors).double()
    wanted = scaled_reference(*tensors, group)
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    device = "cuda" if gpu else "cpu"
    tile = {"block_K": 128, "out_dtype": T.bfloat16}
    for name, error in [
        ("plain e4m3", relative_error(M, N, K, T.float8_e4m3fn, True, device, **tile)),
        ("plain e5m2", relative_error(M, N, K, T.float8_e5m2, True, device, **tile)),
        ("scaled e4m3", scaled_relative_error(M, N, K, device)),
    ]:
        # The tensor cores of some chips keep fewer bits of a sum of 8-bit products than float32.
        assert error < 1e-2, f"{name}: relative error {error:.1e}, wanted under 1e-2"
        print(f"{M} x {N} x {K} {name}: relative error {error:.1e}")
