"""Kernels as operators of torch: under torch.compile, torch.export, autograd.

Example::

    add = tilelang.torch.register(kernel, "mylib::add")
    c = torch.compile(lambda a, b: add(a, b) * 2, fullgraph=True, dynamic=True)(a, b)

What torch must know of an operator comes from the kernel's launch plan: the schema from its
parameters, which arguments are mutated from what its kernels write, and the outputs of fake tensors
from the expressions of their extents. So neither the compiler nor a GPU is needed, and a kernel of
a file (`tilelang.runtime.load`) is registered as one that was compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from tilelang.engine.launch_plan import LaunchPlan, ScalarParam, TensorParam
from tilelang.engine.symbols import Expr, evaluate
from tilelang.runtime.adapter import errors
from tilelang.utils import dtypes

__all__ = ["fake_outputs", "register", "schema_of"]

GRADIENT = "grad_"
"""Before the name of a forward parameter: its gradient, as a parameter of a backward kernel."""


class Callee(Protocol):
    """What can be registered: a `JITKernel`, or a kernel of a file."""

    launch_plan: LaunchPlan

    @property
    def device_type(self) -> str:
        """Where its tensors are: ``"cuda"``, or ``"cpu"`` for the emulator."""
        ...

    def __call__(self, *args: Any) -> Any: ...


class Function(Protocol):
    """A function under `tilelang.jit` in eager style."""

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """Its kernel for these arguments."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


Backward = Callable[..., Mapping[str, torch.Tensor]]
"""Called with the inputs and outputs of the forward kernel by their names, and the gradients of its
outputs as ``grad_<output>``; returns gradients by the names of inputs."""


def register(
    kernel: Callee | Function,
    name: str,
    backward: Callee | Backward | None = None,
    example: Sequence[Any] | None = None,
) -> torch.library.CustomOpDef:
    """Registers a kernel as the operator `name`, ``"library::operator"``, and returns it.

    The operator takes the kernel's inputs and returns its outputs: one as a tensor, several as a
    tuple, none as None. An input that a kernel may write to is declared as mutated.

    `backward` makes it differentiable. A kernel finds its inputs by their names: those of inputs
    and outputs of `kernel`, and ``grad_C`` for the gradient of output ``C``; its outputs are called
    ``grad_A`` for the gradient of input ``A``. It becomes the operator ``<name>_backward``. A
    function is called as `Backward` says; under torch.compile it is made of operators itself.
    Gradients that are not contiguous are copied.

    A function in eager style takes an `example` of its arguments, from which the schema is found;
    the operator takes those of the run, and compile-time constants have their defaults. Sizes that
    are constant at compile time give a graph each, as they give a kernel.

    Raises `ValueError` for a name without a library, a function without `example`, a pointer
    parameter, which torch cannot follow, parameters of `backward` that stand for nothing, and where
    a kernel that is differentiated mutates an input.

    Example: ``add = tilelang.torch.register(tilelang.compile(main, out_idx=-1), "mylib::add")``
    """
    called: Any = kernel
    if not isinstance(getattr(kernel, "launch_plan", None), LaunchPlan):
        called = _EagerFunction(called, example)
    plan: LaunchPlan = called.launch_plan
    if name.count("::") != 1 or not all(part.isidentifier() for part in name.split("::")):
        raise ValueError(f"{plan.where()}: name {name!r}: expected library::operator")
    if plan.team:
        raise ValueError(
            f"{plan.where()}: found a kernel of several GPUs, wanted one of one GPU, whose results "
            "depend on its arguments alone. Call the kernel itself"
        )
    mutated = [plan.params[i].name for i in plan.inputs if plan.params[i].name in plan.written]
    if backward is not None and mutated:
        raise ValueError(
            f"{plan.where()}: found inputs that the kernel writes to ({', '.join(mutated)}), "
            "wanted none in a kernel with `backward`. Let it return them: name them in out_idx"
        )
    operator = torch.library.custom_op(
        name,
        _returning_tuple(called),
        mutates_args=mutated,
        device_types=called.device_type,
        schema=schema_of(plan),
    )
    plan_of = called.plan_of if isinstance(called, _EagerFunction) else lambda args: plan
    operator.register_fake(lambda *args: fake_outputs(plan_of(args), args, called.device_type))
    if backward is not None:
        _differentiate(operator, plan, name, backward)
    return operator


