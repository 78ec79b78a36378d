"""A @ B^T with weights of 4 bits, integers or MXFP4, made float again on the way: check it.

C is computed as its transpose: weights are unpacked into registers that are the first operand of
the matrix instruction, so that they do not go through shared memory as floats, and a short A takes
few columns of an instruction.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

ROWS = T.GemmWarpPolicy.FullRow


def place_in_pack(j, block_K):
    """Where element j of a row of a tile of weights lies in the tile's bytes, as `pack` has them.

    A thread has of each 16 elements of a row 2 q, 2 q + 1, 2 q + 8 and 2 q + 9, with q its number
    in the row (PTX ISA, wgmma.mma_async, "Register Fragments"): all of q = 0 come first. Of eight
    that are a word, neighbours lie four elements apart, so that one mask leaves both of them.
    """
    return j % 8 // 2 * (block_K // 4) + j // 32 * 8 + j % 2 * 4 + j % 32 // 8


def pack(pairs, block_K=128):
    """Pairs of weights (N, K / 2) with the elements of each tile of `block_K` in the order of
    `place_in_pack`, so that a thread loads what it has of a row at once. K is filled up to whole
    tiles, which are multiples of 32."""
    N, half = pairs.shape
    tiles = -(-2 * half // block_K)
    filled = torch.nn.functional.pad(pairs, (0, tiles * block_K // 2 - half))
    elements = torch.stack([filled & 15, filled >> 4], -1).view(N, tiles, block_K)
    places = torch.tensor([place_in_pack(j, block_K) for j in range(block_K)])
    low, high = elements[:, :, places.argsort()].view(N, -1, 2).unbind(-1)
    return low | high << 4


def unpack_tiles(packed, K, block_K=128):
    """The pairs (N, K / 2) that `pack` was given."""
    elements = torch.stack([packed & 15, packed >> 4], -1).view(packed.shape[0], -1, block_K)
    places = torch.tensor([place_in_pack(j, block_K) for j in range(block_K)])
    low, high = elements[:, :, places].view(packed.shape[0], -1, 2).unbind(-1)
    return (low | high << 4)[:, : K // 2]


@T.macro
def add_parts(partial, C, split, M, N):
    """C (M, N), the sum of `partial` (split, M, N)."""
    with T.Kernel(T.ceildiv(N, 512), M, threads=128) as (bx, row):
        total = T.alloc_fragment((512,), T.float32)
        T.clear(total)
        for part in T.serial(split):
            for j in T.Parallel(512):
                total[j] += partial[part, row, bx * 512 + j]
        T.copy(total, C[row, bx * 512])


@tilelang.jit(out_idx=[-1])
def matmul_int4(
    M,
    N,
    K,
    group=128,
    split=1,
    block_M=128,
    block_N=128,
    block_K=128,
    num_stages=3,
    threads=256,
    packed=False,
):
    """C (M, N) of A (M, K) and B (N, K), two int4 in a byte, which has for `group` elements of K a
    scale, (K / group, N) of them. `split` blocks share K; `packed` weights come from `pack`."""
    scaled = min(group, block_K)
    steps = -(-K // (block_K * split))
    columns = -(-K // block_K) * block_K if packed else K

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16),
        B: T.Tensor((N, columns // 2), T.uint8),
        scale: T.Tensor((T.ceildiv(K, group), N), T.float16),
        C: T.Tensor((M, N), T.float16),
    ):
        if split > 1:
            partial = T.alloc_global((split, M, N), T.float32)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split, threads=threads) as (
            bx,
            by,
            bz,
        ):
            A_shared = T.alloc_shared((block_M, block_K), T.float16)
            B_bytes = T.alloc_shared((block_N, block_K // 2), T.uint8)
            B_shared = T.view(B_bytes, (block_N, block_K), T.int4)
            scale_shared = T.alloc_shared((block_K // scaled, block_N), T.float16)
            B_local = T.alloc_fragment((block_N, block_K), T.int4)
            weight = T.alloc_fragment((block_N, block_K), T.float16)
            C_local = T.alloc_fragment((block_N, block_M), T.float32)
            C_shared = T.alloc_shared((block_M, block_N), T.float16 if split == 1 else T.float32)

            T.annotate_layout({B_bytes: make_swizzled_layout(B_bytes)})
            T.clear(C_local)
            for i in T.Pipelined(steps, num_stages=num_stages):
                k = bz * steps + i
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * (block_K // 2)], B_bytes)
                T.copy(scale[k * block_K // group, bx * block_N], scale_shared)
                T.copy(B_shared, B_local)
                for n, j in T.Parallel(block_N, block_K):
                    place = place_in_pack(j, block_K) if packed else j
                    integer = T.cast(B_local[n, place], T.float16)
                    weight[n, j] = integer * scale_shared[j // scaled, n]
                T.gemm(weight, A_shared, C_local, transpose_B=True, policy=ROWS)
            for n, m in T.Parallel(block_N, block_M):
                C_shared[m, n] = C_local[n, m]
            if split == 1:
                T.copy(C_shared, C[by * block_M, bx * block_N])
            else:
                T.copy(C_shared, partial[bz, by * block_M, bx * block_N])
        if split > 1:
            add_parts(partial, C, split, M, N)

    return main


@tilelang.jit(out_idx=[-1])
def matmul_mxfp4(
    M,
    N,
    K,
    split=1,
    block_M=128,
    block_N=128,
    block_K=128,
    num_stages=3,
    threads=256,
    packed=False,
):
    """C (M, N) of A (M, K) and B (N, K), which is MXFP4: two E2M1 elements in a byte, for each 32
    along K a power of two as biased exponent, (K / 32, N) of them (OCP Microscaling Formats
    specification 1.0, 5.3). `split` blocks share K; `packed` weights come from `pack`."""
    steps = -(-K // (block_K * split))
    columns = -(-K // block_K) * block_K if packed else K

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.bfloat16),
        B: T.Tensor((N, columns // 2), T.uint8),
        scale: T.Tensor((T.ceildiv(K, 32), N), T.uint8),
        C: T.Tensor((M, N), T.bfloat16),
    ):
        if split > 1:
            partial = T.alloc_global((split, M, N), T.float32)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split, threads=threads) as (
            bx,
            by,
            bz,
        ):
            A_shared = T.alloc_shared((block_M, block_K), T.bfloat16)
            B_bytes = T.alloc_shared((block_N, block_K // 2), T.uint8)
            B_shared = T.view(B_bytes, (block_N, block_K), T.float4_e2m1fn)
            scale_shared = T.alloc_shared((block_K // 32, block_N), T.uint8)
            B_local = T.alloc_fragment((block_N, block_K), T.float4_e2m1fn)
            weight = T.alloc_fragment((block_N, block_K), T.bfloat16)
            C_local = T.alloc_fragment((block_N, block_M), T.float32)
            C_shared = T.alloc_shared((block_M, block_N), T.bfloat16 if split == 1 else T.float32)

            T.annotate_layout({B_bytes: make_swizzled_layout(B_bytes)})
            T.clear(C_local)
            for i in T.Pipelined(steps, num_stages=num_stages):
                k = bz * steps + i
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * (block_K // 2)], B_bytes)
                T.copy(scale[k * (block_K // 32), bx * block_N], scale_shared)
                T.copy(B_shared, B_local)
                for n, j in T.Parallel(block_N, block_K):
                    # The exponent's bits are those of the bfloat16 2 ** (scale - 127).
                    bits = T.cast(scale_shared[j // 32, n], T.uint16) << 7
                    power = T.reinterpret(bits, T.bfloat16)
                    place = place_in_pack(j, block_K) if packed else j
                    weight[n, j] = T.cast(B_local[n, place], T.bfloat16) * power
                T.gemm(weight, A_shared, C_local, transpose_B=True, policy=ROWS)
            for n, m in T.Parallel(block_N, block_M):
                C_shared[m, n] = C_local[n, m]
            if split == 1:
                T.copy(C_shared, C[by * block_M, bx * block_N])
            else:
                T.copy(C_shared, partial[bz, by * block_M, bx * block_N])
        if split > 1:
            add_parts(partial, C, split, M, N)

    return main


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def unpack(pairs, values):
    """The elements of bytes that have two each, the first in the low half."""
    table = torch.tensor(values, dtype=torch.float64, device=pairs.device)
    halves = torch.stack([pairs & 15, pairs >> 4], -1).view(pairs.shape[0], -1)
    return table[halves.int()]


PROGRAMS = {"int4": matmul_int4, "mxfp4": matmul_mxfp4}


def inputs(form, M, N, K, group=128, device="cpu"):
    """A, pairs of weights and their scales, for weights in `form`, int4 or mxfp4."""
    torch.manual_seed(0)
    pairs = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8, device=device)
    if form == "int4":
        a = torch.randn(M, K, device=device, dtype=torch.float16)
        return [a, pairs, torch.rand(-(-K // group), N, device=device).half()]
    a = torch.randn(M, K, device=device, dtype=torch.bfloat16)
    return [a, pairs, torch.randint(120, 134, (-(-K // 32), N), dtype=torch.uint8, device=device)]


def reference(form, a, pairs, scale, group=128):
    """The product in float64."""
    K = a.shape[1]
    if form == "int4":
        weight = unpack(pairs, [*range(8), *range(-8, 0)])
        weight *= scale.double().T.repeat_interleave(group, 1)[:, :K]
    else:
        weight = unpack(pairs, [*E2M1, *(-x for x in E2M1)])
        weight *= torch.exp2(scale.double().T - 127).repeat_interleave(32, 1)[:, :K]
    return a.double() @ weight.T


def relative_error(form, M, N, K, device="cpu", **tile):
    """||ours - float64|| / ||float64|| for weights in `form`."""
    group = {"group": tile["group"]} if "group" in tile else {}
    given = inputs(form, M, N, K, device=device, **group)
    a, pairs, scale = given
    weights = pack(pairs, tile.get("block_K", 128)) if tile.get("packed") else pairs
    found = PROGRAMS[form](M, N, K, **tile)(a, weights, scale)
    wanted = reference(form, *given, **group)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    for form, bound in (("int4", 1e-3), ("mxfp4", 8e-3)):
        for packed in (False, True):
            error = relative_error(form, M, N, K, "cuda" if gpu else "cpu", packed=packed)
            assert error < bound, f"{form}: relative error {error:.1e}, wanted under {bound:.0e}"
            how = f"{form}, packed" if packed else form
            print(f"{M} x {N} x {K} {how}: relative error {error:.1e}")
