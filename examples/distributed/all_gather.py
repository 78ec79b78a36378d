"""All-gather: each rank stores its part to the tensors of all ranks.

torchrun --nproc-per-node 8 examples/distributed/all_gather.py, or without GPUs, in the emulator,
python examples/distributed/all_gather.py.
"""

import torch
from ranks import error, jit, main, numbers, run

import tilelang.language as T
from tilelang.distributed import empty, zeros


@jit
def all_gather(ranks, n, dtype=T.float16, blocks=8, block=2048, threads=256):
    steps = -(-n // (blocks * block))

    @T.prim_func
    def main(
        X: T.Tensor((n,), dtype),
        Out: T.SymmetricTensor((ranks, n), dtype),
        counts: T.SymmetricTensor((blocks, ranks), T.uint32),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            tile = T.alloc_fragment((block,), dtype)
            # Every rank has done with what was in Out.
            T.sync_ranks(counts, bx)
            for step in T.serial(steps):
                first = (step * blocks + bx) * block
                T.copy(X[first], tile)
                for i in T.serial(ranks):
                    # Each rank begins with another one, so that no link has all of the traffic.
                    Theirs = T.peer(Out, (T.rank() + i) % ranks)
                    T.copy(tile, Theirs[T.rank(), first])
            # Every rank has stored its part.
            T.sync_ranks(counts, bx)

    return main


def check(ranks, n=5000, **options):
    """Largest difference from the parts: 0 where all are there. Runs twice, as layers do."""
    kernel = all_gather(ranks, n, **options)
    blocks = options.get("blocks", 8)

    def program(rank):
        out = empty((ranks, n), torch.float16)
        counts = zeros((blocks, ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            parts = [numbers(r, step, (n,))[0] for r in range(ranks)]
            kernel(parts[rank], out, counts)
            worst = max(worst, error(out, torch.stack(parts).double()))
        return worst

    return max(run(program, ranks))


if __name__ == "__main__":
    main(check, bound=0)
