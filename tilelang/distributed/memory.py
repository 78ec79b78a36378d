"""Tensors that each rank of a team has one of, at addresses that all of them know."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tilelang.distributed.team import Team, current_team
from tilelang.runtime.adapter.peer_tables import PeerTable

ALIGNMENT = 16
"""The address of a symmetric tensor is a multiple of so many bytes."""


@dataclass(frozen=True)
class Allocation:
    """Memory of a team: `nbytes` bytes that begin at ``addresses[r]`` on rank r."""

    team: Team
    addresses: tuple[int, ...]
    nbytes: int
    _tables: dict[tuple[int, torch.device], PeerTable] = field(default_factory=dict, compare=False)

    def table(self, tensor: torch.Tensor) -> torch.Tensor:
        """The addresses on all ranks of a tensor in this memory, where kernels read them."""
        offset = tensor.data_ptr() - self.addresses[self.team.rank]
        key = (offset, tensor.device)
        if key not in self._tables:
            addresses = [address + offset for address in self.addresses]
            self._tables[key] = PeerTable(addresses, tensor.device)
        return self._tables[key].tensor

    def contains(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor begins in this rank's part."""
        offset = tensor.data_ptr() - self.addresses[self.team.rank]
        return 0 <= offset < self.nbytes or (offset == 0 and tensor.numel() == 0)


_allocations: dict[int, Allocation] = {}
_lock = threading.Lock()


def allocation_of(tensor: torch.Tensor) -> Allocation | None:
    """The symmetric memory that a tensor is in, None if it is in none.

    Example: ``allocation_of(x[1:]).team.size``
    """
    with _lock:
        found = _allocations.get(tensor.untyped_storage().data_ptr())
    return found if found is not None and found.contains(tensor) else None


def empty(*shape: Any, dtype: torch.dtype = torch.float32, group: Any = None) -> torch.Tensor:
    """A tensor of which each rank of the group has one, for a ``T.SymmetricTensor``.

    All ranks call it, in the same order and with the same arguments; it waits for them. The tensor
    is on the current CUDA device, in the emulator on the CPU. Its views are symmetric, too.

    Args:
        shape: extents, or a sequence of them; a dtype may follow the sequence.
        dtype: of the elements.
        group: a process group of torch.distributed; by default all ranks.

    Raises:
        RuntimeError: there are no ranks, or one does not come in time; the text names it. Two ranks
            want different tensors.
        NotImplementedError: the group is of several hosts.

    Example: ``out = empty((4, 1024), torch.float16)``
    """
    extents, dtype = _shape_and_dtype(shape, dtype)
    team = current_team(group)
    wanted = team.exchange("an allocation of a symmetric tensor", (extents, str(dtype)))
    other = next((r for r, theirs in enumerate(wanted) if theirs != wanted[team.rank]), None)
    if other is not None:
        raise RuntimeError(
            f"tilelang.distributed: rank {team.rank} allocates a symmetric tensor of shape "
            f"{extents} and dtype {dtype}, rank {other} one of shape {wanted[other][0]} and dtype "
            f"{wanted[other][1]}. Let all ranks allocate the same"
        )
    tensor, addresses = team.memory.allocate(team, extents, dtype)
    storage = tensor.untyped_storage()
    address = storage.data_ptr()
    with _lock:
        _allocations[address] = Allocation(team, tuple(addresses), storage.nbytes())
    weakref.finalize(storage, _allocations.pop, address, None)
    return tensor


def zeros(*shape: Any, dtype: torch.dtype = torch.float32, group: Any = None) -> torch.Tensor:
    """As `empty`, with zeros on all ranks before any of them returns: for signals and counts.

    Example: ``counts = zeros((blocks, ranks), torch.uint32)``
    """
    tensor = empty(*shape, dtype=dtype, group=group)
    tensor.zero_()
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()
    current_team(group).exchange("zeros of a symmetric tensor", None)
    return tensor


def _shape_and_dtype(
    shape: tuple[Any, ...], dtype: torch.dtype
) -> tuple[tuple[int, ...], torch.dtype]:
    given = list(shape)
    if len(given) == 2 and isinstance(given[1], torch.dtype):
        dtype = given.pop()
    extents = given[0] if len(given) == 1 and isinstance(given[0], Sequence) else given
    return tuple(int(extent) for extent in extents), dtype


class TorchMemory:
    """Symmetric memory of torch.distributed: GPUs map each other's memory. NVLink's multicast is
    not used.

    By default the backend is the one that torch has, which maps the memory of one host;
    ``"NVSHMEM"`` also maps that of other hosts, where NVLink connects them (NVSHMEM,
    ``nvshmem_ptr``). Memory that only a network reaches has no address.
    """

    def __init__(self, group_name: str, backend: str | None = None):
        self.group_name = group_name
        self.backend = backend

    def allocate(
        self, team: Team, shape: Sequence[int], dtype: torch.dtype
    ) -> tuple[torch.Tensor, list[int]]:
        """As `Memory.allocate`."""
        from torch.distributed import _symmetric_memory

        if self.backend is not None:
            _use_backend(self.backend)
        # A tensor without elements has memory to map all the same.
        count = max(1, math.prod(shape))
        flat = _symmetric_memory.empty(
            count, dtype=dtype, device=torch.device("cuda", torch.cuda.current_device())
        )
        handle = _symmetric_memory.rendezvous(flat, self.group_name)
        begins = [int(address) for address in handle.buffer_ptrs]
        missing = next((r for r, address in enumerate(begins) if address == 0), None)
        if missing is not None:
            raise NotImplementedError(
                f"tilelang.distributed: rank {team.rank} has no address of the memory of rank "
                f"{missing}, which only a network reaches; wanted ranks that NVLink connects. Take "
                "these as a group, and torch.distributed between groups"
            )
        offset = flat.data_ptr() - begins[team.rank]
        addresses = [address + offset for address in begins]
        return flat[: math.prod(shape)].view(tuple(shape)), addresses


def _use_backend(name: str) -> None:
    """Lets torch allocate symmetric memory by a backend. torch refuses another one once it has
    allocated, with `RuntimeError`."""
    from torch.distributed import _symmetric_memory

    device = torch.device("cuda", torch.cuda.current_device())
    if _symmetric_memory.get_backend(device) != name:
        _symmetric_memory.set_backend(name)
