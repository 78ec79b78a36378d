"""What decides about the kernels of a function besides the program and the arguments, as a key that
costs a call a few comparisons.

It is the options of the function, the environment variables that compiling reads, the target scope,
the current GPU, and hooks on sources. Each may change between two calls.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch
from tvm.target import Target

from tilelang.engine.callback import registered_postproc
from tilelang.env import env
from tilelang.jit.cache_key import hashable
from tilelang.jit.compile import surroundings
from tilelang.runtime.adapter.cython._adapter import Environment

if TYPE_CHECKING:
    from tilelang.jit.impl import JITImpl

_VARIABLES = (
    *(b"TILELANG_DEFAULT_TARGET", b"TILELANG_EXECUTION_BACKEND"),
    *(b"TILELANG_EMULATE_CHECKS", b"TILELANG_ENABLE_DATA_RACE_CHECK"),
)
"""Those that `tilelang.jit.compile.surroundings` reads."""


class State:
    """One state of the surroundings. There is one object for equal ones, so it is a cheap key.

    Attributes:
        key: equal for surroundings with the same kernels.
    """

    __slots__ = ("key",)

    def __init__(self, key: Hashable):
        self.key = key


class _Seen:
    """All that a state was made of, to be compared with what is there now."""

    __slots__ = ("assigned", "device", "environment", "hooks", "options", "scope", "state")

    def __init__(self, options: tuple[Any, ...]):
        self.environment = Environment(_VARIABLES)
        self.assigned = dict(vars(env))
        # Lists and dicts of the user's may change in place.
        self.options = _copied(options)
        self.scope = Target.current(allow_none=True)
        self.device = _device()
        self.hooks = registered_postproc()
        self.state: State | None = None

    def is_now(self, options: tuple[Any, ...]) -> bool:
        return (
            self.environment.unchanged()
            and self.options == options
            and self.assigned == vars(env)
            and self.hooks == registered_postproc()
            and self.device == _device()
            # Nothing compares with a target but the target itself.
            and self.scope is None is Target.current(allow_none=True)
        )


class Surroundings:
    """The surroundings of a function under `tilelang.jit`."""

    def __init__(self, function: JITImpl):
        self._function = function
        self._states: dict[Hashable, State] = {}
        self._last: _Seen | None = None

    def __call__(self) -> State:
        """The state of now."""
        function, last = self._function, self._last
        options = (
            *(function.out_idx, function.execution_backend, function.pass_configs),
            *(function.compile_flags, function.checks, function.target),
        )
        if last is not None and last.is_now(options):
            assert last.state is not None
            return last.state
        # What is seen before the key is made is no newer than the key.
        seen = _Seen(options)
        key = hashable((*options[:-1], hashable(function.target))), surroundings(function.target)
        seen.state = self._states.setdefault(key, State(key))
        self._last = seen
        return seen.state


def _copied(value: Any) -> Any:
    """A value with lists and dicts of its own."""
    if type(value) is dict:
        return {name: _copied(v) for name, v in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


def _device() -> int:
    return torch.cuda.current_device() if torch.cuda.is_initialized() else 0
