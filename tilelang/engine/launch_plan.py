"""The host side of a compiled program, as data.

A launch plan says what the arguments of a call are, which of them the call allocates, and which
kernels run with which arguments. The adapter interprets it; nothing is generated or compiled for
the host. A plan has a JSON form, so a kernel can be stored and run without TVM.

An *expression* is an int, ``("var", name)`` or ``(operator, a, b)`` with an operator of
`OPERATORS`; division rounds towards minus infinity. Each variable must be determined by the inputs:
by a dimension or a stride of a tensor (`tilelang.engine.symbols`; the others are checked), or as an
integer scalar parameter.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from tilelang.engine.symbols import (
    OPERATORS,
    Definition,
    Expr,
    Place,
    Sources,
    evaluate,
    find_sources,
    variables,
)
from tilelang.engine.tensor_map import Im2col
from tilelang.utils import dtypes


def format_expr(expr: Expr) -> str:
    """`expr` in infix notation, for source listings and error texts."""
    if isinstance(expr, int):
        return str(expr)
    if expr[0] == "var":
        return str(expr[1])
    operator, left, right = expr[0], format_expr(expr[1]), format_expr(expr[2])
    if operator.isalpha():
        return f"{operator}({left}, {right})"
    return f"({left} {operator} {right})"


def format_tuple(exprs: Sequence[Expr]) -> str:
    """`exprs` as a Python tuple of infix expressions, such as ``(m, 128)``."""
    inner = ", ".join(format_expr(expr) for expr in exprs)
    return f"({inner},)" if len(exprs) == 1 else f"({inner})"


def _checked(expr: Any) -> Expr:
    """`expr` with lists turned into tuples; `ValueError` where it is not an expression."""
    if isinstance(expr, int) and not isinstance(expr, bool):
        return expr
    if isinstance(expr, (list, tuple)):
        if len(expr) == 2 and expr[0] == "var" and isinstance(expr[1], str):
            return ("var", expr[1])
        if len(expr) == 3 and expr[0] in OPERATORS:
            return (expr[0], _checked(expr[1]), _checked(expr[2]))
    raise ValueError(
        f"launch plan: {expr!r} is not an expression; operators are {', '.join(OPERATORS)}"
    )


def _exprs(values: Sequence[Any]) -> tuple[Expr, ...]:
    return tuple(_checked(value) for value in values)


def _row_major(shape: Sequence[Expr], strides: Sequence[Expr]) -> bool:
    """Whether each stride is written as the product of the extents to its right."""
    return all(_factors(stride) == _factors(*shape[d + 1 :]) for d, stride in enumerate(strides))


def _factors(*exprs: Expr) -> tuple[int, list[Expr]]:
    """The product of `exprs` as a constant and its other factors in a fixed order."""
    constant, others, todo = 1, [], list(exprs)
    while todo:
        expr = todo.pop()
        if isinstance(expr, int):
            constant *= expr
        elif expr[0] == "*":
            todo += expr[1:]
        else:
            others.append(expr)
    return constant, sorted(others, key=repr)


@dataclass(frozen=True)
class TensorParam:
    """A tensor parameter. `strides`, in elements, becomes None for a row-major tensor.

    A tensor begins at an address that is a multiple of 16 bytes; one with an `offset` begins so
    many elements behind such an address, which is what kernels get, and the name of a variable.
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None
    offset: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _exprs(self.shape))
        if self.strides is not None:
            object.__setattr__(self, "strides", _exprs(self.strides))
            if len(self.strides) != len(self.shape):
                raise ValueError(f"launch plan: strides of {self.name} do not match its shape")
            if dtypes.packing(self.dtype) > 1 and self.strides[-1] != 1:
                raise ValueError(
                    f"launch plan: the last stride of {self.name} is "
                    f"{format_expr(self.strides[-1])}, wanted 1: two {self.dtype} share a byte"
                )
            if _row_major(self.shape, self.strides):
                object.__setattr__(self, "strides", None)


@dataclass(frozen=True)
class ScalarParam:
    """A scalar parameter; one of an integer dtype defines the variable of its name."""

    name: str
    dtype: str


@dataclass(frozen=True)
class PointerParam:
    """An address, passed as an int or as a tensor; `pointee` is the dtype that a tensor is to have,
    None for any."""

    name: str
    pointee: str | None

    dtype = "handle"


Param = TensorParam | ScalarParam | PointerParam


