"""From a flat thread program to kernels: the split into host and device, source, launch plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import tvm
from tvm import tirx
from tvm.target import Target

from tilelang._ffi import get_function
from tilelang.engine.launch_plan import (
    Descriptor,
    Expr,
    KernelLaunch,
    LaunchPlan,
    Param,
    PointerParam,
    Requirement,
    ScalarParam,
    TensorParam,
)
from tilelang.engine.tensor_map_spec import TensorMapSpec
from tilelang.engine.variants import guards_of
from tilelang.utils.target import arch_of, kind_of

_OPERATORS = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.FloorDiv: "//",
    tirx.FloorMod: "%",
    tirx.Min: "min",
    tirx.Max: "max",
}


@tvm.transform.module_pass(opt_level=0, name="tl.SplitHostDevice")
def _split_host_device(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    split = get_function("SplitHostDevice")
    parts = [part for function in mod.functions.values() for part in split(function)]
    return tvm.IRModule({str(part.attrs["global_symbol"]): part for part in parts}, attrs=mod.attrs)


def SplitHostDevice() -> tvm.transform.Pass:
    """Module pass: `main` becomes a host function that lists launches, and its kernels.

    These are `main_kernel`, `main_kernel_1`, ...; each carries ``tl.grid``, ``tl.block`` and
    ``tl.cluster`` (three extents each), ``tl.dyn_shared_bytes`` (with ``tl.dyn_shared_limit`` where
    the launch decides how many), ``tl.cooperative``, ``tl.persistent``, ``tl.dependent``,
    ``tl.written`` and ``tl.touched`` (not of the user's own text), and ``tl.l2_hit_ratio`` where
    the program has one.
    Running it raises `ValueError` with the kernel's file and line for statements outside of a
    kernel.

    Example: ``host, device = split_modules(SplitHostDevice()(mod))``
    """
    return _split_host_device


def split_modules(mod: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule]:
    """The host functions and the device functions of a module after `SplitHostDevice`."""
    host: dict[Any, Any] = {}
    device: dict[Any, Any] = {}
    for variable, function in mod.functions.items():
        (device if _attr(function, "tl.grid") is not None else host)[variable] = function
    return tvm.IRModule(host, attrs=mod.attrs), tvm.IRModule(device, attrs=mod.attrs)


def emit_cuda(device_mod: tvm.IRModule, line_directives: bool = False) -> str:
    """CUDA C++ of every kernel of `device_mod`, ordered by name.

    With `line_directives`, ``#line`` gives each statement's place in the user's Python. Raises
    `ValueError` with file and line where the program has a type or call without a form in CUDA C++.

    Example: ``emit_cuda(device).startswith("#include <tl/common.h>")``
    """
    kernels = sorted(device_mod.functions.values(), key=lambda f: str(f.attrs["global_symbol"]))
    return str(get_function("codegen.EmitCuda")(kernels, line_directives))


def launch_plan_of(host_mod: tvm.IRModule, device_mod: tvm.IRModule) -> LaunchPlan:
    """The launch plan of the one host function; it has no outputs yet.

    Raises `ValueError` where a dimension is not an integer expression over symbols.

    Example: ``launch_plan_of(host, device).kernels[0].name == "main_kernel"``
    """
    (host,) = host_mod.functions.values()
    kernels = {str(f.attrs["global_symbol"]): f for f in device_mod.functions.values()}
    calls = [statement.value for statement in _statements(host.body)]
    plan = _PlanWriter(host)
    params = tuple(plan.param(variable) for variable in host.params)
    launches = tuple(plan.launch(call, kernels[call.args[0].value]) for call in calls)
    requirements = [plan.requirement(row) for row in _attr(host, "tilelang_requirements") or ()]
    return LaunchPlan(
        name=str(host.attrs["global_symbol"]),
        params=params,
        kernels=launches,
        workspaces=int(_attr(host, "tilelang_workspaces") or 0),
        team=int(_attr(host, "tilelang_team") or 0),
        symmetric=tuple(map(str, _attr(host, "tilelang_symmetric") or ())),
        location=_location(host),
        descriptors=tuple(plan.descriptors),
        requirements=tuple(requirements),
        guards=guards_of(host),
        warp_threads=_warp_threads(host.attrs["target"]),
    )


def _warp_threads(target: Target) -> int:
    described = get_function("target.Describe")(kind_of(target), arch_of(target))
    return int(described["warp_threads"])


def _attr(function: tirx.PrimFunc, key: str) -> Any:
    return function.attrs.get(key) if function.attrs is not None else None


def _statements(body: tirx.Stmt) -> list[tirx.Stmt]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _location(host: tirx.PrimFunc) -> str:
    span = host.span or _statements(host.body)[0].span
    return f"{span.source_name.name}:{span.line}" if span is not None else ""


class _PlanWriter:
    """Translates TVM's expressions, and sees to it that one name means one variable."""

    def __init__(self, host: tirx.PrimFunc) -> None:
        self._params = {param.name for param in host.params}
        self._pointers = _attr(host, "tilelang_pointers") or {}
        self._where = _location(host)
        self._variables: dict[str, Any] = {}
        self.descriptors: list[Descriptor] = []

    def expr(self, value: Any) -> Expr:
        if isinstance(value, int):
            return value
        if isinstance(value, tirx.IntImm):
            return int(value.value)
        if isinstance(value, tvm.ir.Var):
            if not self._variables.setdefault(value.name, value).same_as(value):
                self._refuse(
                    f"two dimensions named `{value.name}`", "a name for each", "Rename one"
                )
            return ("var", value.name)
        if isinstance(value, tirx.Cast):
            return self.expr(value.value)
        operator = _OPERATORS.get(type(value))
        if operator is None:
            self._refuse(
                f"dimension or grid extent {value}",
                "+, -, *, //, %, min and max of symbolic dimensions and integers",
                "Pass its value as a parameter",
            )
        return (operator, self.expr(value.a), self.expr(value.b))

    def param(self, variable: tvm.ir.Var) -> Param:
        if variable.name in self._pointers:
            pointee = str(self._pointers[variable.name])
            return PointerParam(variable.name, None if pointee == "handle" else pointee)
        if not isinstance(variable.ty, tirx.BufferType):
            self.expr(variable)
            return ScalarParam(variable.name, str(variable.ty.dtype))
        shape = tuple(self.expr(extent) for extent in variable.ty.shape)
        strides = tuple(self.expr(stride) for stride in variable.ty.strides) or None
        offset = variable.ty.elem_offset
        named = str(offset.name) if isinstance(offset, tvm.ir.Var) else None
        return TensorParam(variable.name, str(variable.ty.dtype), shape, strides, named)

    def requirement(self, row: Any) -> Requirement:
        left, comparison, right, message, location = row
        return Requirement(
            self.expr(left), str(comparison), self.expr(right), str(message), str(location)
        )

    def launch(self, call: tvm.ir.Call, kernel: tirx.PrimFunc) -> KernelLaunch:
        l2, written = _attr(kernel, "tl.l2_hit_ratio"), _attr(kernel, "tl.written")
        touched = _attr(kernel, "tl.touched")
        limit = _attr(kernel, "tl.dyn_shared_limit")
        return KernelLaunch(
            name=str(kernel.attrs["global_symbol"]),
            grid=tuple(self.expr(extent) for extent in kernel.attrs["tl.grid"]),
            block=tuple(self.expr(extent) for extent in kernel.attrs["tl.block"]),
            shared_bytes=self.expr(kernel.attrs["tl.dyn_shared_bytes"]),
            shared_limit=None if limit is None else int(limit),
            args=tuple(self._argument(arg) for arg in call.args[1:]),
            cluster=tuple(int(extent) for extent in kernel.attrs["tl.cluster"]),
            cooperative=bool(kernel.attrs["tl.cooperative"]),
            persistent=bool(kernel.attrs["tl.persistent"]),
            dependent=bool(kernel.attrs["tl.dependent"]),
            l2_hit_ratio=None if l2 is None else (str(l2[0]), float(l2[1].value)),
            by_hand=_attr(kernel, "tl.source") is not None,
            writes=None if written is None else tuple(map(str, written)),
            touches=() if touched is None else tuple(map(str, touched)),
        )

    def _argument(self, arg: Any) -> tuple[Any, ...]:
        if isinstance(arg, tvm.ir.Call):
            return ("descriptor", self._descriptor(arg))
        if arg.name in self._params:
            return ("param", arg.name)
        return ("value", self.expr(arg), str(arg.ty.dtype))

    def _descriptor(self, call: tvm.ir.Call) -> str:
        """The name of the tensor map that a call of ``tl.create_tma_descriptor`` describes."""
        spec = TensorMapSpec.from_call(call)
        tensor = spec.pointer.name
        known = {d.name for d in self.descriptors}
        stem = f"{tensor}_maps" if spec.peers else f"{tensor}_desc"
        name, number = stem, 0
        while name in known | self._params:
            number += 1
            name = f"{stem}_{number}"
        made = Descriptor(
            name=name,
            param=tensor,
            dtype=spec.dtype,
            shape=tuple(map(self.expr, spec.shape)),
            strides=tuple(map(self.expr, spec.byte_strides)),
            box=spec.box,
            element_strides=spec.element_strides,
            swizzle=spec.swizzle,
            l2_promotion=spec.l2_promotion,
            oob_fill=spec.oob_fill,
            im2col=spec.im2col,
            peers=spec.peers,
        )
        for other in self.descriptors:
            if replace(made, name=other.name) == other:
                return other.name
        self.descriptors.append(made)
        return name

    def _refuse(self, found: str, wanted: str, repair: str) -> NoReturn:
        where = f"{self._where}: " if self._where else ""
        raise ValueError(f"{where}found {found}, wanted {wanted}. {repair}")
