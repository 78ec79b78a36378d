"""Kernels that several ranks run together, as the compiler prints them, with a line changed."""

from typing import Any

import numpy as np

import tilelang.language as T

from .kit import Defect, Launch
from .ranks import RANKS, arrivals, base, drawn, launches, zeros

N = 256
THREADS = 64


def gather_program() -> Any:
    """Each rank stores its part to all ranks, between two barriers of all ranks."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        Out: T.SymmetricTensor((RANKS, N), "float32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
    ):
        with T.Kernel(1, threads=THREADS):
            tile = T.alloc_shared((N,), "float32")
            T.sync_ranks(counts)
            T.copy(X, tile)
            for i in T.serial(RANKS):
                Theirs = T.peer(Out, (T.rank() + i) % RANKS)
                T.copy(tile, Theirs[T.rank(), 0], disable_tma=True)
            T.sync_ranks(counts)

    return main


def gather() -> list[Launch]:
    x = drawn(RANKS, N)
    outs, counts = zeros(RANKS, N), arrivals(1)
    return launches([x, outs, counts], [(out, x) for out in outs])


def ring_program() -> Any:
    """A value goes through all ranks, each of which adds its own; the first one begins. Who is
    behind signals when it has read, so that the next round may overwrite."""

    @T.prim_func
    def main(
        X: T.Tensor((2, N), "float32"),
        Slot: T.SymmetricTensor((N,), "float32"),
        full: T.SymmetricTensor((1,), "int32"),
        taken: T.SymmetricTensor((1,), "int32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        Out: T.Tensor((2, N), "float32"),
    ):
        with T.Kernel(1, threads=THREADS):
            total = T.alloc_fragment((N,), "float32")
            behind = (T.rank() + 1) % RANKS
            before = (T.rank() + RANKS - 1) % RANKS
            T.sync_ranks(counts)
            for k in T.serial(2):
                for i in T.Parallel(N):
                    total[i] = X[k, i]
                if T.rank() > 0:
                    T.signal_wait_until(full[0], "ge", k + 1)
                    for i in T.Parallel(N):
                        total[i] += Slot[i]
                    T.signal_set(T.peer(taken, before)[0], k + 1)
                T.copy(total, Out[k, 0])
                if T.rank() < RANKS - 1:
                    T.signal_wait_until(taken[0], "eq", k)
                    T.copy(total, T.peer(Slot, behind))
                    T.signal_set(T.peer(full, behind)[0], k + 1)
            T.sync_ranks(counts)

    return main


def ring() -> list[Launch]:
    x = drawn(RANKS, 2, N)
    slots, outs = zeros(N), zeros(2, N)
    full, taken = zeros(1, dtype=np.int32), zeros(1, dtype=np.int32)
    results = list(zip(outs, x.cumsum(0), strict=True))
    return launches([x, slots, full, taken, arrivals(1), outs], results)


def reduce_program() -> Any:
    """Each rank sums a part of all ranks, and stores it to all."""

    @T.prim_func
    def main(
        X: T.SymmetricTensor((RANKS, N), "float32"),
        Out: T.SymmetricTensor((RANKS, N), "float32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        arrived: T.SymmetricTensor((1,), "uint32"),
        Y: T.Tensor((RANKS, N), "float32"),
    ):
        with T.Kernel(1, threads=THREADS):
            total = T.alloc_fragment((N,), "float32")
            T.sync_ranks(counts)
            T.clear(total)
            for r in T.serial(RANKS):
                Theirs = T.peer(X, r)
                for i in T.Parallel(N):
                    total[i] += Theirs[T.rank(), i]
            for r in T.serial(RANKS):
                T.put_signal(
                    total, T.peer(Out, r)[T.rank(), 0], T.peer(arrived, r)[0], 1, operation="add"
                )
            T.signal_wait_until(arrived[0], "ge", RANKS)
            for r, i in T.Parallel(RANKS, N):
                Y[r, i] = Out[r, i]
            T.sync_ranks(counts)

    return main


def reduce() -> list[Launch]:
    x, ys = drawn(RANKS, RANKS, N), zeros(RANKS, N)
    arrived = zeros(1, dtype=np.uint32)
    return launches([x, zeros(RANKS, N), arrivals(1), arrived, ys], [(y, x.sum(0)) for y in ys])


def histogram_program() -> Any:
    """All ranks count into the memory of the last one, which looks at the counts."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "int32"),
        H: T.SymmetricTensor((THREADS,), "int32"),
        done: T.SymmetricTensor((RANKS,), "int32"),
        Out: T.Tensor((THREADS,), "int32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
    ):
        with T.Kernel(1, threads=THREADS):
            T.sync_ranks(counts)
            Last = T.peer(H, RANKS - 1)
            for i in T.Parallel(N):
                T.atomic_add(Last[X[i]], 1)
            T.signal_set(T.peer(done, RANKS - 1)[T.rank()], 1)
            if T.rank() == RANKS - 1:
                for r in T.serial(RANKS):
                    T.signal_wait_until(done[r], "eq", 1)
                for i in T.Parallel(THREADS):
                    Out[i] = H[i]
            T.sync_ranks(counts)

    return main


