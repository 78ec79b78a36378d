"""Kernels of several ranks: what is printed, and what is refused."""

import re

import pytest

import tilelang
import tilelang.language as T

RANKS, N = 4, 256


def lowered(program, arch="sm_90a"):
    return tilelang.lower(program, target=f"cuda -arch={arch}")


def push(signal=True, wait=True):
    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        Out: T.SymmetricTensor((RANKS, N), "float32"),
        ready: T.SymmetricTensor((RANKS,), "uint32"),
    ):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((N,), "float32")
            T.copy(X, tile)
            Theirs = Out.peer((T.rank() + 1) % T.num_ranks())
            T.copy(tile, Theirs[T.rank(), 0])
            if signal:
                T.signal_add(T.peer(ready, (T.rank() + 1) % T.num_ranks())[0], 1)
            if wait:
                T.signal_wait_until(ready[0], "ge", 1)
                T.copy(Out[0, 0], tile)
                T.copy(tile, Out[1, 0])

    return main


@pytest.fixture(scope="module")
def source():
    return lowered(push()).kernel_source


def test_a_signal_stands_behind_a_barrier_and_one_thread_sends_it(source):
    store = source.index("tl::store(Out_peer")
    order = [
        "tl::before_signal();",
        "__syncthreads();",
        "if (tx == 0)",
        "tl::signal_add(ready_peer",
    ]
    places = [source.index(text, store) for text in order]
    assert places == sorted(places)


def test_what_is_read_behind_a_wait_stands_behind_a_barrier(source):
    wait = source.index("tl::signal_wait_until<tl::Compare::ge>(ready, 1u, tl_rank")
    order = ["__syncthreads();", "tl::behind_wait();", "tl::load<float, 4>(Out +"]
    places = [source.index(text, wait) for text in order]
    assert places == sorted(places)


def test_no_pointer_is_restrict_beside_symmetric_tensors(source):
    signature = source[: source.index("{")]
    assert "const float* X," in signature
    assert re.search(r" float\* Out, uint32_t\* ready, ", signature)


def test_the_plan_has_what_only_the_host_knows():
    plan = lowered(push()).launch_plan
    assert [plan.params[i].name for i in plan.arguments] == ["X", "Out", "ready"]
    assert plan.symmetric == ("Out", "ready")
    hidden = [param.name for param in plan.params[3:]]
    assert hidden == ["tl_rank", "tl_num_ranks", "Out_peers", "ready_peers"]
    assert plan.team == len(hidden)
    assert type(plan).from_json(plan.to_json()) == plan