@dataclass(frozen=True)
class Descriptor:
    """A tensor map: what TMA is told about a tensor of a call.

    The adapter makes it from the address of `param`; `name` is what a kernel calls it. Dimensions
    are innermost first; `strides` are those of all dimensions but the innermost, in bytes. The rest
    is as in `tilelang.engine.tensor_map.TensorMap`: a map in im2col mode has `im2col` and no box.

    One of `peers` is an array with a map for each rank, whose address a kernel takes: `param` is
    the table of the addresses that a symmetric tensor has on all ranks.
    """

    name: str
    param: str
    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int = 0
    l2_promotion: int = 128
    oob_fill: Literal["zeros", "nan"] = "zeros"
    im2col: Im2col | None = None
    peers: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.im2col, Mapping):  # of JSON
            object.__setattr__(self, "im2col", Im2col(**self.im2col))
        for field in ("shape", "strides"):
            object.__setattr__(self, field, _exprs(getattr(self, field)))
        for field in ("box", "element_strides"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        if not 1 <= len(self.shape) <= 5 or len(self.strides) != len(self.shape) - 1:
            raise ValueError(
                f"launch plan: tensor map {self.name} has {len(self.shape)} extents and "
                f"{len(self.strides)} strides, wanted 1 to 5 and one stride less"
            )

    def script(self) -> str:
        """The tensor map on one line."""
        copied = f"box={format_tuple(self.box)}"
        if self.im2col is not None:
            steps = format_tuple(self.element_strides)
            copied = f"element_strides={steps}, im2col={self.im2col.script()}"
        return (
            f"{self.name} = tensor_map{'s' if self.peers else ''}({self.param}, {self.dtype}, "
            f"shape={format_tuple(self.shape)}, byte_strides={format_tuple(self.strides)}, "
            f"{copied}, swizzle={self.swizzle})"
        )


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel of a call.

    `grid` and `block` are x, y, z; `shared_bytes` is dynamic shared memory, at most `shared_limit`
    bytes where the sizes of the call decide it, None where the compiler has. `cluster` is the
    extents of a cluster in blocks, ``(1, 1, 1)`` without clusters; in a `cooperative` launch all
    blocks run at the same time, so that they may wait for each other; a `dependent` one may start
    before the kernel ahead of it in the stream is complete, which it waits for itself. The grid of
    a `persistent` kernel, of one dimension, is its tiles: any number of blocks works on all of
    them, and a launch has no more than the device has multiprocessors.
    `l2_hit_ratio` is a tensor parameter and the share, above 0 to 1, of the accesses to it that
    persist in the L2 cache during the launch, None where nothing does. A kernel `by_hand` is the
    user's own text: it may declare fewer parameters than there are `args`, the last ones that are
    no tensors (`fitted`). `writes` are the parameters whose memory it may change, None where that
    is not known; `touches` are those that it loads or stores in every launch. An argument is
    ``("param", name)``, the pointer of a tensor or the value of a scalar, ``("value", expr,
    dtype)``, an integer that the host computes, or ``("descriptor", name)``, a tensor map.
    """

    name: str
    grid: tuple[Expr, ...]
    block: tuple[Expr, ...]
    shared_bytes: Expr
    args: tuple[tuple[Any, ...], ...]
    cluster: tuple[int, ...] = (1, 1, 1)
    cooperative: bool = False
    dependent: bool = False
    l2_hit_ratio: tuple[str, float] | None = None
    by_hand: bool = False
    writes: tuple[str, ...] | None = None
    shared_limit: int | None = None
    persistent: bool = False
    touches: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", tuple(self.cluster))
        object.__setattr__(self, "touches", tuple(self.touches))
        if self.writes is not None:
            object.__setattr__(self, "writes", tuple(self.writes))
        if len(self.cluster) != 3 or not all(isinstance(e, int) and e > 0 for e in self.cluster):
            raise ValueError(
                f"launch plan: cluster of {self.name} is {self.cluster}, wanted three positive ints"
            )
        for field in ("grid", "block"):
            extents = _exprs(getattr(self, field))
            if len(extents) != 3:
                raise ValueError(f"launch plan: {field} of {self.name} needs three extents")
            object.__setattr__(self, field, extents)
        object.__setattr__(self, "shared_bytes", _checked(self.shared_bytes))
        if self.l2_hit_ratio is not None:
            object.__setattr__(self, "l2_hit_ratio", tuple(self.l2_hit_ratio))
        object.__setattr__(self, "args", tuple(self._argument(arg) for arg in self.args))

    @property
    def clustered(self) -> bool:
        """Whether a cluster has more than one block."""
        return self.cluster != (1, 1, 1)

    def _argument(self, arg: Sequence[Any]) -> tuple[Any, ...]:
        if len(arg) == 2 and arg[0] in ("param", "descriptor"):
            return (arg[0], arg[1])
        if len(arg) == 3 and arg[0] == "value":
            return ("value", _checked(arg[1]), arg[2])
        raise ValueError(f"launch plan: {arg!r} is not an argument of {self.name}")


MAX_FACTORS = 5
"""The most variables whose product a guard may be about."""
COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le}


@dataclass(frozen=True)
class Requirement:
    """What a call has to fulfil, an ``assert`` of the program on sizes: ``left comparison right``;
    `message` is the program's, `location` its ``file:line``."""

    left: Expr
    comparison: str
    right: Expr
    message: str = ""
    location: str = ""

    def __post_init__(self) -> None:
        for field in ("left", "right"):
            object.__setattr__(self, field, _checked(getattr(self, field)))
        if self.comparison not in COMPARISONS:
            raise ValueError(
                f"launch plan: found comparison {self.comparison!r}, wanted one of "
                f"{', '.join(COMPARISONS)}"
            )

    def script(self) -> str:
        """The requirement as an ``assert``."""
        message = f", {self.message!r}" if self.message else ""
        condition = f"{format_expr(self.left)} {self.comparison} {format_expr(self.right)}"
        return f"assert {condition}{message}"


@dataclass(frozen=True)
class Guard:
    """What sizes of a call a variant is compiled for: the product of `variables`, its remainder by
    `modulus` if that is not 0, is at least `least` and at most `most`.

    Example: ``Guard(("n",), modulus=8, least=0, most=0).script() == "n % 8 == 0"``
    """

    variables: tuple[str, ...]
    modulus: int = 0
    least: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(self.variables))
        if not 1 <= len(self.variables) <= MAX_FACTORS or (self.least is None is self.most):
            raise ValueError(
                f"launch plan: {self} is no guard, wanted 1 to {MAX_FACTORS} variables and a bound"
            )

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds of these values of the plan's variables."""
        value = math.prod(values[name] for name in self.variables)
        value = value % self.modulus if self.modulus else value
        above = self.least is None or value >= self.least
        return above and (self.most is None or value <= self.most)

    def script(self) -> str:
        """The guard as a condition."""
        value = " * ".join(self.variables) + (f" % {self.modulus}" if self.modulus else "")
        if self.least == self.most:
            return f"{value} == {self.least}"
        if self.least is None:
            return f"{value} <= {self.most}"
        below = "" if self.most is None else f" <= {self.most}"
        return f"{self.least} <= {value}{below}"


