"""Kernels that load tiles of other ranks by TMA and store tiles to them, with a line changed."""

from dataclasses import replace
from typing import Any

import numpy as np

import tilelang.language as T

from .kit import Defect, Launch, RankBase
from .ranks import RANKS, arrivals, base, drawn, launches, zeros

STEPS, ROWS, COLS = 3, 8, 64
THREADS = 64


def stores_program() -> Any:
    """Each rank stores a tile to the next one, which loads it, both by TMA, in rounds. Who has
    loaded signals, so that the next round may overwrite."""

    @T.prim_func
    def main(
        X: T.Tensor((STEPS, ROWS, COLS), "float16"),
        In: T.SymmetricTensor((ROWS, 2 * COLS), "float16"),
        full: T.SymmetricTensor((1,), "uint32"),
        taken: T.SymmetricTensor((1,), "uint32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        Out: T.Tensor((STEPS, ROWS, COLS), "float16"),
    ):
        with T.Kernel(1, threads=THREADS):
            sent = T.alloc_shared((ROWS, COLS), "float16")
            got = T.alloc_shared((ROWS, COLS), "float16")
            behind = (T.rank() + 1) % RANKS
            before = (T.rank() + RANKS - 1) % RANKS
            T.sync_ranks(counts)
            for k in T.serial(STEPS):
                for i, j in T.Parallel(ROWS, COLS):
                    sent[i, j] = X[k, i, j] * 2
                T.signal_wait_until(taken[0], "ge", k)
                T.tma_copy(sent, T.peer(In, behind)[0, COLS])
                T.signal_set(T.peer(full, behind)[0], k + 1)
                T.signal_wait_until(full[0], "ge", k + 1)
                T.copy(In[0, COLS], got, prefer_instruction="tma")
                T.copy(got, Out[k, 0, 0], disable_tma=True)
                T.signal_set(T.peer(taken, before)[0], k + 1)
            T.sync_ranks(counts)

    return main


def stores() -> list[Launch]:
    x, outs = halves(), zeros(STEPS, ROWS, COLS, dtype=np.float16)
    full, taken = zeros(1, dtype=np.uint32), zeros(1, dtype=np.uint32)
    slots = zeros(ROWS, 2 * COLS, dtype=np.float16)
    results = [(outs[r], 2 * x[r - 1]) for r in range(RANKS)]
    return launches([x, slots, full, taken, arrivals(1), outs], results)


def loads_program() -> Any:
    """Each rank loads a tile of the next one by TMA, when that has stored it to its own memory, in
    rounds. Who has loaded signals, so that the owner may overwrite."""

    @T.prim_func
    def main(
        X: T.Tensor((STEPS, ROWS, COLS), "float16"),
        Slot: T.SymmetricTensor((ROWS, COLS), "float16"),
        ready: T.SymmetricTensor((1,), "uint32"),
        taken: T.SymmetricTensor((1,), "uint32"),
        counts: T.SymmetricTensor((1, RANKS), "uint32"),
        Out: T.Tensor((STEPS, ROWS, COLS), "float16"),
    ):
        with T.Kernel(1, threads=THREADS):
            tile = T.alloc_shared((ROWS, COLS), "float16")
            behind = (T.rank() + 1) % RANKS
            before = (T.rank() + RANKS - 1) % RANKS
            T.sync_ranks(counts)
            for k in T.serial(STEPS):
                T.signal_wait_until(taken[0], "ge", k)
                for i, j in T.Parallel(ROWS, COLS):
                    Slot[i, j] = X[k, i, j] * 2
                T.signal_set(T.peer(ready, before)[0], k + 1)
                T.signal_wait_until(ready[0], "ge", k + 1)
                T.copy(T.peer(Slot, behind), tile, prefer_instruction="tma")
                T.copy(tile, Out[k, 0, 0], disable_tma=True)
                T.signal_set(T.peer(taken, behind)[0], k + 1)
            T.sync_ranks(counts)

    return main


def loads() -> list[Launch]:
    x, outs = halves(), zeros(STEPS, ROWS, COLS, dtype=np.float16)
    ready, taken = zeros(1, dtype=np.uint32), zeros(1, dtype=np.uint32)
    slots = zeros(ROWS, COLS, dtype=np.float16)
    results = [(outs[r], 2 * x[(r + 1) % RANKS]) for r in range(RANKS)]
    return launches([x, slots, ready, taken, arrivals(1), outs], results)


def halves() -> np.ndarray:
    return drawn(RANKS, STEPS, ROWS, COLS).astype(np.float16)


_MAP_OF_NEXT = "tl::floormod(tl_rank + 1, 3), tl_num_ranks);\n    if (tl::shuffle"
_STORE, _LOAD_STORED = "tl::tma_store<tl::evict_normal>", "(In_desc, got_full"
_LOAD, _OWNERS_STORE = "tl::tma_load<tl::evict_normal>", "tl::store(Slot +"
_TAKEN = "(taken, uint32_t(k),"
_ACQUIRE = "tl::peer_map({}_peers_maps, tl::floormod(tl_rank + 1, 3), tl_num_ranks)"
_PLACE = "int64_t({}_peers_maps + tl::floormod(tl_rank + 1, 3))"
_NO_FENCE = "no fence.proxy.tensormap"
_LOADED = "tl::mbarrier_wait(tile_full, tile_full_parity);"
_LAST_WAIT = "tl::sync_ranks_wait(counts, tl_rank, tl_num_ranks, tx, 64);\n"


def _polled(signal: str, order: str) -> tuple[str, str]:
    """A wait for a signal, and a loop that polls it with another memory order."""
    return (
        f"tl::signal_wait_until<tl::Compare::ge>({signal}, uint32_t(k + 1), tl_rank, ",
        f"while (tl::atomic_load<tl::{order}>({signal}) < uint32_t(k + 1)) {{}}  // ",
    )


def _acquired_by_one() -> RankBase:
    """Another thread acquires the map; a barrier stands between it and the copy."""
    of_all = base(stores_program, stores, THREADS)
    acquire = _ACQUIRE.format("In")
    of_one = f"tx == 63 ? {acquire} : {_PLACE.format('In')};\n    __syncthreads()"
    return replace(of_all, text=lambda: of_all.text().replace(acquire, of_one))


BASES = {
    "tma stores to peers": base(stores_program, stores, THREADS),
    "tma loads of peers": base(loads_program, loads, THREADS),
    "map of a peer that a barrier's thread acquires": _acquired_by_one(),
}
STORES = {
    "map of a peer that is not acquired for a store": Defect(
        "tma stores to peers",
        _ACQUIRE.format("In"),
        _PLACE.format("In"),
        "failure",
        (_STORE,),
        says=_NO_FENCE,
    ),
    "map of a peer that another thread acquires": Defect(
        "tma stores to peers",
        _ACQUIRE.format("In"),
        f"tx == 63 ? {_ACQUIRE.format('In')} : {_PLACE.format('In')}",
        "failure",
        (_STORE,),
        says=_NO_FENCE,
    ),
    "tma store by the map of another rank": Defect(
        "tma stores to peers",
        f"In_peers_maps, {_MAP_OF_NEXT}",
        f"In_peers_maps, {_MAP_OF_NEXT.replace('+ 1', '+ 2')}",
        "race",
        (_STORE, _LOAD_STORED),
        also=("ended",),
    ),
    "tma store to a rank that is not there": Defect(
        "tma stores to peers",
        "tl::peer_map(In_peers_maps, tl::floormod(tl_rank + 1, 3)",
        "tl::peer_map(In_peers_maps, tl_rank + 1",
        "failure",
        ("tl::peer_map(In",),
        says="the tensor of rank 3 of 3 ranks",
    ),
    "tma store is on its way when it is signalled": Defect(
        "tma stores to peers",
        "tl::before_signal();",
        "tl::behind_wait();",
        "race",
        (_LOAD_STORED, _STORE),
        also=("ended",),
        nth=1,
    ),
    "tma store has read its tile when it is signalled": Defect(
        "tma stores to peers",
        "tl::before_signal();",
        "tl::tma_store_wait<0, true>();",
        "race",
        (_LOAD_STORED, _STORE),
        also=("ended",),
        nth=1,
    ),
    "tma store in no group": Defect(
        "tma stores to peers",
        "tl::tma_store_arrive();",
        "",
        "race",
        (_LOAD_STORED, _STORE),
        also=("ended",),
    ),
    "tma load of what a peer has not stored": Defect(
        "tma stores to peers",
        "(full, uint32_t(k + 1),",
        "(full, 0u,",
        "race",
        (_LOAD_STORED, _STORE),
    ),
    "tma load of what was stored a round ago": Defect(
        "tma stores to peers",
        "(full, uint32_t(k + 1),",
        "(full, 1u,",
        "race",
        (_LOAD_STORED, _STORE),
    ),
    "tma store to what its owner has not loaded": Defect(
        "tma stores to peers", _TAKEN, "(taken, 0u,", "race", (_STORE, _LOAD_STORED)
    ),
    "tma load that nobody waits for": Defect(
        "tma stores to peers",
        "tl::mbarrier_wait(got_full, got_full_parity);",
        "",
        "race",
        (_STORE, _LOAD_STORED),
        also=("ended",),
    ),
    "signal of a tma store to its own GPU": Defect(
        "tma stores to peers",
        "tl::signal_set(full_peer,",
        "tl::atomic_store<tl::release>(full_peer,",
        "race",
        (_LOAD_STORED, _STORE),
    ),
}
LOADS = {
    "map of a peer that is not acquired for a load": Defect(
        "tma loads of peers",
        _ACQUIRE.format("Slot"),
        _PLACE.format("Slot"),
        "failure",
        (_LOAD,),
        says=_NO_FENCE,
    ),
    "map of a peer in the place of a parameter": Defect(
        "tma loads of peers",
        "(tl::tensor_map_at(Slot_peer_map),",
        "(Slot_peers_maps[tl::floormod(tl_rank + 2, 3)],",
        "failure",
        (_LOAD,),
        says=_NO_FENCE,
    ),
    "tma load by the map of another rank": Defect(
        "tma loads of peers",
        f"Slot_peers_maps, {_MAP_OF_NEXT}",
        f"Slot_peers_maps, {_MAP_OF_NEXT.replace('+ 1', '+ 2')}",
        "race",
        (_LOAD, _OWNERS_STORE),
        also=("ended",),
    ),
    "tma load before the owner's signal": Defect(
        "tma loads of peers",
        "(ready, uint32_t(k + 1),",
        "(ready, 0u,",
        "race",
        (_LOAD, _OWNERS_STORE),
    ),
    "tma load after a wait that does not acquire": Defect(
        "tma loads of peers",
        *_polled("ready", "relaxed_system"),
        "race",
        (_LOAD, _OWNERS_STORE),
    ),
    "tma load after a wait at the scope of its own GPU": Defect(
        "tma loads of peers", *_polled("ready", "acquire"), "race", (_LOAD, _OWNERS_STORE)
    ),
    "owner overwrites what a peer's tma load reads": Defect(
        "tma loads of peers", _TAKEN, "(taken, 0u,", "race", (_OWNERS_STORE, _LOAD)
    ),
    "tma load is on its way when its owner hears of it": Defect(
        "tma loads of peers",
        _LOADED,
        "if (tx == 0) tl::signal_set(tl::view<uint32_t>(tl::peer(taken, taken_peers, "
        f"tl::floormod(tl_rank + 1, 3), tl_num_ranks)), uint32_t(k + 1));\n    {_LOADED}",
        "race",
        (_OWNERS_STORE, _LOAD),
    ),
    "tma load of a rank that ends": Defect(
        "tma loads of peers", _LAST_WAIT, "\n", "ended", (_LOAD,), says=" of rank", nth=1
    ),
    "owner signals a round too early": Defect(
        "tma loads of peers",
        "tl::signal_set(ready_peer, uint32_t(k + 1));",
        "tl::signal_set(ready_peer, uint32_t(k + 2));",
        "race",
        (_LOAD, _OWNERS_STORE),
    ),
}
DEFECTS = {**STORES, **LOADS}
