"""Kernels of several ranks whose warps have roles that signal and wait, with a line changed."""

from typing import Any

import numpy as np

import tilelang.language as T

from .kit import Defect, Launch
from .ranks import RANKS, arrivals, base, drawn, launches, zeros

STEPS, ROWS, COLS = 4, 8, 64


def gather_program() -> Any:
    """Block 0 of each rank stores tiles to all ranks; the others add up the tiles of a rank, in the
    compiler's roles: the producer waits for a tile's signal, and loads it by TMA."""

    @T.prim_func
    def main(
        X: T.Tensor((STEPS, ROWS, COLS), "float16"),
        All: T.SymmetricTensor((RANKS, STEPS, ROWS, COLS), "float16"),
        ready: T.SymmetricTensor((RANKS, STEPS), "uint32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        Out: T.Tensor((RANKS, ROWS, COLS), "float32"),
    ):
        with T.Kernel(1 + RANKS, threads=128) as bx:
            tile = T.alloc_shared((ROWS, COLS), "float16")
            total = T.alloc_fragment((ROWS, COLS), "float32")
            if bx == 0:
                T.sync_ranks(counts)
                for r in T.serial(RANKS):
                    Theirs = T.peer(All, r)
                    for k in T.serial(STEPS):
                        for i, j in T.Parallel(ROWS, COLS):
                            Theirs[T.rank(), k, i, j] = X[k, i, j] * 2
                        T.signal_set(T.peer(ready, r)[T.rank(), k], 1)
            else:
                T.clear(total)
                for k in T.Pipelined(STEPS, num_stages=2):
                    T.signal_wait_until(ready[bx - 1, k], "ge", 1)
                    T.copy(All[bx - 1, k, 0, 0], tile)
                    for i, j in T.Parallel(ROWS, COLS):
                        total[i, j] += T.cast(tile[i, j], "float32")
                T.copy(total, Out[bx - 1, 0, 0])

    return main


def gather() -> list[Launch]:
    x, outs = halves(STEPS, ROWS, COLS), zeros(RANKS, ROWS, COLS)
    everything = zeros(RANKS, STEPS, ROWS, COLS, dtype=np.float16)
    ready = zeros(RANKS, STEPS, dtype=np.uint32)
    sums = (2 * x.astype(np.float32)).sum(1)
    return launches([x, everything, ready, arrivals(1), outs], [(out, sums) for out in outs])


def relay_program() -> Any:
    """Roles of the program's own. The first one loads tiles into a ring; the second one stores them
    to the next rank by TMA, and signals for the third one, too, which stores the other half of each
    tile; the last one waits for the rank before."""

    @T.prim_func
    def main(
        X: T.Tensor((STEPS, ROWS, COLS), "float16"),
        In: T.SymmetricTensor((STEPS, ROWS, 2 * COLS), "float16"),
        ready: T.SymmetricTensor((STEPS,), "uint32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        Out: T.Tensor((STEPS, ROWS, 2 * COLS), "float16"),
    ):
        with T.Kernel(1, threads=512):
            ring = T.alloc_shared((2, ROWS, COLS), "float16")
            got = T.alloc_shared((ROWS, 2 * COLS), "float16")
            full = T.alloc_barrier([1, 1])
            empty = T.alloc_barrier([1, 1])
            stored = T.alloc_barrier([128] * STEPS)
            behind = (T.rank() + 1) % RANKS
            tx = T.get_thread_binding()
            T.sync_ranks(counts)
            Next = T.peer(In, behind)
            with T.ws(0):
                for k in T.serial(STEPS):
                    T.mbarrier_wait_parity(empty[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(X[k, 0, 0], ring[k % 2, :, :], barrier=full[k % 2])
                    if tx == 0:
                        T.mbarrier_arrive(full[k % 2])
            with T.ws(1):
                for k in T.serial(STEPS):
                    T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
                    T.tma_copy(ring[k % 2, :, :], Next[k, 0, 0])
                    T.mbarrier_wait_parity(stored[k], 0)
                    T.signal_set(T.peer(ready, behind)[k], 1)
                    if tx == 128:
                        T.mbarrier_arrive(empty[k % 2])
            with T.ws(2):
                for k in T.serial(STEPS):
                    for i, j in T.Parallel(ROWS, COLS):
                        Next[k, i, COLS + j] = X[k, i, j] * 2
                    T.mbarrier_arrive(stored[k])
            with T.ws(3):
                for k in T.serial(STEPS):
                    T.signal_wait_until(ready[k], "ge", 1)
                    T.copy(In[k, 0, 0], got, prefer_instruction="tma")
                    T.copy(got, Out[k, 0, 0], disable_tma=True)
            T.sync_ranks(counts)

    return main


def relay() -> list[Launch]:
    x, outs = halves(STEPS, ROWS, COLS), zeros(STEPS, ROWS, 2 * COLS, dtype=np.float16)
    slots, ready = zeros(STEPS, ROWS, 2 * COLS, dtype=np.float16), zeros(STEPS, dtype=np.uint32)
    sent = np.concatenate([x, 2 * x], -1)
    results = [(outs[r], sent[r - 1]) for r in range(RANKS)]
    return launches([x, slots, ready, arrivals(1), outs], results)


def forward_program() -> Any:
    """Roles of a schedule, with a pipeline between two of them: tiles that the rank before stores
    are loaded when they have arrived, and go on to the rank behind."""
    warps = {"store": (0, 4), "load": (4, 8), "send": (8, 12), "collect": (12, 16)}
    roles = {name: T.WSRole(*of, 120) for name, of in warps.items()}
    schedule = T.WSSchedule(16, roles, {"tiles": T.WSPipeline(2)})

    @T.prim_func
    def main(
        X: T.Tensor((STEPS, ROWS, COLS), "float16"),
        In: T.SymmetricTensor((STEPS, ROWS, COLS), "float16"),
        Far: T.SymmetricTensor((STEPS, ROWS, 2 * COLS), "float16"),
        ready: T.SymmetricTensor((STEPS,), "uint32"),
        done: T.SymmetricTensor((STEPS,), "uint32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        Out: T.Tensor((STEPS, ROWS, COLS), "float16"),
    ):
        with T.Kernel(1, threads=512):
            T.annotate_ws_schedule(schedule)
            slots = T.alloc_shared((2, ROWS, COLS), "float16")
            behind = (T.rank() + 1) % RANKS
            T.sync_ranks(counts)
            with T.ws_role("store"):
                Next = T.peer(In, behind)
                for k in T.serial(STEPS):
                    for i, j in T.Parallel(ROWS, COLS):
                        Next[k, i, j] = X[k, i, j] * 2
                    T.signal_set(T.peer(ready, behind)[k], 1)
            with T.ws_role("load"):
                for k in T.serial(STEPS):
                    v = T.producer_acquire("tiles")
                    T.signal_wait_until(ready[k], "ge", 1)
                    T.tma_copy(In[k, 0, 0], slots[v, :, :], barrier=T.producer_barrier("tiles", v))
                    T.producer_commit("tiles")
            with T.ws_role("send"):
                There = T.peer(Far, behind)
                for k in T.serial(STEPS):
                    v = T.consumer_wait("tiles")
                    T.tma_copy(slots[v, :, :], There[k, 0, COLS])
                    T.signal_set(T.peer(done, behind)[k], 1)
                    T.consumer_release("tiles")
            with T.ws_role("collect"):
                for k in T.serial(STEPS):
                    T.signal_wait_until(done[k], "ge", 1)
                    for i, j in T.Parallel(ROWS, COLS):
                        Out[k, i, j] = Far[k, i, COLS + j]
            T.sync_ranks(counts)

    return main


def forward() -> list[Launch]:
    x, outs = halves(STEPS, ROWS, COLS), zeros(STEPS, ROWS, COLS, dtype=np.float16)
    near, far = (
        zeros(STEPS, ROWS, COLS, dtype=np.float16),
        zeros(STEPS, ROWS, 2 * COLS, dtype=np.float16),
    )
    ready, done = zeros(STEPS, dtype=np.uint32), zeros(STEPS, dtype=np.uint32)
    results = [(outs[r], 2 * x[r - 2]) for r in range(RANKS)]
    return launches([x, near, far, ready, done, arrivals(1), outs], results)


def halves(*shape: int) -> np.ndarray:
    return drawn(RANKS, *shape).astype(np.float16)


BASES = {
    "roles of the compiler": base(gather_program, gather, 256, grid=1 + RANKS),
    "roles of a relay": base(relay_program, relay, 512),
    "roles of a schedule": base(forward_program, forward, 512),
}
_STORE, _LOAD = "tl::store(All_peer", "tl::tma_load<tl::evict_normal>(All_desc"
_WAIT = "tl::signal_wait_until<tl::Compare::ge>(ready"
_SENT, _STORED = "tl::tma_store<tl::evict_normal>", "tl::store(In_peer"
_LOADED, _RING_LOAD = (
    "tl::tma_load<tl::evict_normal>(In_desc",
    "tl::tma_load<tl::evict_normal>(X_desc",
)
_EMPTIED = "tl::mbarrier_arrive(empty + k % 2);"
COMPILED = {
    "producer waits for the signal of another tile": Defect(
        "roles of the compiler",
        "(ready + bx * 4 + k - 4,",
        "(ready + bx * 4 - 4,",
        "race",
        (_LOAD, _STORE),
        also=("ended",),
    ),
    "producer waits for the signal of another rank's tile": Defect(
        "roles of the compiler",
        "(ready + bx * 4 + k - 4,",
        "(ready + bx % 3 * 4 + k,",
        "race",
        (_LOAD, _STORE),
        also=("ended",),
    ),
    "producer waits for a value that is there from the begin": Defect(
        "roles of the compiler",
        "(ready + bx * 4 + k - 4, 1u,",
        "(ready + bx * 4 + k - 4, 0u,",
        "race",
        (_LOAD, _STORE),
        also=("ended",),
    ),
    "producer waits for a signal that no rank sets": Defect(
        "roles of the compiler",
        "(ready + bx * 4 + k - 4, 1u,",
        "(ready + bx * 4 + k - 4, 2u,",
        "failure",
        (_WAIT, "tl::mbarrier_wait(tile_full"),
        says="to be >= 2; it is 1",
    ),
    "producer waits for a tile that nobody sends": Defect(
        "roles of the compiler",
        "tl::signal_set(ready_peer + tl_rank * 4 + k, 1u);",
        "if (k < 3) tl::signal_set(ready_peer + tl_rank * 4 + k, 1u);",
        "failure",
        (_WAIT,),
        says="to be >= 1; it is 0",
    ),
    "consumer of a role waits in the producer's place": Defect(
        "roles of the compiler",
        "tl::shuffle_elect<128>()) {\n      if (bx == 0) {\n      } else {",
        "tl::shuffle_elect<128>()) {\n      if (bx == 0) {\n"
        "        tl::mbarrier_wait(tile_full, 0);\n      } else {",
        "failure",
        ("tl::mbarrier_wait(tile_full, 0)",),
    ),
    "producer polls a signal without acquire": Defect(
        "roles of the compiler",
        "tl::signal_wait_until<tl::Compare::ge>(ready + bx * 4 + k - 4, 1u, tl_rank, ",
        "while (tl::atomic_load<tl::relaxed_system>(ready + bx * 4 + k - 4) < 1u) {}  // ",
        "race",
        (_LOAD, _STORE),
        also=("ended",),
    ),
    "producer polls a signal at the scope of its GPU": Defect(
        "roles of the compiler",
        "tl::signal_wait_until<tl::Compare::ge>(ready + bx * 4 + k - 4, 1u, tl_rank, ",
        "while (tl::atomic_load<tl::acquire>(ready + bx * 4 + k - 4) < 1u) {}  // ",
        "race",
        (_LOAD, _STORE),
        also=("ended",),
    ),
    "tile is signalled before its role has met": Defect(
        "roles of the compiler",
        "tl::before_signal();\n          tl::sync_threads_partial(3, 128);",
        "tl::before_signal();",
        "race",
        (_LOAD, _STORE),
        also=("ended",),
    ),
    "tile is signalled in front of its data": Defect(
        "roles of the compiler",
        "for (int k = 0; k < 4; ++k) {\n          if (0",
        "for (int k = 0; k < 4; ++k) {\n          if (tx == 128) tl::signal_set("
        "tl::view<uint32_t>(tl::peer(ready, ready_peers, r, 3)) + tl_rank * 4 + k, 1u);\n"
        "          if (0",
        "race",
        (_LOAD, _STORE),
        also=("ended",),
    ),
}
OWN = {
    "slot is released before its store is signalled": Defect(
        "roles of a relay",
        "tl::mbarrier_wait(stored + k, 0);",
        f"if (tx == 128) {_EMPTIED}\n      tl::mbarrier_wait(stored + k, 0);",
        "race",
        (_RING_LOAD, _SENT),
    ),
    "signal does not wait for the other role's half": Defect(
        "roles of a relay",
        "tl::mbarrier_wait(stored + k, 0);",
        "",
        "race",
        (_LOADED, _STORED),
        also=("ended",),
    ),
    "signal waits for the other role's half of a tile before": Defect(
        "roles of a relay",
        "tl::mbarrier_wait(stored + k, 0);",
        "if (k) tl::mbarrier_wait(stored + k - 1, 0);",
        "race",
        (_LOADED, _STORED),
        also=("ended",),
    ),
    "one warp arrives for its role": Defect(
        "roles of a relay",
        "tl::mbarrier_arrive(stored + k);",
        "for (int i = 0; i < (tx < 288 ? 4 : 0); ++i) tl::mbarrier_arrive(stored + k);",
        "race",
        (_LOADED, _STORED),
        also=("ended",),
    ),
    "role signals while its tma store is on its way": Defect(
        "roles of a relay",
        "tl::before_signal();",
        "tl::behind_wait();",
        "race",
        (_LOADED, _SENT),
        also=("ended",),
        nth=1,
    ),
    "role signals all tiles behind the first one": Defect(
        "roles of a relay",
        "tl::signal_set(ready_peer + k, 1u);",
        "for (int i = 0; i < 4; ++i) tl::signal_set(ready_peer + i, 1u);",
        "race",
        (_LOADED, _SENT),
        also=("ended",),
    ),
    "role waits for every other tile": Defect(
        "roles of a relay",
        "(ready + k, 1u,",
        "(ready + k / 2 * 2, 1u,",
        "race",
        (_LOADED, _SENT),
        also=("ended",),
    ),
    "role waits for a signal that no rank sets": Defect(
        "roles of a relay",
        "(ready + k, 1u,",
        "(ready + k, 2u,",
        "failure",
        (_WAIT,),
        says="to be >= 2; it is 1",
    ),
    "one role signals to its own rank": Defect(
        "roles of a relay",
        "tl::peer(ready, ready_peers, tl::floormod(tl::add(tl_rank, 1), 3)",
        "tl::peer(ready, ready_peers, tl::floormod(tl::add(tl_rank, 0), 3)",
        "race",
        (_LOADED, _SENT),
        also=("ended",),
    ),
    "role reads before its threads have waited": Defect(
        "roles of a relay",
        "tl::sync_threads_partial(4, 128);",
        "",
        "race",
        ("tl::store(Out", _LOADED),
    ),
    "role that reads has no acquire": Defect(
        "roles of a relay",
        "tl::signal_wait_until<tl::Compare::ge>(ready + k, 1u, tl_rank, ",
        "while (tl::atomic_load<tl::relaxed_system>(ready + k) < 1u) {}  // ",
        "race",
        (_LOADED, _SENT),
        also=("ended",),
    ),
    "map of a peer that an unordered role acquires": Defect(
        "roles of a relay",
        "tl::peer_map(In_peers_maps, tl::floormod(tl_rank + 1, 3), tl_num_ranks)",
        "tx >= 384 ? tl::peer_map(In_peers_maps, (tl_rank + 1) % 3, tl_num_ranks) : "
        "int64_t(In_peers_maps + (tl_rank + 1) % 3)",
        "failure",
        (_SENT,),
        says="no fence.proxy.tensormap",
    ),
    "slot that is never released": Defect(
        "roles of a relay",
        _EMPTIED,
        "",
        "failure",
        ("tl::mbarrier_wait(empty", "tl::mbarrier_wait(full", "signal_wait_until"),
    ),
}
_SIGNALLED = (
    "tl::before_signal();\n      tl::sync_threads_partial(5, 128);\n      if (tx == 256) {\n"
    "        tl::signal_set(done_peer + k, 1u);\n      }\n"
)
_RELEASED = "      tl::mbarrier_arrive_warp(tiles_empty + int(tiles_ended % 2u));\n"
_FORWARDED, _COLLECTED = "tl::tma_store<tl::evict_normal>", "tl::store(Out"
_FETCHED, _LEFT = "tl::tma_load<tl::evict_normal>", "tl::store(In_peer"
SCHEDULED = {
    "consumer_release in front of the signal": Defect(
        "roles of a schedule",
        _SIGNALLED + _RELEASED,
        f"{_RELEASED}      {_SIGNALLED}",
        "race",
        (_FETCHED, _FORWARDED),
    ),
    "consumer_release and signal while the store is on its way": Defect(
        "roles of a schedule",
        _SIGNALLED,
        _SIGNALLED.replace("before_signal", "behind_wait"),
        "race",
        (_FETCHED, _FORWARDED),
        also=("ended",),
    ),
    "producer_acquire that does not wait": Defect(
        "roles of a schedule",
        "tl::mbarrier_wait(tiles_empty + tiles_version, (tiles_begun / 2u + 1u) & 1u);",
        "",
        "race",
        (_FETCHED, _FORWARDED),
    ),
    "consumer_wait for the phase before": Defect(
        "roles of a schedule",
        "(tiles_full + tiles_version, (tiles_begun / 2u) & 1u);",
        "(tiles_full + tiles_version, (tiles_begun / 2u + 1u) & 1u);",
        "race",
        (_FETCHED, _FORWARDED),
        also=("failure",),
    ),
    "role waits for the signal of another role": Defect(
        "roles of a schedule", "(done + k, 1u,", "(ready + k, 1u,", "race", (_COLLECTED, _FORWARDED)
    ),
    "role sends the signal of another role": Defect(
        "roles of a schedule",
        "tl::peer(done, done_peers,",
        "tl::peer(ready, ready_peers,",
        "failure",
        ("signal_wait_until<tl::Compare::ge>(done",),
        says="to be >= 1; it is 0",
        also=("race",),
    ),
    "role signals before its threads have met": Defect(
        "roles of a schedule", "tl::sync_threads_partial(3, 128);", "", "race", (_FETCHED, _LEFT)
    ),
    "role collects what a relaxed signal announces": Defect(
        "roles of a schedule",
        "tl::signal_set(done_peer + k, 1u);",
        "tl::atomic_store<tl::relaxed_system>(done_peer + k, 1u);",
        "race",
        (_COLLECTED, _FORWARDED),
    ),
}
DEFECTS = {**COMPILED, **OWN, **SCHEDULED}
