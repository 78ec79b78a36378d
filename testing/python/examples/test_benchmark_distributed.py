"""Rows of the benchmark over several GPUs: small ones, in the emulator, beside what stands in for
NCCL."""

import importlib
import pathlib
import sys
import threading

import pytest
import torch

from tilelang import distributed

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmark"
EXAMPLES = ("all_gather", "all_gather_gemm", "all_reduce", "experts", "gemm_reduce_scatter")
RANKS = 2


class Collectives:
    """Stands in for torch.distributed among the emulator's ranks."""

    class ReduceOp:
        MAX = "max"

    @staticmethod
    def get_rank():
        return distributed.current_team().rank

    @staticmethod
    def _all(tensor):
        return distributed.current_team().exchange("a collective", tensor.clone())

    def all_reduce(self, tensor, op="sum"):
        whole = torch.stack(self._all(tensor)).float()
        tensor.copy_(whole.amax(0) if op == "max" else whole.sum(0))

    def all_gather_into_tensor(self, out, tensor):
        out.copy_(torch.cat(self._all(tensor)).view_as(out))

    def reduce_scatter_tensor(self, out, tensor):
        whole = torch.stack(self._all(tensor)).float().sum(0)
        out.copy_(whole.view(RANKS, -1)[self.get_rank()].view_as(out))

    def all_to_all_single(self, out, tensor, arriving=None, splits=None):
        equal = [len(tensor) // RANKS] * RANKS
        parts = distributed.current_team().exchange("rows", tensor.split(splits or equal))
        mine = [part[self.get_rank()] for part in parts]
        assert [len(part) for part in mine] == (arriving or equal)
        out.copy_(torch.cat(mine))


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    # The name is that of a package of torch and of ours, so it is loaded by its path.
    spec = importlib.util.spec_from_file_location("rows", BENCHMARKS / "distributed.py")
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "dist", Collectives())
    monkeypatch.setattr(module, "BLOCKS", 2)
    small = {"block_M": 32, "block_N": 32, "block_K": 32, "threads": 128}
    monkeypatch.setattr(module, "TILE", small)
    # One rank traces at a time: CPython 3.11 counts the depth of its ast once for all threads.
    lock = threading.Lock()

    def one_at_a_time(function):
        def run(*args, **kwargs):
            with lock:
                return function(*args, **kwargs)

        return run

    for name in (*EXAMPLES, "reduce_scatter"):
        example = getattr(module, name)
        for made in {name, "dispatch", "combine"} & set(vars(example)):
            monkeypatch.setattr(example, made, one_at_a_time(getattr(example, made)))
    yield module
    sys.path[:] = path
    for name in (*EXAMPLES, "reduce_scatter", "ranks"):
        sys.modules.pop(name, None)


# Sizes of a small row, and what a rank sends of it.
SMALL = {
    "all_reduce": ((4096,), 4096),
    "all_gather": ((8192,), 4096),
    "reduce_scatter": ((8192,), 4096),
    "all_gather_gemm": ((64, 64, 64), 32 * 64 * 2),
    "gemm_reduce_scatter": ((64, 64, 64), 32 * 64 * 2),
    "dispatch": ((6, 256, 2, 8), None),
    "combine": ((6, 256, 2, 8), None),
}


def test_every_row_of_the_table_is_here(table):
    assert set(table.ROWS) == set(SMALL)
    sizes = {name: sizes for name, (_, sizes, _) in table.ROWS.items()}
    assert sizes["all_reduce"][0] == 4 << 10
    assert all(sizes[name][-1] >= 64 << 20 for name in ("all_reduce", "all_gather"))
    assert sizes["all_gather_gemm"] == sizes["gemm_reduce_scatter"] == [1024 << i for i in range(5)]
    assert sizes["dispatch"] == sizes["combine"] == [4096]


@pytest.mark.parametrize("name", ["all_gather_gemm", "dispatch", "combine"])
def test_a_row_gives_what_the_collective_gives(table, name):
    check(table, name)


@pytest.mark.parametrize(
    "name", ["all_gather", "all_reduce", "gemm_reduce_scatter", "reduce_scatter"]
)
def test_the_other_rows(table, name):
    check(table, name)


def check(table, name):
    sizes, sent = SMALL[name]

    def program(rank):
        row = table.ROWS[name][0](RANKS, *sizes)
        for _ in range(2):
            row.ours()
        off = table.difference(row)
        if row.product is not None:
            assert row.product().shape[-1] in (32, 64)
        return off, row.sent

    found = distributed.emulate(RANKS, program)
    assert all(off < 0.02 for off, _ in found)
    assert all(of_rank == sent if sent else of_rank > 0 for _, of_rank in found)


def test_a_wrong_result_is_seen(table):
    def program(rank):
        row = table.row_of_all_gather(RANKS, 8192)
        return table.difference(row._replace(ours=lambda: row.ours() * 1.5))

    assert min(distributed.emulate(RANKS, program)) > 0.4
