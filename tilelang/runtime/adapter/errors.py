"""The errors of a call. Each function builds one, which the adapter raises before any launch.

Every text names the kernel and its line, what was found, what was wanted, and one repair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tilelang.engine.launch_plan import (
    LaunchPlan,
    PointerParam,
    TensorParam,
    format_expr,
    format_tuple,
)
from tilelang.engine.symbols import variables
from tilelang.utils import dtypes

if TYPE_CHECKING:
    from tilelang.emulator.reports import EmulationError, Report


def _about(plan: LaunchPlan, index: int) -> str:
    return f"{plan.where()}: parameter `{plan.params[index].name}`"


def _shape(plan: LaunchPlan, index: int) -> str:
    return format_tuple(_tensor(plan, index).shape)


def _tensor(plan: LaunchPlan, index: int) -> TensorParam:
    param = plan.params[index]
    assert isinstance(param, TensorParam)
    return param


def wrong_count(plan: LaunchPlan, got: int) -> ValueError:
    """`got` arguments were passed."""
    names = ", ".join(plan.params[i].name for i in plan.arguments)
    text = f"{plan.where()}: Expected {len(plan.arguments)} inputs, got {got}. Pass ({names})"
    if plan.outputs:
        outputs = ", ".join(plan.params[i].name for i in plan.outputs)
        text += f"; {outputs} is allocated and returned by the call"
    return ValueError(text + ".")


_ABSENT = (
    "None goes for one that gives no size, has no tensor map, and is not read or written by every "
    "launch"
)


def not_a_tensor(plan: LaunchPlan, index: int, arg: Any) -> TypeError:
    """Something else than a tensor was passed for a tensor."""
    return TypeError(
        f"{_about(plan, index)}: expected a torch.Tensor, got {type(arg).__name__}. Pass a tensor "
        f"of shape {_shape(plan, index)} and dtype {plan.params[index].dtype}"
        + (f"; {_ABSENT}." if arg is None else ".")
    )


def not_a_number(plan: LaunchPlan, index: int, arg: Any) -> TypeError:
    """Something else than a number of the right kind was passed for a scalar."""
    dtype = plan.params[index].dtype
    return TypeError(
        f"{_about(plan, index)}: expected a Python number for {dtype}, got {type(arg).__name__}. "
        "Convert it by int() or float()."
    )


def not_a_pointer(plan: LaunchPlan, index: int, arg: Any) -> TypeError:
    """Something else than an address was passed for a pointer."""
    return TypeError(
        f"{_about(plan, index)}: expected a torch.Tensor or an address as an int, got "
        f"{type(arg).__name__}. Pass the tensor, or its data_ptr()."
    )


def out_of_range(plan: LaunchPlan, index: int, value: int, low: int, high: int) -> ValueError:
    """An integer does not fit the scalar's dtype."""
    dtype = plan.params[index].dtype
    return ValueError(
        f"{_about(plan, index)}: expected {dtype} from {low} to {high}, got {value}. Pass a "
        "number in this range, or declare the parameter wider."
    )


def unsupported_dtype(plan: LaunchPlan, index: int) -> ValueError:
    """No tensor or number of the parameter's dtype can be passed."""
    return ValueError(
        f"{_about(plan, index)}: dtype {plan.params[index].dtype} cannot be passed to a kernel. "
        "Pass the data as uint8 and reinterpret it in the kernel."
    )


def unreadable(plan: LaunchPlan, index: int, tensor: torch.Tensor) -> ValueError:
    """The tensor has no memory that a kernel can read."""
    kind = type(tensor).__name__
    return ValueError(
        f"{_about(plan, index)}: expected a dense tensor with data, got a {kind} of layout "
        f"{tensor.layout} on device {tensor.device}, which has none that a kernel can read. Pass a "
        "dense tensor that lives on the kernel's device; under torch.compile, torch.export or "
        "torch.func, put the call into a torch.library.custom_op with register_fake."
    )


def lazy(plan: LaunchPlan, index: int, tensor: torch.Tensor) -> ValueError:
    """The tensor's memory does not have its values, but their negatives or conjugates."""
    kind, repair = ("negatives", "neg") if tensor.is_neg() else ("conjugates", "conj")
    name = plan.params[index].name
    return ValueError(
        f"{_about(plan, index)}: found a tensor whose memory has the {kind} of its values, wanted "
        f"the values. Pass `{name}.resolve_{repair}()`, a copy; where the kernel writes {name}, "
        "bring the result back from it."
    )


def not_exchanged(plan: LaunchPlan, index: int, arg: Any, error: Exception) -> TypeError:
    """An array of another library cannot be passed as it is."""
    return TypeError(
        f"{_about(plan, index)}: found {_array(arg)}, which torch cannot take by DLPack "
        f"({error}). Pass a copy with a dtype and a byte order that torch has, such as "
        f"torch.tensor({plan.params[index].name}.tolist())."
    )


