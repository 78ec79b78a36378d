"""What is checked before several ranks launch, and what each of them passes."""

import contextlib
import pickle
import threading
import time
import types

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang import distributed
from tilelang.distributed import launcher
from tilelang.distributed.launcher import TeamLauncher
from tilelang.distributed.memory import allocation_of
from tilelang.distributed.team import StoreTeam, backend_of, current
from tilelang.emulator import EmulationError, schedule

N = 64


def program_of(value):
    """Each rank stores `value` and its number to the next one."""

    @T.prim_func
    def main(
        X: T.SymmetricTensor((2, N), "float32"),
        counts: T.SymmetricTensor((1, 4), "uint32"),
        Y: T.Tensor((2, N), "float32"),
    ):
        with T.Kernel(1, threads=N):
            T.sync_ranks(counts)
            Next = T.peer(X, (T.rank() + 1) % T.num_ranks())
            for i in T.Parallel(N):
                Next[0, i] = value
                Next[1, i] = T.rank()
            T.sync_ranks(counts)
            T.copy(X, Y)

    return main


def compiled(value):
    return tilelang.compile(program_of(value), target="cuda", execution_backend="emulate")


@pytest.fixture(scope="module")
def kernel():
    found = compiled(5)
    # The first call builds the kernel, which is none of a test's time limit.
    distributed.emulate(1, lambda rank: found(*tensors()))
    return found


def tensors():
    return distributed.empty(2, N), distributed.zeros((1, 4), torch.uint32), torch.empty(2, N)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_are_threads(kernel, ranks):
    def program(rank):
        x, counts, y = tensors()
        kernel(x, counts, y)
        kernel(X=x, counts=counts, Y=y)
        return y

    for rank, y in enumerate(distributed.emulate(ranks, program)):
        assert (y[0] == 5).all()
        assert (y[1] == (rank - 1) % ranks).all()


def test_other_ranks_find_no_adapter_that_is_half_made(monkeypatch):
    """Calls read the adapter without a lock."""
    kernel = compiled(6)
    kernel._adapter = None
    seen = []

    def made(adapter, source):
        seen.append(kernel._adapter)
        return TeamLauncher(adapter, source)

    monkeypatch.setattr(launcher, "TeamLauncher", made)
    assert type(kernel.adapter) is TeamLauncher
    assert seen == [None]


def test_a_view_is_symmetric_too(kernel):
    def program(rank):
        x, counts, y = distributed.zeros((5, N)), *tensors()[1:]
        kernel(x[2:4], counts, y)
        return x

    for rank, x in enumerate(distributed.emulate(3, program)):
        assert x.sum(1).tolist() == [0, 0, 5 * N, (rank - 1) % 3 * N, 0]


def refused(program, error, match, ranks=2, **how):
    with pytest.raises(error, match=match):
        distributed.emulate(ranks, program, **how)


def test_a_tensor_that_is_not_symmetric(kernel):
    def program(rank):
        _, counts, y = tensors()
        kernel(torch.empty(2, N), counts, y)

    refused(program, ValueError, "argument `X`: expected a symmetric tensor.*distributed.empty")


def test_no_tensor_and_too_few_arguments(kernel):
    refused(lambda rank: kernel(*tensors()[:2]), ValueError, r"Expected 3 inputs, got 2.*\(X, cou")
    refused(lambda rank: kernel(1, *tensors()[1:]), TypeError, "expected a torch.Tensor, got int")


def test_more_ranks_than_counts_has_room_for(kernel):
    refused(lambda rank: kernel(*tensors()), AssertionError, "T.sync_ranks", ranks=5)


def test_a_kernel_that_one_rank_has_compiled_differently(kernel):
    other = compiled(6)
    refused(
        lambda rank: (other if rank == 2 else kernel)(*tensors()),
        RuntimeError,
        r"rank 2 has compiled another kernel than rank \d",
        ranks=3,
    )


def test_shapes_that_differ():
    refused(lambda rank: distributed.empty(2 + rank, N), RuntimeError, "shape.*Let all ranks alloc")


def test_tensors_at_different_places(kernel):
    def program(rank):
        x, counts, y = distributed.zeros((5, N)), *tensors()[1:]
        kernel(x[rank:][:2], counts, y)

    refused(program, RuntimeError, "argument `X`: rank . passes .* bytes into its allocation")


def test_a_rank_that_does_not_launch(kernel):
    def program(rank):
        given = tensors()
        if rank != 1:
            kernel(*given)

    refused(program, RuntimeError, "waits at the first launch of .*rank 1 has ended", ranks=3)


