"""What decides about the kernels of a function besides the program and the arguments, as a key that
costs a call a few comparisons.

It is the options of the function, the environment variables that compiling reads, the target scope,
the current GPU, and hooks on sources. Each may change between two calls.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import torch
import tvm
from tvm.target import Target

from tilelang.engine import callback
from tilelang.engine.callback import registered_postproc
from tilelang.env import env
from tilelang.jit.cache_key import copied, hashable
from tilelang.jit.compile import surroundings
from tilelang.runtime.adapter.cython._adapter import Snapshot, Snapshots

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


class Surroundings:
    """The surroundings of a function under `tilelang.jit`."""

    def __init__(self, function: JITImpl, states: Snapshots[State]):
        """`states` are those that calls have seen."""
        self._function = function
        self._known: dict[Hashable, State] = {}
        self._states = states

    def __call__(self) -> State:
        """The state of now."""
        return self._states.current() or self._state()

    def _state(self) -> State:
        # What is seen before the key is made is no newer than the key.
        seen, scope = self._seen(), Target.current(allow_none=True)
        options = [vars(self._function)[name] for name in _OPTIONS]
        key = hashable(options), surroundings(self._function.target)
        state = self._known.setdefault(key, State(key))
        if scope is None:
            # Nothing compares with a target but the target itself.
            self._states.keep(seen, state)
        return state

    def _seen(self) -> Snapshot:
        """All that the key is made of, without a target scope."""
        seen = Snapshot()
        seen.variables(_VARIABLES)
        for name in _OPTIONS:
            seen.option(vars(self._function), name, copied(vars(self._function)[name]))
        seen.length(vars(env))
        for name, value in vars(env).items():
            seen.item(vars(env), name, value)
        seen.item(vars(callback), "_hooks", registered_postproc())
        is_initialized = torch.cuda.is_initialized()
        seen.call(torch.cuda.is_initialized, (), is_initialized)
        if is_initialized:
            seen.call(_current_device, (), _current_device())
        seen.call(_current_target, (True,), None)
        return seen


_OPTIONS = ("out_idx", "execution_backend", "pass_configs", "compile_flags", "checks", "target")
# What the public functions end in: those are frames of Python in each call.
_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_current_target = tvm.get_global_func("target.TargetCurrent")
