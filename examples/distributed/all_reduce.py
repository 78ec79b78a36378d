"""All-reduce in one shot or in two.

In one shot each rank loads all of the tensors of all ranks: the latency of one exchange. In two
each rank sums one part and stores it to all ranks: 2 / ranks of the bytes. `all_reduce` picks by
size.

torchrun --nproc-per-node 8 examples/distributed/all_reduce.py, or without GPUs, in the emulator,
python examples/distributed/all_reduce.py.
"""

import torch
from ranks import error, jit, main, numbers, run

import tilelang.language as T
from tilelang.distributed import empty, zeros

ONE_SHOT_BYTES = 256 * 1024
"""Up to which size one shot is faster."""


@jit
def one_shot(ranks, n, dtype=T.float16, blocks=8, block=2048, threads=256):
    steps = -(-n // (blocks * block))

    @T.prim_func
    def main(
        X: T.SymmetricTensor((n,), dtype),
        Out: T.SymmetricTensor((n,), dtype),
        counts: T.SymmetricTensor((blocks, ranks), T.uint32),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            tile = T.alloc_fragment((block,), dtype)
            total = T.alloc_fragment((block,), T.float32)
            T.sync_ranks(counts, bx)
            for step in T.serial(steps):
                first = (step * blocks + bx) * block
                T.clear(total)
                # In the same order on all ranks, so that all get the same bits.
                for r in T.serial(ranks):
                    Theirs = T.peer(X, r)
                    T.copy(Theirs[first], tile)
                    for j in T.Parallel(block):
                        total[j] += tile[j]
                T.copy(total, Out[first])
            T.sync_ranks(counts, bx)

    return main


@jit
def two_shots(ranks, n, dtype=T.float16, blocks=8, block=2048, threads=256):
    # A rank's part is a multiple of 16 bytes.
    part = -(-n // (8 * ranks)) * 8
    steps = -(-part // (blocks * block))

    @T.prim_func
    def main(
        X: T.SymmetricTensor((n,), dtype),
        Out: T.SymmetricTensor((n,), dtype),
        counts: T.SymmetricTensor((blocks, ranks), T.uint32),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            total = T.alloc_fragment((block,), T.float32)
            T.sync_ranks(counts, bx)
            for step in T.serial(steps):
                first = (step * blocks + bx) * block
                T.clear(total)
                for r in T.serial(ranks):
                    Theirs = T.peer(X, r)
                    for j in T.Parallel(block):
                        if first + j < part and T.rank() * part + first + j < n:
                            total[j] += Theirs[T.rank() * part + first + j]
                for i in T.serial(ranks):
                    Result = T.peer(Out, (T.rank() + i) % ranks)
                    for j in T.Parallel(block):
                        if first + j < part and T.rank() * part + first + j < n:
                            Result[T.rank() * part + first + j] = total[j]
            T.sync_ranks(counts, bx)

    return main


def all_reduce(ranks, n, dtype=T.float16, **options):
    """The kernel for n elements."""
    is_small = n * dtype.bits // 8 <= ONE_SHOT_BYTES
    return (one_shot if is_small else two_shots)(ranks, n, dtype, **options)


def check_kernel(kernel, ranks, n, blocks):
    def program(rank):
        x = empty(n, dtype=torch.float16)
        out = empty(n, dtype=torch.float16)
        counts = zeros((blocks, ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            summands = [numbers(r, step, (n,))[0] for r in range(ranks)]
            x.copy_(summands[rank])
            kernel(x, out, counts)
            worst = max(worst, error(out, sum(s.double() for s in summands)))
        return worst

    return max(run(program, ranks))


def check(ranks, n=5000, blocks=2, **options):
    """Largest difference of the sums, of both kernels; the sizes that pick them."""
    assert all_reduce(ranks, 1024) is one_shot(ranks, 1024)
    assert all_reduce(ranks, 1 << 20) is two_shots(ranks, 1 << 20)
    kernels = [make(ranks, n, blocks=blocks, **options) for make in (one_shot, two_shots)]
    return max(check_kernel(kernel, ranks, n, blocks) for kernel in kernels)


if __name__ == "__main__":
    main(check, bound=1)