def read_only(plan: LaunchPlan, index: int, arg: Any) -> ValueError:
    """The kernel may write to an array that its library lets nobody write to."""
    return ValueError(
        f"{_about(plan, index)}: found {_array(arg)}, which is read-only, and the kernel writes to "
        f"it. Pass a copy that may be written to, such as `{plan.params[index].name}.copy()`."
    )


def _array(arg: Any) -> str:
    return f"{type(arg).__module__}.{type(arg).__qualname__}"


def wrong_rank(plan: LaunchPlan, index: int, tensor: torch.Tensor) -> ValueError:
    """The tensor has another number of dimensions."""
    rank = len(_tensor(plan, index).shape)
    return ValueError(
        f"{_about(plan, index)}: rank mismatch: expected {rank} dimensions {_shape(plan, index)}, "
        f"got {tensor.dim()} {tuple(tensor.shape)}. Reshape or slice the tensor."
    )


def wrong_dtype(plan: LaunchPlan, index: int, tensor: torch.Tensor) -> ValueError:
    """The tensor has another dtype, not one that passes for it."""
    param = plan.params[index]
    name = param.name
    wanted = param.pointee if isinstance(param, PointerParam) else param.dtype
    assert wanted is not None
    found = str(tensor.dtype).removeprefix("torch.")
    return ValueError(
        f"{_about(plan, index)}: dtype mismatch: expected {wanted}, got {found}. Pass "
        f"`{name}.to({dtypes.torch_dtype(wanted)})`."
    )


def wrong_device(plan: LaunchPlan, index: int, tensor: torch.Tensor, wanted: str) -> ValueError:
    """The tensor is not where the kernel runs, or not where the first tensor is."""
    text = (
        f"{_about(plan, index)}: device mismatch: expected {wanted}, got {tensor.device}. Pass "
        f"`{plan.params[index].name}.to('{wanted}')`"
    )
    if wanted == "cpu":
        text += "; the kernel was compiled for the emulator, execution_backend='auto' takes the GPU"
    return ValueError(text + ".")


def wrong_shape(
    plan: LaunchPlan, index: int, tensor: torch.Tensor, dim: int, wanted: int
) -> ValueError:
    """A dimension differs from the declared one, or from the same symbol elsewhere."""
    declared = _tensor(plan, index).shape[dim]
    symbol = "" if isinstance(declared, int) else f" ({format_expr(declared)})"
    place = f"{plan.params[index].name}.shape[{dim}]"
    solved = [n for n, e in plan.sources.solutions.items() if place in variables(e)]
    if solved:
        symbol = f", which a whole number {solved[0]} gives for {format_expr(declared)},"
    if dtypes.packing(plan.params[index].dtype) > 1 and dim == tensor.dim() - 1:
        symbol += f", two {plan.params[index].dtype} in a byte,"
    return ValueError(
        f"{_about(plan, index)}: shape mismatch: expected {wanted}{symbol} at index {dim} of "
        f"{_shape(plan, index)}, got {tensor.shape[dim]} in {tuple(tensor.shape)}. Pass a tensor "
        "of that shape, or compile the kernel for this one."
    )


def wrong_strides(
    plan: LaunchPlan, index: int, tensor: torch.Tensor, dim: int, wanted: int
) -> ValueError:
    """A stride differs from the declared one, which for most tensors is the contiguous one."""
    if wanted == math.prod(tensor.shape[dim + 1 :]):
        return ValueError(
            f"{_about(plan, index)} is non-contiguous: expected stride {wanted} at index {dim}, "
            f"got strides {tensor.stride()} for shape {tuple(tensor.shape)}. "
            + _pass_copy(plan.params[index].name, "contiguous")
        )
    return ValueError(
        f"{_about(plan, index)}: stride mismatch: expected {wanted} at index {dim}, got "
        f"{tensor.stride(dim)} in {tensor.stride()}. Pass a tensor with these strides, or declare "
        "others."
    )


def no_variant(plan: LaunchPlan) -> ValueError:
    """The guards do not hold, and there is no other variant of the program."""
    guards = ", ".join(guard.script() for guard in plan.guards)
    return ValueError(
        f"{plan.where()}: found sizes for which it is not compiled, wanted {guards}. Call the "
        "kernel that this is a variant of."
    )


def misaligned(plan: LaunchPlan, index: int, address: int, wanted: int = 16) -> ValueError:
    """The tensor's data begin between two multiples of `wanted` bytes."""
    return ValueError(
        f"{_about(plan, index)}: expected data aligned to {wanted} bytes, got address "
        f"{address:#x}. " + _pass_copy(plan.params[index].name, "clone")
    )


def _pass_copy(name: str, how: str) -> str:
    """What to do where a tensor has the wrong place in memory; a kernel may write to it."""
    return (
        f"Pass `{name}.{how}()`; where the kernel writes {name}, keep the copy and bring back the "
        f"result: `copy = {name}.{how}()`, pass copy, `{name}.copy_(copy)`."
    )


