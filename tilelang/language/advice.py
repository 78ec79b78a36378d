"""What to write instead: names that the language has under another name, arguments that a function
does not take, and TVM's own errors."""

from __future__ import annotations

import builtins
import difflib
import dis
import functools
import inspect
import os
import re
import types
from pathlib import Path

import tvm
import tvm_ffi

from tilelang._signatures import advice
from tilelang.language.rewrite import HOOKS
from tilelang.language.scalars import describe, is_of_program

# Names of torch, numpy, Triton and CUDA, of functions and of methods.
_ELSEWHERE = {
    "absolute": "T.abs",
    "all": "T.all_of",
    "amax": "T.reduce_max",
    "amin": "T.reduce_min",
    "any": "T.any_of",
    "arange": "the variable of `for i in T.Parallel(n)`",
    "astype": "T.cast",
    "atomicAdd": "T.atomic_add",
    "cdiv": "T.ceildiv",
    "clip": "T.clamp",
    "constexpr": "a Python value of the enclosing function",
    "debug_barrier": "T.sync_threads",
    "device_print": "T.print",
    "dot": "T.gemm",
    "flatten": "T.reshape",
    "float": "T.float32(x)",
    "full": "T.alloc_fragment and T.fill",
    "full_like": "T.alloc_fragment and T.fill",
    "half": "T.float16(x)",
    "int": "T.int32(x)",
    "load": "T.copy, or an element A[i]",
    "matmul": "T.gemm",
    "maximum": "T.max",
    "mean": "T.reduce_sum, and a division",
    "minimum": "T.min",
    "mm": "T.gemm",
    "mul": "`*`",
    "num_programs": "T.get_block_extent",
    "ones": "T.alloc_fragment and T.fill",
    "permute": "T.transpose",
    "power": "T.pow",
    "prod": "a loop of T.serial",
    "program_id": "T.get_block_binding",
    "range": "T.serial",
    "relu": "T.max(x, 0)",
    "softmax": "T.reduce_max, T.exp and T.reduce_sum",
    "static_assert": "`assert` on Python values",
    "static_range": "T.unroll(n, explicit=True)",
    "store": "T.copy, or an element A[i] = x",
    "sum": "T.reduce_sum",
    "syncthreads": "T.sync_threads",
    "tensor": "T.alloc_fragment",
    "to": "T.cast",
    "trans": "T.transpose",
    "where": "T.if_then_else",
    "zeros": "T.alloc_fragment and T.clear",
    "zeros_like": "T.alloc_fragment and T.clear",
    "zero_": "T.clear",
    "fill_": "T.fill",
    "copy_": "T.copy",
}
ASKS = "it asks whether a comparison is true"
DIVIDES = "it divides integers by `/`"
# With separators, since a user's folder may be named tilelang-kernels.
_OF_TVM = tuple(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (tvm, tvm_ffi))
_OF_TILELANG = f"{Path(__file__).parents[1]}{os.sep}"
# It calls TVM's operators where a plain function has them.
_NATIVE = {".c", ".cc", ".cpp", ".h", ".hpp", ".pxi"}
_OPERATORS = str(Path(__file__).with_name("plain_functions.py"))


def told(error: Exception, traceback: types.TracebackType | None) -> Exception:
    """Return what a program's author is told of an error: the error, with a suggestion where it has
    one, or another one in words of the language."""
    if getattr(error, "tilelang_location", None) is not None or traceback is None:
        return error
    wrong = _of_wrong_argument(error, traceback)
    if wrong is not None:
        return wrong
    _add_suggestion(error, traceback)
    return _explained(error, traceback)


def _of_wrong_argument(error: Exception, traceback: types.TracebackType) -> TypeError | None:
    """Return the error for a call of the language, where Python or TVM found in its body that an
    argument has no such attribute, or is of another type; None for others."""
    if type(error) not in (AttributeError, TypeError, tvm.error.InternalError):
        return None
    places = [traceback]
    while places[-1].tb_next is not None:
        places.append(places[-1].tb_next)
    words, file = str(error), places[-1].tb_frame.f_code.co_filename
    if _is_native(file) and not words.startswith(("Mismatched type on argument", "Check failed")):
        return None  # in the library's own words
    if file.startswith(_OF_TILELANG) and _raises(places[-1]):
        return None  # in the function's own words
    while places and _is_inside(places[-1].tb_frame.f_code.co_filename):
        places.pop()
    if not places or not places[-1].tb_frame.f_code.co_filename.startswith(_OF_TILELANG):
        return None
    for place in places:
        name = _functions().get(place.tb_frame.f_code)
        if name is not None:
            return _wrong_argument(name, place.tb_frame, words.splitlines()[0])
    return None


def _raises(place: types.TracebackType) -> bool:
    """Whether it is a statement `raise` that has raised there."""
    return dis.opname[place.tb_frame.f_code.co_code[place.tb_lasti]].startswith("RAISE")


def _is_native(file: str) -> bool:
    """Whether a frame is one of C, C++ or Cython, as TVM adds them to tracebacks."""
    return file.startswith(("<", "python/", "src/")) or Path(file).suffix in _NATIVE


