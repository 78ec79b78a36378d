"""Python's operators on the program's scalars in plain functions, which are not traced.

TVM's operators run there. TVM takes two expressions for equal if they are one object, so that ``if
i == 0:`` would always take the other branch, and ``not (i == 0)`` always be true. Constants are
compared here; what only the run knows is an error. Where code of Python or TVM asks, and where ``x
in expressions`` or a method of a list does, the question is about objects: then one instruction
compares and asks, while ``any(x == i for x in expressions)`` asks what was compared elsewhere.

And it takes floats for real numbers; ``+``, ``-``, ``*`` and ``/`` of floats are those of traced
code here.
"""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import _overload_prim_expr as overloads

from tilelang.language.advice import ASKS, untraced
from tilelang.language.arithmetic import binary
from tilelang.language.floats import have_float
from tilelang.language.scalars import is_number, is_scalar_expr
from tilelang.language.tracer import innermost_tracer

# With separators, since a user's folder may be named tilelang-kernels.
_OF_TVM = tuple(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (tvm, tvm_ffi))
_INTERNAL = (*_OF_TVM, f"{Path(__file__).parents[1]}{os.sep}")
_PYTHON = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))


def _is_true(comparison: Any, of_objects: bool) -> bool:
    if innermost_tracer() is None:
        return of_objects
    frame = sys._getframe(2)
    if _is_of_others(frame.f_code):
        return of_objects
    a, b = comparison.a, comparison.b
    if not isinstance(b, ir.Expr) and not is_number(b):
        return of_objects
    place = (frame.f_code, frame.f_lasti)
    is_member = getattr(comparison, "place", None) == place and not _decides(*place)
    if isinstance(b, ir.Expr) and (a.same_as(b) or is_member):
        return of_objects
    value = comparison.asobject()
    if isinstance(value, tirx.IntImm):
        return bool(value.value)
    raise untraced(frame, ASKS)


def _is_of_others(code: Any) -> bool:
    """Whether code is Python's, TVM's, ours, or a method that dataclasses or attrs have made."""
    file, name = code.co_filename, code.co_name
    is_python = file.startswith(_PYTHON) and not file.startswith(_INSTALLED)
    is_made = name == "__eq__" and file.startswith(("<string>", "<attrs generated"))
    return is_python or is_made or file.startswith(_INTERNAL)


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


def _of_floats(name: str, of_tvm: Any, swapped: bool) -> Any:
    def operation(self: Any, other: Any) -> Any:
        is_plain = innermost_tracer() is not None and (is_number(other) or is_scalar_expr(other))
        # Between the two is the method of TVM's class.
        if not is_plain or _is_of_others(sys._getframe(2).f_code) or not have_float(self, other):
            return of_tvm(self, other)
        return binary(name, *((other, self) if swapped else (self, other)))

    return operation


# In all of the process, as a dtype of TVM's nodes (compat/tvm_nodes.py).
for _name, _method in (("Add", "add"), ("Sub", "sub"), ("Mult", "mul"), ("Div", "truediv")):
    for _swapped in (False, True):
        _full = f"__{'r' * _swapped}{_method}__"
        setattr(overloads, _full, _of_floats(_name, getattr(overloads, _full), _swapped))
for _class in (overloads.EqualOp, overloads.NotEqualOp):
    _class.__init__ = _with_place(_class.__init__)
overloads.EqualOp.__bool__ = _equal
overloads.NotEqualOp.__bool__ = _unequal
