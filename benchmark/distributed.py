"""Kernels over several GPUs beside NCCL: the median over rounds of the slowest rank's time.

    torchrun --nproc-per-node 2 benchmark/distributed.py
    torchrun --nproc-per-node 2 benchmark/distributed.py --only all_reduce

Each row is checked against NCCL's result before it is timed. A time is that of one launch, measured
by events around `REPEATS` of them; a round takes ours and NCCL's in turn. Bandwidth is what a rank
sends in the algorithm that moves the fewest bytes. The bound is the longer of two times: that of
these bytes at the bandwidth of a copy from another GPU, and that of the product alone by cuBLAS.
Blocks and tiles are those of the table below.

NCCL's dispatch and combine of experts take `all_to_all_single` with index copies, of rows that are
quantised and of sizes that are known before they are timed.
"""

import argparse
import os
import pathlib
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "distributed"))

import all_gather
import all_gather_gemm
import all_reduce
import experts
import gemm_reduce_scatter
import reduce_scatter
from ranks import device

from tilelang import language as T
from tilelang.distributed import empty, zeros

ROUNDS, REPEATS = 15, 20
KB, MB = 1 << 10, 1 << 20
DTYPE = torch.bfloat16
TILE = {"block_M": 128, "block_N": 256, "block_K": 64, "threads": 256}
BLOCKS = 64
GROUP = 128


class Row(NamedTuple):
    """Ours, NCCL's, the bytes that a rank sends; what of both results is compared, and the product
    alone."""

    ours: Callable[[], torch.Tensor]
    nccl: Callable[[], torch.Tensor]
    sent: float
    compared: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.float
    product: Callable[[], torch.Tensor] | None = None


def elements(size: int) -> int:
    return size // DTYPE.itemsize


def drawn(*shape: int) -> torch.Tensor:
    torch.manual_seed(dist.get_rank())
    return torch.randn(shape, device=device()).to(DTYPE)


def row_of_all_reduce(ranks: int, size: int) -> Row:
    n, blocks = elements(size), min(BLOCKS, 8 if size <= MB else BLOCKS)
    x, out = empty(n, dtype=DTYPE), empty(n, dtype=DTYPE)
    counts = zeros((blocks, ranks), torch.uint32)
    x.copy_(drawn(n))
    kernel = all_reduce.all_reduce(ranks, n, T.bfloat16, blocks=blocks)
    theirs = x.clone()

    def ours() -> torch.Tensor:
        kernel(x, out, counts)
        return out

    def nccl() -> torch.Tensor:
        dist.all_reduce(theirs)
        return theirs

    return Row(ours, nccl, 2 * (ranks - 1) / ranks * size)


def row_of_all_gather(ranks: int, size: int) -> Row:
    n, blocks = elements(size) // ranks, BLOCKS
    x, out = drawn(n), empty((ranks, n), DTYPE)
    counts = zeros((blocks, ranks), torch.uint32)
    kernel = all_gather.all_gather(ranks, n, T.bfloat16, blocks=blocks)
    theirs = torch.empty(ranks * n, device=device(), dtype=DTYPE)

    def ours() -> torch.Tensor:
        kernel(x, out, counts)
        return out.view(-1)

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(theirs, x)
        return theirs

    return Row(ours, nccl, (ranks - 1) / ranks * size)


def row_of_reduce_scatter(ranks: int, size: int) -> Row:
    n, blocks = elements(size) // ranks, BLOCKS
    x, out = empty((ranks, n), DTYPE), torch.empty(n, device=device(), dtype=DTYPE)
    counts = zeros((blocks, ranks), torch.uint32)
    x.copy_(drawn(ranks, n))
    kernel = reduce_scatter.reduce_scatter(ranks, n, T.bfloat16, blocks=blocks)
    theirs = torch.empty_like(out)

    def ours() -> torch.Tensor:
        kernel(x, out, counts)
        return out

    def nccl() -> torch.Tensor:
        dist.reduce_scatter_tensor(theirs, x.view(-1))
        return theirs

    return Row(ours, nccl, (ranks - 1) / ranks * size)


def row_of_all_gather_gemm(ranks: int, M: int, N: int = 28672, K: int = 8192) -> Row:
    rows, columns = M // ranks, N // ranks
    a, b = drawn(rows, K), drawn(K, columns)
    gathered = empty((ranks, rows, K), DTYPE)
    ready, counts = zeros(ranks, dtype=torch.uint32), zeros((16, ranks), torch.uint32)
    c = torch.empty(ranks, rows, columns, device=device(), dtype=DTYPE)
    kernel = all_gather_gemm.all_gather_gemm(
        ranks, rows, columns, K, T.bfloat16, copiers=16, copied=2, **TILE
    )
    theirs = torch.empty(M, K, device=device(), dtype=DTYPE)
    launches = iter(range(1 << 30))

    def ours() -> torch.Tensor:
        kernel(a, b, gathered, ready, counts, next(launches), c)
        return c.view(M, columns)

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(theirs, a)
        return theirs @ b

    return Row(ours, nccl, (ranks - 1) * rows * K * DTYPE.itemsize, product=lambda: theirs @ b)


