from collections.abc import Callable, Sequence
from typing import Any

from tilelang.emulator.buffers import Tensor
from tilelang.emulator.reports import Report
from tilelang.engine.launch_plan import Descriptor, LaunchPlan
from tilelang.runtime.adapter.hip_module import HipRuntime

class Launcher:
    """Calls the kernels of a launch plan."""

    plan: LaunchPlan
    device: str
    def __init__(
        self,
        plan: LaunchPlan,
        load: Callable[[int], tuple[int, Sequence[int]]],
        driver: Sequence[int] | None = None,
        explain: Callable[[str, str, Sequence[Tensor | None]], list[Report]] | None = None,
        encode: Callable[[Descriptor, int, tuple[int, ...], tuple[int, ...]], bytes] | None = None,
        window_limit: Callable[[int], int] | None = None,
        device: str | None = None,
        otherwise: Callable[[int], Launcher] | None = None,
        hip: HipRuntime | None = None,
    ) -> None: ...
    def __call__(self, *args: Any) -> Any: ...

class Callee:
    """The base of what is called with tensors."""

    _adapter: Any  # a Launcher, or what stands for one
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Environment:
    """The values of some environment variables at one time."""

    def __init__(self, names: Sequence[bytes]) -> None: ...
    def unchanged(self) -> bool: ...
