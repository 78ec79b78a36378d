"""Calls on the GPU that are watched: tensors lie between guard bytes, and a kernel that does not
end or takes the context with it is told from one that is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

GUARD_BYTES = 4096
"""In front of and behind each tensor: more than a row of the tiles that tests have."""

_ALIGNMENT = 256  # of torch's own tensors
_SECONDS = 20.0


def require_gpu() -> None:
    """Raises `SystemExit` with the reason where torch finds no GPU."""
    if not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch finds no CUDA device; leave it out for the emulator")


class DeviceLost(RuntimeError):
    """The GPU runs nothing more for this process: a kernel has failed, or it does not end."""


class GuardedCall:
    """A call of a launcher on copies of CPU tensors in the GPU's memory.

    All tensors lie in one allocation, one that is given twice once, each between bytes that nobody
    may write and that are neither zeros nor ordinary numbers to who reads them: NaN or very large,
    and other ones around each tensor. Arguments that are no tensors are passed as they are.

    Args:
        arguments: contiguous or strided tensors that do not overlap, on the CPU.
        device: torch's name of the device.

    Example: ``GuardedCall([a, b]).run(cuda_adapter(plan, cubin))`` leaves the results in a and b.
    """

    def __init__(self, arguments: Sequence[Any], device: str = "cuda"):
        self._arguments = list(arguments)
        self._device = torch.device(device)
        self._watched = self._device.type == "cuda"
        self._places: dict[int, tuple[int, int]] = {}
        """First byte and number of bytes of each tensor."""
        end = 0
        known: dict[int, int] = {}
        for index, argument in enumerate(self._arguments):
            first = known.setdefault(id(argument), index)
            if first in self._places:
                self._places[index] = self._places[first]
            elif isinstance(argument, torch.Tensor):
                start = end + GUARD_BYTES + -end % _ALIGNMENT
                self._places[index] = start, _bytes_of(argument).numel()
                end = start + self._places[index][1] + GUARD_BYTES
        self._before = torch.empty(end, dtype=torch.uint8)
        for number, (index, (start, size)) in enumerate(self._places.items()):
            first = 0 if number == 0 else start - GUARD_BYTES
            self._before[first:] = 0xFF - number % 4
            self._before[start : start + size] = _bytes_of(self._arguments[index])

    def run(self, launch: Callable[..., Any], seconds: float = _SECONDS) -> None:
        """Calls `launch` and copies what its tensors hold back into the arguments.

        Raises `AssertionError` where bytes outside of the tensors have changed, `DeviceLost` where
        the kernel takes more than `seconds` or the context is lost, and what `launch` raises.
        """
        memory = self._before.to(self._device, copy=True)
        given = [
            self._view(memory, index) if index in self._places else argument
            for index, argument in enumerate(self._arguments)
        ]
        try:
            launch(*given)
            self._wait(seconds)
            after = memory.cpu()
        except DeviceLost:
            raise
        except Exception as error:
            if self._is_lost():
                raise DeviceLost(str(error)) from error
            raise
        for index, (start, size) in self._places.items():
            _bytes_of(self._arguments[index]).copy_(after[start : start + size])
        self._check_guards(after)

    def _view(self, memory: torch.Tensor, index: int) -> torch.Tensor:
        tensor, (start, _) = self._arguments[index], self._places[index]
        view = torch.empty(0, dtype=tensor.dtype, device=self._device)
        offset = start // tensor.itemsize
        return view.set_(memory.untyped_storage(), offset, tensor.shape, tensor.stride())

    def _wait(self, seconds: float) -> None:
        """Waits for the GPU; a wait by the driver would have no end."""
        if not self._watched:
            return
        done = torch.cuda.Event()
        done.record()
        end = time.monotonic() + seconds
        while not done.query():
            if time.monotonic() > end:
                raise DeviceLost(f"hang: the kernel runs for more than {seconds:g} s")
            time.sleep(1e-5)

    def _is_lost(self) -> bool:
        """Whether an error stays: after an illegal access every later call fails."""
        if not self._watched:
            return False
        try:
            torch.cuda.synchronize()
        except Exception:  # noqa: BLE001 (that it fails is the answer)
            return True
        return False

    def _check_guards(self, after: torch.Tensor) -> None:
        touched = after != self._before
        for start, size in self._places.values():
            touched[start : start + size] = False
        if not touched.any():
            return
        first = int(touched.nonzero()[0])
        index, distance = min(
            ((i, _distance(first, start, size)) for i, (start, size) in self._places.items()),
            key=lambda found: abs(found[1]),
        )
        side = "before the first byte" if distance < 0 else "behind the last byte"
        raise AssertionError(
            f"out of bounds: {int(touched.sum())} bytes outside of the tensors were written, the "
            f"first one {abs(distance)} {side} of argument {index}"
        )


def _distance(place: int, start: int, size: int) -> int:
    """Bytes from a tensor to a place outside of it."""
    return place - start if place < start else place - (start + size - 1)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes from the first to the last element, which share the tensor's memory."""
    storage = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    start = tensor.storage_offset() * tensor.itemsize
    span = 0
    if tensor.numel():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        span = (1 + sum((extent - 1) * stride for extent, stride in steps)) * tensor.itemsize
    return storage[start : start + span]
