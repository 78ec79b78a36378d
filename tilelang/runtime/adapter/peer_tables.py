"""The addresses that a symmetric tensor has on all ranks, where kernels read them, and the tensor
maps of these tensors."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence

import torch


def refuse_capture() -> None:
    """Raises `RuntimeError` in the capture of a CUDA graph, where nothing is copied to the GPU."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "tilelang.distributed: found the first launch with some symmetric tensors in the "
            "capture of a CUDA graph, wanted one before it, in which ranks exchange addresses and "
            "compare kernels. Call the kernel once with them, on all ranks, and capture then"
        )


class PeerTable:
    """The table of one symmetric tensor: an int64 for each rank, in memory of `device`.

    What is made for it lives as long as it does.
    """

    def __init__(self, addresses: Sequence[int], device: torch.device):
        refuse_capture()
        self.addresses = tuple(addresses)
        self.tensor = torch.tensor(self.addresses, dtype=torch.int64, device=device)
        self._maps: dict[Hashable, torch.Tensor] = {}
        with _lock:
            _tables[self.tensor.data_ptr()] = self

    def maps(self, key: Hashable, encode: Callable[[int], bytes]) -> int:
        """The address of an array with the map that `encode` makes of each rank's address."""
        found = self._maps.get(key)
        if found is None:
            refuse_capture()
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
