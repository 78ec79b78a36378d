"""Expert parallelism: tokens go to the ranks of their experts as 8-bit floats, and come back.

`dispatch` quantises a token with a scale for each group of columns, and stores it to each rank that
has one of its experts, at the next free place of this rank's there. `combine` loads the results
from these places, and adds them with the weights of the router. Ranks get different numbers of
tokens.

torchrun --nproc-per-node 8 examples/distributed/experts.py, or without GPUs, in the emulator,
python examples/distributed/experts.py.
"""

import torch
from ranks import device, jit, main, run

import tilelang.language as T
from tilelang.distributed import empty, zeros

LARGEST = 448.0  # of float8_e4m3fn


@jit
def dispatch(ranks, tokens, hidden, top_k, local_experts, group=128, blocks=8, threads=128):
    groups = hidden // group
    room = tokens * top_k

    @T.prim_func
    def main(
        X: T.Tensor((tokens, hidden), T.float16),
        chosen: T.Tensor((tokens, top_k), T.int32),
        sent: T.Tensor((ranks,), T.int32),
        places: T.Tensor((tokens, top_k), T.int32),
        Rows: T.SymmetricTensor((ranks, room, groups, group), T.float8_e4m3fn),
        Scales: T.SymmetricTensor((ranks, room, groups), T.float32),
        experts: T.SymmetricTensor((ranks, room), T.int32),
        received: T.SymmetricTensor((ranks,), T.int32),
        counts: T.SymmetricTensor((blocks, ranks), T.uint32),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            values = T.alloc_fragment((groups, group), T.float32)
            row = T.alloc_fragment((groups, group), T.float8_e4m3fn)
            scale = T.alloc_fragment((groups,), T.float32)
            place = T.alloc_shared((1,), T.int32)
            tx = T.get_thread_binding()
            # Every rank is done with what it has got before.
            T.sync_ranks(counts, bx)
            for step in T.serial(T.ceildiv(tokens, blocks)):
                token = step * blocks + bx
                if token < tokens:
                    for g, j in T.Parallel(groups, group):
                        values[g, j] = X[token, g * group + j]
                    T.reduce_absmax(values, scale, dim=1)
                    for g in T.Parallel(groups):
                        scale[g] = T.max(scale[g], 1e-6) / LARGEST
                    for g, j in T.Parallel(groups, group):
                        row[g, j] = values[g, j] / scale[g]
                    for c in T.serial(top_k):
                        expert = chosen[token, c]
                        owner = expert // local_experts
                        if tx == 0:
                            place[0] = T.atomic_add(sent[owner], 1, return_prev=True)
                        slot = place[0]
                        T.copy(row, T.peer(Rows, owner)[T.rank(), slot, 0, 0])
                        T.copy(scale, T.peer(Scales, owner)[T.rank(), slot, 0])
                        Experts = T.peer(experts, owner)
                        Received = T.peer(received, owner)
                        if tx == 0:
                            Experts[T.rank(), slot] = expert
                            places[token, c] = slot
                            T.atomic_add(Received[T.rank()], 1)
            # Every rank has sent what it had.
            T.sync_ranks(counts, bx)

    return main


@jit
def combine(ranks, tokens, hidden, top_k, local_experts, blocks=8, threads=128):
    room = tokens * top_k

    @T.prim_func
    def main(
        Results: T.SymmetricTensor((ranks, room, hidden), T.float16),
        chosen: T.Tensor((tokens, top_k), T.int32),
        places: T.Tensor((tokens, top_k), T.int32),
        weights: T.Tensor((tokens, top_k), T.float32),
        Out: T.Tensor((tokens, hidden), T.float16),
        counts: T.SymmetricTensor((blocks, ranks), T.uint32),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            row = T.alloc_fragment((hidden,), T.float16)
            total = T.alloc_fragment((hidden,), T.float32)
            T.sync_ranks(counts, bx)
            for step in T.serial(T.ceildiv(tokens, blocks)):
                token = step * blocks + bx
                if token < tokens:
                    T.clear(total)
                    for c in T.serial(top_k):
                        Theirs = T.peer(Results, chosen[token, c] // local_experts)
                        T.copy(Theirs[T.rank(), places[token, c], 0], row)
                        for j in T.Parallel(hidden):
                            total[j] += weights[token, c] * row[j]
                    T.copy(total, Out[token, 0])
            T.sync_ranks(counts, bx)

    return main


def check(ranks, tokens=5, hidden=256, top_k=2, local_experts=2, blocks=2):
    """Largest difference in roundings of 8-bit floats. Expert e multiplies by e + 1."""
    shape = (ranks, tokens, hidden, top_k, local_experts)
    send, collect = dispatch(*shape, blocks=blocks), combine(*shape, blocks=blocks)
    room, groups = tokens * top_k, hidden // 128

    def program(rank):
        rows = empty((ranks, room, groups, 128), torch.float8_e4m3fn)
        scales = empty((ranks, room, groups))
        experts, received = empty((ranks, room), torch.int32), zeros(ranks, dtype=torch.int32)
        results = empty((ranks, room, hidden), torch.float16)
        counts = zeros((blocks, ranks), torch.uint32)
        worst = 0.0
        for step in range(2):
            x, chosen, weights = inputs(rank, ranks, tokens, hidden, top_k, local_experts, step)
            sent = torch.zeros(ranks, dtype=torch.int32, device=device())
            places = torch.empty(tokens, top_k, dtype=torch.int32, device=device())
            received.zero_()
            send(x, chosen, sent, places, rows, scales, experts, received, counts)
            for source in range(ranks):
                count = int(received[source])
                assert ((experts[source, :count] // local_experts) == rank).all()
                values = rows[source, :count].float() * scales[source, :count, :, None]
                factor = (experts[source, :count] + 1).float()
                results[source, :count] = (values.view(count, hidden) * factor[:, None]).half()
            out = torch.empty(tokens, hidden, dtype=torch.float16, device=device())
            collect(results, chosen, places, weights, out, counts)
            factor = (weights.double() * (chosen + 1)).sum(1, keepdim=True)
            wanted = x.double() * factor
            off = (out.double() - wanted).abs() / (x.double().abs().amax(1, keepdim=True) * factor)
            worst = max(worst, float(off.max()) / torch.finfo(torch.float8_e4m3fn).eps)
        return worst

    return max(run(program, ranks))


def inputs(rank, ranks, tokens, hidden, top_k, local_experts, step):
    """Of a rank: more tokens go to the first experts than to others."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    x = torch.randn(tokens, hidden, generator=generator).half()
    likely = 1.0 / torch.arange(1, ranks * local_experts + 1)
    chosen = torch.multinomial(likely.expand(tokens, -1), top_k, generator=generator).int()
    weights = torch.rand(tokens, top_k, generator=generator) + 0.1
    return x.to(device()), chosen.to(device()), weights.to(device())


if __name__ == "__main__":
    main(check, bound=1)