def bad_expression(plan: LaunchPlan, what: str) -> ValueError:
    """An expression of the plan has no value that can be used."""
    return ValueError(
        f"{plan.where()}: the sizes of the arguments lead to {what} in the launch plan. Pass "
        "smaller tensors, or see the plan by kernel.get_host_source()."
    )


def negative_size(plan: LaunchPlan, solution: int, value: int) -> ValueError:
    """The symbol of this number among the plan's solutions would be negative."""
    name, expr = list(plan.sources.solutions.items())[solution]
    return ValueError(
        f"{plan.where()}: the sizes of the arguments make `{name}` {value}, by "
        f"{format_expr(expr)}; expected 0 or more. Pass larger tensors."
    )


def failed_assertion(plan: LaunchPlan, index: int, left: int, right: int) -> AssertionError:
    """An assertion of the program on sizes does not hold."""
    wanted = plan.requirements[index]
    condition = f"{format_expr(wanted.left)} {wanted.comparison} {format_expr(wanted.right)}"
    message = f"{wanted.message}: " if wanted.message else ""
    where = f"Kernel `{plan.name}`" + (f" ({wanted.location})" if wanted.location else "")
    return AssertionError(
        f"{where}: {message}expected {condition}, got {left} and {right}. Pass tensors for which "
        "it holds."
    )


def bad_extent(plan: LaunchPlan, kernel: int, which: int, value: int, limit: int) -> ValueError:
    """A grid, a block or its shared memory is larger than any GPU, or this one, takes."""
    names = ("grid x", "grid y", "grid z", "block x", "block y", "block z", "shared bytes")
    repair = "Use larger tiles, or move this dimension to grid x."
    if names[which] == "shared bytes":
        launch = plan.kernels[kernel]
        repair = (
            f"They are {format_expr(launch.shared_bytes)}: pass smaller sizes, or keep a part of "
            "the tile at a time."
        )
    return ValueError(
        f"{plan.where()}: {names[which]} of kernel `{plan.kernels[kernel].name}`: expected 0 to "
        f"{limit}, got {value}. {repair}"
    )


def bad_cluster(plan: LaunchPlan, kernel: int, grid: list[int]) -> ValueError:
    """A grid that does not divide into clusters."""
    launch = plan.kernels[kernel]
    return ValueError(
        f"{plan.where()}: grid of kernel `{launch.name}`: expected multiples of the cluster "
        f"{launch.cluster}, got {tuple(grid)}. Round the numbers of blocks up to multiples of the "
        "cluster's."
    )


def too_many_devices(plan: LaunchPlan, device: int, limit: int) -> RuntimeError:
    """The device's index is beyond the adapter's table."""
    return RuntimeError(
        f"{plan.where()}: expected a device from 0 to {limit - 1}, got {device}. Choose fewer "
        "devices by CUDA_VISIBLE_DEVICES."
    )


def emulated_failed(plan: LaunchPlan, kernel: int, reports: Sequence[Report]) -> EmulationError:
    """The emulator reports defects of the kernel."""
    from tilelang.emulator.reports import EmulationError

    name = plan.kernels[kernel].name
    return EmulationError(reports, f"{plan.where()}: kernel `{name}` failed in the emulator:")


def launch_failed(plan: LaunchPlan, kernel: int, extents: list[int], status: int) -> RuntimeError:
    """The driver refuses a launch; `extents` are grid, block and bytes of shared memory."""
    return driver_call(plan, _launching(plan, kernel, extents), status)


def _launching(plan: LaunchPlan, kernel: int, extents: list[int]) -> str:
    return (
        f"launching `{plan.kernels[kernel].name}` with grid {tuple(extents[:3])}, block "
        f"{tuple(extents[3:6])} and {extents[6]} bytes of dynamic shared memory"
    )


def hip_launch_failed(
    plan: LaunchPlan, kernel: int, extents: list[int], status: str
) -> RuntimeError:
    """AMD's runtime refuses a launch; `status` is the error's name and text."""
    return hip_call(plan, _launching(plan, kernel, extents), status)


def hip_call(plan: LaunchPlan, what: str, status: str) -> RuntimeError:
    """A call of AMD's runtime failed."""
    return RuntimeError(
        f"{plan.where()}: {what} failed: {status}. An error of an earlier kernel shows here too; "
        "set AMD_SERIALIZE_KERNEL=3 to find which one it was."
    )


def driver_call(plan: LaunchPlan, what: str, status: int) -> RuntimeError:
    """A call of the CUDA driver returned `status`."""
    from cuda.bindings import driver

    code = driver.CUresult(status)
    _, text = driver.cuGetErrorString(code)
    detail = text.decode() if text else "no description"
    return RuntimeError(
        f"{plan.where()}: {what} failed: {code.name} ({detail}). An error of an earlier kernel "
        "shows here too; set CUDA_LAUNCH_BLOCKING=1 to find which one it was."
    )
