"""Python's operators on the program's scalars in plain functions, which are not traced.

TVM's operators run there. TVM takes two expressions for equal if they are one object, so that ``if
i == 0:`` would always take the other branch, and ``not (i == 0)`` always be true. Constants are
compared here; what only the run knows is an error. Where code of Python or TVM asks, and where ``x
in expressions`` or a method of a list does, the question is about objects: then one instruction
compares and asks, while ``any(x == i for x in expressions)`` asks what was compared elsewhere.
Sets and dicts look for the hash first, which numbers and expressions never share: ``i in {0, 1}``
and ``{0: x}.get(i)`` are errors, too.

And TVM takes floats for real numbers, has no ``%`` of them and no ``**``, and takes the low 32 bits
of a number beside ``|``. So arithmetic here is that of traced code, but for ``/`` of integers,
which is an error; so are the functions of Python that ask the class: ``abs``, ``divmod``, ``pow``,
``round``, ``math.floor``, ``math.ceil``, ``math.trunc``.
"""

from __future__ import annotations

import dis
import inspect
import math
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Set
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import _overload_prim_expr as overloads
from tvm.ir.expr import ExprWithOp

from tilelang.language.advice import ASKS, DIVIDES, passes_on, untraced
from tilelang.language.arithmetic import binary, unary
from tilelang.language.comparisons import ASKED
from tilelang.language.containers import CONTAINS, SEARCHED
from tilelang.language.floats import have_float
from tilelang.language.python_functions import in_program
from tilelang.language.scalars import describe, is_number, is_scalar_expr
from tilelang.language.tracer import innermost_tracer

# With separators, since a user's folder may be named tilelang-kernels.
_OF_TVM = tuple(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (tvm, tvm_ffi))
_INTERNAL = (*_OF_TVM, f"{Path(__file__).parents[1]}{os.sep}")
_PYTHON = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))


def _is_true(comparison: Any, of_objects: bool) -> bool:
    if innermost_tracer() is None:
        return of_objects
    frame: Any = sys._getframe(2)
    if passes_on(frame.f_code):
        frame = frame.f_back
    asks = frame
    while _is_made(asks.f_code):  # for whoever compares two objects of the class
        asks = asks.f_back
    is_traced = asks.f_code in (ASKED, SEARCHED, CONTAINS)
    if not is_traced and _is_of_others(asks.f_code):
        return of_objects
    a, b = comparison.a, comparison.b
    if not isinstance(b, ir.Expr) and not is_number(b):
        return of_objects
    place = (frame.f_code, frame.f_lasti)
    is_member = getattr(comparison, "place", None) == place and not _decides(*place)
    if isinstance(b, ir.Expr) and (a.same_as(b) or (is_member and asks.f_code is not ASKED)):
        return of_objects
    if not is_traced or isinstance(a, tirx.IntImm):
        value = comparison.asobject()
        if isinstance(value, tirx.IntImm):
            return bool(value.value)
    if asks.f_code is CONTAINS:
        raise TypeError(
            f"`in` compares while tracing, and found {describe(a)}; write x == a or x == b"
        )
    if is_traced:
        raise TypeError(
            f"Python compares while tracing, and found {describe(a)} beside {describe(b)}, of "
            "which only the run knows whether they are equal; write a == b for each pair of members"
        )
    raise untraced(asks, ASKS)


def _is_made(code: Any) -> bool:
    """Whether code is a method that dataclasses or attrs have made."""
    return code.co_name == "__eq__" and code.co_filename.startswith(("<string>", "<attrs gener"))


def _is_of_others(code: Any) -> bool:
    """Whether code is Python's, TVM's or ours."""
    return _is_file_of_others(code.co_filename)


@cache
def _is_file_of_others(file: str) -> bool:
    is_python = file.startswith(_PYTHON) and not file.startswith(_INSTALLED)
    return is_python or file.startswith(_INTERNAL)


def _decides(code: Any, place: int) -> bool:
    """Whether the instruction asks for the truth of a comparison, and not for a member."""
    return not dis.opname[code.co_code[place]].startswith(("CONTAINS", "CALL", "PRECALL"))


def _with_place(of_tvm: Any) -> Any:
    def initialize(self: Any, *operands: Any, **options: Any) -> None:
        of_tvm(self, *operands, **options)
        if innermost_tracer() is not None:
            frame: Any = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename.startswith(_OF_TVM):
                frame = frame.f_back
            self.place = None if frame is None else (frame.f_code, frame.f_lasti)

    return initialize


def _equal(self: Any) -> bool:
    return _is_true(self, self.a.same_as(self.b) is True)


def _unequal(self: Any) -> bool:
    return _is_true(self, self.a.same_as(self.b) is not True)


def _arithmetic(name: str, of_tvm: Any, swapped: bool) -> Any:
    def operation(self: Any, other: Any) -> Any:
        is_plain = innermost_tracer() is not None and (is_number(other) or is_scalar_expr(other))
        # Between the two is the method of TVM's class.
        if not is_plain or _is_of_others(sys._getframe(2).f_code):
            return of_tvm(self, other)
        if name == "Div" and not have_float(self, other):
            raise untraced(sys._getframe(2), DIVIDES)  # TVM refuses signed ones alone
        return binary(name, *((other, self) if swapped else (self, other)))

    return operation


