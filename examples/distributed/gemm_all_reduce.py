"""GEMM + all-reduce of a few rows, as a decoder has them, each rank with a part of K.

A block stores its tile to all ranks and adds those of all ranks: one exchange, in one launch.

torchrun --nproc-per-node 8 examples/distributed/gemm_all_reduce.py, or without GPUs, in the
emulator, python examples/distributed/gemm_all_reduce.py.
"""

import torch
from ranks import device, error, jit, main, numbers, run

import tilelang.language as T
from tilelang.distributed import empty, zeros


@jit
def gemm_all_reduce(
    ranks, M, N, K, dtype=T.float16, block_M=16, block_N=64, block_K=128, stages=3, threads=128
):
    tiles_n = -(-N // block_N)
    tiles = -(-M // block_M) * tiles_n

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        Parts: T.SymmetricTensor((ranks, M, N), T.float32),
        arrived: T.SymmetricTensor((tiles,), T.uint32),
        counts: T.SymmetricTensor((tiles, ranks), T.uint32),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(tiles, threads=threads) as bx:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), T.float32)
            part = T.alloc_fragment((block_M, block_N), T.float32)
            row = bx // tiles_n * block_M
            column = bx % tiles_n * block_N
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[row, k * block_K], A_shared)
                T.copy(B[k * block_K, column], B_shared)
                T.gemm(A_shared, B_shared, acc)

            # Every rank has added what came in the launch before.
            T.sync_ranks(counts, bx)
            for i in T.serial(ranks):
                r = (T.rank() + i) % ranks
                Theirs = T.peer(Parts, r)
                T.put_signal(
                    acc,
                    Theirs[T.rank(), row, column],
                    T.peer(arrived, r)[bx],
                    operation="add",
                )
            T.signal_wait_until(arrived[bx], "eq", ranks)
            # In the same order on all ranks, so that all get the same bits.
            T.clear(acc)
            for r in T.serial(ranks):
                T.copy(Parts[r, row, column], part)
                for i, j in T.Parallel(block_M, block_N):
                    acc[i, j] += part[i, j]
            T.copy(acc, C[row, column])
            T.signal_set(arrived[bx], 0)

    return main


SMALL = {"block_N": 32, "block_K": 32, "stages": 2}


def check(ranks, M=20, N=72, K=72, **tile):
    """Largest difference of the sum."""
    options = SMALL | tile
    kernel = gemm_all_reduce(ranks, M, N, K, **options)
    tiles = -(-M // options.get("block_M", 16)) * -(-N // options["block_N"])

    def program(rank):
        parts = empty((ranks, M, N))
        arrived = zeros(tiles, dtype=torch.uint32)
        counts = zeros((tiles, ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            operands = [numbers(r, step, (M, K), (K, N)) for r in range(ranks)]
            c = torch.empty(M, N, dtype=torch.float16, device=device())
            kernel(*operands[rank], parts, arrived, counts, c)
            worst = max(worst, error(c, sum(a.double() @ b.double() for a, b in operands)))
        return worst

    return max(run(program, ranks))


if __name__ == "__main__":
    main(check, bound=2)
