"""Two ranks on one GPU, as threads with a stream each: what the device functions do, and what a
launch passes. Their blocks run at the same time, since they are few."""

import math
import pathlib
import threading

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang import distributed
from tilelang.distributed.emulated import EmulatedTeam, _Meeting
from tilelang.distributed.team import current

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "distributed"
RANKS, N, BLOCKS = 2, 4096, 4


class GpuMemory:
    """Memory of one GPU, which all streams have the addresses of."""

    def allocate(self, team, shape, dtype):
        flat = torch.empty(max(1, math.prod(shape)), dtype=dtype, device="cuda")
        addresses = team.exchange("addresses", flat.data_ptr())
        return flat[: math.prod(shape)].view(tuple(shape)), addresses


def load_kernels_of_torch():
    """Those that a rank runs between its launches. Loading one may wait for all kernels of the GPU
    (CUDA Programming Guide, Lazy Loading), of which the other rank's waits for this rank."""
    x = torch.arange(N, device="cuda") + 10000.0
    assert torch.equal(x, x.clone())


def on_streams(program):
    """The results of ``program(rank)`` on threads with a stream each."""
    load_kernels_of_torch()
    meeting = _Meeting(RANKS, 60)
    results, errors = [None] * RANKS, []

    def run(rank):
        team = EmulatedTeam(meeting, rank)
        team.memory = GpuMemory()
        current.set(team)
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                results[rank] = program(rank)
                torch.cuda.current_stream().synchronize()
        except Exception as error:  # noqa: BLE001 (the test raises it)
            errors.append(error)
        meeting.end(rank, bool(errors))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.fixture(scope="module")
def shift():
    """A tile to the other rank by vectors or by a bulk copy, with a signal or between barriers."""

    def make(bulk, signal):
        @T.prim_func
        def main(
            X: T.Tensor((N,), "float32"),
            In: T.SymmetricTensor((N,), "float32"),
            ready: T.SymmetricTensor((BLOCKS,), "uint32"),
            counts: T.SymmetricTensor((BLOCKS, RANKS), "uint32"),
            total: T.SymmetricTensor((1,), "int32"),
            Y: T.Tensor((N,), "float32"),
        ):
            with T.Kernel(BLOCKS, threads=128) as bx:
                tile = T.alloc_shared((N // BLOCKS,), "float32")
                first = bx * (N // BLOCKS)
                other = 1 - T.rank()
                T.copy(X[first], tile)
                T.sync_ranks(counts, bx)
                Theirs = T.peer(In, other)
                if bulk:
                    T.tma_copy(tile, Theirs[first])
                else:
                    T.copy(tile, Theirs[first])
                if signal:
                    T.signal_set(T.peer(ready, other)[bx], 7)
                    T.signal_wait_until(ready[bx], "eq", 7)
                    T.signal_set(ready[bx], 0)
                else:
                    T.sync_ranks(counts, bx)
                T.copy(In[first], tile)
                T.copy(tile, Y[first])
                Totals = T.peer(total, 0)
                for _ in T.Parallel(128):
                    T.atomic_add(Totals[0], 1)

        return tilelang.compile(main)

    return make


@pytest.mark.parametrize("signal", [True, False], ids=["signal", "barrier"])
@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "vectors"])
def test_tiles_come_with_their_signals(shift, bulk, signal):
    if bulk and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the GPU has no bulk copies")
    kernel = shift(bulk, signal)

    def program(rank):
        given = distributed.empty(N), distributed.zeros(BLOCKS, dtype=torch.uint32)
        counts = distributed.zeros((BLOCKS, RANKS), dtype=torch.uint32)
        total = distributed.zeros(1, dtype=torch.int32)
        y = torch.empty(N, device="cuda")
        for step in range(50):
            x = torch.arange(N, device="cuda") + 10000.0 * rank + step
            kernel(x, *given, counts, total, y)
            wanted = torch.arange(N, device="cuda") + 10000.0 * (1 - rank) + step
            assert torch.equal(y, wanted), step
        current.get().exchange("the end", None)
        return int(total)

    found = on_streams(program)
    assert found[0] == 50 * RANKS * BLOCKS * 128


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="no TMA"
)
def test_tiles_go_and_come_by_tma():
    """By tensor maps of the other rank's tensor, which lie in global memory."""
    rows = cols = 128

    @T.prim_func
    def main(
        X: T.Tensor((rows, cols), "float16"),
        Sent: T.SymmetricTensor((rows, cols), "float16"),
        counts: T.SymmetricTensor((2, RANKS), "uint32"),
        Y: T.Tensor((rows, cols), "float16"),
    ):
        with T.Kernel(2, threads=128) as bx:
            tile = T.alloc_shared((rows, 64), "float16")
            T.sync_ranks(counts, bx)
            T.copy(X[0, bx * 64], tile)
            Theirs = T.peer(Sent, 1 - T.rank())
            T.tma_copy(tile, Theirs[0, bx * 64])
            T.sync_ranks(counts, bx)
            Mine = T.peer(Sent, T.rank())
            T.copy(Mine[0, bx * 64], tile, prefer_instruction="tma")
            T.copy(tile, Y[0, bx * 64])

    kernel = tilelang.compile(main)
    assert kernel.get_kernel_source().count("tl::tensor_map_at(") == 2

    def program(rank):
        sent = distributed.empty((rows, cols), torch.float16)
        counts = distributed.zeros((2, RANKS), dtype=torch.uint32)
        y = torch.empty(rows, cols, dtype=torch.float16, device="cuda")
        for step in range(20):
            x = torch.arange(rows * cols, device="cuda").reshape(rows, cols) % 1000
            kernel((x + 10 * rank + step).half(), sent, counts, y)
            assert torch.equal(y, (x + 10 * (1 - rank) + step).half()), step
        return True

    assert all(on_streams(program))


def test_a_graph_of_each_rank(shift):
    """Captured behind a first run, and replayed: the tables of addresses and the counts stay."""
    kernel = shift(False, True)

    def program(rank):
        given = distributed.empty(N), distributed.zeros(BLOCKS, dtype=torch.uint32)
        counts = distributed.zeros((BLOCKS, RANKS), dtype=torch.uint32)
        total = distributed.zeros(1, dtype=torch.int32)
        x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
        graph = torch.cuda.CUDAGraph()
        kernel(x.fill_(rank), *given, counts, total, y)
        torch.cuda.current_stream().synchronize()
        graph.capture_begin(capture_error_mode="thread_local")
        kernel(x, *given, counts, total, y)
        graph.capture_end()
        current.get().exchange("the replays", None)
        for step in range(10):
            x.fill_(100 * rank + step)
            graph.replay()
            torch.cuda.current_stream().synchronize()
            assert (y == 100 * (1 - rank) + step).all(), step
        return True

    assert all(on_streams(program))


@pytest.mark.parametrize(
    "name", ["all_gather", "all_gather_gemm", "all_reduce", "gemm_all_reduce", "reduce_scatter"]
)
def test_examples(monkeypatch, name):
    """Those whose ranks need few blocks."""
    import importlib
    import sys

    monkeypatch.syspath_prepend(EXAMPLES)
    ranks = importlib.import_module("ranks")
    monkeypatch.setattr(ranks, "is_distributed", lambda: True)
    monkeypatch.setattr(ranks, "run", lambda program, _: on_streams(program))
    module = importlib.import_module(name)
    try:
        options = {"blocks": 2} if name in ("all_gather", "reduce_scatter") else {}
        assert module.check(RANKS, **options) <= 2
    finally:
        for loaded in (name, "ranks"):
            del sys.modules[loaded]