def test_outputs_and_workspaces_keep_their_places():
    @T.prim_func
    def main(X: T.SymmetricTensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        W = T.alloc_global((N,), "float32")
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                W[i] = X[i]
            for i in T.Parallel(N):
                Y[i] = W[i] + T.rank()

    kernel = tilelang.compile(main, out_idx=-1, target="cuda", execution_backend="emulate")
    plan = kernel.launch_plan
    assert [plan.params[i].name for i in plan.outputs] == ["Y"]
    assert plan.params[-1].name == "W"
    assert len(kernel.params) == 2


def test_atomic_operations_on_symmetric_tensors_are_those_of_the_system():
    @T.prim_func
    def main(H: T.SymmetricTensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=64):
            Theirs = T.peer(H, 0)
            for i in T.Parallel(N):
                T.atomic_add(Theirs[i], 1.0)
                T.atomic_add(Y[i], 1.0)
            T.atomic_add(H, Y)
            if T.atomic_load(H[0], "acquire") > 0:
                T.atomic_store(H[1], 1.0, "release")

    source = lowered(main).kernel_source
    assert "tl::atomic_add<tl::relaxed_system>(H_peer" in source
    assert re.search(r"tl::atomic_add<tl::relaxed_system>\(H \+", source)
    assert "tl::atomic_add<tl::relaxed>(Y" in source
    assert "tl::atomic_load<tl::acquire_system>(H" in source
    assert "tl::atomic_store<tl::release_system>(H + 1" in source


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_takes_the_headers(arch):
    """And ptxas: orders and scopes become those of the instructions."""
    from tilelang.cuda.nvrtc import compile_cubin

    @T.prim_func
    def main(
        X: T.SymmetricTensor((N,), "float32"),
        S: T.SymmetricTensor((RANKS,), "int64"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
    ):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((N,), "float32")
            T.sync_ranks(counts)
            T.copy(X, tile)
            T.put_signal(tile, T.peer(X, 1), T.peer(S, 1)[0], 5)
            T.signal_wait_until(S[0], "eq", 5)
            T.atomic_add(T.peer(X, 0), tile)

    found = lowered(main, arch)
    assert compile_cubin(found.kernel_source, arch, ["main_kernel"]).cubin.startswith(b"\x7fELF")


def test_a_wait_keeps_copies_from_running_ahead():
    @T.prim_func
    def main(
        X: T.SymmetricTensor((8, 64, 64), "float16"),
        ready: T.SymmetricTensor((8,), "int32"),
        Y: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(8, num_stages=2):
                T.signal_wait_until(ready[k], "ge", 1)
                T.copy(X[k, 0, 0], tile)
                T.gemm(tile, tile, acc)
            T.copy(acc, Y)

    # The producer waits, and loads then; without TMA the loop is a plain one.
    for arch, load in (("sm_90a", "tl::tma_load"), ("sm_80", "tl::load<half_t, 8>")):
        source = lowered(main, arch).kernel_source
        loop = source[source.index("for (int k = 0; k < 8") :]
        assert loop.index("tl::signal_wait_until") < loop.index("tl::behind_wait")
        assert loop.index("tl::behind_wait") < loop.index(load)
        before = source[: source.index("tl::signal_wait_until")]
        assert load not in before
        assert "cp_async_gs" not in before


def refused(body, error, match):
    def main(
        X: T.SymmetricTensor((RANKS, N), "float32"),
        Y: T.Tensor((N,), "int32"),
        S: T.SymmetricTensor((RANKS,), "int32"),
        counts: T.SymmetricTensor((2, RANKS), "uint32"),
    ):
        with T.Kernel(1, threads=64) as bx:
            body(X, Y, S, counts, bx)

    with pytest.raises(error, match=match) as found:
        lowered(T.prim_func(main))
    assert "test_ranks.py" in str(found.value)


@T.macro
def signal_of_another_tensor(X, Y, S, counts, bx):
    T.signal_set(Y[0], 1)


@T.macro
def signal_of_floats(X, Y, S, counts, bx):
    T.signal_set(X[0, 0], 1)


@T.macro
def signal_without_index(X, Y, S, counts, bx):
    T.signal_add(S, 1)


@T.macro
def unknown_comparison(X, Y, S, counts, bx):
    T.signal_wait_until(S[0], ">=", 1)


@T.macro
def unknown_operation(X, Y, S, counts, bx):
    T.put_signal(X[0, :], T.peer(X, 1)[0, :], S[0], operation="or")


@T.macro
def peer_of_another_tensor(X, Y, S, counts, bx):
    T.fill(T.peer(Y, 1), 0)


@T.macro
def peer_of_a_peer(X, Y, S, counts, bx):
    T.fill(T.peer(T.peer(X, 1), 1), 0)


@T.macro
def negative_rank(X, Y, S, counts, bx):
    T.fill(T.peer(X, -1), 0)


@T.macro
def rank_that_is_no_integer(X, Y, S, counts, bx):
    T.fill(T.peer(X, 0.5), 0)


@T.macro
def counts_that_are_no_counts(X, Y, S, counts, bx):
    T.sync_ranks(S)


@T.macro
def signal_of_some_threads(X, Y, S, counts, bx):
    if Y[T.get_thread_binding()] > 0:
        T.signal_set(S[0], 1)


@T.macro
def addition_by_tma(X, Y, S, counts, bx):
    tile = T.alloc_shared((N,), "float32")
    T.atomic_add(T.peer(X, 1)[0, 0], tile, use_tma=True)


@T.macro
def peer_in_a_parallel_loop(X, Y, S, counts, bx):
    for i in T.Parallel(N):
        T.peer(X, 1)[0, i] = 0


@pytest.mark.parametrize(
    ("body", "error", "match"),
    [
        (signal_of_another_tensor, ValueError, "Y, which is not symmetric"),
        (signal_of_floats, ValueError, "X of dtype float32, wanted one of int32"),
        (signal_without_index, TypeError, "wanted an element of a symmetric tensor"),
        (unknown_comparison, ValueError, "comparison of T.signal_wait_until is '>='"),
        (unknown_operation, ValueError, "operation of T.put_signal is 'or'"),
        (peer_of_another_tensor, TypeError, "wanted a parameter annotated T.SymmetricTensor"),
        (peer_of_a_peer, TypeError, "wanted a parameter annotated T.SymmetricTensor"),
        (negative_rank, ValueError, "the rank of T.peer is -1"),
        (rank_that_is_no_integer, TypeError, "wanted an integer"),
        (counts_that_are_no_counts, ValueError, "wanted uint32 and two"),
        (signal_of_some_threads, ValueError, "T.signal"),
        (addition_by_tma, ValueError, "leave use_tma out"),
        (peer_in_a_parallel_loop, ValueError, "T.peer is in the parallel loop"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_mistakes_are_refused(body, error, match):
    refused(body, error, match)


def test_elements_of_half_a_byte_are_refused():
    with pytest.raises(ValueError, match=r"T.SymmetricTensor found int4.*uint8"):
        T.SymmetricTensor((4, 4), "int4")


def test_amd_is_refused_by_name():
    with pytest.raises(ValueError, match=r"gfx942.*several GPUs"):
        tilelang.lower(push(), target="hip -mcpu=gfx942")