def histogram() -> list[Launch]:
    x = np.random.default_rng(0).integers(0, THREADS, (RANKS, N)).astype(np.int32)
    outs = zeros(THREADS, dtype=np.int32)
    wanted = np.bincount(x.ravel(), minlength=THREADS).astype(np.int32)
    arguments = [x, zeros(THREADS, dtype=np.int32), zeros(RANKS, dtype=np.int32), outs]
    return launches([*arguments, arrivals(1)], [(outs[RANKS - 1], wanted)])


def halo_program() -> Any:
    """Each rank stores the edges of its rows to its neighbours, and adds what comes from them."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        Edges: T.SymmetricTensor((2, THREADS), "float32"),
        ready: T.SymmetricTensor((2,), "uint32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        Out: T.Tensor((THREADS,), "float32"),
    ):
        with T.Kernel(1, threads=THREADS):
            left = (T.rank() + RANKS - 1) % RANKS
            right = (T.rank() + 1) % RANKS
            edge = T.alloc_shared((2, THREADS), "float32")
            T.sync_ranks(counts)
            for i in T.Parallel(THREADS):
                edge[0, i] = X[i]
                edge[1, i] = X[N - THREADS + i]
            T.put_signal(edge[0, :], T.peer(Edges, left)[1, :], T.peer(ready, left)[1], 1)
            T.put_signal(edge[1, :], T.peer(Edges, right)[0, :], T.peer(ready, right)[0], 1)
            T.signal_wait_until(ready[0], "ge", 1)
            T.signal_wait_until(ready[1], "ge", 1)
            for i in T.Parallel(THREADS):
                Out[i] = Edges[0, i] + Edges[1, i]

    return main


def halo() -> list[Launch]:
    x, outs = drawn(RANKS, N), zeros(THREADS)
    ready = zeros(2, dtype=np.uint32)
    results = [
        (outs[r], x[r - 1, N - THREADS :] + x[(r + 1) % RANKS, :THREADS]) for r in range(RANKS)
    ]
    return launches([x, zeros(2, THREADS), ready, arrivals(1), outs], results)


def bulk_program() -> Any:
    """A tile that threads make goes to the next rank by a bulk copy."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        In: T.SymmetricTensor((N,), "float32"),
        ready: T.SymmetricTensor((1,), "uint32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        Out: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(1, threads=THREADS):
            tile = T.alloc_shared((N,), "float32")
            T.sync_ranks(counts)
            for i in T.Parallel(N):
                tile[i] = X[i] * 2
            Theirs = T.peer(In, (T.rank() + 1) % RANKS)
            T.tma_copy(tile, Theirs)
            T.signal_set(T.peer(ready, (T.rank() + 1) % RANKS)[0], 1)
            T.signal_wait_until(ready[0], "ge", 1)
            T.copy(In, tile)
            T.copy(tile, Out)

    return main


def bulk() -> list[Launch]:
    x, outs = drawn(RANKS, N), zeros(N)
    ready = zeros(1, dtype=np.uint32)
    results = [(outs[r], 2 * x[r - 1]) for r in range(RANKS)]
    return launches([x, zeros(N), ready, arrivals(1), outs], results)


BASES = {
    "gather": base(gather_program, gather, THREADS),
    "ring": base(ring_program, ring, THREADS),
    "reduce": base(reduce_program, reduce, THREADS),
    "histogram": base(histogram_program, histogram, THREADS),
    "halo": base(halo_program, halo, THREADS),
    "bulk": base(bulk_program, bulk, THREADS),
}
_WAIT = "tl::sync_ranks_wait(counts, tl_rank, tl_num_ranks, tx, 64);\n"
_ARRIVE = "tl::sync_ranks_arrive(counts, counts, tl_rank, tl_num_ranks, tx, 64, counts_peers);\n"
_BARRIER = "__syncthreads();\n"
_STORE = "tl::store(Out_peer"
_SLOT, _SLOT_PEER = "tl::load<float, 4>(Slot +", "tl::store(Slot_peer"
_FULL, _TAKEN = (
    "signal_wait_until<tl::Compare::ge>(full",
    "signal_wait_until<tl::Compare::eq>(taken",
)
_ARRIVED = "signal_wait_until<tl::Compare::ge>(arrived"
_BEGUN = "T.sync_ranks, which says that its launch has begun"
_SIGNAL = "a signal from one rank to the other"
_RING_SIGNAL = "tl::signal_set(full_peer, k + 1);"


def _before(signal: str, indent: int = 6) -> tuple[str, str]:
    """What stands in front of a signal, and the same without the barrier."""
    lines = ["tl::before_signal();", "__syncthreads();", "if (tx == 0) {", f"  {signal}"]
    margin = "\n" + " " * indent
    return margin.join(lines), margin.join([lines[0], *lines[2:]])


DEFECTS = {
    # The barrier of all ranks.
    "gather nobody waits at the begin": Defect(
        "gather", _WAIT, "\n", "race", (_STORE,), missing=_BEGUN, nth=0
    ),
    "gather nobody waits at the end": Defect(
        "gather", _WAIT, "\n", "ended", (_STORE,), says=" of rank", nth=1
    ),
    "gather nobody arrives at the begin": Defect(
        "gather", _ARRIVE, "\n", "race", (_STORE,), missing=_BEGUN, nth=0
    ),
    "gather nobody arrives at the end": Defect("gather", _ARRIVE, "\n", "ended", (_STORE,), nth=1),
    "gather arrives before all threads have stored": Defect(
        "gather", _BARRIER, "\n", "ended", (_STORE,), nth=3
    ),
    "gather goes on before others have waited": Defect(
        "gather", _BARRIER, "\n", "race", (_STORE,), missing=_BEGUN, nth=2
    ),
    "gather arrives once too often on one rank": Defect(
        "gather",
        _ARRIVE,
        "if (tl_rank < 2) " + _ARRIVE,
        "failure",
        ("tl::sync_ranks_wait",),
        says="[0, 2] of rank 1 to be >= 2; it is 1",
        nth=1,
    ),
    # The tensor of another rank.
    "gather stores to a rank that is not there": Defect(
        "gather",
        "tl::floormod(tl::add(tl_rank, i), 3)",
        "tl::add(tl_rank, i)",
        "failure",
        ("tl::peer(Out",),
        says="the tensor of rank 3 of 3 ranks",
    ),
    "gather two ranks store to one row": Defect(
        "gather", "tl_rank * 256", "tl_rank / 2 * 256", "race", (_STORE, _STORE), missing=_SIGNAL
    ),
    "gather stores behind the last row": Defect(
        "gather", "tl_rank * 256", "(tl_rank + 1) * 256", "out-of-bounds", (_STORE,), says="[3, "
    ),
    # Signals.
    "ring does not wait for the data": Defect(
        "ring", "(full, k + 1,", "(full, 0,", "race", (_SLOT, _SLOT_PEER), missing=_SIGNAL
    ),
    "ring waits for an older value": Defect(
        "ring", "(full, k + 1,", "(full, 1,", "race", (_SLOT, _SLOT_PEER), missing=_SIGNAL
    ),
    "ring overwrites what is not read": Defect(
        "ring",
        "<tl::Compare::eq>(taken, k,",
        "<tl::Compare::ge>(taken, 0,",
        "race",
        (_SLOT_PEER, _SLOT),
    ),
    "ring signals before all threads have stored": Defect(
        "ring", *_before(_RING_SIGNAL), "race", (_SLOT, _SLOT_PEER)
    ),
    "ring signals before all threads have read": Defect(
        "ring", *_before("tl::signal_set(taken_peer, k + 1);"), "race", (_SLOT_PEER, _SLOT)
    ),
    "ring reads before others have waited": Defect(
        "ring", _BARRIER, "\n", "race", (_SLOT, _SLOT_PEER), nth=3
    ),
    "ring signals without release": Defect(
        "ring",
        _RING_SIGNAL,
        "tl::atomic_store<tl::relaxed_system>(full_peer, k + 1);",
        "race",
        (_SLOT, _SLOT_PEER),
        missing="release order",
    ),
    "ring signals to its own GPU": Defect(
        "ring",
        _RING_SIGNAL,
        "tl::atomic_store<tl::release>(full_peer, k + 1);",
        "race",
        (_SLOT, _SLOT_PEER),
        missing="the scope of the system",
    ),
    "ring waits at the scope of its own GPU": Defect(
        "ring",
        "tl::signal_wait_until<tl::Compare::ge>(full, k + 1, tl_rank, ",
        "while (tl::atomic_load<tl::acquire>(full) < k + 1) {}  // ",
        "race",
        (_SLOT, _SLOT_PEER),
        missing="the scope of the system",
    ),
    "ring never says that it has read": Defect(
        "ring",
        "tl::signal_set(taken_peer, k + 1);",
        "",
        "failure",
        (_TAKEN,),
        says="[0] of rank 0 to be == 1; it is 0",
    ),
    "ring signals to itself": Defect(
        "ring",
        "tl::peer(full, full_peers, tl::floormod(tl_rank + 1, 3)",
        "tl::peer(full, full_peers, tl_rank",
        "failure",
        (_FULL,),
        says="[0] of rank 1 to be >= 1; it is 0",
    ),
    "ring signals the value before": Defect(
        "ring",
        _RING_SIGNAL,
        "tl::signal_set(full_peer, k);",
        "failure",
        (_FULL,),
        says="[0] of rank 1",
    ),
    "ring waits for a value that nobody sends": Defect(
        "ring",
        "<tl::Compare::eq>(taken, k,",
        "<tl::Compare::eq>(taken, k + 1,",
        "failure",
        ("signal_wait_until<tl::Compare::eq>(taken",),
        says="could still, but have not",
    ),
    # Counts of arrivals.
    "reduce reads before others have begun": Defect(
        "reduce", _WAIT, "\n", "race", ("(X_peer",), missing=_BEGUN, also=("ended",), nth=0
    ),
    "reduce waits for one rank less": Defect(
        "reduce", "(arrived, 3u,", "(arrived, 2u,", "race", ("(Out + o", _STORE), missing=_SIGNAL
    ),
    "reduce waits for one rank more": Defect(
        "reduce",
        "(arrived, 3u,",
        "(arrived, 4u,",
        "failure",
        (_ARRIVED,),
        says="to be >= 4; it is 3",
    ),
    "reduce sets where it should add": Defect(
        "reduce", "tl::signal_add(", "tl::signal_set(", "failure", (_ARRIVED,), says="; it is 1"
    ),
    "reduce adds without an atomic operation": Defect(
        "reduce",
        "tl::signal_add(arrived_peer, 1u);",
        "*arrived_peer += 1u;",
        "race",
        ("*arrived_peer", "*arrived_peer"),
        also=("failure", "ended"),
    ),
    "reduce signals before all threads have stored": Defect(
        "reduce",
        *_before("tl::signal_add(arrived_peer, 1u);", 4),
        "race",
        ("(Out + o", _STORE),
    ),
    "histogram counts at the scope of its own GPU": Defect(
        "histogram",
        "tl::relaxed_system",
        "tl::relaxed",
        "race",
        ("tl::atomic_add", "tl::atomic_add"),
    ),
    "histogram's owner counts at the scope of its own GPU": Defect(
        "histogram",
        "tl::atomic_add<tl::relaxed_system>(H_peer + X[o * 64 + tx], 1);",
        "if (tl_rank == 2) tl::atomic_add<tl::relaxed>(H_peer + X[o * 64 + tx], 1);  // own\n"
        "    else tl::atomic_add<tl::relaxed_system>(H_peer + X[o * 64 + tx], 1);",
        "race",
        ("// own", "tl::relaxed_system"),
        missing="the scope of the system",
    ),
    "histogram counts without atomic operations": Defect(
        "histogram",
        "tl::atomic_add<tl::relaxed_system>(H_peer + X[o * 64 + tx], 1);",
        "H_peer[X[o * 64 + tx]] += 1;",
        "race",
        ("H_peer[X", "H_peer[X"),
    ),
    "histogram waits for one rank only": Defect(
        "histogram", "(done + r,", "(done,", "race", ("Out[tx] = H[tx]", "tl::atomic_add")
    ),
    "halo signals the wrong side": Defect(
        "halo",
        "tl::signal_set(ready_peer + 1,",
        "tl::signal_set(ready_peer,",
        "failure",
        ("signal_wait_until<tl::Compare::ge>(ready + 1",),
        says="[1] of rank",
    ),
    "halo waits for one side only": Defect(
        "halo",
        "(ready + 1, 1u,",
        "(ready, 1u,",
        "race",
        ("Out[tx] = Edges", "Edges_peer[tx + 64]"),
        also=("ended",),
    ),
    # Bulk copies.
    "bulk copy of what is not fenced": Defect(
        "bulk",
        "tl::fence_proxy_async();\n",
        "",
        "race",
        (
            "tl::bulk_store<tl::evict_normal>(In_peer",
            "tl::store(tile + tx * 4, tl::load<float, 4>(X",
        ),
        missing="fence.proxy.async",
        nth=0,
    ),
    "bulk copy is on its way when it is signalled": Defect(
        "bulk",
        "tl::before_signal();",
        "tl::behind_wait();",
        "race",
        ("tl::load<float, 4>(In", "tl::bulk_store<tl::evict_normal>(In_peer"),
        also=("ended",),
        nth=1,
    ),
    "bulk copies of several ranks add to one tile": Defect(
        "bulk",
        "(In_peer, tile, 1024);",
        "(In_peer, tile, 1024);\n      tl::bulk_reduce_add<float>("
        "(float*)tl::peer(In, In_peers, 0, 3), tile, 1024);",
        "race",
        ("tl::bulk_reduce_add", "tl::bulk_reduce_add"),
        also=("ended",),
    ),
    "bulk copy of more than there is": Defect(
        "bulk", "(In_peer, tile, 1024)", "(In_peer, tile, 1040)", "out-of-bounds", ("(In_peer",)
    ),
}