@dataclass(frozen=True)
class Condition:
    """What a call has to be for a variant: all `guards` hold, and its tensors begin at multiples of
    16 bytes unless the variant takes them at `any_address`."""

    guards: tuple[Guard, ...] = ()
    any_address: bool = False

    def __post_init__(self) -> None:
        guards = [g if isinstance(g, Guard) else Guard(**g) for g in self.guards]  # of JSON
        object.__setattr__(self, "guards", tuple(guards))

    def script(self) -> str:
        """The condition in words."""
        guards = " and ".join(guard.script() for guard in self.guards) or "any sizes"
        return f"{guards}, any address" if self.any_address else guards


@dataclass(frozen=True)
class LaunchPlan:
    """A whole call: `params` in source order, indices of the `outputs`, `kernels` in launch order,
    and the `descriptors` that they take. The last `workspaces` of the parameters are tensors that
    the call allocates for the kernels. The target's warps have `warp_threads` lanes. The plan is of
    one variant of the program, for calls of which all `guards` hold (`tilelang.engine.variants`);
    `others` are the conditions of the variants that take other calls: the first that holds.

    A program that several ranks run together has `team` parameters in front of its workspaces that
    `tilelang.distributed` passes: this GPU's rank, the number of ranks, and for some of the
    `symmetric` tensors, of which each rank has one, `<tensor>_peers`, their addresses on all ranks.

    `name` is the kernel function's name, `location` its ``file:line`` for error texts, empty when
    unknown. Raises `ValueError` for a plan that cannot be executed, so that a broken one never
    reaches a launch.
    """

    name: str
    params: tuple[Param, ...]
    kernels: tuple[KernelLaunch, ...]
    outputs: tuple[int, ...] = ()
    location: str = ""
    descriptors: tuple[Descriptor, ...] = ()
    workspaces: int = 0
    requirements: tuple[Requirement, ...] = ()
    warp_threads: int = 32
    guards: tuple[Guard, ...] = ()
    others: tuple[Condition, ...] = ()
    symmetric: tuple[str, ...] = ()
    team: int = 0

    def __post_init__(self) -> None:
        of_call = ("params", "kernels", "outputs", "descriptors", "requirements", "symmetric")
        lists = (*of_call, "guards", "others")
        for field in lists:
            object.__setattr__(self, field, tuple(getattr(self, field)))
        names = [param.name for param in self.params]
        if len(set(names)) != len(names):
            raise ValueError(f"launch plan: two parameters of {self.name} have one name: {names}")
        for index in self.allocated:
            if not 0 <= index < len(self.params):
                raise ValueError(f"launch plan: {self.name} has no parameter {index} to return")
            if not isinstance(self.params[index], TensorParam):
                kind = "scalar" if isinstance(self.params[index], ScalarParam) else "pointer"
                raise ValueError(f"launch plan: {kind} {names[index]} cannot be an output")
        maps = [descriptor.name for descriptor in self.descriptors]
        for kernel in self.kernels:
            known = {"param": names, "descriptor": maps}
            unknown = [arg[1] for arg in kernel.args if arg[1] not in known.get(arg[0], [arg[1]])]
            if unknown:
                raise ValueError(f"launch plan: {kernel.name} takes unknown parameters {unknown}")
            if kernel.l2_hit_ratio is not None and not isinstance(
                self.params[names.index(kernel.l2_hit_ratio[0])], TensorParam
            ):
                raise ValueError(f"launch plan: {kernel.l2_hit_ratio[0]} is no tensor")
        for descriptor in self.descriptors:
            if descriptor.param not in names:
                raise ValueError(
                    f"launch plan: {descriptor.name} is of no parameter: {descriptor.param}"
                )
        self._check_defined()

    def _check_defined(self) -> None:
        known = self.sources.known
        for owner, expr in self._expressions():
            for name in variables(expr):
                if name not in known:
                    raise ValueError(
                        f"{self.where()}: nothing that is passed in determines the symbolic "
                        f"dimension `{name}` of `{owner}`. Let it appear as a dimension of an "
                        "input tensor, alone or as in n * 2 + 1, or pass it as a scalar."
                    )

    def _expressions(self) -> Iterator[tuple[str, Expr]]:
        for param in self.params:
            if isinstance(param, TensorParam):
                for expr in (*param.shape, *(param.strides or ())):
                    yield param.name, expr
        for descriptor in self.descriptors:
            for expr in (*descriptor.shape, *descriptor.strides):
                yield descriptor.name, expr
        for kernel in self.kernels:
            values = (arg[1] for arg in kernel.args if arg[0] == "value")
            for expr in (*kernel.grid, *kernel.block, kernel.shared_bytes, *values):
                yield kernel.name, expr
        for requirement in self.requirements:
            for expr in (requirement.left, requirement.right):
                yield "assert", expr
        for condition in (Condition(self.guards), *self.others):
            for guard in condition.guards:
                for name in guard.variables:
                    yield "guard", ("var", name)

    @property
    def allocated(self) -> tuple[int, ...]:
        """Indices of the parameters that the call allocates: `outputs`, then workspaces."""
        count = len(self.params)
        return (*self.outputs, *range(count - self.workspaces, count))

    @property
    def inputs(self) -> tuple[int, ...]:
        """Indices of the parameters that the caller passes, in order."""
        return tuple(i for i in range(len(self.params)) if i not in self.allocated)

    @property
    def arguments(self) -> tuple[int, ...]:
        """The numbers of `inputs` that the program names: what `tilelang.distributed` passes is
        left out."""
        return self.inputs[: len(self.inputs) - self.team]

    @property
    def used(self) -> frozenset[str]:
        """Names of the parameters that a kernel takes, itself or in a tensor map."""
        args = [arg[1] for k in self.kernels for arg in k.args if arg[0] == "param"]
        windows = [k.l2_hit_ratio[0] for k in self.kernels if k.l2_hit_ratio is not None]
        return frozenset([*args, *windows, *(d.param for d in self.descriptors)])

    @property
    def written(self) -> frozenset[str]:
        """Names of the tensors and pointers whose memory a call may change: outputs, workspaces,
        and inputs that kernels write to."""
        found = {self.params[i].name for i in self.allocated}
        mapped = {d.name: d.param for d in self.descriptors}
        scalars = {param.name for param in self.params if isinstance(param, ScalarParam)}
        for kernel in self.kernels:
            taken = [mapped.get(arg[1], arg[1]) for arg in kernel.args if arg[0] != "value"]
            found |= {*taken} - scalars if kernel.writes is None else {*kernel.writes}
        return frozenset(found)

    @cached_property
    def sources(self) -> Sources:
        """Where each variable gets its value: from scalars first, then shapes, then strides, and
        these of tensors that kernels take before those of others."""
        return self._sources(frozenset())

    def symbol_values(
        self,
        inputs: Sequence[Any],
        value: Callable[[Expr, Mapping[str, Any]], Any] = evaluate,
    ) -> dict[str, Any]:
        """The values of the plan's variables in a call with these tensors and numbers, which are in
        the order of `self.inputs`. `value` evaluates an expression, for sizes that are no ints too.

        Example: ``plan.symbol_values((a, b))["n"] == a.shape[0]``
        """
        given = dict(zip(self.inputs, inputs, strict=True))
        values: dict[str, Any] = {}
        for name, place in self.sources.definitions.items():
            argument = given[place.param]
            if place.kind == "scalar":
                values[name] = argument
                continue
            if place.kind == "offset":
                values[name] = argument.data_ptr() % 16 // argument.element_size()
                continue
            packing = dtypes.packing(self.params[place.param].dtype)
            is_last = place.dim == argument.dim() - 1
            if place.kind == "shape":
                values[name] = argument.shape[place.dim] * (packing if is_last else 1)
            else:
                values[name] = argument.stride(place.dim) * (1 if is_last else packing)
        for name, expr in self.sources.solutions.items():
            values[name] = value(expr, values)
        return values

    def sources_without(self, absent: frozenset[int]) -> Sources | int:
        """The sources in a call with None for these inputs; the index of one that is needed, where
        there is one: for a tensor map, for what a kernel loads or stores of it in every launch, or
        for the value of a variable that is used elsewhere."""
        needed = {d.param for d in self.descriptors}
        needed |= {k.l2_hit_ratio[0] for k in self.kernels if k.l2_hit_ratio is not None}
        needed.update(*(k.touches for k in self.kernels))
        for index in sorted(absent):
            if not isinstance(self.params[index], TensorParam) or self.params[index].name in needed:
                return index
        found, names = self._sources(absent), {self.params[i].name for i in absent}
        for owner, expr in self._expressions():
            missing = {*variables(expr)} - found.known
            if owner not in names and missing:
                return self._defined_by(missing, absent)
        return found

    def _defined_by(self, missing: set[str], absent: frozenset[int]) -> int:
        for index in sorted(absent):
            if any(missing & {*variables(expr)} for _, expr, _ in self._places(index)):
                return index
        raise AssertionError(f"{missing} are defined by no input")

    def _places(self, index: int) -> list[Place]:
        param = self.params[index]
        assert isinstance(param, TensorParam)
        found: list[Place] = []
        for d, expr in enumerate(param.shape):
            found.append((Definition(index, "shape", d), expr, f"{param.name}.shape[{d}]"))
        for d, expr in enumerate(param.strides or ()):
            found.append((Definition(index, "stride", d), expr, f"{param.name}.strides[{d}]"))
        if param.offset is not None:
            found.append((Definition(index, "offset"), ("var", param.offset), "offset"))
        return found

    def _sources(self, absent: frozenset[int]) -> Sources:
        scalars, places = {}, []
        used = self.used
        tensors = []
        for index in self.inputs:
            param = self.params[index]
            if isinstance(param, ScalarParam) and param.dtype.startswith(("int", "uint")):
                scalars[param.name] = Definition(index, "scalar")
            if isinstance(param, TensorParam) and index not in absent:
                tensors.append((param.name not in used, index))
        for is_unused in (False, True):
            of_tensors = [self._places(i) for unused, i in tensors if unused == is_unused]
            found = [place for of_tensor in of_tensors for place in of_tensor]
            places += sorted(found, key=lambda place: place[0].kind)  # shapes, then strides
        sources = find_sources(scalars, places)
        # What the call allocates begins at a multiple of 16 bytes.
        for index in (*self.allocated, *absent):
            param = self.params[index]
            if isinstance(param, TensorParam) and param.offset is not None:
                sources.solutions[param.offset] = 0
        return sources

    def where(self) -> str:
        """The kernel's name and place, as error texts begin."""
        return f"Kernel `{self.name}`" + (f" ({self.location})" if self.location else "")

    def to_json(self) -> str:
        """The plan as JSON text; `from_json` is its inverse."""
        fields = {
            "name": self.name,
            "location": self.location,
            "params": [vars(param) for param in self.params],
            "outputs": self.outputs,
            "workspaces": self.workspaces,
            "symmetric": self.symmetric,
            "team": self.team,
            "warp_threads": self.warp_threads,
            "kernels": [vars(kernel) for kernel in self.kernels],
            "descriptors": [asdict(descriptor) for descriptor in self.descriptors],
            "requirements": [vars(requirement) for requirement in self.requirements],
            "guards": [vars(guard) for guard in self.guards],
            "others": [asdict(condition) for condition in self.others],
        }
        return json.dumps(fields)

    @staticmethod
    def from_json(text: str) -> LaunchPlan:
        """The plan that `to_json` wrote. Raises `ValueError` where it is not one."""
        fields = json.loads(text)
        try:
            params = [_param(p) for p in fields.pop("params")]
            kernels = [KernelLaunch(**kernel) for kernel in fields.pop("kernels")]
            descriptors = [Descriptor(**map) for map in fields.pop("descriptors", ())]
            requirements = [Requirement(**r) for r in fields.pop("requirements", ())]
            guards = [Guard(**guard) for guard in fields.pop("guards", ())]
            others = [Condition(**condition) for condition in fields.pop("others", ())]
            return LaunchPlan(
                params=tuple(params),
                kernels=tuple(kernels),
                descriptors=tuple(descriptors),
                requirements=tuple(requirements),
                guards=tuple(guards),
                others=tuple(others),
                **fields,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"launch plan: not the JSON form of a plan: {error}") from error

    def script(self) -> str:
        """The call in words that read like Python; what `JITKernel.get_host_source` shows."""
        lines = [f"def {self.name}({', '.join(self.params[i].name for i in self.arguments)}):"]
        if self.location:
            lines.append(f"    # {self.location}")
        for index, param in enumerate(self.params):
            if not isinstance(param, TensorParam):
                kind = param.dtype if isinstance(param, ScalarParam) else "pointer"
                lines.append(f"    {param.name}: {kind}")
                continue
            verb = " = empty" if index in self.allocated else ": Tensor"
            place = "" if param.strides is None else f", strides={format_tuple(param.strides)}"
            place += "" if param.offset is None else f", offset={param.offset}"
            lines.append(
                f"    {param.name}{verb}({format_tuple(param.shape)}, {param.dtype}{place})"
            )
        lines += [f"    {name} = {format_expr(e)}" for name, e in self.sources.solutions.items()]
        lines += [f"    guard {guard.script()}" for guard in self.guards]
        lines += [f"    else the variant for {condition.script()}" for condition in self.others]
        lines += [f"    {requirement.script()}" for requirement in self.requirements]
        lines += [f"    {descriptor.script()}" for descriptor in self.descriptors]
        for kernel in self.kernels:
            args = [format_expr(arg[1]) if arg[0] == "value" else arg[1] for arg in kernel.args]
            lines.append(
                f"    launch {kernel.name}({', '.join(args)}) grid={format_tuple(kernel.grid)} "
                f"block={format_tuple(kernel.block)} "
                f"shared_bytes={format_expr(kernel.shared_bytes)}"
                + (f" of {kernel.shared_limit}" if kernel.shared_limit is not None else "")
                + (f" cluster={format_tuple(kernel.cluster)}" if kernel.clustered else "")
                + (" cooperative" if kernel.cooperative else "")
                + (" persistent" if kernel.persistent else "")
                + (" dependent" if kernel.dependent else "")
                + (f" l2_hit_ratio={kernel.l2_hit_ratio}" if kernel.l2_hit_ratio else "")
            )
        if self.outputs:
            lines.append(f"    return {', '.join(self.params[i].name for i in self.outputs)}")
        return "\n".join(lines) + "\n"


def _param(fields: dict[str, Any]) -> Param:
    if "shape" in fields:
        return TensorParam(**fields)
    return PointerParam(**fields) if "pointee" in fields else ScalarParam(**fields)