def test_a_rank_that_never_comes(kernel):
    def program(rank):
        given = tensors()
        if rank == 0:
            time.sleep(1)
        kernel(*given)

    match = "rank 1 waits at .*rank 0 has not come in 0.3 s"
    refused(program, RuntimeError, match, time_limit=0.3)


def test_the_error_of_a_rank_is_the_callers(kernel):
    def program(rank):
        if rank == 1:
            raise ZeroDivisionError("of rank 1")
        kernel(*tensors())

    refused(program, ZeroDivisionError, "of rank 1")


def test_one_rank_fails_and_another_one_never_arrives(kernel):
    """The caller gets the error in the time limit, with what it does not say itself."""
    comes = threading.Event()

    def program(rank):
        given = tensors()
        if rank == 1:
            raise ZeroDivisionError("of a user")
        if rank == 2:
            comes.wait()
        kernel(*given)

    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="of a user") as found:
        distributed.emulate(4, program, time_limit=0.3)
    comes.set()
    assert time.monotonic() - begin < 10
    if hasattr(found.value, "add_note"):
        assert found.value.__notes__ == [
            "raised by rank 1 of 4 of tilelang.distributed.emulate",
            "rank 2 did not end; the threads go on in the background",
        ]


def test_a_rank_that_catches_the_error_and_does_not_end(kernel):
    ends = threading.Event()

    def program(rank):
        if rank == 1:
            with contextlib.suppress(RuntimeError):
                kernel(*tensors())
            ends.wait()

    with pytest.raises(RuntimeError, match=r"rank 1 of 2 did not end in 0\.3 s after"):
        distributed.emulate(2, program, time_limit=0.3)
    ends.set()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_rank_that_ends_the_program(kernel, error):
    """It is no `Exception`, and the others do not wait for it."""

    def program(rank):
        if rank == 2:
            raise error
        kernel(*tensors())

    with pytest.raises(error):
        distributed.emulate(3, program)


def test_ranks_that_do_different_things(kernel):
    def program(rank):
        given = tensors()
        if rank == 0:
            distributed.empty(3)
        else:
            kernel(*given)

    refused(program, RuntimeError, "rank . has come to .*, rank . to ")


def test_without_ranks(kernel):
    with pytest.raises(RuntimeError, match=r"found no ranks.*torchrun.*emulate"):
        distributed.empty(3)
    with pytest.raises(ValueError, match="expected a symmetric tensor"):
        kernel(torch.empty(2, N), torch.zeros(1, 4, dtype=torch.uint32), torch.empty(2, N))
    with pytest.raises(ValueError, match="found 0 ranks, wanted 1 to 64"):
        distributed.emulate(0, lambda rank: None)


def test_reports_name_rank_and_tensor():
    @T.prim_func
    def main(X: T.SymmetricTensor((N,), "float32"), ready: T.SymmetricTensor((2,), "int32")):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                X[i] = T.rank()
            T.signal_set(T.peer(ready, 0)[1], T.rank())
            T.signal_wait_until(ready[0], "gt", 7)

    kernel = tilelang.compile(main, target="cuda", execution_backend="emulate")

    def program(rank):
        x, ready = distributed.empty(N), distributed.zeros(2, dtype=torch.int32)
        kernel(x, ready)

    with pytest.raises(EmulationError) as found:
        distributed.emulate(2, program)
    text = str(found.value)
    assert "for signal ready[0] of rank 1 to be > 7; it is 0" in text
    assert "have ended" not in text
    assert "rank 0, rank 1 could still, but have not" in text


def test_a_report_of_a_signal_that_never_comes_names_who_has_ended():
    """Ranks 1 and 2 of 4 go on without a signal."""

    @T.prim_func
    def main(ready: T.SymmetricTensor((1,), "int32")):
        with T.Kernel(1, threads=32):
            if T.rank() % 3 == 0:
                T.signal_wait_until(ready[0], "eq", 1)

    kernel = tilelang.compile(main, target="cuda", execution_backend="emulate")
    with pytest.raises(EmulationError) as found:
        distributed.emulate(4, lambda rank: kernel(distributed.zeros(1, dtype=torch.int32)))
    assert "rank 0, rank 3 could still, but have not; rank 1, rank 2 have ended. Let one" in str(
        found.value
    )


