"""All-gather + GEMM: each rank has rows of A and columns of B, and gets its columns of A @ B.

The first blocks store this rank's rows to all ranks. The others multiply the rows of a rank when
they have arrived, in the order in which they do.

torchrun --nproc-per-node 8 examples/distributed/all_gather_gemm.py, or without GPUs, in the
emulator, python examples/distributed/all_gather_gemm.py.
"""

import torch
from ranks import device, error, jit, main, numbers, run

import tilelang.language as T
from tilelang.distributed import empty, zeros


@jit
def all_gather_gemm(
    ranks,
    rows,
    N,
    K,
    dtype=T.float16,
    block_M=128,
    block_N=128,
    block_K=64,
    stages=3,
    threads=128,
    copiers=8,
    copied=16,
):
    tiles_n = -(-N // block_N)
    tiles = -(-rows // block_M) * tiles_n

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((K, N), dtype),
        All: T.SymmetricTensor((ranks, rows, K), dtype),
        ready: T.SymmetricTensor((ranks,), T.uint32),
        counts: T.SymmetricTensor((copiers, ranks), T.uint32),
        launch: T.uint32,
        C: T.Tensor((ranks, rows, N), dtype),
    ):
        with T.Kernel(copiers + ranks * tiles, threads=threads) as bx:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), T.float32)
            moved = T.alloc_fragment((copied, K), dtype)
            if bx < copiers:
                # Every rank has multiplied what came in the launch before.
                T.sync_ranks(counts, bx)
                for i in T.serial(ranks):
                    r = (T.rank() + i) % ranks
                    Theirs = T.peer(All, r)
                    for step in T.serial(T.ceildiv(rows, copiers * copied)):
                        first = (step * copiers + bx) * copied
                        T.copy(A[first, 0], moved)
                        T.copy(moved, Theirs[T.rank(), first, 0])
                    T.signal_add(T.peer(ready, r)[T.rank()], 1)
            else:
                tile = (bx - copiers) % tiles
                # What this rank has itself, then that of the rank in front of it.
                owner = (T.rank() + ranks - (bx - copiers) // tiles) % ranks
                row = tile // tiles_n * block_M
                column = tile % tiles_n * block_N
                T.signal_wait_until(ready[owner], "ge", (launch + 1) * copiers)
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                    T.copy(All[owner, row, k * block_K], A_shared)
                    T.copy(B[k * block_K, column], B_shared)
                    T.gemm(A_shared, B_shared, acc)
                T.copy(acc, C[owner, row, column])

    return main


SMALL = {"block_M": 32, "block_N": 32, "block_K": 32, "stages": 2, "copiers": 2, "copied": 8}


def check(ranks, rows=40, N=72, K=72, **tile):
    """Largest difference of a rank's columns."""
    options = SMALL | tile
    kernel = all_gather_gemm(ranks, rows, N, K, **options)

    def program(rank):
        gathered = empty((ranks, rows, K), torch.float16)
        ready = zeros(ranks, dtype=torch.uint32)
        counts = zeros((options["copiers"], ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            operands = [numbers(r, step, (rows, K), (K, N)) for r in range(ranks)]
            c = torch.empty(ranks, rows, N, dtype=torch.float16, device=device())
            kernel(*operands[rank], gathered, ready, counts, step, c)
            wanted = torch.stack([a.double() for a, _ in operands]) @ operands[rank][1].double()
            worst = max(worst, error(c, wanted))
        return worst

    return max(run(program, ranks))


if __name__ == "__main__":
    main(check, bound=4)
