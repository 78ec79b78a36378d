"""Kernels over several GPUs beside NCCL: the median over rounds of the slowest rank's time.

    torchrun --nproc-per-node 2 benchmark/distributed.py
    torchrun --nproc-per-node 2 benchmark/distributed.py --only all_reduce

Each row is checked against NCCL's result before it is timed. A time is that of one launch, measured
by events around `REPEATS` of them; a round takes ours and NCCL's in turn. Bandwidth is what a rank
sends in the algorithm that moves the fewest bytes. Blocks and tiles are those of the table below.
"""

import argparse
import os
import pathlib
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "distributed"))

import all_gather
import all_gather_gemm
import all_reduce
import gemm_reduce_scatter
import reduce_scatter

from tilelang import language as T
from tilelang.distributed import empty, zeros

ROUNDS, REPEATS = 15, 20
KB, MB = 1 << 10, 1 << 20
DTYPE = torch.bfloat16
TILE = {"block_M": 128, "block_N": 256, "block_K": 64, "threads": 256}

Row = tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor], float]
"""Ours, NCCL's, and the bytes that a rank sends."""


def elements(size: int) -> int:
    return size // DTYPE.itemsize


def drawn(*shape: int) -> torch.Tensor:
    torch.manual_seed(dist.get_rank())
    return torch.randn(shape, device="cuda").to(DTYPE)


def row_of_all_reduce(ranks: int, size: int) -> Row:
    n, blocks = elements(size), 8 if size <= MB else 64
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

    return ours, nccl, 2 * (ranks - 1) / ranks * size


def row_of_all_gather(ranks: int, size: int) -> Row:
    n, blocks = elements(size) // ranks, 64
    x, out = drawn(n), empty((ranks, n), DTYPE)
    counts = zeros((blocks, ranks), torch.uint32)
    kernel = all_gather.all_gather(ranks, n, T.bfloat16, blocks=blocks)
    theirs = torch.empty(ranks * n, device="cuda", dtype=DTYPE)

    def ours() -> torch.Tensor:
        kernel(x, out, counts)
        return out.view(-1)

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(theirs, x)
        return theirs

    return ours, nccl, (ranks - 1) / ranks * size


def row_of_reduce_scatter(ranks: int, size: int) -> Row:
    n, blocks = elements(size) // ranks, 64
    x, out = empty((ranks, n), DTYPE), torch.empty(n, device="cuda", dtype=DTYPE)
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

    return ours, nccl, (ranks - 1) / ranks * size


def row_of_all_gather_gemm(ranks: int, M: int, N: int = 28672, K: int = 8192) -> Row:
    rows, columns = M // ranks, N // ranks
    a, b = drawn(rows, K), drawn(K, columns)
    gathered = empty((ranks, rows, K), DTYPE)
    ready, counts = zeros(ranks, dtype=torch.uint32), zeros((16, ranks), torch.uint32)
    c = torch.empty(ranks, rows, columns, device="cuda", dtype=DTYPE)
    kernel = all_gather_gemm.all_gather_gemm(
        ranks, rows, columns, K, T.bfloat16, copiers=16, copied=2, **TILE
    )
    theirs = torch.empty(M, K, device="cuda", dtype=DTYPE)
    launches = iter(range(1 << 30))

    def ours() -> torch.Tensor:
        kernel(a, b, gathered, ready, counts, next(launches), c)
        return c.view(M, columns)

    def nccl() -> torch.Tensor:
        dist.all_gather_into_tensor(theirs, a)
        return theirs @ b

    return ours, nccl, (ranks - 1) * rows * K * DTYPE.itemsize


def row_of_gemm_reduce_scatter(ranks: int, M: int, N: int = 8192, K: int = 28672) -> Row:
    rows, depth = M // ranks, K // ranks
    a, b = drawn(M, depth), drawn(depth, N)
    tiles = -(-rows // TILE["block_M"]) * -(-N // TILE["block_N"])
    parts = empty((ranks, rows, N), DTYPE)
    arrived = zeros(tiles, dtype=torch.uint32)
    counts = zeros(((ranks - 1) * tiles, ranks), torch.uint32)
    c = torch.empty(rows, N, device="cuda", dtype=DTYPE)
    kernel = gemm_reduce_scatter.gemm_reduce_scatter(ranks, M, N, depth, T.bfloat16, **TILE)
    theirs = torch.empty_like(c)

    def ours() -> torch.Tensor:
        kernel(a, b, parts, arrived, counts, c)
        return c

    def nccl() -> torch.Tensor:
        dist.reduce_scatter_tensor(theirs, a @ b)
        return theirs

    return ours, nccl, (ranks - 1) * rows * N * DTYPE.itemsize


SMALL, LARGE = [4 * KB, 32 * KB, 256 * KB, MB], [64 * MB, 256 * MB]
LENGTHS = [1024, 2048, 4096, 8192, 16384]
ROWS: dict[str, tuple[Callable[[int, int], Row], list[int], str]] = {
    "all_reduce": (row_of_all_reduce, [*SMALL, *LARGE], "bytes"),
    "all_gather": (row_of_all_gather, LARGE, "bytes"),
    "reduce_scatter": (row_of_reduce_scatter, LARGE, "bytes"),
    "all_gather_gemm": (row_of_all_gather_gemm, LENGTHS, "rows"),
    "gemm_reduce_scatter": (row_of_gemm_reduce_scatter, LENGTHS, "rows"),
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
    slowest = torch.tensor(begin.elapsed_time(end) / REPEATS, device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def measure(row: Row) -> str:
    """The row's result: an error, or both times."""
    ours, nccl, sent = row
    found, wanted = ours().float(), nccl().float()
    off = torch.tensor(float((found - wanted).abs().max() / wanted.abs().max()), device="cuda")
    dist.all_reduce(off, dist.ReduceOp.MAX)
    if not float(off) < 0.03:
        return f"wrong: {float(off):.3f} of the largest value off"
    for run in (ours, nccl):
        milliseconds(run)
    times = [(milliseconds(ours), milliseconds(nccl)) for _ in range(ROUNDS)]
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    speed = sent / mine / 1e6
    return f"{mine:9.4f} ms {theirs:9.4f} ms {mine / theirs:6.2f} {speed:7.1f} GB/s"


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
    say(f"{'':32} {'ours':>12} {'NCCL':>12} {'ratio':>6} {'sent':>12}")
    for name in only:
        make, sizes, unit = ROWS[name]
        for size in sizes:
            say(f"{f'{name} {size} {unit}':32} {measure(make(ranks, size))}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