class SharedMemory:
    """Stands in for symmetric memory: rank r has the addresses 1000 r and on."""

    def __init__(self):
        self.kept = []

    def allocate(self, team, shape, dtype):
        tensor = torch.empty(shape, dtype=dtype)
        mine = tensor.data_ptr()
        addresses = [mine + 4096 * (r - team.rank) for r in range(team.size)]
        self.kept.append(tensor)
        return tensor, addresses


class Recorder:
    """Stands in for a launcher."""

    def __init__(self, plan):
        self.plan = plan
        self.calls = []

    def __call__(self, *args):
        self.calls.append(args)


def test_what_a_process_passes(kernel):
    """With a store of torch.distributed between the ranks, here threads."""

    store = torch.distributed.HashStore()
    recorders = [Recorder(kernel.launch_plan) for _ in range(3)]

    def run(rank):
        team = StoreTeam(store, rank, 3, SharedMemory(), time_limit=20)
        assert backend_of(team) is None
        token = current.set(team)
        try:
            given = tensors()
            launcher = TeamLauncher(recorders[rank], kernel.kernel_source)
            launcher(*given)
            launcher(given[0], given[1], given[2])
        finally:
            current.reset(token)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank, recorder in enumerate(recorders):
        first, second = recorder.calls
        x, counts, _, mine, size, *tables = first
        assert (mine, size) == (rank, 3)
        for tensor, table in zip((counts, x), tables, strict=True):
            own = tensor.data_ptr()
            assert table.tolist() == [own + 4096 * (r - rank) for r in range(3)]
        assert all(a is b for a, b in zip(tables, second[5:], strict=True))  # made once


class HasFound:
    """Stands in for a watch."""

    def __init__(self, found=None):
        self.found = found
        self.seen = []

    def check(self):
        if self.found:
            raise RuntimeError(self.found)

    def explained(self, error):
        return RuntimeError(f"rank 1 has died. {error}")

    def launched(self, kernel):
        self.seen.append(kernel)


@pytest.mark.parametrize("found", [None, "rank 1 has died"])
def test_the_watch_has_the_word_before_a_launch_and_behind_one_that_fails(kernel, found):
    def program(rank):
        team, recorder = current.get(), Recorder(kernel.launch_plan)
        team.watch = HasFound(found)
        launcher, given = TeamLauncher(recorder, kernel.kernel_source), tensors()
        if found:
            with pytest.raises(RuntimeError, match="rank 1 has died"):
                launcher(*given)
            return recorder.calls == []
        launcher(*given)

        def fail(*args):
            raise RuntimeError("CUDA error: unspecified launch failure")

        launcher.launcher = fail
        with pytest.raises(RuntimeError, match=r"rank 1 has died\. CUDA error") as error:
            launcher(*given)
        return isinstance(error.value.__cause__, RuntimeError) and len(team.watch.seen) == 1

    assert distributed.emulate(2, program) == [True, True]


def test_a_process_that_has_died_is_named():
    store = torch.distributed.HashStore()
    team = StoreTeam(store, 1, 3, SharedMemory(), time_limit=0.2)
    store.set("1/0", pickle.dumps(("the first launch", None)))
    with pytest.raises(
        RuntimeError, match=r"rank 1 has waited 0.2 s for rank 2 to come to the fir"
    ):
        team.exchange("the first launch", None)
    store.set("2/0", pickle.dumps(("an allocation", None)))
    with pytest.raises(RuntimeError, match="rank 1 has come to a launch, rank 0 to an allocation"):
        team.exchange("a launch", None)


def test_files_and_operators_are_of_one_gpu(kernel, tmp_path):
    with pytest.raises(ValueError, match=r"export|several GPUs, wanted one of one GPU: files"):
        kernel.export(tmp_path / "kernel")
    with pytest.raises(ValueError, match=r"several GPUs, wanted one of one GPU, whose results"):
        tilelang.torch.register(kernel, "ranks::shift")


def described(hosts, nvshmem):
    class Team:
        def exchange(self, what, value):
            return list(zip(hosts, nvshmem, strict=True))

    return Team()


def test_memory_of_several_hosts_is_nvshmems():
    assert backend_of(described("aaa", (False, False, False))) is None
    assert backend_of(described("aab", (True, True, True))) == "NVSHMEM"
    with pytest.raises(
        NotImplementedError, match="rank 0 is on a and rank 2 on b, and torch finds no NVSHMEM on r"
    ):
        backend_of(described("aab", (True, False, True)))


