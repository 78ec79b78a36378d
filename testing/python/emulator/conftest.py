"""Kernels with a planted defect, and what the checks find in them."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tilelang.emulator import EmulationError, Report
from tilelang.emulator.compiler import build_emulated

FILE = "kernel.py"


@dataclass(frozen=True)
class Case:
    """A body of ``kernel(float* x, const float* y)``, both of 256 elements, in which `old` is right
    and `new` is a defect of kind `kind`.

    A line of the body that ends in ``// now`` is where the report should be, one that ends in
    ``// before`` where the access was that it conflicts with. `buffer` and `missing` are part of
    the report; `also` are kinds that follow from the defect.
    """

    body: str
    old: str
    new: str
    kind: str
    buffer: str = ""
    missing: str = ""
    also: tuple[str, ...] = ()
    grid: int = 1
    block: int = 64
    shared: int = 1024
    how: dict[str, Any] = field(default_factory=dict)

    def reports(self, body: str) -> tuple[Report, ...]:
        """What a run of the kernel with this body is blamed for."""
        headers = (
            "common",
            "copy",
            "mma",
            "stmatrix",
            "atomic",
            "grid",
            "reduce",
            "mbarrier",
            "bulk_copy",
        )
        includes = "".join(f"#include <tl/{header}.h>\n" for header in headers)
        head = (
            'extern "C" __global__ void kernel(float* __restrict__ x, const float* __restrict__ y)'
        )
        source = (
            f"{includes}{head} {{\n  unsigned char* buf_dyn_shmem = tl::dynamic_shared();\n"
            f'  const int tx = threadIdx.x, bx = blockIdx.x;\n#line 1 "{FILE}"\n{body}\n}}\n'
        )
        module = build_emulated(source, ["kernel"], checks=True)
        x = np.arange(256, dtype=np.float32)
        arrays = [x, x + 1000]
        args = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        sizes = ((self.grid, 1, 1), (self.block, 1, 1), self.shared)
        try:
            module.launch("kernel", *sizes, args, arrays=arrays, **self.how)
        except EmulationError as error:
            return error.reports
        return ()

    def line(self, marker: str) -> str:
        """``file:line`` of the marked line; empty without one."""
        for number, line in enumerate(self.body.splitlines(), 1):
            if line.endswith(f"// {marker}"):
                return f"{FILE}:{number}"
        return ""


@pytest.fixture
def check() -> Callable[..., None]:
    """The planted defect is found, at its lines; the kernel without it is not blamed."""

    def run(**case_fields: Any) -> None:
        case = Case(**case_fields)
        assert case.reports(case.body) == ()
        assert case.old in case.body
        reports = case.reports(case.body.replace(case.old, case.new, 1))
        # Which of two accesses that race comes first is the schedule's choice; a read that comes
        # too early is one of what is undefined still.
        found = {(r.kind, frozenset(a.place for a in (r.access, r.other) if a)): r for r in reports}
        lines = frozenset(line for line in (case.line("now"), case.line("before")) if line)
        assert (case.kind, lines) in found, reports
        assert {r.kind for r in reports} <= {case.kind, "uninitialized", *case.also}, reports
        assert case.buffer in found[case.kind, lines].message
        assert case.missing in found[case.kind, lines].missing

    return run
