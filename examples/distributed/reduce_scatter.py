"""Reduce-scatter: each rank loads its part from the tensors of all ranks, and stores the sum.

torchrun --nproc-per-node 8 examples/distributed/reduce_scatter.py, or without GPUs, in the
emulator, python examples/distributed/reduce_scatter.py.
"""

import torch
from ranks import device, error, jit, main, numbers, run

import tilelang.language as T
from tilelang.distributed import empty, zeros


@jit
def reduce_scatter(ranks, n, dtype=T.float16, blocks=8, block=2048, threads=256):
    steps = -(-n // (blocks * block))

    @T.prim_func
    def main(
        X: T.SymmetricTensor((ranks, n), dtype),
        Out: T.Tensor((n,), dtype),
        counts: T.SymmetricTensor((blocks, ranks), T.uint32),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            tile = T.alloc_fragment((block,), dtype)
            total = T.alloc_fragment((block,), T.float32)
            # Every rank has made its X.
            T.sync_ranks(counts, bx)
            for step in T.serial(steps):
                first = (step * blocks + bx) * block
                T.clear(total)
                for i in T.serial(ranks):
                    Theirs = T.peer(X, (T.rank() + i) % ranks)
                    T.copy(Theirs[T.rank(), first], tile)
                    for j in T.Parallel(block):
                        total[j] += tile[j]
                T.copy(total, Out[first])
            # Every rank has loaded what it wants of X.
            T.sync_ranks(counts, bx)

    return main


def check(ranks, n=5000, **options):
    """Largest difference of the sums. Runs twice, with X changed right behind the first launch."""
    kernel = reduce_scatter(ranks, n, **options)
    blocks = options.get("blocks", 8)

    def program(rank):
        x = empty((ranks, n), torch.float16)
        counts = zeros((blocks, ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            summands = [numbers(r, step, (ranks, n))[0] for r in range(ranks)]
            x.copy_(summands[rank])
            out = torch.empty(n, dtype=torch.float16, device=device())
            kernel(x, out, counts)
            worst = max(worst, error(out, sum(s[rank].double() for s in summands)))
        return worst

    return max(run(program, ranks))


if __name__ == "__main__":
    main(check, bound=1)
