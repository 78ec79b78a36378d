"""Arrays of other libraries are arguments, by DLPack, at their own memory."""

import numpy as np
import pytest
import torch

from tilelang.engine.launch_plan import PointerParam, ScalarParam, TensorParam

M = ("var", "m")


@pytest.fixture
def add(kernels):
    """C = A + 1, of which nothing is known but that a kernel takes both."""
    params = (TensorParam("A", "float32", (M,)), TensorParam("C", "float32", (M,)))
    args = (("param", "A"), ("param", "C"), ("value", M, "int32"))
    return kernels.launcher(params, [("add", (("ceildiv", M, 128), 1, 1), args)])


def test_numpy_arrays_beside_tensors(add):
    a, c = np.arange(5, dtype=np.float32), torch.zeros(5)
    assert add(a, c) is None
    assert c.tolist() == [1, 2, 3, 4, 5]
    result = np.zeros(5, np.float32)
    add(c, result)
    assert result.tolist() == [2, 3, 4, 5, 6]


def test_checks_and_their_texts_are_the_same(add):
    a, c = np.zeros(6, np.float32), np.zeros(5, np.float32)
    for arguments in [(a, c), (torch.from_numpy(a), torch.from_numpy(c))]:
        with pytest.raises(ValueError, match=r"`C`: shape mismatch: expected 6 .* got 5"):
            add(*arguments)
    with pytest.raises(ValueError, match="non-contiguous"):
        add(a[::2], c[:3])
    with pytest.raises(ValueError, match="expected float32, got float64"):
        add(np.zeros(5), c)


def test_arrays_that_torch_cannot_take(add):
    with pytest.raises(TypeError, match=r"`A`: found numpy\.ndarray, which torch cannot"):
        add(np.zeros(5, ">f4"), np.zeros(5, np.float32))
    with pytest.raises(TypeError, match=r"take by DLPack \(negative strides\)\. Pass"):
        add(np.zeros(5, np.float32)[::-1], np.zeros(5, np.float32))
    with pytest.raises(TypeError, match=r"expected a torch.Tensor, got list"):
        add([1.0], np.zeros(1, np.float32))


def test_memory_that_is_read_only_is_not_written(add, kernels):
    a, c = np.zeros(5, np.float32), np.zeros(5, np.float32)
    c.flags.writeable = False
    before = kernels.calls()
    with pytest.raises(ValueError, match=r"`C`: found numpy\.ndarray, which is read-only"):
        add(a, c)
    assert (kernels.calls(), c.sum()) == (before, 0)


def test_memory_that_is_read_only_is_read(kernels):
    params = (TensorParam("A", "float32", (M,)), TensorParam("C", "float32", (M,)))
    args = (("param", "A"), ("param", "C"), ("value", M, "int32"))
    launcher = kernels.launcher(params, [("add", (1, 1, 1), args)], (1,), writes=("C",))
    a = np.ones(4, np.float32)
    a.flags.writeable = False
    assert launcher(a).tolist() == [2] * 4


def test_a_pointer_is_an_array_too(kernels):
    params = (TensorParam("out", "int64", (8,)), PointerParam("p", None), ScalarParam("n", "int32"))
    launch = [("record", (1, 1, 1), (("param", "out"), ("param", "p")))]
    out, array = torch.zeros(8, dtype=torch.int64), np.zeros(4, np.int16)
    kernels.launcher(params, launch)(out, array, np.int32(3))
    assert out[7] == array.ctypes.data


def test_cupy(add):
    cupy = pytest.importorskip("cupy")
    with pytest.raises(ValueError, match="device mismatch: expected cpu"):
        add(cupy.zeros(5, cupy.float32), np.zeros(5, np.float32))


def test_jax(kernels):
    jax = pytest.importorskip("jax")
    params = (TensorParam("A", "float32", (M,)), TensorParam("C", "float32", (M,)))
    args = (("param", "A"), ("param", "C"), ("value", M, "int32"))
    launcher = kernels.launcher(params, [("add", (1, 1, 1), args)], (1,), writes=("C",))
    a = jax.device_put(np.ones(4, np.float32), jax.devices("cpu")[0])
    assert launcher(a).tolist() == [2] * 4
