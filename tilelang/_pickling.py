"""Copies and pickles of programs.

TVM's nodes and our layouts never change, so a copy is the object itself. TVM writes them to JSON
for pickle, which ends the process with the node classes of the release that we build on; so a
pickle is refused here.
"""

from __future__ import annotations

from typing import Any, NoReturn

import tvm
from tvm import ir, tirx


def _refuse(self: Any, protocol: int = 0) -> NoReturn:
    raise TypeError(
        f"cannot pickle {type(self).__name__}: it is a part of a program, which lives in this "
        "process. Pickle the arguments that it is made from, and make it again where they are "
        "loaded"
    )


def _itself(self: Any, memo: Any = None) -> Any:
    return self


def _copied(self: tvm.IRModule, memo: Any = None) -> tvm.IRModule:
    return tvm.IRModule(dict(self.functions), attrs=self.attrs)


def immutable(cls: type[Any]) -> type[Any]:
    """Class decorator: objects are their own copies, and are not pickled."""
    cls.__copy__ = cls.__deepcopy__ = _itself
    cls.__reduce_ex__ = _refuse
    return cls


for _class in (ir.Node, ir.Span, tirx.Stmt):
    immutable(_class)
tvm.IRModule.__copy__ = tvm.IRModule.__deepcopy__ = _copied