class Symmetric:
    """Stands in for torch.distributed._symmetric_memory: rank r's memory is 1 MB from the next."""

    def __init__(self, reached):
        self.reached = reached
        self.backend = "CUDA"

    def get_backend(self, device):
        return self.backend

    def set_backend(self, name):
        self.backend = name

    def empty(self, count, dtype, device):
        self.used = self.backend
        return torch.empty(count + 64, dtype=dtype)[64:]

    def rendezvous(self, tensor, group_name):
        begin = tensor.untyped_storage().data_ptr()
        found = [begin + (r - 1) * (1 << 20) if r in self.reached else 0 for r in range(3)]
        return types.SimpleNamespace(buffer_ptrs=found)


@pytest.mark.parametrize("backend", [None, "NVSHMEM"])
def test_what_torch_allocates(monkeypatch, backend):
    from tilelang.distributed.memory import TorchMemory

    class Team:
        rank, size = 1, 3

    stand_in = Symmetric(range(3))
    # It is there once something has imported it, which no other test has to have done.
    monkeypatch.setattr(torch.distributed, "_symmetric_memory", stand_in, raising=False)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    tensor, addresses = TorchMemory("group", backend).allocate(Team(), (4, 5), torch.float16)
    assert (tuple(tensor.shape), stand_in.used) == ((4, 5), backend or "CUDA")
    own = tensor.data_ptr()
    assert addresses == [own - (1 << 20), own, own + (1 << 20)]
    # A rank behind a network.
    monkeypatch.setattr(torch.distributed, "_symmetric_memory", Symmetric((0, 1)))
    with pytest.raises(NotImplementedError, match="rank 1 has no address of the memory of rank 2"):
        TorchMemory("group", backend).allocate(Team(), (4, 5), torch.float16)


def test_memory_is_forgotten_with_its_tensor():
    def program(rank):
        x = distributed.empty(4)
        assert allocation_of(x[1:]) is not None
        address = x.untyped_storage().data_ptr()
        del x
        from tilelang.distributed import memory

        return address in memory._allocations

    assert distributed.emulate(2, program) == [False, False]


def test_roles_and_the_barrier_of_the_grid():
    """One role stores to the next rank, the other one waits for it; then all blocks go on."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        In: T.SymmetricTensor((N,), "float32"),
        ready: T.SymmetricTensor((1,), "uint32"),
        counts: T.SymmetricTensor((1, 4), "uint32"),
        Y: T.Tensor((2, N), "float32"),
    ):
        with T.Kernel(2, threads=256) as bx:
            Next = T.peer(In, (T.rank() + 1) % T.num_ranks())
            flags = T.peer(ready, (T.rank() + 1) % T.num_ranks())
            if bx == 0:
                T.sync_ranks(counts)
                with T.ws(0):
                    for i in T.Parallel(N):
                        Next[i] = X[i]
                    T.signal_set(flags[0], 1)
                with T.ws(1):
                    T.signal_wait_until(ready[0], "ge", 1)
                    for i in T.Parallel(N):
                        Y[0, i] = In[i]
            T.sync_grid()
            for i in T.Parallel(N):
                Y[1, i] = In[i] + 1

    kernel = tilelang.compile(
        main, target="cuda -arch=sm_90a", execution_backend="emulate", checks=True
    )
    assert kernel.kernel_source.count("tl::sync_threads_partial(") == 2

    def program(rank):
        x = torch.full((N,), float(rank))
        given = distributed.empty(N), distributed.zeros(1, dtype=torch.uint32)
        y = torch.empty(2, N)
        kernel(x, *given, distributed.zeros((1, 4), dtype=torch.uint32), y)
        return y

    for seed in range(3):
        with schedule("random", seed=seed):
            for rank, y in enumerate(distributed.emulate(3, program)):
                assert (y[0] == (rank - 1) % 3).all()
                assert (y[1] == (rank - 1) % 3 + 1).all()


def test_a_first_launch_is_not_captured(kernel, monkeypatch):
    """Later launches exchange nothing and copy nothing to the GPU, so a graph may have them."""
    shared = {}

    def program(rank):
        given = shared.setdefault(rank, tensors())
        kernel(*given)
        current.get().exchange("the capture", None)
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: True)
        allocation = allocation_of(given[0])
        tables = [allocation.table(given[0]).data_ptr() for _ in range(2)]
        assert tables[0] == tables[1]
        with pytest.raises(RuntimeError, match=r"first launch .* in the capture of a CUDA graph"):
            allocation.table(given[0][1:])
        return True

    assert all(distributed.emulate(2, program))
