"""What decides about the kernels of a function besides the program and the arguments, as a key that
costs a call a few comparisons.

It is the options of the function, the environment variables that compiling reads, the target scope,
the current GPU, and hooks on sources. Each may change between two calls.
"""

from __future__ import annotations

import operator
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
        self.assigned = dict(_assigned)
        # Lists and dicts of the user's may change in place.
        self.options = _copied(options)
        self.scope = Target.current(allow_none=True)
        self.device = _device()
        self.hooks = registered_postproc()
        self.state: State | None = None


class Surroundings:
    """The surroundings of a function under `tilelang.jit`."""

    def __init__(self, function: JITImpl):
        self._function = function
        self._states: dict[Hashable, State] = {}
        self._last: _Seen | None = None

    def __call__(self) -> State:
        """The state of now."""
        seen = self._last
        options = _options(self._function)
        if (
            seen is not None
            and seen.environment.unchanged()
            and seen.options == options
            and seen.assigned == _assigned
            and seen.hooks is registered_postproc()
            and (not _has_device() or seen.device == _device())
            # Nothing compares with a target but the target itself.
            and Target.current(allow_none=True) is None is seen.scope
        ):
            return seen.state  # type: ignore[return-value]  # there is one in `_last`
        # What is seen before the key is made is no newer than the key.
        seen = _Seen(options)
        key = hashable(options), surroundings(self._function.target)
        seen.state = self._states.setdefault(key, State(key))
        self._last = seen
        return seen.state


_options = operator.attrgetter(
    *("out_idx", "execution_backend", "pass_configs", "compile_flags", "checks", "target")
)
_assigned = vars(env)
_has_device = torch.cuda.is_initialized


def _copied(value: Any) -> Any:
    """A value with lists and dicts of its own."""
    if type(value) is dict:
        return {name: _copied(v) for name, v in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


def _device() -> int:
    return torch.cuda.current_device() if torch.cuda.is_initialized() else 0
