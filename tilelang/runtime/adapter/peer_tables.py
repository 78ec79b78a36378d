"""The addresses that a symmetric tensor has on all ranks, where kernels read them, and the tensor
maps of these tensors."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence

import torch


class PeerTable:
    """The table of one symmetric tensor: an int64 for each rank, in memory of `device`.

    What is made for it lives as long as it does.
    """

    def __init__(self, addresses: Sequence[int], device: torch.device):
        self.addresses = tuple(addresses)
        self.tensor = torch.tensor(self.addresses, dtype=torch.int64, device=device)
        self._maps: dict[Hashable, torch.Tensor] = {}
        with _lock:
            _tables[self.tensor.data_ptr()] = self

    def maps(self, key: Hashable, encode: Callable[[int], bytes]) -> int:
        """The address of an array with the map that `encode` makes of each rank's address."""
        found = self._maps.get(key)
        if found is None:
            content = b"".join(encode(address) for address in self.addresses)
            # torch aligns what it allocates to 64 bytes at least.
            found = torch.frombuffer(bytearray(content), dtype=torch.uint8).clone()
            self._maps[key] = found = found.to(self.tensor.device)
        return found.data_ptr()


# Of those that are alive, by where they begin.
_tables: weakref.WeakValueDictionary[int, PeerTable] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def table_at(address: int) -> PeerTable:
    """The table that begins at an address."""
    return _tables[address]