def _is_inside(file: str) -> bool:
    """Whether a frame is none that has called TVM's operators, but one of these."""
    return _is_native(file) or file.startswith(_OF_TVM) or file == _OPERATORS


def _wrong_argument(name: str, frame: types.FrameType, words: str) -> TypeError:
    code = frame.f_code
    given = [
        f"{parameter} = {describe(frame.f_locals[parameter])}"
        for parameter in code.co_varnames[: code.co_argcount]
        if parameter in frame.f_locals
    ]
    return TypeError(
        f"T.{name} found {', '.join(given)}, wanted other arguments; its docstring has an example "
        f"({words})"
    )


@functools.cache
def _functions() -> dict[types.CodeType, str]:
    """The functions of the language by their code."""
    import tilelang.language as T

    found = {name: inspect.unwrap(value) for name, value in vars(T).items() if callable(value)}
    return {f.__code__: name for name, f in found.items() if isinstance(f, types.FunctionType)}


def _add_suggestion(error: Exception, traceback: types.TracebackType) -> None:
    """Append what was meant to the message about a name that there is not, or an argument."""
    if isinstance(error, TypeError) and error.args and isinstance(error.args[0], str):
        error.args = (error.args[0] + _of_call(error.args[0]), *error.args[1:])
    if not isinstance(error, NameError | AttributeError) or not error.name:
        return
    name = error.name
    if isinstance(error, AttributeError):
        known = set(dir(error.obj))
        is_language = getattr(error.obj, "__name__", None) == "tilelang.language"
        of_program = is_of_program(error.obj)
        meant = _method(name) if of_program else _ELSEWHERE.get(name) if is_language else None
        cutoff = 0.75 if of_program else 0.6
    else:
        while traceback.tb_next is not None:
            traceback = traceback.tb_next
        frame = traceback.tb_frame
        known = {*frame.f_locals, *frame.f_globals, *dir(builtins)}
        meant, cutoff = None, 0.6
    if meant is None:
        close = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
        meant = f"did you mean {close[0]!r}?" if close else "define it first"
        if not close and isinstance(error, AttributeError):
            meant = "the functions of T compute with it"
    else:
        meant = f"the language has {meant}"
    error.args = (f"{error.args[0]}; {meant}",)


# Python's words on arguments that do not fit, behind the function's name.
_MISFIT = re.compile(
    r"(?:\w+\.)*?(\w+)(?:\.__\w+__)?\(\) (?:got an unexpected|got multiple|missing \d|takes )"
)


def _of_call(message: str) -> str:
    """Return what a function of the language takes, for a message on arguments that do not fit."""
    import tilelang.language as T

    misfit = _MISFIT.match(message)
    function = getattr(T, misfit[1], None) if misfit else None
    return f"; {advice(message, inspect.signature(function))}" if callable(function) else ""


def _method(name: str) -> str | None:
    """Return what the language has for a method of tensors."""
    import tilelang.language as T

    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    for candidate in (f"reduce_{name}", name):
        if callable(getattr(T, candidate, None)):
            return f"T.{candidate}"
    return None


def _explained(error: Exception, traceback: types.TracebackType) -> Exception:
    """Return an error in words of the language for one that TVM raised about a scalar that Python
    code used; other errors as they are."""
    frames = [traceback.tb_frame]
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
        frames.append(traceback.tb_frame)
    if frames[-1].f_code.co_filename == _OPERATORS:
        return error  # of `untraced`
    while frames and _is_inside(frames[-1].f_code.co_filename):
        frames.pop()
    if traceback.tb_frame is (frames[-1] if frames else None):
        return error  # it is not TVM that raised
    if frames and passes_on(frames[-1].f_code):
        frames.pop()
    frame = frames[-1]
    code = frame.f_code
    if code.co_filename.startswith(_OF_TILELANG) and "testing" not in code.co_filename:
        return error
    words = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    if HOOKS in code.co_freevars:
        return TypeError(
            f"a function outside of the program does what only the run can ({_reason(words)}); "
            "compute with the functions of T, such as T.if_then_else or T.min"
        )
    return untraced(frame, _reason(words))


def passes_on(code: types.CodeType) -> bool:
    """Whether code is that of ours which calls a function of Python's in place of the user's, after
    it has checked what that reads (hooks.py)."""
    return code.co_name == "_reading" and code.co_filename.startswith(_OF_TILELANG)


def untraced(frame: types.FrameType, reason: str) -> TypeError:
    """Return the error for a plain function that does what only the run can."""
    code = frame.f_code
    return TypeError(
        f"the plain function {code.co_name}, at {code.co_filename}:{frame.f_lineno}, does with a "
        f"value of the program what only traced functions can ({reason}); put @T.macro above it"
    )


def _reason(words: str) -> str:
    if "Cannot use and / or / not" in words:
        return ASKS
    if "integer divisions" in words:
        return DIVIDES
    return words


__all__ = ["ASKS", "DIVIDES", "passes_on", "told", "untraced"]
