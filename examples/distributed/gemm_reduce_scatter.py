"""GEMM + reduce-scatter: each rank has a part of K, and gets its rows of the sum.

A block stores its tile to the rank that owns the rows, and signals. Tiles of other owners come
first, each rank beginning with another owner, so that all have arrived when a rank computes its own
tiles: the block that does adds the parts of the others in the order of the ranks in front of it.

torchrun --nproc-per-node 8 examples/distributed/gemm_reduce_scatter.py, or without GPUs, in the
emulator, python examples/distributed/gemm_reduce_scatter.py.
"""

import torch
from ranks import device, error, jit, main, numbers, run

import tilelang.language as T
from tilelang.distributed import empty, zeros


@jit
def gemm_reduce_scatter(
    ranks, M, N, K, dtype=T.float16, block_M=128, block_N=128, block_K=64, stages=3, threads=128
):
    rows = M // ranks
    tiles_n = -(-N // block_N)
    tiles = -(-rows // block_M) * tiles_n
    sent = (ranks - 1) * tiles

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        Parts: T.SymmetricTensor((ranks, rows, N), dtype),
        arrived: T.SymmetricTensor((tiles,), T.uint32),
        counts: T.SymmetricTensor((sent, ranks), T.uint32),
        C: T.Tensor((rows, N), dtype),
    ):
        with T.Kernel(ranks * tiles, threads=threads) as bx:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), T.float32)
            part = T.alloc_fragment((block_M, block_N), dtype)
            owner = (T.rank() + 1 + bx // tiles) % ranks
            tile = bx % tiles
            row = tile // tiles_n * block_M
            column = tile % tiles_n * block_N

            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[owner * rows + row, k * block_K], A_shared)
                T.copy(B[k * block_K, column], B_shared)
                T.gemm(A_shared, B_shared, acc)

            if bx < sent:
                # The owner has added what came in the launch before.
                T.sync_ranks(counts, bx)
                T.copy(acc, T.peer(Parts, owner)[T.rank(), row, column])
                T.signal_add(T.peer(arrived, owner)[tile], 1)
            else:
                T.signal_wait_until(arrived[tile], "eq", ranks - 1)
                for i in T.serial(ranks - 1):
                    T.copy(Parts[(T.rank() + 1 + i) % ranks, row, column], part)
                    for i, j in T.Parallel(block_M, block_N):
                        acc[i, j] += part[i, j]
                T.copy(acc, C[row, column])
                T.signal_set(arrived[tile], 0)

    return main


SMALL = {"block_M": 32, "block_N": 32, "block_K": 32, "stages": 2, "threads": 128}


def check(ranks, rows=40, N=72, K=72, **tile):
    """Largest difference of a rank's rows; a rank's part of K is `K`."""
    M = rows * ranks
    options = SMALL | tile
    kernel = gemm_reduce_scatter(ranks, M, N, K, **options)
    tiles = -(-rows // options["block_M"]) * -(-N // options["block_N"])

    def program(rank):
        parts = empty((ranks, rows, N), torch.float16)
        arrived = zeros(tiles, dtype=torch.uint32)
        counts = zeros(((ranks - 1) * tiles, ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            operands = [numbers(r, step, (M, K), (K, N)) for r in range(ranks)]
            c = torch.empty(rows, N, dtype=torch.float16, device=device())
            kernel(*operands[rank], parts, arrived, counts, c)
            wanted = sum(a.double() @ b.double() for a, b in operands)
            worst = max(worst, error(c, wanted[rank * rows :][:rows], wanted.abs().max()))
        return worst

    return max(run(program, ranks))


if __name__ == "__main__":
    main(check, bound=4)
