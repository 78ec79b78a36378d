from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

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
        multiprocessors: Callable[[int], int] | None = None,
    ) -> None: ...
    def __call__(self, *args: Any) -> Any: ...

class Callee:
    """The base of what is called with tensors."""

    _adapter: Any  # a Launcher, or what stands for one
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

ABSENT: Any
"""Nothing is held there."""

class TvmFunction:
    """A function of TVM that gives an object or None."""

    def __init__(self, function: Any, call: int, release: int) -> None: ...

class Watched:
    """The base of objects whose attributes are compared by one number."""

class Snapshot:
    """Places and what they held when they were added."""

    def __len__(self) -> int: ...
    def item(self, mapping: Mapping[Any, Any], name: Any, value: Any) -> None: ...
    def option(self, mapping: dict[str, Any], name: str, value: Any) -> None: ...
    def cell(self, cell: Any, content: Any) -> None: ...
    def attribute(self, value: Any, name: str, found: Any) -> None: ...
    def elements(self, values: list[Any], elements: tuple[Any, ...]) -> None: ...
    def length(self, mapping: dict[Any, Any]) -> None: ...
    def call(self, function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> None: ...
    def attributes(self, value: Watched) -> None: ...
    def tvm_object(self, function: TvmFunction, found: Any) -> None: ...
    def unchanged(self) -> bool: ...

_Value = TypeVar("_Value")

class Snapshots(Generic[_Value]):
    """Values, each with the snapshot that it goes with."""

    def current(self) -> _Value | None: ...
    def keep(self, snapshot: Snapshot, value: _Value) -> None: ...

class Version:
    """The base of what is made for compile-time arguments and what their trace has read."""

    def __init__(
        self,
        reads: Iterable[tuple[int, int, str, int]] = (),
        inputs: Sequence[int] | None = None,
    ) -> None: ...

class Dispatcher(Watched):
    """The base of functions whose calls choose a kernel by their arguments."""

    _states: Snapshots[Any]
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def _dispatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def _keep(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        positions: Sequence[int],
        defaults: tuple[Any, ...],
        arguments: tuple[Any, ...],
        versions: Snapshots[Any],
        version: Version,
        state: Any,
        kernel: Any,
    ) -> None: ...
