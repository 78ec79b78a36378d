"""KV-cache transfer: pages of one rank's cache go to pages of another's, each with a signal.

Who decodes waits for the pages of a sequence as it needs them. Here each rank sends a list of pages
and waits for another one, and the lists are of different lengths.

torchrun --nproc-per-node 8 examples/distributed/kv_transfer.py, or without GPUs, in the emulator,
python examples/distributed/kv_transfer.py.
"""

import torch
from ranks import device, error, jit, main, numbers, run

import tilelang.language as T
from tilelang.distributed import empty, zeros


@jit
def kv_transfer(pages, size, sends, dtype=T.float16, blocks=4, threads=128):
    """`sends` is the length of the lists, which end with -1; `size` the elements of a page."""
    ranks = T.dynamic("ranks")

    @T.prim_func
    def main(
        Cache: T.SymmetricTensor((pages, size), dtype),
        arrived: T.SymmetricTensor((pages,), T.uint32),
        counts: T.SymmetricTensor((blocks, ranks), T.uint32),
        Sends: T.Tensor((sends, 3), T.int32),  # a page, the rank that gets it, its page
        Waits: T.Tensor((sends,), T.int32),
        Out: T.Tensor((sends, size), dtype),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            page = T.alloc_shared((size,), dtype)
            # Pages that are to be overwritten are free.
            T.sync_ranks(counts, bx)
            for step in T.serial(T.ceildiv(sends, blocks)):
                n = step * blocks + bx
                if n < sends:
                    source = Sends[n, 0]
                    if source >= 0:
                        T.copy(Cache[source, 0], page)
                        Theirs = T.peer(Cache, Sends[n, 1])
                        flags = T.peer(arrived, Sends[n, 1])
                        T.put_signal(page, Theirs[Sends[n, 2], 0], flags[Sends[n, 2]], 1)
            for step in T.serial(T.ceildiv(sends, blocks)):
                n = step * blocks + bx
                if n < sends:
                    wanted = Waits[n]
                    if wanted >= 0:
                        T.signal_wait_until(arrived[wanted], "eq", 1)
                        T.copy(Cache[wanted, 0], page)
                        T.copy(page, Out[n, 0])
                        T.signal_set(arrived[wanted], 0)

    return main


def check(ranks, pages=8, size=256, sends=6, blocks=2, **options):
    """Largest difference of the pages: 0 where all are there."""
    kernel = kv_transfer(pages, size, sends, blocks=blocks, **options)

    def program(rank):
        cache = empty((pages, size), torch.float16)
        arrived = zeros(pages, dtype=torch.uint32)
        counts = zeros((blocks, ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            caches = [half_filled(r, pages, size, step) for r in range(ranks)]
            cache.copy_(caches[rank])
            out = torch.zeros(sends, size, dtype=torch.float16, device=device())
            waits = torch.full((sends,), -1, dtype=torch.int32)
            wanted = torch.zeros(sends, size, dtype=torch.float16, device=device())
            for source in range(ranks):
                for page, to, at in lists(source, ranks, pages):
                    if to == rank:
                        n = at - pages // 2
                        waits[n] = at
                        wanted[n] = caches[source][page]
            given = torch.full((sends, 3), -1, dtype=torch.int32)
            for n, entry in enumerate(lists(rank, ranks, pages)):
                given[n] = torch.tensor(entry)
            kernel(cache, arrived, counts, given.to(device()), waits.to(device()), out)
            worst = max(worst, error(out, wanted.double()))
        return worst

    return max(run(program, ranks))


def lists(rank, ranks, pages):
    """What a rank sends: more or fewer of its first pages to the second half of the next rank."""
    count = 1 + rank % (pages // 2)
    return [(page, (rank + 1) % ranks, pages // 2 + page) for page in range(count)]


def half_filled(rank, pages, size, step):
    (made,) = numbers(rank, step, (pages, size))
    made[pages // 2 :] = 0
    return made


if __name__ == "__main__":
    main(check, bound=0)
