"""What `src/target` says of the chip that a target names, of any kind that kernels are made for."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm.target import Target

from tilelang._ffi import get_function
from tilelang.utils.target import TargetLike, arch_of, determine_target, kind_of


@dataclass(frozen=True, init=False)
class Chip:
    """The limits of a chip, and what instructions it has. Subclasses are the kinds of targets.

    `target` is what `determine_target` takes. Raises `ValueError` for a target of another kind.
    """

    KIND: ClassVar[str]

    target: Target

    def __init__(self, target: TargetLike):
        found = determine_target(target, return_object=True)
        assert isinstance(found, Target)
        if kind_of(found) != self.KIND:
            raise ValueError(
                f"found target {kind_of(found)} {arch_of(found)}".rstrip()
                + f", wanted one of kind {self.KIND}: {type(self).__name__}({self.KIND!r})"
            )
        object.__setattr__(self, "target", found)

    @property
    def arch(self) -> str:
        """Such as ``sm_90a`` or ``gfx942``."""
        return arch_of(self.target)

    @property
    def has_warp_groups(self) -> bool:
        """Whether products are those of warp groups (wgmma)."""
        return self._has("wgmma")

    @property
    def has_async_copies(self) -> bool:
        """Whether threads can copy any tile to shared memory and go on meanwhile (cp.async)."""
        return self._has("cp.async")

    @property
    def has_clusters(self) -> bool:
        """Whether blocks of a cluster can load a tile once for all."""
        return self._has("clusters")

    @property
    def has_dependent_launches(self) -> bool:
        """Whether a kernel can begin before the one in front of it has ended (`T.pdl_sync`)."""
        return self._has("griddepcontrol")

    @property
    def smem_cap(self) -> int:
        """Bytes of dynamic shared memory that a block can have."""
        return self._limit("shared_bytes_per_block")

    @property
    def warp_size(self) -> int:
        """Threads of a warp."""
        return self._limit("warp_threads")

    @property
    def reg_cap(self) -> int:
        """Registers of a multiprocessor."""
        return self._limit("registers_per_sm")

    def blocks_per_sm(self, threads: int, shared_bytes: int, registers: int) -> int:
        """How many such blocks a multiprocessor has room for; 0 where one does not fit (CUDA C++
        Best Practices Guide, "Occupancy"). A thread's registers are handed out in eights."""
        most = self._limit("registers_per_thread")
        if threads > 1024 or shared_bytes > self.smem_cap or registers > most:
            return 0
        by_registers = self.reg_cap // (threads * -(-registers // 8) * 8)
        fitting = get_function("target.BlocksThatFit")(self.KIND, self.arch, threads, shared_bytes)
        return min(int(fitting), by_registers)

    def _has(self, feature: str) -> bool:
        return feature in _description(self.KIND, self.arch)["features"]

    def _limit(self, name: str) -> int:
        return int(_description(self.KIND, self.arch)[name])


@functools.cache
def _description(kind: str, arch: str) -> dict[str, Any]:
    return dict(get_function("target.Describe")(kind, arch).items())
