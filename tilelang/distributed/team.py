"""The ranks that launch kernels together.

A team knows how many ranks there are and which one this is, lets them exchange values, and
allocates memory that all of them can address. `StoreTeam` is that of processes with a GPU each, on
torch.distributed; `tilelang.distributed.emulated` has that of threads in one process.
"""

from __future__ import annotations

import contextvars
import datetime
import pickle
import socket
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import distributed as dist

from tilelang.distributed.watch import Watch, mark_of_stream

TIME_LIMIT = 300.0
"""Seconds that a rank waits for the others to come to the same call."""


class Memory(Protocol):
    """Allocates memory that other ranks can address."""

    def allocate(
        self, team: Team, shape: Sequence[int], dtype: torch.dtype
    ) -> tuple[torch.Tensor, list[int]]:
        """A new tensor, and its addresses on all ranks, as this rank sees them. All ranks call it
        with the same arguments."""
        ...


class Team(Protocol):
    """The ranks that launch kernels together."""

    rank: int
    size: int
    memory: Memory
    """What allocates its symmetric tensors."""
    watch: Watch | None
    """What hears of its launches."""

    def exchange(self, what: str, value: Any) -> list[Any]:
        """The values of all ranks, in their order. `what` says in an error what the others are
        waited for.

        Raises `RuntimeError` that names the ranks which have not come in time, or have failed.
        """
        ...


current: contextvars.ContextVar[Team | None] = contextvars.ContextVar("team", default=None)
_teams: dict[str, StoreTeam] = {}


def current_team(group: dist.ProcessGroup | None = None) -> Team:
    """The team of a process group of torch.distributed, by default of all its ranks; in
    `tilelang.distributed.emulate` that of its ranks.

    Raises `RuntimeError` where neither is there, `NotImplementedError` for ranks of several hosts
    without NVSHMEM, `ValueError` for a group of which this process is no member.

    Example: ``current_team().rank``
    """
    team = current.get()
    if team is not None:
        return team
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "tilelang.distributed: found no ranks. Start the script by torchrun and call "
            "torch.distributed.init_process_group, or run it in the emulator: "
            "tilelang.distributed.emulate(ranks, program)"
        )
    group = group or dist.group.WORLD
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(
            "tilelang.distributed: this process is no member of the group. Call it in the group's "
            "ranks only"
        )
    name = group.group_name
    if name not in _teams:
        from tilelang.distributed.memory import TorchMemory

        store = dist.PrefixStore(f"tilelang/{name}", dist.distributed_c10d._get_default_store())
        team = StoreTeam(store, rank, dist.get_world_size(group), TorchMemory(name))
        team.memory = TorchMemory(name, backend_of(team))
        if torch.cuda.is_available():
            words = dist.PrefixStore(f"tilelang/{name}/words", _own_client(store))
            team.watch = Watch(words, team.rank, team.size, mark_of_stream)
        _teams[name] = team
    return _teams[name]


def _own_client(store: Any) -> Any:
    """A client of the same store for another thread: one that waits holds up the others."""
    return store.clone()


def backend_of(team: Team) -> str | None:
    """The backend of torch's symmetric memory that maps the memory of all ranks of a team: None,
    which is torch's own choice, for one host, and NVSHMEM for several.

    Raises `NotImplementedError` where a rank of several hosts is without NVSHMEM; all ranks do.
    """
    described = team.exchange("the name of the host", (socket.gethostname(), _has_nvshmem()))
    other = next((r for r, (host, _) in enumerate(described) if host != described[0][0]), None)
    if other is None:
        return None
    without = next((r for r, (_, found) in enumerate(described) if not found), None)
    if without is None:
        return "NVSHMEM"
    raise NotImplementedError(
        f"tilelang.distributed: rank 0 is on {described[0][0]} and rank {other} on "
        f"{described[other][0]}, and torch finds no NVSHMEM on rank {without}, which memory of "
        "several hosts takes. Install nvidia-nvshmem beside a torch that is built with it, or take "
        "the ranks of one host as a group, and torch.distributed between hosts"
    )


def _has_nvshmem() -> bool:
    from torch.distributed import _symmetric_memory

    return _symmetric_memory.is_nvshmem_available()


class StoreTeam:
    """A team of processes, which exchange values through a store of torch.distributed."""

    def __init__(
        self, store: Any, rank: int, size: int, memory: Memory, time_limit: float = TIME_LIMIT
    ):
        self.rank = rank
        self.size = size
        self.memory = memory
        self.time_limit = time_limit
        self.watch: Watch | None = None
        self._store = store
        self._count = 0

    def exchange(self, what: str, value: Any) -> list[Any]:
        """As `Team.exchange`."""
        self._count += 1
        key = f"{self._count}"
        self._store.set(f"{key}/{self.rank}", pickle.dumps((what, value)))
        found = []
        deadline = datetime.datetime.now() + datetime.timedelta(seconds=self.time_limit)
        for rank in range(self.size):
            left = deadline - datetime.datetime.now()
            try:
                self._store.wait([f"{key}/{rank}"], max(left, datetime.timedelta(milliseconds=1)))
            except (RuntimeError, dist.DistStoreError) as error:
                raise RuntimeError(
                    f"tilelang.distributed: rank {self.rank} has waited {self.time_limit:g} s for "
                    f"rank {rank} to come to {what}. It has ended, or does something else: let all "
                    "ranks of the group make the same calls in the same order"
                ) from error
            theirs, value = pickle.loads(self._store.get(f"{key}/{rank}"))
            check_same_call(self.rank, what, rank, theirs)
            found.append(value)
        return found


def check_same_call(rank: int, what: str, other: int, theirs: str) -> None:
    """Raises `RuntimeError` where two ranks exchange different things."""
    if what != theirs:
        raise RuntimeError(
            f"tilelang.distributed: rank {rank} has come to {what}, rank {other} to {theirs}. Let "
            "all ranks of the group make the same calls in the same order"
        )
