"""``pytest --seeds N``: every emulated launch of a test also runs under N random schedules.

A kernel that is right has no report under any. Compiling takes most of the time of a test, so that
this is far cheaper than to run the tests N times.
"""

from __future__ import annotations

from typing import Any

import torch

from tilelang.emulator import schedule
from tilelang.emulator.machine import Schedule, current_schedule
from tilelang.engine.launch_plan import PointerParam


class EverySchedule:
    """A launcher that tries out schedules on copies of its arguments, before the launch itself.

    A launch whose schedule the test has chosen, or whose memory it gives as plain addresses, is
    left alone.
    """

    def __init__(self, launcher: Any, seeds: int):
        self._launcher = launcher
        self._seeds = seeds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)

    def __call__(self, *args: Any) -> Any:
        if current_schedule() == Schedule() and not self._takes_addresses(args):
            for seed in range(1, self._seeds + 1):
                with schedule(seed=seed):
                    self._launcher(*copies(args))
        return self._launcher(*args)

    def _takes_addresses(self, args: tuple[Any, ...]) -> bool:
        plan = self._launcher.plan
        params = [plan.params[i] for i in plan.inputs]
        return any(
            isinstance(param, PointerParam) and isinstance(arg, int)
            for param, arg in zip(params, args, strict=False)
        )


def copies(args: tuple[Any, ...]) -> list[Any]:
    """`args` with tensors of other memory; what overlaps still does."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        storage = arg.untyped_storage()
        fresh = storages.setdefault(storage.data_ptr(), storage.clone())
        out = torch.empty(0, dtype=arg.dtype, device=arg.device)
        return out.set_(fresh, arg.storage_offset(), arg.size(), arg.stride())

    return [copy(arg) for arg in args]
