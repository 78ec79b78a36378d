import pytest
import torch

from tilelang.engine.param import KernelParam
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply, torch_assert_close


def generate(dtype, supply_type=TensorSupplyType.Auto):
    return get_tensor_supply(supply_type, "cpu")(KernelParam(dtype, (64, 32)))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("uint8", {0, 1, 2}),
        ("int8", {-2, -1, 0, 1, 2}),
        ("float64", {-2, -1, 0, 1, 2}),
        ("bool", {0, 1}),
    ],
)
def test_auto_gives_small_integers(dtype, values):
    found = generate(dtype)
    assert set(found.flatten().tolist()) == values
    assert str(found.dtype) == f"torch.{dtype}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_auto_gives_fractions(dtype):
    found = generate(dtype).double()
    assert found.abs().max() <= 1
    assert found.std() > 0.5
    assert set(generate(dtype, TensorSupplyType.Integer).flatten().tolist()) == {-2, -1, 0, 1, 2}


def test_float8_takes_the_range_of_int8():
    assert generate("float8_e4m3fn").double().abs().max() > 100


@pytest.mark.parametrize(
    ("supply_type", "mean"), [("Normal", -1), ("Randn", 0), ("Uniform", 0), ("Zero", 0), ("One", 1)]
)
def test_the_mean_of_each_supply(supply_type, mean):
    assert generate("float32", TensorSupplyType[supply_type]).mean().item() == pytest.approx(
        mean, abs=0.2
    )


def test_a_text_is_no_supply():
    """Each of them gave normal numbers, "zero" too."""
    with pytest.raises(TypeError, match=r"found 'zero' .* TensorSupplyType\.Zero"):
        get_tensor_supply("zero")


def test_int8_fractions_are_ones():
    assert generate("int8", TensorSupplyType.Uniform).unique().tolist() == [1]


def test_what_has_no_size_is_refused():
    supply = get_tensor_supply(device="cpu")
    with pytest.raises(ValueError, match=r"symbolic dimension `m`.*dynamic_symbolic_constraints"):
        supply(KernelParam("float32", ("m", 4)))
    assert supply(KernelParam("float32", ("m", 4)), {"m": 3}).shape == (3, 4)
    with pytest.raises(ValueError, match="scalar parameter of int32"):
        supply(KernelParam("int32", (), scalar=True))


def test_close_tensors_pass():
    a = torch.tensor([1.0, float("nan"), float("inf"), 0.0])
    assert torch_assert_close(a, a + 1e-4)


def test_a_share_of_mismatches_is_allowed():
    a = torch.zeros(1000)
    b = a.clone()
    b[7] = 1
    assert torch_assert_close(a, b, max_mismatched_ratio=0.001)
    b[8] = 3
    with pytest.raises(AssertionError) as caught:
        torch_assert_close(a, b, max_mismatched_ratio=0.001, base_name="kernel")
    for text in (
        "kernel and RHS",
        "2 of 1000 elements (0.200%) mismatched, 1 (0.100%) allowed",
        "index (7,): 0.0 against 1.0, absolute difference 1, relative 1",
        "Greatest absolute difference 3",
    ):
        assert text in str(caught.value)


def test_a_nan_against_a_number_is_a_mismatch():
    with pytest.raises(AssertionError, match="1 of 1 elements"):
        torch_assert_close(torch.tensor([float("nan")]), torch.tensor([0.0]))


@pytest.mark.parametrize(
    ("b", "what"),
    [
        (torch.zeros(4), "shape"),
        (torch.zeros(2, 2).half(), "dtype"),
        (torch.zeros(2, 2, device="meta"), "device"),
    ],
)
def test_differing_attributes_are_named(b, what):
    with pytest.raises(AssertionError, match=f"{what} differs"):
        torch_assert_close(torch.zeros(2, 2), b)


def test_strides_are_compared_on_demand():
    a = torch.zeros(2, 2)
    assert torch_assert_close(a, a.T)
    with pytest.raises(AssertionError, match="stride differs"):
        torch_assert_close(a, a.T, check_stride=True)