def _sign(name: str, of_tvm: Any) -> Any:
    def operation(self: Any) -> Any:
        if innermost_tracer() is None or _is_of_others(sys._getframe(2).f_code):
            return of_tvm(self)
        return unary(name, self)

    return operation


def _function(of_python: Callable[..., Any], swapped: bool = False) -> Any:
    """The method of a class by which Python's function takes its objects; TVM's have none."""

    def method(self: Any, *others: Any) -> Any:
        known = all(is_number(other) or is_scalar_expr(other) for other in others)
        if innermost_tracer() is None or not known:
            return NotImplemented
        return in_program(of_python)(*((*others, self) if swapped else (self, *others)))

    return method


def _of_one(of_python: Callable[..., Any]) -> Any:
    def method(self: Any, *others: Any) -> Any:
        if innermost_tracer() is None:
            raise TypeError(
                f"{of_python.__name__} found {self} outside of a kernel, wanted a number; call it "
                "where a kernel is traced"
            )
        return in_program(of_python)(self, *others)

    return method


def _hash(self: Any) -> int:
    if innermost_tracer() is not None:
        frame = sys._getframe(1)
        if not _is_of_others(frame.f_code) and _looks_among_numbers(frame, self):
            raise TypeError(
                f"the plain function {frame.f_code.co_name}, at {frame.f_code.co_filename}:"
                f"{frame.f_lineno}, looks for a value of the program among numbers, by its hash, "
                "which none of them has; write x == a or x == b, and put @T.macro above it"
            )
    return _hash_of_object(self)


_LOOKUPS = ("get", "pop", "setdefault")
_UNKNOWN = object()


def _looks_among_numbers(frame: Any, value: Any) -> bool:
    """Whether the instruction looks for `value` in a set or dict that has numbers and not the value
    itself: by ``in`` or by a method that has an answer for what is not there. As far as the code
    says which one that is."""
    instructions = [i for i in dis.get_instructions(frame.f_code) if i.opname != "CACHE"]
    at = next(k for k, i in enumerate(instructions) if i.offset == frame.f_lasti)
    name = instructions[at].opname
    if name.startswith(("CALL", "PRECALL")):
        at = _called_method(instructions, at)
        if at < 1 or instructions[at].argval not in _LOOKUPS:
            return False
    elif not name.startswith("CONTAINS"):
        return False
    if instructions[at - 1].opname.startswith("BUILD"):
        return True  # `i in {0: x, 1: y}`
    container = _loaded(frame, instructions, at - 1)
    return (
        isinstance(container, Set | Mapping)
        and any(is_number(key) for key in container)
        and not any(key is value for key in container)
    )


def _called_method(instructions: list[dis.Instruction], at: int) -> int:
    """Where the method is loaded that the instruction calls, -1 if that is something else."""
    if instructions[at].opname == "CALL" and instructions[at - 1].opname == "PRECALL":
        at -= 1
    arguments = instructions[at].arg or 0
    while arguments > 0 and at > 0:
        at -= 1
        opcode, arg = instructions[at].opcode, instructions[at].arg
        arguments -= dis.stack_effect(opcode, arg, jump=False)
    loads = instructions[at - 1].opname in ("LOAD_METHOD", "LOAD_ATTR")
    return at - 1 if arguments == 0 and loads else -1


def _loaded(frame: Any, instructions: list[dis.Instruction], at: int) -> Any:
    """The object that an instruction loads, if that is a constant, a name or an attribute."""
    name = instructions[at].argval
    if instructions[at].opname == "LOAD_CONST":
        return name
    if instructions[at].opname == "LOAD_ATTR" and at > 0:
        return inspect.getattr_static(_loaded(frame, instructions, at - 1), name, _UNKNOWN)
    if not instructions[at].opname.startswith("LOAD"):
        return _UNKNOWN
    names = {**frame.f_globals, **frame.f_locals}
    return names.get(name[-1] if isinstance(name, tuple) else name, _UNKNOWN)


# In all of the process, as a dtype of TVM's nodes (compat/tvm_nodes.py).
_OPERATORS = {
    "Add": "add",
    "Sub": "sub",
    "Mult": "mul",
    "Div": "truediv",
    "FloorDiv": "floordiv",
    "Mod": "mod",
    "LShift": "lshift",
    "RShift": "rshift",
    "BitAnd": "and",
    "BitOr": "or",
    "BitXor": "xor",
}
for _name, _method in _OPERATORS.items():
    for _swapped in (False, True):
        _full = f"__{'r' * _swapped}{_method}__"
        setattr(overloads, _full, _arithmetic(_name, getattr(overloads, _full), _swapped))
for _name, _method in {"USub": "__neg__", "Invert": "__invert__"}.items():
    setattr(overloads, _method, _sign(_name, getattr(overloads, _method)))
_hash_of_object = ExprWithOp.__hash__
ExprWithOp.__hash__ = _hash
ExprWithOp.__pow__ = _function(pow)
ExprWithOp.__rpow__ = _function(pow, swapped=True)
ExprWithOp.__divmod__ = _function(divmod)
ExprWithOp.__rdivmod__ = _function(divmod, swapped=True)
for _of_python in (abs, round, math.floor, math.ceil, math.trunc):
    setattr(ExprWithOp, f"__{_of_python.__name__}__", _of_one(_of_python))
for _class in (overloads.EqualOp, overloads.NotEqualOp):
    _class.__init__ = _with_place(_class.__init__)
overloads.EqualOp.__bool__ = _equal
overloads.NotEqualOp.__bool__ = _unequal
