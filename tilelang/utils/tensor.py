"""Inputs for kernels, and the comparison of their outputs."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from tilelang.utils import dtypes

if TYPE_CHECKING:
    from tilelang.engine.param import KernelParam


class TensorSupplyType(enum.Enum):
    """What generated inputs hold.

    Auto is uniform in (-1, 1) for float16, bfloat16 and float32, and small integers for every other
    dtype.
    """

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def get_tensor_supply(
    supply_type: TensorSupplyType = TensorSupplyType.Auto, device: str = "cuda"
) -> Callable[..., torch.Tensor]:
    """A function ``supply(param, sizes=None)`` that makes a tensor for a `KernelParam`.

    `sizes` gives symbolic dimensions by name; one without a size, or a scalar parameter, is a
    `ValueError`. Raises `TypeError` where `supply_type` is no `TensorSupplyType`.

    Example: ``inputs = [get_tensor_supply(device="cpu")(param) for param in kernel.params]``
    """
    if not isinstance(supply_type, TensorSupplyType):
        raise TypeError(
            f"found {supply_type!r} as what inputs hold, wanted one of "
            f"{', '.join(map(str, TensorSupplyType))}"
        )

    def supply(param: KernelParam, sizes: Mapping[str, int] | None = None) -> torch.Tensor:
        if param.is_scalar():
            raise ValueError(
                f"no input can be generated for a scalar parameter of {param.dtype}: pass "
                "input_tensors"
            )
        shape = [_extent(dim, sizes or {}) for dim in param.shape]
        shape[-1] //= dtypes.packing(param.dtype)
        return _generate(supply_type, param, shape, device)

    return supply


def _extent(dim: object, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if str(dim) not in sizes:
        raise ValueError(
            f"no input can be generated for the symbolic dimension `{dim}`: pass "
            f"dynamic_symbolic_constraints={{'{dim}': <size>}} or input_tensors"
        )
    return sizes[str(dim)]


def _generate(
    supply_type: TensorSupplyType, param: KernelParam, shape: list[int], device: str
) -> torch.Tensor:
    dtype = param.torch_dtype()
    kind = TensorSupplyType
    if dtypes.packing(param.dtype) > 1:
        return _pairs(supply_type, param.is_float4(), shape, device).view(dtype)
    if supply_type == kind.Zero:
        return torch.zeros(shape, dtype=dtype, device=device)
    if supply_type == kind.One:
        return torch.ones(shape, dtype=dtype, device=device)
    if supply_type in (kind.Auto, kind.Integer):
        if supply_type == kind.Auto and dtype in (torch.float16, torch.bfloat16, torch.float32):
            return torch.empty(shape, device=device).uniform_(-1, 1).to(dtype)
        return _integers(param, shape, device)
    if dtype == torch.int8 and supply_type != kind.Randn:
        # Numbers between -1 and 1 would nearly all be rounded to zero.
        return torch.ones(shape, dtype=dtype, device=device)
    values = torch.empty(shape, dtype=torch.float32, device=device)
    if supply_type == kind.Uniform:
        return values.uniform_(-1, 1).to(dtype)
    return values.normal_(-1 if supply_type == kind.Normal else 0, 1).to(dtype)


def _pairs(
    supply_type: TensorSupplyType, is_float: bool, shape: list[int], device: str
) -> torch.Tensor:
    """Bytes of two elements: any bits, or two zeros, or two ones (code 2 of E2M1)."""
    kind = TensorSupplyType
    if supply_type in (kind.Zero, kind.One):
        one = 0x22 if is_float else 0x11
        byte = one if supply_type == kind.One else 0
        return torch.full(shape, byte, dtype=torch.uint8, device=device)
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)


def _integers(param: KernelParam, shape: list[int], device: str) -> torch.Tensor:
    if param.is_boolean():
        low, high = 0, 2
    elif param.is_unsigned():
        low, high = 0, 3
    elif param.is_float8():
        low, high = -128, 128
    else:
        low, high = -2, 3
    drawn = torch.randint(low, high, shape, dtype=torch.int8, device=device)
    return drawn.to(param.torch_dtype())


def torch_assert_close(
    a: torch.Tensor,
    b: torch.Tensor,
    rtol: float = 1e-2,
    atol: float = 1e-3,
    max_mismatched_ratio: float = 0.001,
    verbose: bool = False,
    equal_nan: bool = True,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    base_name: str = "LHS",
    ref_name: str = "RHS",
) -> bool:
    """Asserts that `a` is close to the reference `b`, but for a share of `max_mismatched_ratio` of
    its elements.

    An element is close if ``abs(a - b) <= atol + rtol * abs(b)``. Raises `AssertionError` that
    names the differing attribute, or the count, the first and the greatest differences. Returns
    True.

    Example: ``torch_assert_close(kernel(x, y), x @ y)``
    """
    _assert_same("shape", a.shape, b.shape, base_name, ref_name)
    if check_device:
        _assert_same("device", a.device, b.device, base_name, ref_name)
    if check_dtype:
        _assert_same("dtype", a.dtype, b.dtype, base_name, ref_name)
    if check_layout:
        _assert_same("layout", a.layout, b.layout, base_name, ref_name)
    if check_stride:
        _assert_same("stride", a.stride(), b.stride(), base_name, ref_name)
    left, right = _comparable(a), _comparable(b.to(a.device))
    mismatched = ~torch.isclose(left, right, rtol=rtol, atol=atol, equal_nan=equal_nan)
    count, allowed = int(mismatched.sum()), int(a.numel() * max_mismatched_ratio)
    if verbose:
        print(f"{count} of {a.numel()} elements mismatched, {allowed} allowed")
    if count > allowed:
        differences = _describe_differences(left, right, mismatched)
        raise AssertionError(
            f"{base_name} and {ref_name} are not close with rtol={rtol}, atol={atol}: {count} of "
            f"{a.numel()} elements "
            f"({count / a.numel():.3%}) mismatched, {allowed} ({max_mismatched_ratio:.3%}) "
            "allowed.\n"
            f"{differences}\n{base_name}: {a}\n{ref_name}: {b}"
        )
    return True


def _assert_same(what: str, a: object, b: object, base_name: str, ref_name: str) -> None:
    if a != b:
        raise AssertionError(f"{what} differs: {base_name} has {a}, {ref_name} has {b}")


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in a dtype that holds its values exactly and that torch can subtract in."""
    return tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64)


def _describe_differences(a: torch.Tensor, b: torch.Tensor, mismatched: torch.Tensor) -> str:
    absolute = torch.where(mismatched, (a - b).abs(), 0)
    relative = absolute / b.abs()
    first = tuple(mismatched.nonzero()[0].tolist())
    return (
        f"First mismatch at index {first}: {a[first].item()} against {b[first].item()}, absolute "
        "difference "
        f"{absolute[first].item():.6g}, relative {relative[first].item():.6g}.\n"
        f"Greatest absolute difference {absolute.max().item():.6g}, greatest relative "
        f"{relative[mismatched].max().item():.6g}."
    )
