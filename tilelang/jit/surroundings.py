"""What decides about the kernels of a function besides the program and the arguments, as a key that
costs a call a few comparisons.

It is the options of the function, the environment variables that compiling reads, the target scope,
the current GPU, and hooks on sources. Each may change between two calls.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Hashable
from typing import TYPE_CHECKING

import torch
import tvm
import tvm_ffi
from tvm.target import Target

from tilelang.engine import callback
from tilelang.engine.callback import registered_postproc
from tilelang.env import env
from tilelang.jit.cache_key import copied, hashable
from tilelang.jit.compile import surroundings
from tilelang.runtime.adapter.cython._adapter import (
    ABSENT,
    Snapshot,
    Snapshots,
    TvmFunction,
)

if TYPE_CHECKING:
    from tilelang.jit.impl import JITImpl

_VARIABLES = (
    *("TILELANG_DEFAULT_TARGET", "TILELANG_EXECUTION_BACKEND"),
    *("TILELANG_EMULATE_CHECKS", "TILELANG_ENABLE_DATA_RACE_CHECK"),
)
"""The variables that `tilelang.jit.compile.surroundings` reads."""


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
        seen = self._seen()
        options = [vars(self._function)[name] for name in _OPTIONS]
        key = hashable(options), surroundings(self._function.target)
        state = self._known.setdefault(key, State(key))
        self._states.keep(seen, state)
        return state

    def _seen(self) -> Snapshot:
        """All that the key is made of."""
        seen = Snapshot()
        _see_variables(seen)
        options = vars(self._function)
        seen.attributes(self._function)
        for name in _OPTIONS:
            if isinstance(options[name], list | dict | tuple):  # it may change in place
                seen.option(options, name, copied(options[name]))
        seen.length(vars(env))
        for name, value in vars(env).items():
            seen.item(vars(env), name, value)
        seen.item(vars(callback), "_hooks", registered_postproc())
        if torch.cuda.is_initialized():
            # It stays so, but in a child of fork.
            seen.call(_is_forked, (), _is_forked())
            seen.call(_current_device, (), _current_device())
        else:
            seen.call(torch.cuda.is_initialized, (), False)
        seen.tvm_object(_current_target(), Target.current(allow_none=True))
        return seen


_OPTIONS = ("out_idx", "execution_backend", "pass_configs", "compile_flags", "checks", "target")
# What the public functions end in, without frames of Python.
_is_forked = getattr(torch._C, "_cuda_isInBadFork", lambda: False)
_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def _see_variables(seen: Snapshot) -> None:
    """The variables that `env` reads: what `os.environ` holds, as reading one that is not set takes
    it a microsecond."""
    seen.item(vars(os), "environ", os.environ)
    held = getattr(os.environ, "_data", None)
    if type(held) is dict:
        for name in map(os.fsencode, _VARIABLES):
            seen.item(held, name, held.get(name, ABSENT))
    else:  # somebody has put another mapping there
        seen.call(_texts, (), _texts())


def _texts() -> tuple[str | None, ...]:
    return tuple(map(os.environ.get, _VARIABLES))


@functools.cache
def _current_target() -> TvmFunction:
    """`Target.current`, for calls from C."""
    library = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    names = ("TVMFFIFunctionCall", "TVMFFIObjectDecRef")
    call, release = (ctypes.cast(library[name], ctypes.c_void_p).value for name in names)
    assert call is not None
    assert release is not None
    return TvmFunction(tvm.get_global_func("target.TargetCurrent"), call, release)