def row_of_gemm_reduce_scatter(ranks: int, M: int, N: int = 8192, K: int = 28672) -> Row:
    rows, depth = M // ranks, K // ranks
    a, b = drawn(M, depth), drawn(depth, N)
    tiles = -(-rows // TILE["block_M"]) * -(-N // TILE["block_N"])
    parts = empty((ranks, rows, N), DTYPE)
    arrived = zeros(tiles, dtype=torch.uint32)
    counts = zeros(((ranks - 1) * tiles, ranks), torch.uint32)
    c = torch.empty(rows, N, device=device(), dtype=DTYPE)
    kernel = gemm_reduce_scatter.gemm_reduce_scatter(ranks, M, N, depth, T.bfloat16, **TILE)
    theirs = torch.empty_like(c)

    def ours() -> torch.Tensor:
        kernel(a, b, parts, arrived, counts, c)
        return c

    def nccl() -> torch.Tensor:
        dist.reduce_scatter_tensor(theirs, a @ b)
        return theirs

    return Row(ours, nccl, (ranks - 1) * rows * N * DTYPE.itemsize, product=lambda: a @ b)


class Tokens:
    """Tokens of this rank and the experts that a router has chosen for them; what
    `all_to_all_single` is told of them, and the rows that a rank gets by it."""

    def __init__(self, ranks: int, tokens: int, hidden: int, top_k: int, count: int):
        self.shape = (ranks, tokens, hidden, top_k, count // ranks)
        self.x, self.chosen, self.weights = experts.inputs(dist.get_rank(), *self.shape, step=0)
        owners = (self.chosen // (count // ranks)).flatten()
        self.order = torch.argsort(owners, stable=True)
        self.source = self.order // top_k
        self.splits = torch.bincount(owners, minlength=ranks).tolist()
        arriving = torch.empty(ranks, dtype=torch.int64, device=device())
        dist.all_to_all_single(arriving, torch.tensor(self.splits, device=device()))
        self.arriving = arriving.tolist()
        groups = self.x.float().view(tokens, hidden // GROUP, GROUP)
        self.scales = groups.abs().amax(2).clamp_min(1e-6) / experts.LARGEST
        self.rows = (groups / self.scales[:, :, None]).to(torch.float8_e4m3fn)

    def exchange(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of a tensor of tokens that come from all ranks, those of rank 0 first."""
        found = torch.empty(sum(self.arriving), *rows.shape[1:], dtype=rows.dtype, device=device())
        dist.all_to_all_single(found, rows[self.source], self.arriving, self.splits)
        return found

    def bytes_sent(self, of_row: int) -> float:
        """To other ranks."""
        return float(of_row * (sum(self.splits) - self.splits[dist.get_rank()]))


def dispatched(tokens: Tokens) -> tuple[Callable[[], torch.Tensor], list[torch.Tensor]]:
    """Our dispatch, which gives the rows as floats, and the tensors that it fills."""
    ranks, count, hidden, top_k, _ = tokens.shape
    room, groups, blocks = count * top_k, hidden // GROUP, BLOCKS
    rows = empty((ranks, room, groups, GROUP), torch.float8_e4m3fn)
    scales = empty((ranks, room, groups))
    named, received = empty((ranks, room), torch.int32), zeros(ranks, dtype=torch.int32)
    places = torch.empty(count, top_k, dtype=torch.int32, device=device())
    sent = torch.zeros(ranks, dtype=torch.int32, device=device())
    counts = zeros((blocks, ranks), torch.uint32)
    kernel = experts.dispatch(*tokens.shape, group=GROUP, blocks=blocks)

    def run() -> torch.Tensor:
        # Places in the memory of other ranks are given anew.
        sent.zero_()
        kernel(tokens.x, tokens.chosen, sent, places, rows, scales, named, received, counts)
        return rows

    return run, [rows, scales, places]


def row_of_dispatch(
    ranks: int, tokens: int, hidden: int = 7168, top_k: int = 8, count: int = 64
) -> Row:
    given = Tokens(ranks, tokens, hidden, top_k, count)
    ours, (rows, scales, _) = dispatched(given)
    ends = [sum(given.arriving[: r + 1]) for r in range(ranks)]

    def nccl() -> torch.Tensor:
        # As bytes: collectives do not know 8-bit floats.
        content = given.exchange(given.rows.view(torch.uint8)).view(torch.float8_e4m3fn)
        return torch.mul(content.float(), given.exchange(given.scales)[:, :, None])

    def sums(found: torch.Tensor) -> torch.Tensor:
        """Of the rows from each rank, whose order is that in which they come."""
        if found is rows:
            parts = [
                rows[r, : given.arriving[r]].float() * scales[r, : given.arriving[r], :, None]
                for r in range(ranks)
            ]
        else:
            parts = [found[end - n : end] for end, n in zip(ends, given.arriving, strict=True)]
        return torch.stack([part.double().sum(0) for part in parts]).float()

    of_row = hidden + 4 * (hidden // GROUP)
    return Row(ours, nccl, given.bytes_sent(of_row), sums)


def row_of_combine(
    ranks: int, tokens: int, hidden: int = 7168, top_k: int = 8, count: int = 64
) -> Row:
    given = Tokens(ranks, tokens, hidden, top_k, count)
    dispatch, (rows, scales, places) = dispatched(given)
    dispatch()
    results = empty((ranks, tokens * top_k, hidden), torch.float16)
    results.copy_((rows.float() * scales[..., None]).view_as(results))
    out = torch.empty(tokens, hidden, dtype=torch.float16, device=device())
    counts = zeros((BLOCKS, ranks), torch.uint32)
    kernel = experts.combine(*given.shape, blocks=BLOCKS)
    exchanged = given.exchange((given.rows.float() * given.scales[:, :, None]).half())
    weights = given.weights.flatten()[given.order][:, None]
    back = torch.empty(sum(given.splits), hidden, dtype=torch.float16, device=device())

    def ours() -> torch.Tensor:
        kernel(results, given.chosen, places, given.weights, out, counts)
        return out

    def nccl() -> torch.Tensor:
        dist.all_to_all_single(back, exchanged.view(-1, hidden), given.splits, given.arriving)
        total = torch.zeros(tokens, hidden, device=device())
        return total.index_add_(0, given.source, back * weights)

    return Row(ours, nccl, given.bytes_sent(2 * hidden))


SMALL, LARGE = [4 * KB, 32 * KB, 256 * KB, MB], [64 * MB, 256 * MB]
LENGTHS = [1024, 2048, 4096, 8192, 16384]
ROWS: dict[str, tuple[Callable[[int, int], Row], list[int], str]] = {
    "all_reduce": (row_of_all_reduce, [*SMALL, *LARGE], "bytes"),
    "all_gather": (row_of_all_gather, LARGE, "bytes"),
    "reduce_scatter": (row_of_reduce_scatter, LARGE, "bytes"),
    "all_gather_gemm": (row_of_all_gather_gemm, LENGTHS, "rows"),
    "gemm_reduce_scatter": (row_of_gemm_reduce_scatter, LENGTHS, "rows"),
    "dispatch": (row_of_dispatch, [4096], "tokens"),
    "combine": (row_of_combine, [4096], "tokens"),
}


def milliseconds(run: Callable[[], Any]) -> float:
    """Of one run, on the rank that takes longest."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    begin.record()
    for _ in range(REPEATS):
        run()
    end.record()
    end.synchronize()
    slowest = torch.tensor(begin.elapsed_time(end) / REPEATS, device=device())
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def difference(row: Row) -> float:
    """The largest difference of both results, of the largest value, on the worst rank."""
    found, wanted = row.compared(row.ours()).float(), row.compared(row.nccl()).float()
    off = (found - wanted).abs().max() / wanted.abs().max()
    dist.all_reduce(off, dist.ReduceOp.MAX)
    return float(off)


def link_bandwidth(ranks: int) -> float:
    """Bytes a second of a copy from the next rank."""
    from torch.distributed import _symmetric_memory

    size = 256 * MB
    mine = _symmetric_memory.empty(size, dtype=torch.uint8, device=device())
    handle = _symmetric_memory.rendezvous(mine, dist.group.WORLD.group_name)
    theirs = handle.get_buffer((dist.get_rank() + 1) % ranks, (size,), torch.uint8)
    copied = torch.empty_like(mine)
    times = [milliseconds(lambda: copied.copy_(theirs)) for _ in range(5)]
    return size / statistics.median(times) * 1e3


def measure(row: Row, link: float) -> str:
    """The row's result: an error, or both times."""
    off = difference(row)
    if not off < 0.03:
        return f"wrong: {off:.3f} of the largest value off"
    for run in (row.ours, row.nccl):
        milliseconds(run)
    times = [(milliseconds(row.ours), milliseconds(row.nccl)) for _ in range(ROUNDS)]
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    product = statistics.median(milliseconds(row.product) for _ in range(5)) if row.product else 0
    bound = max(row.sent / link * 1e3, product)
    return (
        f"{mine:9.4f} ms {theirs:9.4f} ms {theirs / mine:6.2f} {row.sent / mine / 1e6:7.1f} GB/s "
        f"{bound / mine:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    only = parser.parse_args().only
    if "LOCAL_RANK" not in os.environ or torch.cuda.device_count() < 2:
        parser.error("found no ranks or fewer than two GPUs; run it by torchrun")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    ranks = dist.get_world_size()
    say = print if dist.get_rank() == 0 else lambda *_: None
    say(f"{ranks} x {torch.cuda.get_device_name()}, median of {ROUNDS} rounds, slowest rank")
    link = link_bandwidth(ranks)
    say(f"a copy from another GPU: {link / 1e9:.1f} GB/s")
    say(f"{'':32} {'ours':>12} {'NCCL':>12} {'faster':>6} {'sent':>12} {'bound':>6}")
    for name in only:
        make, sizes, unit = ROWS[name]
        for size in sizes:
            say(f"{f'{name} {size} {unit}':32} {measure(make(ranks, size), link)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