def schema_of(plan: LaunchPlan) -> str:
    """The schema of a plan's operator, without its name.

    Raises `ValueError` for a pointer parameter.

    Example: ``"(Tensor A, SymInt n, Tensor(a0!) B) -> Tensor"``
    """
    written = plan.written
    arguments = []
    for index in plan.inputs:
        param = plan.params[index]
        if isinstance(param, TensorParam):
            alias = f"(a{index}!)" if param.name in written else ""
            arguments.append(f"Tensor{alias} {param.name}")
        elif isinstance(param, ScalarParam) and param.dtype != "handle":
            arguments.append(f"{_scalar_type(param)} {param.name}")
        else:
            raise ValueError(
                f"{plan.where()}: found the pointer parameter `{param.name}`, wanted tensors and "
                "numbers, which torch can follow. Declare it as a T.Tensor"
            )
    count = len(plan.outputs)
    result = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return f"({', '.join(arguments)}) -> {result}"


def fake_outputs(plan: LaunchPlan, args: Sequence[Any], device_type: str) -> Any:
    """The outputs of a call without data: empty tensors, whose extents may be symbolic.

    Raises `ValueError` where a rank or dtype is wrong; sizes are checked by the call itself.

    Example: ``fake_outputs(plan, (a, b), "cuda").shape``
    """
    for index, arg in zip(plan.inputs, args, strict=True):
        if isinstance(plan.params[index], TensorParam):
            _check_tensor(plan, index, arg)
    values = plan.symbol_values(args, _value)
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device(device_type)
    outputs = []
    for index in plan.outputs:
        param = plan.params[index]
        assert isinstance(param, TensorParam)
        shape = [_value(extent, values) for extent in param.shape]
        packing = dtypes.packing(param.dtype)
        if packing > 1:
            shape[-1] = shape[-1] // packing
        dtype = dtypes.torch_dtype(param.dtype)
        if param.strides is None:
            outputs.append(torch.empty(shape, dtype=dtype, device=device))
            continue
        strides = [_value(stride, values) // packing for stride in param.strides[:-1]]
        strides.append(_value(param.strides[-1], values))
        outputs.append(torch.empty_strided(shape, strides, dtype=dtype, device=device))
    return _result(outputs)


class _EagerFunction:
    """A function in eager style as a `Callee`: its kernel is found by each call."""

    def __init__(self, function: Any, example: Sequence[Any] | None):
        if example is None:
            raise ValueError(
                f"{getattr(function, '__name__', function)!r} is no kernel: found no `example` of "
                "its arguments, wanted one, such as example=(a, b) for a function in eager style. "
                "Or register the kernel that its `compile` returns"
            )
        kernel = function.compile(*example)
        self.launch_plan: LaunchPlan = kernel.launch_plan
        self.device_type: str = kernel.device_type
        self._function = function
        self._names = [self.launch_plan.params[i].name for i in self.launch_plan.inputs]

    def __call__(self, *args: Any) -> Any:
        return self._function(**dict(zip(self._names, args, strict=True)))

    def plan_of(self, args: Sequence[Any]) -> LaunchPlan:
        """The launch plan for arguments without data; sizes that the kernel leaves open may be
        symbolic."""
        kernel = self._function.compile(**dict(zip(self._names, args, strict=True)))
        plan: LaunchPlan = kernel.launch_plan
        return plan


def _scalar_type(param: ScalarParam) -> str:
    if param.dtype == "bool":
        return "bool"
    return "float" if "float" in param.dtype else "SymInt"


def _result(outputs: list[torch.Tensor]) -> Any:
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _returning_tuple(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel as torch calls an operator: several outputs are a tuple."""

    def call(*args: Any) -> Any:
        found = kernel(*args)
        return tuple(found) if isinstance(found, list) else found

    return call


def _check_tensor(plan: LaunchPlan, index: int, arg: torch.Tensor) -> None:
    param = plan.params[index]
    assert isinstance(param, TensorParam)
    if arg.dim() != len(param.shape):
        raise errors.wrong_rank(plan, index, arg)
    if arg.dtype not in _accepted(param.dtype):
        raise errors.wrong_dtype(plan, index, arg)


@functools.cache
def _accepted(dtype: str) -> frozenset[torch.dtype]:
    """The dtypes that a tensor may have for a parameter of `dtype`, as the adapter says."""
    types = dtypes.accepted_types(dtype)
    known = {v for v in vars(torch).values() if isinstance(v, torch.dtype)}
    return frozenset(v for v in known if dtypes.data_type(v) in types)


def _value(expr: Expr, values: Mapping[str, Any]) -> Any:
    """The value of an expression; variables may be symbolic integers of torch."""
    return evaluate(expr, values, torch.sym_min, torch.sym_max)


# Gradients.


def _differentiate(
    operator: torch.library.CustomOpDef,
    plan: LaunchPlan,
    name: str,
    backward: Callee | Backward,
) -> None:
    inputs = [plan.params[i].name for i in plan.inputs]
    outputs = [plan.params[i].name for i in plan.outputs]
    gradients = _gradients_of(plan, f"{name}_backward", backward)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        given = (*inputs, *results)
        ctx.save_for_backward(*[v if isinstance(v, torch.Tensor) else None for v in given])
        ctx.numbers = [None if isinstance(v, torch.Tensor) else v for v in given]

    def run(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = zip(ctx.saved_tensors, ctx.numbers, strict=True)
        values = [number if tensor is None else tensor for tensor, number in saved]
        known = dict(zip((*inputs, *outputs), values, strict=True))
        for output, grad in zip(outputs, grads, strict=True):
            known[GRADIENT + output] = grad.contiguous()
        found = gradients(known)
        return tuple(found.get(name) for name in inputs)

    operator.register_autograd(run, setup_context=setup_context)


def _gradients_of(
    plan: LaunchPlan, name: str, backward: Callee | Backward
) -> Callable[[Mapping[str, Any]], Mapping[str, torch.Tensor]]:
    """A function from values by name to gradients by the names of inputs."""
    if not isinstance(getattr(backward, "launch_plan", None), LaunchPlan):
        function: Any = backward
        return lambda known: function(**known)
    kernel: Any = backward
    of_backward: LaunchPlan = kernel.launch_plan
    inputs = {plan.params[i].name for i in plan.inputs}
    outputs = {plan.params[i].name for i in plan.outputs}
    takes = [of_backward.params[i].name for i in of_backward.inputs]
    gives = [of_backward.params[i].name for i in of_backward.outputs]
    known = inputs | outputs | {GRADIENT + output for output in outputs}
    unknown = [n for n in takes if n not in known]
    unknown += [n for n in gives if n.removeprefix(GRADIENT) not in inputs or n in inputs]
    if unknown or not gives:
        raise ValueError(
            f"{of_backward.where()}: found {', '.join(unknown) or 'no outputs'} among the "
            f"parameters of a backward kernel, wanted inputs among {', '.join(sorted(known))} and "
            f"outputs among {', '.join(GRADIENT + n for n in sorted(inputs))}. Rename them, or "
            "pass a function"
        )
    operator = register(kernel, name)

    def call(values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        found = operator(*[values[n] for n in takes])
        found = found if isinstance(found, tuple) else (found,)
        return {n.removeprefix(GRADIENT): v for n, v in zip(gives, found, strict=True)}

    return call
