"""Kernels that compilers of pipelines break on, warp specialised for sm_90a, in the emulator."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tvm
import tvm_ffi
from tvm import ir, tirx

import tilelang
from tilelang.emulator import schedule
from tilelang.engine.observers import observing

SCHEDULES = ({"order": "round_robin"}, {"seed": 1}, {"order": "adversarial", "seed": 1})


class ThreadSyncProgram:
    """An observer that keeps the program behind ThreadSync, where roles have their names."""

    mod: tvm.IRModule

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        if pass_name == "tl.ThreadSync":
            self.mod = mod

    def close(self) -> None:
        pass


class Role:
    """The program of a role's threads: what it calls, in order, and the elements that it names."""

    def __init__(self, body: tirx.Stmt) -> None:
        self.calls: list[str] = []
        self.loops: list[tirx.For] = []
        self.indices: list[tuple[str, str]] = []
        """Buffer and first index of each access, also of one whose address is taken."""
        self.events: list[str] = []
        """Calls, loops with what limits their unrolling, and accessed buffers, in order."""

        def call(node: ir.Call) -> None:
            self.calls.append(node.op.name)
            self.events.append(node.op.name)

        def loop(node: tirx.For) -> None:
            self.loops.append(node)
            self.events.append(f"for {node.loop_var.name}")

        def access(name: str, indices: Any) -> None:
            self.indices.append((name, str(indices[0])))
            self.events.append(name)

        def attribute(node: tirx.AttrStmt) -> None:
            if node.attr_key == "pragma_unroll_factor":
                self.events.append(f"unroll {node.value}")

        callbacks = [
            (ir.Call, call),
            (tirx.For, loop),
            (tirx.AttrStmt, attribute),
            (ir.TensorLoad, lambda node: access(node.source.name, node.indices)),
            (tirx.BufferStore, lambda node: access(node.buffer.name, node.indices)),
        ]
        tvm_ffi.structural_walk(body, callbacks, order="pre")

    @property
    def buffers(self) -> set[str]:
        return {name for name, _ in self.indices}


class Kernel:
    """A compiled kernel, the plan of its roles, and its runs under several schedules."""

    def __init__(self, func: tirx.PrimFunc, config: dict[str, Any] | None) -> None:
        observer = ThreadSyncProgram()
        with observing(lambda _: observer):
            self.compiled = tilelang.compile(
                func,
                out_idx=-1,
                target={"kind": "cuda", "arch": "sm_90a"},
                execution_backend="emulate",
                pass_configs=config,
            )
        (self.function,) = self.compiled.artifact.device_mod.functions.values()
        (self.plan,) = self.function.attrs["tl.warp_roles"]
        self.roles: dict[str, Role] = {}

        def role(node: tirx.AttrStmt) -> None:
            if node.attr_key == "tl.warp_role":
                assert node.node not in self.roles
                self.roles[str(node.node)] = Role(node.body)

        tvm_ffi.structural_walk(observer.mod["main"].body, [(tirx.AttrStmt, role)])

    @property
    def fills(self) -> list[str]:
        """Who makes each of the producer's copies, in program order."""
        return [str(s["by"]) for s in self.plan["statements"] if s["by"]]

    @property
    def parameters(self) -> set[str]:
        """Names of the parameters of the device function."""
        return {parameter.name for parameter in self.function.params}

    @property
    def channels(self) -> Any:
        return self.plan["channels"]

    @property
    def producer(self) -> Role:
        return self.roles["producer"]

    @property
    def consumer(self) -> Role:
        return self.roles["consumer"]

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """The calls of the whole kernel with their first operand, as it is printed."""
        found: Counter[tuple[str, str]] = Counter()

        def call(node: ir.Call) -> None:
            found[node.op.name, str(node.args[0]) if len(node.args) else ""] += 1

        tvm_ffi.structural_walk(self.function.body, [(ir.Call, call)])
        return found

    def check(self, *args, wanted, limit=0.0):
        """Runs it; each result lies within `limit`, relative to the norm of the wanted one."""
        for chosen in SCHEDULES:
            with schedule(**chosen):
                found = self.compiled(*args)
            error = float((found.double() - wanted.double()).norm())
            assert error <= limit * float(wanted.double().norm()), chosen


@pytest.fixture
def build() -> Callable[..., Kernel]:
    """Compiles a kernel, which has to be warp specialised."""

    def compile_one(func: tirx.PrimFunc, config: dict[str, Any] | None = None) -> Kernel:
        kernel = Kernel(func, config)
        assert kernel.plan["reason"] == ""
        return kernel

    return compile_one


@pytest.fixture
def integers():
    """Small whole numbers: sums of their products are exact."""

    def make(*shape, dtype="float16", low=-4, high=5):
        return torch.randint(low, high, shape).to(getattr(torch, dtype))

    return make
