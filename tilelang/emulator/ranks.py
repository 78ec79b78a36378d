"""Launches of one kernel by several ranks, as one launch of the emulator."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilelang.distributed.emulated import EmulatedTeam
from tilelang.distributed.team import current
from tilelang.emulator.buffers import Tensor
from tilelang.emulator.compiler import EmulatedModule, LaunchConfig
from tilelang.emulator.reports import Report

_Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_libc = ctypes.CDLL(None)
_libc.strdup.argtypes, _libc.strdup.restype = [ctypes.c_char_p], ctypes.c_void_p


class JoinedModule:
    """Kernels that all ranks of a team launch together.

    `address` gives, for a kernel's name, a function of the type of the module's own. It waits for
    the launches of the other ranks; rank 0 then runs all of them.
    """

    def __init__(self, module: EmulatedModule):
        self.module = module
        self._functions: dict[str, Any] = {}
        self._failed = threading.local()

    def address(self, kernel_name: str) -> int:
        """As `EmulatedModule.address`."""
        if kernel_name not in self._functions:
            self._functions[kernel_name] = _Function(
                lambda config, args, report: self._join(kernel_name, config, args, report)
            )
        address = ctypes.cast(self._functions[kernel_name], ctypes.c_void_p).value
        assert address is not None
        return address

    def explain(
        self, kernel_name: str, text: str, arguments: Sequence[Tensor | None]
    ) -> list[Report]:
        """As `EmulatedModule.explain`, of the arguments of all ranks. Raises what kept this rank
        from launching."""
        error = getattr(self._failed, "error", None)
        if error is not None:
            self._failed.error = None
            raise error
        team = current.get()
        assert team is not None
        of_all = [
            None if tensor is None else replace(tensor, owner=f" of rank {rank}")
            for rank in range(team.size)
            for tensor in arguments
        ]
        return self.module.explain(kernel_name, text, of_all)

    def _join(self, kernel: str, config: int, args: int, report: int) -> int:
        """Runs when a rank launches; an exception cannot leave it."""
        try:
            text = self._launch(kernel, config, args)
        except Exception as error:  # noqa: BLE001 (`explain` raises it)
            self._failed.error = error
            text = "the ranks did not launch"
        if text is None:
            return 0
        ctypes.c_void_p.from_address(report).value = _libc.strdup(text.encode())
        return 1

    def _launch(self, kernel: str, config: int, args: int) -> str | None:
        team = current.get()
        if not isinstance(team, EmulatedTeam):
            raise RuntimeError(
                f"kernel `{kernel}` runs in the emulator, whose ranks are threads of one process: "
                "call it in tilelang.distributed.emulate(ranks, program)"
            )
        what = f"a launch of `{kernel}`"
        launches = team.exchange(what, (id(self.module), config, args))
        outcome = None
        if team.rank == 0:
            outcome = self._run(kernel, launches)
        return team.exchange(f"the end of {what}", outcome)[0]

    def _run(self, kernel: str, launches: Sequence[tuple[int, int, int]]) -> str | None:
        configs = [LaunchConfig.from_address(config) for _, config, _ in launches]
        extents = [(*c.grid, *c.block, c.dynamic_shared_bytes) for c in configs]
        for rank, (module, _, _) in enumerate(launches):
            if module != id(self.module) or extents[rank] != extents[0]:
                return (
                    f"rank {rank} launches grid {extents[rank][:3]}, block {extents[rank][3:6]}, "
                    f"{extents[rank][6]} bytes of shared memory, and rank 0 grid "
                    f"{extents[0][:3]}, block {extents[0][3:6]}, {extents[0][6]} bytes. The "
                    "emulator runs ranks with the same grid: pass the same sizes"
                )
        return self.module.join(
            kernel, [config for _, config, _ in launches], [args for _, _, args in launches]
        )
