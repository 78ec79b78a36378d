"""Bodies that only some iterations run, and operands that are stored in fewer bits."""

import pytest
import torch

import tilelang.language as T
from tilelang.layout import make_swizzled_layout
from tilelang.utils.sparse import compress

SIZE = 64


def pruned(matrix):
    """Half of every four elements of a row set to zero."""
    keep = torch.tensor([1, 0, 0, 1, 0, 1, 1, 0], dtype=matrix.dtype).repeat(matrix.shape[1] // 8)
    return matrix * keep


@pytest.mark.parametrize("stages", [2, 3])
def test_metadata_of_a_sparse_gemm_stays_with_the_producer(build, integers, stages):
    n = 9

    @T.prim_func
    def main(
        A: T.Tensor((SIZE, n * 32), "float16"),
        E: T.Tensor((SIZE, n * 4), "int16"),
        B: T.Tensor((n * 64, SIZE), "float16"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((SIZE, 32), "float16")
            M = T.alloc_shared((SIZE, 4), "int16")
            W = T.alloc_shared((64, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            T.clear(F)
            for k in T.Pipelined(n, num_stages=stages):
                T.copy(A[0, k * 32], S)
                T.copy(E[0, k * 4], M)
                T.copy(B[k * 64, 0], W)
                T.gemm_sp(S, M, W, F)
            T.copy(F, C)

    kernel = build(main)
    assert kernel.fills == ["tma", "cp.async", "tma"]
    (channel,) = kernel.channels
    versions = channel["versions"]  # DeepenPipelines may take more than the program's
    assert list(channel["buffers"]) == ["S", "M", "W"]
    assert stages <= versions
    for name in "SMW":
        for role in (kernel.producer, kernel.consumer):
            assert {index for buffer, index in role.indices if buffer == name} == {
                f"k % {versions}"
            }
    a, b = pruned(integers(SIZE, n * 64)), integers(n * 64, SIZE)
    stored, metadata = compress(a, torch.int16)
    kernel.check(stored, metadata, b, wanted=a.double() @ b.double())


def test_block_sparse_gemm(build, integers):
    @T.prim_func
    def main(
        A: T.Tensor((SIZE, 8 * SIZE), "float16"),
        B: T.Tensor((8 * SIZE, 2 * SIZE), "float16"),
        mask: T.Tensor((2, 8), T.bool),
        C: T.Tensor((SIZE, 2 * SIZE), "float32"),
    ):
        with T.Kernel(2, threads=128) as bx:
            S = T.alloc_shared((SIZE, SIZE), "float16")
            W = T.alloc_shared((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            T.clear(F)
            for k in T.Pipelined(8, num_stages=2):
                if mask[bx, k]:
                    T.copy(A[0, k * SIZE], S)
                    T.copy(B[k * SIZE, bx * SIZE], W)
                    T.gemm(S, W, F)
            T.copy(F, C[0, bx * SIZE])

    kernel = build(main)
    a, b = integers(SIZE, 8 * SIZE), integers(8 * SIZE, 2 * SIZE)
    mask = torch.rand(2, 8) < 0.5
    mask[0] = False
    rows = mask.double().repeat_interleave(SIZE, 1)
    columns = [(a.double() * rows[x]) @ b.double()[:, x * SIZE : (x + 1) * SIZE] for x in range(2)]
    kernel.check(a, b, mask, wanted=torch.cat(columns, 1))


def test_attention_over_a_list_of_blocks(build, integers):
    """Where a block of keys lies is bound inside of the condition that it exists."""

    @T.prim_func
    def main(
        Q: T.Tensor((SIZE, SIZE), "float16"),
        K: T.Tensor((4 * SIZE, SIZE), "float16"),
        V: T.Tensor((4 * SIZE, SIZE), "float16"),
        blocks: T.Tensor((6,), "int32"),
        Out: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            Qs = T.alloc_shared((SIZE, SIZE), "float16")
            Ks = T.alloc_shared((SIZE, SIZE), "float16")
            Vs = T.alloc_shared((SIZE, SIZE), "float16")
            S = T.alloc_fragment((SIZE, SIZE), "float32")
            P = T.alloc_fragment((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            T.copy(Q, Qs)
            T.clear(F)
            for k in T.Pipelined(6, num_stages=2):
                block = blocks[k]
                if block >= 0:
                    row = block * SIZE
                    T.copy(K[row, 0], Ks)
                    T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(SIZE, SIZE):
                        P[i, j] = T.max(S[i, j], 0) / SIZE
                    T.copy(V[row, 0], Vs)
                    T.gemm(P, Vs, F)
            T.copy(F, Out)

    kernel = build(main)
    assert kernel.fills == ["tma"] * 3
    # The list is read by both, which look for the next block that exists (CompactLoops).
    assert "blocks" in dict(kernel.producer.indices)
    assert "blocks" in dict(kernel.consumer.indices)
    assert kernel.parameters == {"Q_desc", "K_desc", "V_desc", "blocks", "Out"}
    q, k, v = integers(SIZE, SIZE), integers(4 * SIZE, SIZE), integers(4 * SIZE, SIZE)
    for blocks in ([3, -1, 0, 0, -1, 2], [-1] * 6, [0, 1, 2, 3, 0, 1]):
        chosen = [i for i in blocks if i >= 0]
        wanted = torch.zeros(SIZE, SIZE, dtype=torch.float64)
        for i in chosen:
            rows = slice(i * SIZE, (i + 1) * SIZE)
            wanted += (q.double() @ k[rows].double().T).relu() / SIZE @ v[rows].double()
        kernel.check(q, k, v, torch.tensor(blocks, dtype=torch.int32), wanted=wanted, limit=1e-3)


def test_mxfp4_with_a_swizzle_of_the_user(build, integers):
    n = 3

    @T.prim_func
    def main(
        A: T.Tensor((SIZE, n * SIZE), "bfloat16"),
        B: T.Tensor((SIZE, n * SIZE // 2), "uint8"),
        scale: T.Tensor((SIZE, n * SIZE // 32), "uint8"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((SIZE, SIZE), "bfloat16")
            packed = T.alloc_shared((SIZE, SIZE // 2), "uint8")
            local = T.alloc_fragment((SIZE, SIZE // 2), "uint8")
            exponent = T.alloc_shared((SIZE, SIZE // 32), "uint8")
            weight = T.alloc_fragment((SIZE, SIZE), "bfloat16")
            W = T.alloc_shared((SIZE, SIZE), "bfloat16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            T.annotate_layout({S: make_swizzled_layout(S), W: make_swizzled_layout(W)})
            T.clear(F)
            for k in T.Pipelined(n, num_stages=2):
                T.copy(A[0, k * SIZE], S)
                T.copy(B[0, k * SIZE // 2], packed)
                T.copy(scale[0, k * SIZE // 32], exponent)
                T.copy(packed, local)
                for i, j in T.Parallel(SIZE, SIZE):
                    code = local[i, j // 2] >> T.cast(j % 2 * 4, "uint8") & 15
                    # E2M1 (OCP Microscaling Formats 1.0, 5.3.3) has a bias of 1, bfloat16 of 127.
                    bits = (T.cast(code & 8, "uint16") << 12) | (T.cast(code & 7, "uint16") << 6)
                    power = T.cast(exponent[i, j // 32], "float32") - 1.0
                    weight[i, j] = T.cast(
                        T.cast(T.reinterpret(bits, "bfloat16"), "float32") * T.exp2(power),
                        "bfloat16",
                    )
                T.copy(weight, W)
                T.gemm(S, W, F, transpose_B=True)
            T.copy(F, C)

    kernel = build(main)
    assert kernel.fills[:2] == ["tma", "tma"]
    assert "tl.wgmma_ss" in kernel.consumer.calls
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    table = torch.cat([table, -table])
    a = integers(SIZE, n * SIZE, dtype="bfloat16")
    codes = torch.randint(0, 16, (SIZE, n * SIZE))
    exponents = torch.randint(120, 129, (SIZE, n * SIZE // 32))
    b = table[codes] * 2.0 ** (exponents.repeat_interleave(32, 1) - 127)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
    kernel.check(a, packed, exponents.to(torch.uint8), wanted=a.double() @ b.T, limit=1e-6)
