"""Ring attention: queries, keys and values are split along the sequence over the ranks.

Each rank goes through the keys and values of all ranks, beginning with its own, and loads them from
their memory while it multiplies.

torchrun --nproc-per-node 8 examples/distributed/ring_attention.py, or without GPUs, in the
emulator, python examples/distributed/ring_attention.py.
"""

import torch
from ranks import device, error, jit, main, numbers, run

import tilelang.language as T
from tilelang.distributed import empty, zeros

LOG2_E = 1.44269504


@jit
def ring_attention(
    ranks, heads, length, dim, dtype=T.float16, block_M=64, block_N=64, stages=2, threads=128
):
    """`length` is that of a rank's part of the sequence."""
    blocks = -(-length // block_M)
    scale = LOG2_E / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((heads, length, dim), dtype),
        K: T.SymmetricTensor((heads, length, dim), dtype),
        V: T.SymmetricTensor((heads, length, dim), dtype),
        O: T.Tensor((heads, length, dim), dtype),  # noqa: E741
        counts: T.SymmetricTensor((heads * blocks, ranks), T.uint32),
    ):
        with T.Kernel(blocks, heads, threads=threads) as (bx, head):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), T.float32)
            largest = T.alloc_fragment((block_M,), T.float32)
            before = T.alloc_fragment((block_M,), T.float32)
            rescale = T.alloc_fragment((block_M,), T.float32)
            part = T.alloc_fragment((block_M,), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)

            T.copy(Q[head, bx * block_M, 0], Q_shared)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity(T.float32))
            # Every rank has its keys and values.
            T.sync_ranks(counts, head * blocks + bx)
            for i in T.serial(ranks):
                Keys = T.peer(K, (T.rank() + i) % ranks)
                Values = T.peer(V, (T.rank() + i) % ranks)
                for k in T.Pipelined(T.ceildiv(length, block_N), num_stages=stages):
                    T.copy(Keys[head, k * block_N, 0], K_shared)
                    T.copy(Values[head, k * block_N, 0], V_shared)
                    T.clear(scores)
                    T.gemm(Q_shared, K_shared, scores, transpose_B=True)
                    for m, n in T.Parallel(block_M, block_N):
                        scores[m, n] = T.if_then_else(
                            k * block_N + n < length, scores[m, n] * scale, -T.infinity(T.float32)
                        )
                    T.copy(largest, before)
                    T.reduce_max(scores, largest, dim=1, clear=False)
                    for m in T.Parallel(block_M):
                        rescale[m] = T.exp2(before[m] - largest[m])
                    for m, n in T.Parallel(block_M, block_N):
                        scores[m, n] = T.exp2(scores[m, n] - largest[m])
                    T.reduce_sum(scores, part, dim=1)
                    for m in T.Parallel(block_M):
                        total[m] = total[m] * rescale[m] + part[m]
                    for m, d in T.Parallel(block_M, dim):
                        out[m, d] *= rescale[m]
                    T.copy(scores, weights)
                    T.gemm(weights, V_shared, out)
            for m, d in T.Parallel(block_M, dim):
                out[m, d] /= total[m]
            T.copy(out, O[head, bx * block_M, 0])
            # Every rank has read the keys and values of this one.
            T.sync_ranks(counts, head * blocks + bx)

    return main


SMALL = {"block_M": 32, "block_N": 32, "threads": 64}


def check(ranks, heads=2, length=40, dim=32, **tile):
    """Largest difference of a rank's part."""
    options = SMALL | tile
    kernel = ring_attention(ranks, heads, length, dim, **options)
    slots = heads * -(-length // options["block_M"])

    def program(rank):
        k, v = (empty((heads, length, dim), torch.float16) for _ in range(2))
        counts = zeros((slots, ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            # Of the whole sequence.
            q, keys, values = numbers(0, step, *[(heads, ranks * length, dim)] * 3)
            mine = slice(rank * length, (rank + 1) * length)
            k.copy_(keys[:, mine])
            v.copy_(values[:, mine])
            out = torch.empty(heads, length, dim, dtype=torch.float16, device=device())
            kernel(q[:, mine].contiguous(), k, v, out, counts)
            scores = q[:, mine].double() @ keys.double().transpose(1, 2) / dim**0.5
            worst = max(worst, error(out, scores.softmax(-1) @ values.double()))
        return worst

    return max(run(program, ranks))


if __name__ == "__main__":
    main(check, bound=4)
